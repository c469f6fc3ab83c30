"""The owner or the dealer of private chats: once, or up for as long as users come."""

import hashlib
import logging
import os
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import monotonic
from typing import final

from tacit.crypto import Identity, load_pinned
from tacit.errors import ConfigError, FrameError, PartyError
from tacit.llm.backend.chat_file import ChatFile, load_chat
from tacit.llm.backend.programs import (
    Make,
    Program,
    ServingRole,
    dealer_program,
    owner_program,
)
from tacit.llm.backend.protocol import ChatProtocol
from tacit.llm.model.machine import free_memory_bytes
from tacit.llm.permuted import Account
from tacit.party import Listener, Meeting, Progress, Session, StatusPipe, joined, watch_parent
from tacit.transport import LinkLimits, Peer, listen
from tacit.vault import Counter, Once, UsedError

_WAIT_S = 7 * 86400.0
"""How long a server waits for its next user before it looks at its links again."""
_CHILD_CONNECT_S = 600.0
"""The others may still be reading a large model."""
_MEETINGS = 16
"""How often a child meets the others again; its parent ends it long before."""
_RETRY_S, _LONGEST_RETRY_S = 1.0, 16.0
_SOUND_S = 60.0
"""A session that lasted so long does not count as another failure in a row."""
_GLANCE_S = 0.5
_PARTS = 4
"""Up to so many users have parts of the memory that do not overlap; more of them overlap."""
MATERIAL = "dealt"
"""The folder beside an owner's key with the keys of what was dealt ahead."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, eq=False)
class ChatSeat:
    """A party of a chat that is ready to connect."""

    job: ChatFile
    me: str
    identity: Identity
    listener: socket.socket | None
    connect_s: float
    limits: LinkLimits = field(default_factory=LinkLimits)
    is_dealt: bool = False
    """Whether the dealer has dealt before, and does not come."""

    def meeting(self) -> Meeting:
        """Return what all who come agree on."""
        digest = self.job.digest()
        return Meeting(
            parties=("owner", "user") if self.is_dealt else ("owner", "user", "dealer"),
            job_digest=hashlib.sha256(digest + b"dealt").digest() if self.is_dealt else digest,
            patience=replace(self.job.network, connect_s=self.connect_s),
            limits=self.limits,
        )

    def peers(self) -> dict[str, Peer]:
        """Return the others who come, as a party dials them."""
        found = self.job.peers(self.me)
        return {name: one for name, one in found.items() if name in self.meeting().parties}

    def joined(self, listener: Listener) -> AbstractContextManager[Session]:
        """Meet the others; the listener is told of stages."""
        return joined(
            self.me,
            self.meeting(),
            peers=self.peers(),
            identity=self.identity,
            listener=self.listener,
            progress=Progress(listener),
        )


def own_identity(job: ChatFile, me: str, keys: Path) -> Identity:
    """Load a party's key, and make sure that it is the one that the others know.

    Raises:
        ConfigError: it is another one.
    """
    return load_pinned(keys, me, job.key(me), who="the chat")


@contextmanager
def seated(job: ChatFile, me: str, keys: Path, *, is_dealt: bool = False) -> Iterator[ChatSeat]:
    """Take a party's seat: load its key, and listen where it says that it does.

    Raises:
        ConfigError: the key is another than the others know.
    """
    address = job.own_address(me)
    with ExitStack() as stack:
        yield ChatSeat(
            job=job,
            me=me,
            identity=own_identity(job, me, keys),
            listener=None if address is None else stack.enter_context(listen(*address)),
            connect_s=job.network.connect_s,
            is_dealt=is_dealt,
        )


def attend(seat: ChatSeat, program: Program, listener: Listener) -> None:
    """Meet the others once, and serve until the user leaves."""
    with seat.joined(listener) as session:
        program.serve(session)
        session.finish()


def serve_once(
    path: Path,
    role: ServingRole,
    *,
    model: Path | None,
    keys: Path,
    protocol: ChatProtocol,
    note: Callable[[str], None],
    quota: int | None = None,
    material: Path | None = None,
) -> None:
    """Take part in one chat from this host, and leave when its user does.

    ``material`` is the owner's folder of what was dealt before, for a chat without a dealer.
    """
    is_dealt = material is not None
    jobs, make = _prepare([path], role, model, keys, protocol, note, is_dealt=is_dealt)
    job = jobs[path]
    with seated(job, role, keys, is_dealt=is_dealt) as seat:
        account = Account(quota=_quota(job, keys, quota))
        folder = material_folder(job, keys, material)
        attend(seat, make(account, folder), lambda stage, done, total: note(f"{role}: {stage}"))


def serve_child(
    path: Path,
    role: ServingRole,
    *,
    model: Path | None,
    keys: Path,
    protocol: ChatProtocol,
    listen_fd: int,
    pipe: StatusPipe,
) -> None:
    """Take part in one chat as a child process: report on the pipe, and meet again if need be."""
    watch_parent()
    job = load_chat(path)
    with socket.socket(fileno=listen_fd) as listener:
        pipe.send("stage", stage="load", pid=os.getpid())
        make = _program(role, model, protocol, [job])
        seat = ChatSeat(
            job=job,
            me=role,
            identity=own_identity(job, role, keys),
            listener=listener,
            connect_s=_CHILD_CONNECT_S,
        )
        _attend_again(
            seat,
            make(Account()),
            lambda stage, done, total: pipe.send("stage", stage=stage, done=done, total=total),
        )
    pipe.send("done")


def _attend_again(seat: ChatSeat, program: Program, listener: Listener) -> None:
    """Serve until the user leaves in good order; when a session breaks, wait for the next."""
    for left in range(_MEETINGS, -1, -1):
        try:
            attend(seat, program, listener)
            return
        except PartyError:
            if not left:
                raise


def serve_many(
    paths: Sequence[Path],
    role: ServingRole,
    *,
    model: Path | None,
    keys: Path,
    protocol: ChatProtocol,
    note: Callable[[str], None],
    quota: int | None = None,
    memory_bytes: int | None = None,
    material: Path | None = None,
    stop: threading.Event | None = None,
) -> None:
    """Serve the users of several chats at once, one file each, again and again.

    What users make us keep stays within ``memory_bytes`` in all, half of what is free if not given;
    beside it each link holds frames on the way, as far as its user's part goes, until it closes.
    Nothing that happens in a session ends the service; after ``stop`` no other session begins.
    ``material`` is the owner's folder of what was dealt before, for chats without a dealer.

    Raises:
        TacitError: a file, a key or the model cannot be used.
    """
    is_dealt = material is not None
    jobs, make = _prepare(paths, role, model, keys, protocol, note, is_dealt=is_dealt)
    total = memory_bytes or free_memory_bytes() // 2
    most, pool = total // min(len(jobs), _PARTS), Account(most=total)
    stop = stop or threading.Event()
    with ExitStack() as stack:
        loops = []
        for path, job in jobs.items():
            seat = stack.enter_context(seated(job, role, keys, is_dealt=is_dealt))
            seat = replace(seat, connect_s=_WAIT_S, limits=_link_limits(most))
            account = Account(most=most, pool=pool, quota=_quota(job, keys, quota))
            program = make(account, material_folder(job, keys, material))
            loops.append(_Loop(seat, program, path.stem, note, stop))
        for loop in loops:
            loop.thread.start()
        note(f"{role}: waiting for users of {', '.join(path.stem for path in paths)}")
        while not stop.wait(_GLANCE_S):
            for loop in loops:
                loop.program.sweep()
        for loop in loops:
            loop.thread.join()


def _prepare(
    paths: Sequence[Path],
    role: ServingRole,
    model: Path | None,
    keys: Path,
    protocol: ChatProtocol,
    note: Callable[[str], None],
    *,
    is_dealt: bool,
) -> tuple[dict[Path, ChatFile], Make]:
    """Read the files of chats, then the model: a wrong key is told before that is waited for."""
    jobs = {path: load_chat(path) for path in paths}
    for job in jobs.values():
        own_identity(job, role, keys)
    if role == "owner":
        enrol(jobs, keys)
    note(f"{role}: reading its input")
    return jobs, _program(role, model, protocol, list(jobs.values()), is_dealt=is_dealt)


def enrol(jobs: Mapping[Path, ChatFile], keys: Path) -> None:
    """Note the users and dealers of an owner's jobs beside its key, and refuse who is both.

    A dealer knows the masks under which a user holds the weights. Every job has masks of its own,
    so a user of one job who deals for another gets nothing by that alone; but it would take only
    one other user's help, and the owner should know.

    Guarantee: a key that is user in one of these jobs, or in one that was served from this folder
    before, is dealer in none of them. Keys are told apart, not people: who has two is not noticed.

    Raises:
        ConfigError: a key is both.
        InputError: the file cannot be read or written, or is not what was written.
    """
    file = keys / "owner.roles"
    with Once(file, "roster").held() as roster:
        found = {
            f"{role} {job.key(role)}": path
            for path, job in jobs.items()
            for role in ("user", "dealer")
        }
        known = {**dict.fromkeys(roster, file), **found}
        for name, path in known.items():
            role, _, key = name.partition(" ")
            other = known.get(f"dealer {key}")
            if role == "user" and other is not None:
                raise ConfigError(
                    f"{key} is the user in {path} and the dealer in {other}: who deals for an "
                    "owner must use none of its models; choose another dealer, or another user"
                )
        roster.update(found)


@final
class TokenQuota:
    """The tokens of one key. Counted before they are computed, and kept when the owner restarts.

    Guarantee: from this folder a key gets no more than ``most`` tokens, whatever the session. Keys
    are told apart, not people. What a token shows depends on the protocol.
    """

    def __init__(self, folder: Path, key: str, most: int) -> None:
        self._counter = Counter(folder / "owner.tokens", "quota", most=most)
        self._key, self._most = key, most

    def __call__(self, tokens: int, user: str) -> None:
        """Count tokens.

        Raises:
            FrameError: they are more than are left.
            InputError: the file cannot be read or written, or is not what was written.
        """
        try:
            self._counter.use(self._key, tokens)
        except UsedError as error:
            raise FrameError(
                user,
                f"asks for {tokens} tokens, and {error.left} are left of the {self._most} that its "
                "key may have; the owner sets that with --quota",
            ) from None


def _program(
    role: ServingRole,
    model: Path | None,
    protocol: ChatProtocol,
    jobs: Sequence[ChatFile],
    *,
    is_dealt: bool = False,
) -> Make:
    if role == "dealer":
        return dealer_program(protocol)
    if model is None:
        raise ConfigError("the owner of a chat needs a model: name a folder or a GGUF file")
    precision = protocol.bits(job.chat.precision for job in jobs)
    return owner_program(model, protocol, precision, is_dealt=is_dealt)


def material_folder(job: ChatFile, keys: Path, material: Path | None) -> Path:
    """Return where an owner keeps the keys of what was dealt for one user, by the user's key."""
    name = hashlib.sha256(job.key("user").encode()).hexdigest()[:16]
    return (material or keys / MATERIAL) / name


