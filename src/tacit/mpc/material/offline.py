"""Material in files: the randomness of a row of runs, dealt once, and used once, without a dealer.

The first party's file holds a key, from which all of its part is drawn; the second party's holds
another key and the corrections. The dealer knows every mask: it must not pool what it knows with a
computing party, before or after.
"""

import hmac
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from glob import escape
from pathlib import Path
from tempfile import mkstemp
from typing import BinaryIO

from torch import Tensor

from tacit import ring
from tacit.crypto import derive
from tacit.disk import flush_folder, is_mine_alone, lock_open
from tacit.errors import DataError, InputError, TacitError
from tacit.mpc.material.dealer import step_stream
from tacit.mpc.material.randomness import correction_bytes, has_corrections
from tacit.mpc.material.supply import FromDealer
from tacit.mpc.narrow import WORD_BYTES
from tacit.mpc.plan import Plan
from tacit.party import Session
from tacit.ring import KEY_BYTES, Prg
from tacit.vault import Once, UsedError

_MAGIC = b"tacit material 2\n"
_FRESH, _USED = b"F", b"U"
_LENGTH_BYTES = 8
_HEADER_LIMIT = 1 << 16
_PART = ".part"
TAG_BYTES = 32
"""What every message of a dealer takes in a file beside its words."""


@dataclass(frozen=True, kw_only=True)
class MaterialFacts:
    """What is written over the material of one party.

    Attributes:
        identity: names the two files that belong together.
        party: whose file it is.
        plans: a digest of all that it was dealt for.
        about: facts that its user needs again, such as how many runs there are.
        body_bytes: what follows: 0 for the first party.
    """

    identity: str
    party: str
    plans: str
    about: str
    body_bytes: int


class MaterialWriter:
    """Writes what a dealer sends, message by message."""

    def __init__(self, file: BinaryIO, key: bytes, path: Path) -> None:
        self._file, self._key, self._path = file, key, path

    def add(self, label: str, words: Tensor) -> None:
        """Write the words of a message behind those before."""
        data = ring.to_bytes(words)
        try:
            self._file.write(data)
            self._file.write(_tag(self._key, label.encode(), data))
        except OSError as error:
            raise _unwritten(self._path, error) from error


@contextmanager
def write_material(path: Path, facts: MaterialFacts, key: bytes) -> Iterator[MaterialWriter]:
    """Make the file of one party; it has its name only when all of it is on the disk.

    Guarantee: the file is not encrypted. It can be read by its owner alone, and lies in a folder
    that only its owner can change.
    Cost: a few hundred bytes, and for the second party the dealer's bytes and `TAG_BYTES` for each
    of its messages.

    Raises:
        DataError: there is such a file, the disk is full, or others can change the folder.
    """
    check_new(path)
    part: Path | None = None
    try:
        _remove_leftovers(path)
        # A name that nobody else writes to: of two that deal into one file, one is refused.
        number, name = mkstemp(prefix=f"{path.name}.", suffix=_PART, dir=path.parent)
        part = Path(name)
        with os.fdopen(number, "wb") as file:
            # Who sweeps at this moment takes it for a leftover: then it gets no name in the end.
            lock_open(file.fileno())
            _write_head(file, facts, key)
            yield MaterialWriter(file, key, path)
            file.flush()
            os.fsync(file.fileno())
        os.link(part, path)  # unlike a rename, it takes nobody's place
        flush_folder(path.parent)
    except FileExistsError:
        raise DataError(f"{path} exists; choose another name") from None
    except OSError as error:
        raise _unwritten(path, error) from error
    finally:
        if part is not None:
            with suppress(OSError):
                part.unlink()


def check_new(path: Path) -> None:
    """Refuse a name that is taken, or a folder that others can change.

    Raises:
        DataError: says which.
    """
    _make_private(path.parent)
    try:
        is_taken = path.exists() or _mark_of(path).exists()
    except OSError as error:
        raise _unwritten(path, error) from error
    if is_taken:
        raise DataError(f"{path} exists, or was used; choose another name")


def head_bytes(facts: MaterialFacts) -> int:
    """Return how large a file is before its body."""
    key = bytes(KEY_BYTES)
    return len(_MAGIC) + 1 + _LENGTH_BYTES + len(_header(facts, key)) + TAG_BYTES


