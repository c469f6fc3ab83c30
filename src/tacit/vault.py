"""What a party must still know after a crash, in three forms of one store.

`Once` holds names that are used once, `Counter` how often a name was used, up to a most,
`Checkpoint` the last steps of a work. What is written is on the disk when the call returns
(`tacit.disk`), so whoever writes first and shows afterwards shows nothing twice, whenever killed.
"""

import hashlib
import io
import json
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, final

import numpy as np
import numpy.typing as npt

from tacit.disk import DurableFile, durable, is_mine_alone, make_durable, write_durable
from tacit.errors import DataError, InputError
from tacit.files import open_arrays

KEPT = 2
"""Of which steps there is a checkpoint: a party can be one ahead, so the last but one is common."""
_DIGEST_BYTES = 32

Arrays = Mapping[str, npt.NDArray[Any]]  # Any: whatever a work is made of


class UsedError(InputError):
    """A name was used as often as it may be.

    Args:
        left: how often it may still be used.
    """

    def __init__(self, name: str, left: int = 0) -> None:
        super().__init__(f"{name} was used as often as it may be: {left} are left")
        self.left = left


@contextmanager
def entries(path: Path, kind: str) -> Iterator[dict[str, Any]]:
    """Hold the entries of a file alone; what a block changes is on the disk when it has ended.

    Args:
        path: the file; all names that symbolic links give it are one file.
        kind: whose entries they are: a file of another kind is refused.

    Guarantee: of any number of threads and processes of one machine, one is in the block. A block
        that raises changes nothing.
    Cost: a write of the whole file.

    Raises:
        DataError: the file is damaged, of another kind, or of another version.
        InputError: it cannot be read or written.
    """
    with durable(path) as file:
        found = read_entries(file, kind)
        before = json.dumps(found)
        yield found
        if json.dumps(found) != before:
            file.write(pack_entries(found, kind))


def pack_entries(found: Mapping[str, object], kind: str) -> bytes:
    """Return the content of a file of entries."""
    return json.dumps({f"tacit {kind}": found}).encode()


def read_entries(file: DurableFile, kind: str) -> dict[str, Any]:
    """Read the entries of a file, as `entries` does, without holding it."""
    content = file.read()
    if content is None:
        return {}
    try:
        found = json.loads(content)[f"tacit {kind}"]
        if not isinstance(found, dict):
            raise TypeError
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise DataError(
            f"{file.path} is damaged, or no {kind} of this version of tacit: what was spent is "
            "not known; put back a copy, for without it all of that is forgotten"
        ) from error
    return found


@final
class Once:
    """Names that are used once, whatever process asks.

    Guarantee: of any number of threads and processes of one machine, one may use a name, and the
        rest are refused; what was used stays used if a process ends or power is cut.
    Cost: a write of the whole file for every name.
    """

    def __init__(self, path: Path, kind: str) -> None:
        self._path, self._kind = path, kind

    def use(self, name: str) -> None:
        """Use a name.

        Raises:
            UsedError: it was used before.
            InputError: the file cannot be read or written.
        """
        with self.held() as used:
            if name in used:
                raise UsedError(name)
            used.add(name)

    @contextmanager
    def held(self) -> Iterator[set[str]]:
        """Hold the names alone; those that are added are used when the block has ended."""
        with entries(self._path, self._kind) as found:
            names = set(found)
            yield names
            found.update(dict.fromkeys(sorted(names - found.keys()), 1))


@final
class Counter:
    """How often names were used, up to a most.

    Guarantee: as `Once`, so often.
    """

    def __init__(self, path: Path, kind: str, *, most: int) -> None:
        self._path, self._kind, self._most = path, kind, most

    def use(self, name: str, times: int = 1) -> None:
        """Use a name so often.

        Raises:
            UsedError: it may not be used so often any more; nothing is counted.
            InputError: the file cannot be read or written.
        """
        with entries(self._path, self._kind) as found:
            if any(type(one) is not int or one < 0 for one in found.values()):
                raise DataError(f"{self._path} is damaged: wanted whole numbers, 0 or more")
            left = max(0, self._most - found.get(name, 0))
            if times > left:
                raise UsedError(name, left)
            found[name] = found.get(name, 0) + times