def _quota(job: ChatFile, keys: Path, most: int | None) -> TokenQuota | None:
    return None if most is None else TokenQuota(keys, job.key("user"), most)


def _link_limits(most: int) -> LinkLimits:
    """Let a user fill the buffers of its links no further than its memory goes."""
    usual = LinkLimits()
    return LinkLimits(
        queue_bytes=max(1, min(usual.queue_bytes, most)),
        prefetch_bytes=max(1, min(usual.prefetch_bytes, most)),
        stash_bytes=max(1, min(usual.stash_bytes, most)),
    )


class _Loop:
    """One user's chats, one after the other: a user has one session at a time."""

    def __init__(
        self,
        seat: ChatSeat,
        program: Program,
        name: str,
        note: Callable[[str], None],
        stop: threading.Event,
    ) -> None:
        self.program = program
        self._seat = seat
        key = seat.job.key("user")
        self._name = f"{name} ({key[:15]}…)"
        self._note = note
        self._stop = stop
        self.thread = threading.Thread(target=self.run, name=f"serve-{name}", daemon=True)

    def run(self) -> None:
        """Serve until stopped; whatever a session ends with, the next one may begin."""
        pause_s = _RETRY_S
        while not self._stop.is_set():
            began = monotonic()
            try:
                attend(self._seat, self.program, self._listen)
                self._tell("the user left")
                pause_s = _RETRY_S
                continue
            except PartyError as error:
                self._tell(f"{error}; waiting for the next meeting")
            except Exception as error:  # what a peer sent may have led to anything
                _log.debug("%s: a session failed", self._name, exc_info=True)
                self._tell(f"the session failed ({type(error).__name__}: {error}); waiting")
            if monotonic() - began > _SOUND_S:
                pause_s = _RETRY_S
            self._stop.wait(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_RETRY_S)

    def _listen(self, stage: str, done: int, total: int) -> None:
        if stage == "agree":
            self._tell("a user is here")

    def _tell(self, text: str) -> None:
        with suppress(OSError, ValueError):  # a closed terminal must not end a service
            self._note(f"{self._name}: {text}")
