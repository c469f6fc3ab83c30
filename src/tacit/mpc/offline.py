"""Material in files: a plan's randomness made once, and used once, later, without a dealer.

The first party's file holds a key, from which all of its part is drawn; the second party's holds
another key and the corrections. Whoever makes the files knows every mask and takes the place of
the dealer: it must not pool what it knows with a computing party.
"""

import fcntl
import hashlib
import hmac
import json
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import torch
from torch import Tensor

from tacit import ring
from tacit.crypto import derive
from tacit.errors import ConfigError, DataError, DisagreementError, InputError
from tacit.mpc.dealer import Maker
from tacit.mpc.plan import Plan, correction_bytes, has_corrections
from tacit.mpc.protocols import find_protocol
from tacit.mpc.share import OpeningSpec
from tacit.party import Session
from tacit.ring import Prg

_MAGIC = b"tacit material 1\n"
_FRESH, _USED = b"F", b"U"
_KEY_BYTES = 16
_TAG_BYTES = 32
_LENGTH_BYTES = 8
_HEADER_LIMIT = 1 << 16


def prepare_material(
    plan: Plan,
    folder: Path,
    *,
    device: torch.device | str = "cpu",
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> dict[str, Path]:
    """Write the material of a plan into one file per computing party.

    Guarantee: as that of `deal`, for whoever runs this in the dealer's place. A file is not
    encrypted: it can be read by its owner alone, in a folder that only its owner can change, and
    must reach its party by a way that nobody else can read or change.
    Cost: the first party's file has a few hundred bytes, the second party's the dealer's bytes
    of the plan; memory for one step at a time.

    Raises:
        ConfigError: the protocol has its third party online anyway, or the plan builds on an
            earlier run of a session.
        DataError: the folder cannot be made, or others can change it.
    """
    # Plans of jobs and chats depend on what the parties tell each other, and all but the first
    # pass of a chat on what was opened before it: there is no job that could use such files.
    text = "prepare_material goes with the next release: no job and no chat can use its files"
    warnings.warn(text, DeprecationWarning, stacklevel=2)
    if find_protocol(plan.protocol).helper_is_online:
        raise ConfigError(
            f"{plan.protocol} needs its third party while it computes; let it deal, too: material "
            "can be prepared for protocols with an offline dealer only"
        )
    if find_protocol(plan.protocol).is_checked:
        raise ConfigError("material with tags cannot be prepared in files; let a dealer deal it")
    masks = [one for step in plan.steps for one in step.operands if isinstance(one, OpeningSpec)]
    if any(one.mask.run is not None for one in masks):
        raise ConfigError("material cannot be prepared for weights that an earlier run has opened")
    _make_private(folder)
    identity = os.urandom(_KEY_BYTES).hex()
    keys = {name: os.urandom(_KEY_BYTES) for name in plan.roles.computing}
    maker = Maker(
        lambda peer, step, past: _stream(keys[peer], step), plan, device=torch.device(device)
    )
    paths = {name: folder / f"{name}.material" for name in plan.roles.computing}
    steps = maker.steps()
    with _create(paths[plan.roles.first]) as file:
        _write_head(file, plan, plan.roles.first, identity, keys[plan.roles.first])
    with _create(paths[plan.roles.second]) as file:
        key = keys[plan.roles.second]
        _write_head(file, plan, plan.roles.second, identity, key)
        for done, step in enumerate(steps):
            progress(done, len(steps))
            _write_chunk(file, key, step, maker.correction(step))
    progress(len(steps), len(steps))
    return paths


def _stream(key: bytes, step: int) -> Prg:
    return Prg(key).fork(f"material {step}")


def _make_private(folder: Path) -> None:
    """Make a folder that its owner alone can read, or see to it that nobody else can change it."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.stat()
    except OSError as error:
        raise DataError(f"cannot make {folder}: {error.strerror}") from error
    if found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise DataError(
            f"others can put files of their own into {folder}; choose a folder of yours alone, or "
            f"run: chmod 700 {folder}"
        )


@contextmanager
def _create(path: Path) -> Iterator[BinaryIO]:
    """Make a new file that only its owner can read, and see to it that it is on the disk."""
    try:
        number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise DataError(f"{path} exists; move it away or choose another folder") from None
    except OSError as error:
        raise DataError(f"cannot write {path}: {error.strerror}") from error
    with os.fdopen(number, "wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


def _write_head(file: BinaryIO, plan: Plan, party: str, identity: str, key: bytes) -> None:
    facts = {"identity": identity, "party": party, "plan": plan.digest().hex(), "key": key.hex()}
    header = json.dumps(facts).encode()
    file.write(_MAGIC + _FRESH + len(header).to_bytes(_LENGTH_BYTES, "little") + header)
    file.write(_tag(key, b"header", header))


def _write_chunk(file: BinaryIO, key: bytes, step: int, words: Tensor) -> None:
    data = ring.to_bytes(words)
    file.write(data)
    file.write(_tag(key, f"step {step}".encode(), data))


def _tag(key: bytes, label: bytes, data: bytes | bytearray | memoryview) -> bytes:
    mac = hmac.new(derive(key, context=b"tacit material tag"), label + b"\0", "sha256")
    mac.update(data)
    return mac.digest()


@dataclass(eq=False)
class FromFile:
    """A file that is being used up; made by `open_material`."""

    identity: str
    _path: Path
    _file: BinaryIO = field(repr=False)
    _key: bytes = field(repr=False)

    def stream(self, step: int) -> Prg:
        """Return the generator of my part of a step."""
        return _stream(self._key, step)

    def correction(self, step: int, count: int) -> Tensor:
        """Read the words for a step, and check them."""
        data = bytearray(8 * count)
        if self._file.readinto(data) != len(data):  # type: ignore[attr-defined]
            raise DataError(f"{self._path} ends before the material of step {step}; make it anew")
        tag = self._file.read(_TAG_BYTES)
        if not hmac.compare_digest(tag, _tag(self._key, f"step {step}".encode(), data)):
            raise DataError(f"{self._path}: the material of step {step} is damaged; make it anew")
        return ring.from_bytes(data, "i64", (count,))


@contextmanager
def open_material(path: Path, plan: Plan, *, me: str) -> Iterator[FromFile]:
    """Use a file of `prepare_material`: now, once, for this plan.

    The file is marked as used, and its key overwritten, on the disk before anything is taken from
    it, so that it is refused afterwards even if this run breaks off; a mask that was used twice
    would show the difference of two secrets. In the end the rest is cut off. Of two processes that
    open it at once, by whatever name, one is refused. What cannot be noticed is a copy of the file.

    Raises:
        DataError: no such file, readable by others, damaged, used already, of another party or for
            another plan.
    """
    try:
        path = path.resolve()  # the mark stands beside the file itself, not beside a link to it
        file = path.open("r+b")
    except OSError as error:
        raise DataError(f"cannot open {path}: {error.strerror}") from error
    with file:
        if os.fstat(file.fileno()).st_mode & 0o077:
            raise DataError(
                f"{path} can be read by others, and whoever has read it can read what it masks: "
                f"make it anew, or, if you are sure that nobody has, run: chmod 600 {path}"
            )
        _lock(file, path)
        source = _begin(file, path, plan, me)
        try:
            yield source
        finally:
            file.seek(len(_MAGIC) + 1)
            file.truncate()
            os.fsync(file.fileno())


def _begin(file: BinaryIO, path: Path, plan: Plan, me: str) -> FromFile:
    if file.read(len(_MAGIC)) != _MAGIC:
        raise DataError(f"{path} holds no material of this version of tacit")
    state = file.read(1)
    if state != _FRESH:
        raise DataError(f"{path} was used already; masks are used once, so make new material")
    facts = _read_head(file, path)
    if facts["party"] != me:
        raise DataError(f"{path} is the material of {facts['party']!r}, not of {me!r}")
    if facts["plan"] != plan.digest().hex():
        raise DataError(
            f"{path} was made for plan {facts['plan'][:16]}…, this is {plan.digest().hex()[:16]}…; "
            "make it anew for this program, these sizes and this version of tacit"
        )
    body = file.tell()
    _check_size(file, path, body + _body_bytes(plan, me))
    _mark_used(file, path, body)
    file.seek(body)
    return FromFile(facts["identity"], path, file, bytes.fromhex(facts["key"]))


def _body_bytes(plan: Plan, me: str) -> int:
    if me == plan.roles.first:
        return 0
    dealt = [step.needs for step in plan.steps if has_corrections(step.needs)]
    return sum(correction_bytes(needs) + _TAG_BYTES for needs in dealt)


def _check_size(file: BinaryIO, path: Path, wanted: int) -> None:
    size = os.fstat(file.fileno()).st_size
    if size != wanted:
        raise DataError(f"{path} has {size} bytes, wanted {wanted}: it is damaged; make it anew")


def _lock(file: BinaryIO, path: Path) -> None:
    """Keep others out who have the same file open, under this name or another."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise DataError(f"{path} is in use; masks are used once") from None
    except OSError as error:
        raise DataError(f"cannot lock {path}: {error.strerror}") from error


def _mark_used(file: BinaryIO, path: Path, body: int) -> None:
    """Write on the disk that the file is used, and overwrite its key, which ends before ``body``.

    Two processes cannot both be the first.
    """
    try:
        # The name can be made only once, whatever happens to the file at the same time.
        os.close(os.open(path.with_name(path.name + ".used"), os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        raise DataError(f"{path} was used already; masks are used once") from None
    file.seek(len(_MAGIC))
    file.write(_USED + bytes(body - len(_MAGIC) - len(_USED)))
    file.flush()
    os.fsync(file.fileno())
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _read_head(file: BinaryIO, path: Path) -> dict[str, str]:
    length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
    header = file.read(min(length, _HEADER_LIMIT))
    tag = file.read(_TAG_BYTES)
    try:
        facts = {name: str(value) for name, value in json.loads(header).items()}
        is_whole = hmac.compare_digest(tag, _tag(bytes.fromhex(facts["key"]), b"header", header))
    except (ValueError, KeyError, AttributeError, InputError):
        is_whole, facts = False, {}
    if not is_whole:
        raise DataError(f"{path}: the header is damaged; make the material anew")
    return facts


def agree_on_material(session: Session, plan: Plan, source: FromFile) -> None:
    """Make sure that both computing parties use files that were made together."""
    first, second = plan.roles.computing
    other = second if session.me == first else first
    digest = hashlib.sha256(source.identity.encode()).digest()
    mine = torch.frombuffer(bytearray(digest), dtype=torch.uint8)
    session.send(other, "setup/material", mine, phase="setup")
    theirs = session.recv(other, "setup/material", (len(digest),), dtype=torch.uint8)
    if bytes(theirs.tolist()) != digest:
        raise DisagreementError(other, "uses material that was not made together with ours")
