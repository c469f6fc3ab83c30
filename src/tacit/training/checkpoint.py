"""Checkpoints: each party keeps its own shares on its own disk, so that a stopped job goes on.

A computing party's folder holds its shares after the last two looks, which say nothing about the
data without the folder of the other one. No key and no mask is kept: whoever goes on draws
fresh masks, and masks its shares anew. So steps that are done again, after a crash or because a
party wants them done again with other rows, show uniform words that have nothing to do with those
of the first time.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import final

import numpy as np
import torch
from torch import Tensor

from tacit.errors import InputError
from tacit.ring import Prg
from tacit.ring.prg import KEY_BYTES
from tacit.vault import Checkpoint

_START, _NOISE, _OPENED = "start.json", "noise.key", "opened"
ORDER = "order.key"
"""The key of the rows that are sampled."""
_SHARE = "share "
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


@final
class StateFolder:
    """The folder in which one party keeps its part of a training.

    Args:
        path: where it is; readable by its owner alone.
        binding: a hash of what a resumed run must have in common with the first: the job and
            this party's own data. A training that goes on with other data would be neither of both.
    """

    def __init__(self, path: Path, binding: str) -> None:
        self.path, self._kept = path, Checkpoint(path, binding)

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
        if binding == self._kept.binding and begun == work:
            return True
        if not self.steps():
            return False  # whatever it was, nothing of it is left to be lost
        what = (
            "another job or for other data"
            if binding != self._kept.binding
            else "other steps, weights, rows or another version of tacit"
        )
        raise InputError(
            f"{self.path} was begun with {what}, and holds its checkpoints; bring that back to go "
            "on, or start all parties with --fresh to discard them"
        )

    def begin(self, work: str, *, bound: float) -> None:
        """Begin the folder, or note that weights may be larger from now on."""
        self._kept.begin()
        start = {"binding": self._kept.binding, "work": work, "bound": bound}
        self._kept.note(_START, start)

    def attempts(self) -> dict[int, int]:
        """Return the steps after which there is a checkpoint, and the attempt that wrote each.

        Raises:
            DataError: one is damaged.
        """
        return {step: self.load(step).attempt for step in self.steps()}

    def save(self, checkpoint: ShareCheckpoint) -> None:
        """Write a checkpoint, whole or not at all, and remove those before the last two."""
        shares = {_SHARE + name: share.cpu().numpy() for name, share in checkpoint.shares.items()}
        shown = np.array(checkpoint.shown, dtype=np.float64).reshape(-1, 3)
        attempt = np.array(checkpoint.attempt, dtype=np.int64)
        self._kept.save(checkpoint.step, {**shares, "shown": shown, "attempt": attempt})

    def load(self, step: int) -> ShareCheckpoint:
        """Read a checkpoint.

        Raises:
            DataError: there is none, or it is damaged.
        """
        arrays = self._kept.load(step)
        shares = {
            name.removeprefix(_SHARE): torch.from_numpy(one)
            for name, one in arrays.items()
            if name.startswith(_SHARE)
        }
        shown = tuple((int(at), float(loss), float(right)) for at, loss, right in arrays["shown"])
        return ShareCheckpoint(
            step=step, attempt=int(arrays["attempt"]), shares=shares, shown=shown
        )

    def noise(self, *, is_new: bool) -> Prg:
        """Return the generator of my noise in this training, whose key is kept while it lasts.

        A step that is done again, from a checkpoint, has the noise that it had: it tells nothing
        that it did not tell the first time. Whoever reads the key knows what this party knows of
        the noise.

        Args:
            is_new: whether the training begins, so that whatever key is there belongs to another,
                or to a start of which something was opened and everything else is lost.
        """
        is_new = is_new or not self._kept.has(_NOISE)
        return Prg(self.keep_key(_NOISE, Prg.from_os().bytes(KEY_BYTES) if is_new else None))

    def keep_key(self, name: str, key: bytes | None) -> bytes:
        """Write a key down, or read the one that was, if None is given."""
        if key is not None:
            self._kept.write(name, key)
        return self._kept.read(name)

    def note_opening(self, step: int) -> None:
        """Write down, before it is done, that something is opened after a step."""
        self._kept.note(_OPENED, step)

    def opened(self) -> int:
        """Return the last step after which something was opened, or was about to be; 0 for none."""
        found = self._kept.noted(_OPENED)
        if found is not None and type(found) is not int:
            raise self._kept.damaged(_OPENED)
        return found or 0

    def steps(self) -> list[int]:
        """List the steps after which there is a checkpoint."""
        return self._kept.steps()

    def remove(self) -> None:
        """Remove everything, when a training has come to its end or is to begin afresh."""
        self._kept.remove()

    def _read_start(self) -> tuple[str, str, float] | None:
        """Read what the folder is bound to, what is done, and how large weights may be."""
        found = self._kept.noted(_START)
        if found is None:
            return None
        try:
            return str(found["binding"]), str(found["work"]), float(found["bound"])
        except (ValueError, KeyError, TypeError) as error:
            raise self._kept.damaged(_START) from error