@final
class Checkpoint:
    """The last steps of a work in a folder that its owner alone can read, and what goes with them.

    Attributes:
        path: where it is.
        binding: a hash of what whoever goes on must have in common with who wrote.

    Guarantee: what is written is there whole or not at all, and what was written under another
        binding, or changed, is not read. It is not encrypted.
    Cost: a write of the arrays for every step, and two flushes.
    """

    def __init__(self, path: Path, binding: str = "") -> None:
        self.path, self.binding = path, binding

    def begin(self) -> None:
        """Make the folder.

        Raises:
            InputError: it cannot be made, or somebody else may have put something there.
        """
        make_durable(self.path)
        if not is_mine_alone(self.path):
            raise InputError(
                f"{self.path} was there before and others can write to it; remove it: whoever put "
                "it there could put other shares in it"
            )

    def steps(self) -> list[int]:
        """List the steps after which there is a checkpoint."""
        names = (path.stem.removeprefix("step-") for path in self.path.glob("step-*.npz"))
        return sorted(int(name) for name in names if name.isdigit())

    def save(self, step: int, arrays: Arrays) -> None:
        """Write a step, and remove those before the last two.

        Raises:
            InputError: it cannot be written; those before stay.
        """
        make_durable(self.path)
        content = pack_arrays(arrays)
        self.write(f"step-{step}.npz", self._digest(content) + content)
        for old in self.steps()[:-KEPT]:
            (self.path / f"step-{old}.npz").unlink(missing_ok=True)

    def load(self, step: int) -> dict[str, npt.NDArray[Any]]:
        """Read a step.

        Raises:
            DataError: there is none, it is damaged, or of another binding.
        """
        file = self.path / f"step-{step}.npz"
        raw = self.read(file.name)
        digest, content = raw[:_DIGEST_BYTES], raw[_DIGEST_BYTES:]
        if self._digest(content) != digest:
            raise self.damaged(file.name)
        with open_arrays(io.BytesIO(content)) as arrays:
            return {name: arrays[name] for name in arrays.files}

    def write(self, name: str, content: bytes) -> None:
        """Write a file beside the steps.

        Raises:
            InputError: it cannot be written; what was there before stays.
        """
        write_durable(self.path / name, content)

    def has(self, name: str) -> bool:
        """Tell whether there is a file beside the steps."""
        return (self.path / name).exists()

    def read(self, name: str) -> bytes:
        """Read a file that must be there, and be one: the folder may be somebody else's making.

        Raises:
            InputError: it is not there, or no file.
        """
        content = DurableFile(self.path / name).read(most=sys.maxsize)
        if content is None:
            raise DataError(f"cannot read {self.path / name}: no such file")
        return content

    def note(self, name: str, value: object) -> None:
        """Write a value of JSON beside the steps."""
        self.write(name, json.dumps(value).encode())

    def noted(self, name: str) -> Any:  # whatever the work has noted
        """Read a value that was noted; None if there is none.

        Raises:
            DataError: it is damaged.
        """
        if not self.has(name):
            return None
        raw = self.read(name)
        try:
            return json.loads(raw)
        except (ValueError, RecursionError) as error:
            raise self.damaged(name) from error

    def damaged(self, name: str) -> DataError:
        """Say that a file cannot be gone on from."""
        return DataError(f"{self.path / name} is damaged; start all parties with --fresh")

    def remove(self) -> None:
        """Remove everything, when a work has come to its end or is to begin afresh."""
        shutil.rmtree(self.path, ignore_errors=True)

    def _digest(self, content: bytes) -> bytes:
        return hashlib.sha256(self.binding.encode() + content).digest()


def pack_arrays(arrays: Arrays) -> bytes:
    """Return arrays as the bytes of an npz file: no pickle."""
    content = io.BytesIO()
    # NumPy's stubs would take the names for its options.
    options: dict[str, Any] = dict(arrays)
    np.savez(content, **options)
    return content.getvalue()
