"""Checkpoints: each party keeps its own halves on its own disk, so that a stopped job goes on.

A party's folder holds the keys of the generators it shares with the others (a resumed run must
draw the same masks, or its halves would differ from those of a run that was never stopped) and
its halves after the last two looks. Nothing in it says anything about the data without the
folder of the other computing party.

Steps after the last checkpoint are done again under the masks they had. That shows nothing new only
if everything that is masked is the same to the bit, so a folder names the work it was begun for and
is refused for any other.
"""

import hashlib
import io
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from tacit.errors import DataError, InputError
from tacit.learn.arrays import open_arrays
from tacit.ring import KEY_BYTES

_KEYS = "keys.json"
_KEEP = 2


@dataclass(frozen=True, kw_only=True, eq=False)
class Checkpoint:
    """One party's halves after a number of steps, and what was shown until then."""

    step: int
    halves: Mapping[str, Tensor]
    shown: tuple[tuple[int, float, float], ...]


@dataclass(frozen=True)
class StateFolder:
    """The folder in which one party keeps its part of a training.

    Attributes:
        path: where it is; readable by its owner alone.
        binding: a hash of everything a resumed run must have in common with the first: the job
            and this party's own data. Masks are drawn again, so other data under the same masks
            would betray the difference.
    """

    path: Path
    binding: str

    def load_keys(self, work: str) -> dict[str, bytes] | None:
        """Return the keys shared with each peer, or None if nothing was started here.

        Args:
            work: a hash of what will be done under the masks that these keys give.

        Raises:
            InputError: the folder belongs to another job, to other data or to other work.
            DataError: it is damaged.
        """
        file = self.path / _KEYS
        if not file.exists():
            return None
        try:
            raw = json.loads(file.read_text(encoding="utf-8"))
            keys = {peer: bytes.fromhex(key) for peer, key in raw["keys"].items()}
            binding, begun = raw["binding"], raw.get("work")
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise DataError(f"{file} is damaged; remove {self.path} to start anew") from error
        if binding != self.binding:
            raise InputError(
                f"{self.path} was written by another job or for other data and is not used; "
                "remove it to start anew"
            )
        if begun != work:
            raise InputError(
                f"{self.path} was begun with other steps, weights, rows or another version of "
                "tacit; to go on under the same masks would betray the difference; remove the "
                "folders of all parties to start anew"
            )
        if any(len(key) != KEY_BYTES for key in keys.values()):
            raise DataError(f"{file} is damaged; remove {self.path} to start anew")
        return keys

    def save_keys(self, keys: Mapping[str, bytes], work: str) -> None:
        """Begin the folder."""
        shown = {peer: key.hex() for peer, key in keys.items()}
        text = json.dumps({"binding": self.binding, "work": work, "keys": shown})
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"cannot make {self.path}: {error.strerror}") from error
        found = self.path.stat()
        if found.st_uid != os.getuid() or found.st_mode & 0o022:
            raise InputError(
                f"{self.path} was there before and others can write to it; remove it: whoever put "
                "it there could read the keys"
            )
        self._write(_KEYS, text.encode())

    def steps(self) -> list[int]:
        """List the steps after which there is a checkpoint."""
        return sorted(int(path.stem.removeprefix("step-")) for path in self.path.glob("step-*.npz"))

    def save(self, checkpoint: Checkpoint) -> None:
        """Write a checkpoint, whole or not at all, and remove those before the last two."""
        arrays = {f"half {name}": half.cpu().numpy() for name, half in checkpoint.halves.items()}
        shown = np.array(checkpoint.shown, dtype=np.float64).reshape(-1, 3)
        content = io.BytesIO()
        arrays["shown"] = shown
        np.savez(content, allow_pickle=False, **arrays)
        payload = content.getvalue()
        digest = hashlib.sha256(self.binding.encode() + payload).digest()
        self._write(f"step-{checkpoint.step}.npz", digest + payload)
        for step in self.steps()[:-_KEEP]:
            (self.path / f"step-{step}.npz").unlink(missing_ok=True)

    def load(self, step: int) -> Checkpoint:
        """Read a checkpoint.

        Raises:
            DataError: there is none, or it is damaged.
        """
        file = self.path / f"step-{step}.npz"
        try:
            raw = file.read_bytes()
        except OSError as error:
            raise DataError(f"cannot read {file}: {error.strerror}") from error
        digest, payload = raw[:32], raw[32:]
        if hashlib.sha256(self.binding.encode() + payload).digest() != digest:
            raise DataError(f"{file} is damaged; remove {self.path} to start anew")
        with open_arrays(io.BytesIO(payload)) as arrays:
            halves = {
                name.removeprefix("half "): torch.from_numpy(arrays[name])
                for name in arrays.files
                if name.startswith("half ")
            }
            shown = tuple(
                (int(at), float(loss), float(right)) for at, loss, right in arrays["shown"]
            )
        return Checkpoint(step=step, halves=halves, shown=shown)

    def remove(self) -> None:
        """Remove everything, when a training has come to its end."""
        shutil.rmtree(self.path, ignore_errors=True)

    def _write(self, name: str, content: bytes) -> None:
        """Write a file that only its owner can read, whole or not at all."""
        target, part = self.path / name, self.path / f".{name}.part"
        try:
            part.unlink(missing_ok=True)  # of a start that was killed
            descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "wb") as stream:
                stream.write(content)
                stream.flush()
                os.fsync(stream.fileno())
            part.replace(target)
        except OSError as error:
            part.unlink(missing_ok=True)
            raise InputError(f"cannot write {target}: {error.strerror}") from error
