"""Checkpoints: each party keeps its own shares on its own disk, so that a stopped job goes on.

A computing party's folder holds its shares after the last two looks, which say nothing about the
data without the folder of the other one. No key and no mask is kept: whoever goes on draws
fresh masks, and masks its shares anew. So steps that are done again, after a crash or because a
party wants them done again with other rows, show uniform words that have nothing to do with those
of the first time.
"""

import hashlib
import io
import json
import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from tacit.disk import DurableFile, make_durable, write_durable
from tacit.errors import DataError, InputError
from tacit.files import open_arrays
from tacit.ring import Prg
from tacit.ring.prg import KEY_BYTES

KEEP = 2
"""A party can be one look ahead of the other, so the last but one is what both have."""
_START, _NOISE, _OPENED = "start.json", "noise.key", "opened"
ORDER = "order.key"
"""The key of the rows that are sampled."""
_KEY = "share "
"""Before the names of arrays that are shares."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ShareCheckpoint:
    """One party's shares after a number of steps, and what was shown until then.

    ``attempt`` is a random number that both computing parties drew when they last (re)started:
    shares of different attempts do not add up to anything.
    """

    step: int
    attempt: int
    shares: Mapping[str, Tensor]
    shown: tuple[tuple[int, float, float], ...]


@dataclass(frozen=True)
class StateFolder:
    """The folder in which one party keeps its part of a training.

    Attributes:
        path: where it is; readable by its owner alone.
        binding: a hash of what a resumed run must have in common with the first: the job and
            this party's own data. A training that goes on with other data would be neither of both.
    """

    path: Path
    binding: str

    def bound(self) -> float | None:
        """Return how large weights could be so far; None if no training was begun here.

        Raises:
            DataError: the folder is damaged.
        """
        start = self._read_start()
        return None if start is None else start[2]

    def is_begun(self, work: str) -> bool:
        """Tell whether this training was begun here; one that left no checkpoint does not count.

        Args:
            work: a hash of what will be done.

        Raises:
            InputError: there are checkpoints of another job, of other data or of other work.
            DataError: the folder is damaged.
        """
        start = self._read_start()
        if start is None:
            return False
        binding, begun, _ = start
        if binding == self.binding and begun == work:
            return True
        if not self.steps():
            return False  # whatever it was, nothing of it is left to be lost
        what = (
            "another job or for other data"
            if binding != self.binding
            else "other steps, weights, rows or another version of tacit"
        )
        raise InputError(
            f"{self.path} was begun with {what}, and holds its checkpoints; bring that back to go "
            "on, or start all parties with --fresh to discard them"
        )

    def begin(self, work: str, *, bound: float) -> None:
        """Begin the folder, or note that weights may be larger from now on."""
        make_durable(self.path)
        found = self.path.stat()
        if found.st_uid != os.getuid() or found.st_mode & 0o022:
            raise InputError(
                f"{self.path} was there before and others can write to it; remove it: whoever put "
                "it there could put other shares in it"
            )
        start = {"binding": self.binding, "work": work, "bound": bound}
        self._write(_START, json.dumps(start).encode())

    def attempts(self) -> dict[int, int]:
        """Return the steps after which there is a checkpoint, and the attempt that wrote each.

        Raises:
            DataError: one is damaged.
        """
        return {step: self.load(step).attempt for step in self.steps()}

    def steps(self) -> list[int]:
        """List the steps after which there is a checkpoint."""
        return sorted(int(path.stem.removeprefix("step-")) for path in self.path.glob("step-*.npz"))

    def save(self, checkpoint: ShareCheckpoint) -> None:
        """Write a checkpoint, whole or not at all, and remove those before the last two."""
        arrays = {_KEY + name: share.cpu().numpy() for name, share in checkpoint.shares.items()}
        shown = np.array(checkpoint.shown, dtype=np.float64).reshape(-1, 3)
        content = io.BytesIO()
        arrays |= {"shown": shown, "attempt": np.array(checkpoint.attempt, dtype=np.int64)}
        np.savez(content, allow_pickle=False, **arrays)
        payload = content.getvalue()
        digest = hashlib.sha256(self.binding.encode() + payload).digest()
        self._write(f"step-{checkpoint.step}.npz", digest + payload)
        for step in self.steps()[:-KEEP]:
            (self.path / f"step-{step}.npz").unlink(missing_ok=True)

    def load(self, step: int) -> ShareCheckpoint:
        """Read a checkpoint.

        Raises:
            DataError: there is none, or it is damaged.
        """
        file = self.path / f"step-{step}.npz"
        raw = self._read(file.name)
        digest, payload = raw[:32], raw[32:]
        if hashlib.sha256(self.binding.encode() + payload).digest() != digest:
            raise DataError(f"{file} is damaged; start all parties with --fresh")
        with open_arrays(io.BytesIO(payload)) as arrays:
            shares = {
                name.removeprefix(_KEY): torch.from_numpy(arrays[name])
                for name in arrays.files
                if name.startswith(_KEY)
            }
            shown = tuple(
                (int(at), float(loss), float(right)) for at, loss, right in arrays["shown"]
            )
            attempt = int(arrays["attempt"])
        return ShareCheckpoint(step=step, attempt=attempt, shares=shares, shown=shown)

    def noise(self, *, is_new: bool) -> Prg:
        """Return the generator of my noise in this training, whose key is kept while it lasts.

        A step that is done again, from a checkpoint, has the noise that it had: it tells nothing
        that it did not tell the first time. Whoever reads the key knows what this party knows of
        the noise.

        Args:
            is_new: whether the training begins, so that whatever key is there belongs to another,
                or to a start of which something was opened and everything else is lost.
        """
        is_new = is_new or not (self.path / _NOISE).exists()
        return Prg(self.keep_key(_NOISE, Prg.from_os().bytes(KEY_BYTES) if is_new else None))

    def keep_key(self, name: str, key: bytes | None) -> bytes:
        """Write a key down, or read the one that was, if None is given."""
        if key is not None:
            self._write(name, key)
        return self._read(name)

    def note_opening(self, step: int) -> None:
        """Write down, before it is done, that something is opened after a step."""
        self._write(_OPENED, str(step).encode())

    def opened(self) -> int:
        """Return the last step after which something was opened, or was about to be; 0 for none."""
        file = self.path / _OPENED
        try:
            return int(self._read(_OPENED)) if file.exists() else 0
        except ValueError as error:
            raise DataError(f"{file} is damaged; start all parties with --fresh") from error

    def remove(self) -> None:
        """Remove everything, when a training has come to its end or is to begin afresh."""
        shutil.rmtree(self.path, ignore_errors=True)

    def _read_start(self) -> tuple[str, str, float] | None:
        """Read what the folder is bound to, what is done, and how large weights may be."""
        file = self.path / _START
        if not file.exists():
            return None
        try:
            raw = json.loads(self._read(_START))
            return str(raw["binding"]), str(raw["work"]), float(raw["bound"])
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(f"{file} is damaged; start all parties with --fresh") from error

    def _read(self, name: str) -> bytes:
        """Read a file that must be there, and be one: the folder may be somebody else's making."""
        content = DurableFile(self.path / name).read(most=sys.maxsize)
        if content is None:
            raise DataError(f"cannot read {self.path / name}: no such file")
        return content

    def _write(self, name: str, content: bytes) -> None:
        write_durable(self.path / name, content)