def body_bytes(plan: Plan) -> int:
    """Return what the second party's file takes for a run: the corrections, and their tags."""
    dealt = [step.needs for step in plan.steps if has_corrections(step.needs)]
    return sum(correction_bytes(needs) + TAG_BYTES for needs in dealt)


def store(session: Session, plan: Plan, *, run: int, writer: MaterialWriter) -> None:
    """Write what a dealer deals ahead for a run, as the second party."""
    source = FromDealer(session, plan.roles.dealer, run)
    for number, step in enumerate(plan.steps):
        if has_corrections(step.needs):
            words = source.correction(number, correction_bytes(step.needs) // WORD_BYTES)
            writer.add(f"{run}.{number}", words)


def material_key(shared: Prg, identity: str) -> bytes:
    """Draw the key of a file from the generator that its party and the dealer share."""
    return shared.fork(f"material {identity}").bytes(KEY_BYTES)


@dataclass(eq=False)
class Material:
    """A file that is open, and locked; made by `open_material`. Nothing is taken before `begin`."""

    facts: MaterialFacts
    _path: Path
    _file: BinaryIO = field(repr=False)
    _key: bytes = field(repr=False)
    _head_bytes: int
    _is_begun: bool = False
    _last_run: int = -1

    @property
    def path(self) -> Path:
        """Return where it lies."""
        return self._path

    def begin(self) -> None:
        """Mark the file as used, and overwrite its key, on the disk; from now on it is refused.

        Raises:
            DataError: another process was faster.
        """
        _mark_used(self._file, self._path, self._head_bytes)
        self._file.seek(self._head_bytes)
        self._is_begun = True

    def run(self, number: int) -> "FromFile":
        """Return where the material of a run comes from; runs come in order and never twice."""
        if not self._is_begun or number <= self._last_run:
            raise TacitError(f"material of run {number} was used already; masks are used once")
        self._last_run = number
        return FromFile(self, number)

    def stream(self, run: int, step: int) -> Prg:
        """Return the generator of my part of a step."""
        return step_stream(Prg(self._key), run, step)

    def own(self, label: str) -> Prg:
        """Return a generator for something else that the dealer draws alike."""
        return Prg(self._key).fork(label)

    def read(self, label: str, count: int) -> Tensor:
        """Read the words of the next message, and check them."""
        data = bytearray(WORD_BYTES * count)
        if self._file.readinto(data) != len(data):  # type: ignore[attr-defined]
            raise DataError(f"{self._path} ends before the material {label}; have it dealt anew")
        tag = self._file.read(TAG_BYTES)
        if not hmac.compare_digest(tag, _tag(self._key, label.encode(), data)):
            raise DataError(f"{self._path}: the material {label} is damaged; have it dealt anew")
        return ring.from_bytes(data, "i64", (count,))


@dataclass(frozen=True)
class FromFile:
    """The material of one run, out of a file."""

    material: Material
    number: int

    def stream(self, step: int) -> Prg:
        """Return the generator of my part of a step."""
        return self.material.stream(self.number, step)

    def correction(self, step: int, count: int) -> Tensor:
        """Read the words for a step, and check them."""
        return self.material.read(f"{self.number}.{step}", count)


@contextmanager
def open_material(path: Path, *, me: str) -> Iterator[Material]:
    """Open a file that was dealt, to use it now, once.

    Before anything is taken from it, `Material.begin` marks it as used and overwrites its key on
    the disk, so that it is refused afterwards even if the session breaks off; a mask that was used
    twice would show the difference of two secrets. In the end the rest is cut off. Of two processes
    that open it at once, by whatever name, one is refused. What cannot be noticed is a copy of the
    file; but the other party's file is marked too, by that party.

    Raises:
        DataError: no such file, readable by others, damaged, used already or of another party.
    """
    try:
        path = path.resolve()  # the mark stands beside the file itself, not beside a link to it
        file = path.open("r+b")
    except (OSError, RuntimeError) as error:  # RuntimeError: links in a circle
        why = getattr(error, "strerror", None) or error
        raise DataError(f"cannot open {path}: {why}") from error
    with file:
        if os.fstat(file.fileno()).st_mode & 0o077:
            raise DataError(
                f"{path} can be read by others, and whoever has read it can read what it masks: "
                f"have it dealt anew, or, if you are sure that nobody has, run: chmod 600 {path}"
            )
        _lock(file, path)
        material = _read(file, path, me)
        try:
            yield material
        finally:
            if material._is_begun:
                # Not from where the file stands: a thread may read ahead in it.
                file.truncate(len(_MAGIC) + 1)
                os.fsync(file.fileno())


def _read(file: BinaryIO, path: Path, me: str) -> Material:
    if file.read(len(_MAGIC)) != _MAGIC:
        raise DataError(f"{path} holds no material of this version of tacit")
    if file.read(1) != _FRESH or _mark_of(path).exists():
        raise DataError(f"{path} was used already; masks are used once, so have new material dealt")
    facts, key = _read_head(file, path)
    if facts.party != me:
        raise DataError(f"{path} is the material of {facts.party!r}, not of {me!r}")
    head = file.tell()
    size, wanted = os.fstat(file.fileno()).st_size, head + facts.body_bytes
    if size != wanted:
        raise DataError(
            f"{path} has {size} bytes, wanted {wanted}: it is damaged; have it dealt anew"
        )
    return Material(facts, path, file, key, head)


def _read_head(file: BinaryIO, path: Path) -> tuple[MaterialFacts, bytes]:
    length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
    header = file.read(min(length, _HEADER_LIMIT))
    tag = file.read(TAG_BYTES)
    try:
        raw = json.loads(header)
        key = bytes.fromhex(raw.pop("key"))
        if not hmac.compare_digest(tag, _tag(key, b"header", header)):
            raise ValueError("another tag")
        facts = MaterialFacts(**raw)
        if [type(one) for one in vars(facts).values()] != [str, str, str, str, int]:
            raise ValueError("other facts")
        return facts, key
    except (ValueError, KeyError, AttributeError, TypeError, InputError):
        text = f"{path}: the header is damaged; have the material dealt anew"
        raise DataError(text) from None


def _header(facts: MaterialFacts, key: bytes) -> bytes:
    return json.dumps({**vars(facts), "key": key.hex()}).encode()


def _write_head(file: BinaryIO, facts: MaterialFacts, key: bytes) -> None:
    header = _header(facts, key)
    file.write(_MAGIC + _FRESH + len(header).to_bytes(_LENGTH_BYTES, "little") + header)
    file.write(_tag(key, b"header", header))


def _tag(key: bytes, label: bytes, data: bytes | bytearray | memoryview) -> bytes:
    mac = hmac.new(derive(key, context=b"tacit material tag"), label + b"\0", "sha256")
    mac.update(data)
    return mac.digest()


def _make_private(folder: Path) -> None:
    """Make a folder that its owner alone can read, or see to it that nobody else can change it."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        is_private = is_mine_alone(folder)
    except OSError as error:
        raise DataError(f"cannot make {folder}: {error.strerror}") from error
    if not is_private:
        raise DataError(
            f"others can put files of their own into {folder}; choose a folder of yours alone, or "
            f"run: chmod 700 {folder}"
        )


def _remove_leftovers(path: Path) -> None:
    """Remove what is left of dealings that were cut off; others are locked by who writes them."""
    for part in path.parent.glob(f"{escape(path.name)}.*{_PART}"):
        with suppress(OSError), part.open("r+b") as file:
            if lock_open(file.fileno()):
                part.unlink()


def _unwritten(path: Path, error: OSError) -> DataError:
    return DataError(f"cannot write {path}: {error.strerror}; nothing of it is kept")


def _lock(file: BinaryIO, path: Path) -> None:
    """Keep others out who have the same file open, under this name or another."""
    try:
        is_mine = lock_open(file.fileno())
    except OSError as error:
        raise DataError(f"cannot lock {path}: {error.strerror}") from error
    if not is_mine:
        raise DataError(f"{path} is in use; masks are used once")


def _mark_of(path: Path) -> Path:
    return path.with_name(path.name + ".used")


def _mark_used(file: BinaryIO, path: Path, body: int) -> None:
    """Write on the disk that the file is used, and overwrite its key, which ends before ``body``.

    Two processes cannot both be the first.
    """
    try:
        # The mark first: it stays whatever happens to the file at the same time.
        Once(_mark_of(path), "material").use(path.name)
        file.seek(len(_MAGIC))
        file.write(_USED + bytes(body - len(_MAGIC) - len(_USED)))
        file.flush()
        os.fsync(file.fileno())
    except UsedError:
        raise DataError(f"{path} was used already; masks are used once") from None
    except (InputError, OSError) as error:
        why = getattr(error, "strerror", None) or error
        raise DataError(f"cannot mark {path} as used, so it is not: {why}") from error
