"""``tacit serve-llm``: the owner or the dealer of private chats, up for as long as users come."""

import os
import queue
import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

from tacit.cli.chat_job import ChatJob, load_chat, patient
from tacit.cli.chat_protocol import ChatProtocol
from tacit.cli.models import find_model, free_memory_bytes
from tacit.crypto import Identity, load_identity
from tacit.errors import ConfigError, PartyError
from tacit.llm import OWNER_BYTES, LanguageModel, announce, hear, open_checkpoint
from tacit.llm.floating import (
    FloatingVault,
    open_floating_vault,
    serve_floating_dealer,
    serve_floating_owner,
)
from tacit.llm.private import OwnerVault, Precision, open_vault, serve_dealer, serve_owner
from tacit.llm.sealed import (
    SEALED_OWNER_BYTES,
    SealedVault,
    open_sealed_vault,
    serve_sealed_dealer,
    serve_sealed_owner,
)
from tacit.party import Listener, Meeting, Progress, Session, StatusPipe, joined, watch_parent
from tacit.transport import listen

ServingRole = Literal["owner", "dealer"]
Program = Callable[[Session], None]
_WAIT_S = 7 * 86400.0
"""How long a server waits for its next user before it looks at its links again."""
_CHILD_CONNECT_S = 600.0
"""The others may still be reading a large model."""
_MEETINGS = 16
"""How often a child meets the others again; its parent ends it long before."""
_RETRY_S = 1.0
_GLANCE_S = 0.5


@dataclass(frozen=True, kw_only=True, eq=False)
class ChatSeat:
    """A party of a chat that is ready to connect."""

    job: ChatJob
    me: str
    identity: Identity
    listener: socket.socket | None
    connect_s: float

    def meeting(self) -> Meeting:
        """Return what all three agree on."""
        return Meeting(
            parties=("owner", "user", "dealer"),
            job_digest=self.job.digest(),
            patience=patient(self.job, self.connect_s),
        )


def own_identity(job: ChatJob, me: str, keys: Path) -> Identity:
    """Load a party's key, and make sure that it is the one that the others know.

    Raises:
        ConfigError: it is another one.
    """
    identity = load_identity(keys, me)
    wanted = job.parties[me].key
    if identity.fingerprint != wanted:
        raise ConfigError(
            f"the chat knows {me!r} by the key {wanted}, but {identity.certificate_file} is "
            f"{identity.fingerprint}; use the right folder with --keys, or correct parties.{me}.key"
        )
    return identity


def program_of(
    role: ServingRole, model: str | None, protocol: ChatProtocol, jobs: Sequence[ChatJob]
) -> Callable[[], Program]:
    """Return a maker of what a role does in a session; the owner's model is read and checked here.

    Each user gets a program of its own, so that none can ask for a conversation of another.
    """
    if role == "dealer":
        return lambda: partial(_deal, protocol)
    precision = protocol.bits(jobs)
    checkpoint = open_checkpoint(find_model(model))
    checkpoint.tokenizer()
    needed = SEALED_OWNER_BYTES if protocol.is_sealed else OWNER_BYTES
    checkpoint.check_memory(free_memory_bytes(), bytes_per_weight=needed)
    return _owner_program(checkpoint.load(), protocol, precision)


def _owner_program(
    model: LanguageModel, protocol: ChatProtocol, precision: Precision | None
) -> Callable[[], Program]:
    match protocol.name:
        case "sealed":
            sealed = open_sealed_vault(model, reveal=protocol.reveal)
            return lambda: partial(_own, protocol, replace(sealed, conversations={}))
        case "floating":
            floating = open_floating_vault(model, ratio=protocol.ratio)
            return lambda: partial(_own, protocol, floating)
        case "permuted":
            vault = open_vault(model, precision=precision, counts=protocol.counts)
            return lambda: partial(_own, protocol, replace(vault, conversations={}))


def attend(seat: ChatSeat, program: Program, listener: Listener) -> None:
    """Meet the others once, and serve until the user leaves."""
    with joined(
        seat.me,
        seat.meeting(),
        peers=seat.job.peers(seat.me),
        identity=seat.identity,
        listener=seat.listener,
        progress=Progress(listener),
    ) as session:
        program(session)
        session.finish()


def serve_once(
    path: Path,
    role: ServingRole,
    *,
    model: str | None,
    keys: Path,
    protocol: ChatProtocol,
    note: Callable[[str], None],
) -> None:
    """Take part in one chat from this host, and leave when its user does."""
    job = load_chat(path)
    identity = own_identity(job, role, keys)
    make = program_of(role, model, protocol, [job])
    address = job.own_address(role)
    with ExitStack() as stack:
        listener = None if address is None else stack.enter_context(listen(*address))
        seat = ChatSeat(
            job=job,
            me=role,
            identity=identity,
            listener=listener,
            connect_s=job.network.connect_s,
        )
        attend(seat, make(), lambda stage, done, total: note(f"{role}: {stage}"))


def serve_child(
    path: Path,
    role: ServingRole,
    *,
    model: str | None,
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
        make = program_of(role, model, protocol, [job])
        seat = ChatSeat(
            job=job,
            me=role,
            identity=own_identity(job, role, keys),
            listener=listener,
            connect_s=_CHILD_CONNECT_S,
        )
        _attend_again(seat, make(), lambda stage, done, total: pipe.send("stage", stage=stage))
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
    model: str | None,
    keys: Path,
    protocol: ChatProtocol,
    note: Callable[[str], None],
) -> None:
    """Serve the users of several chats at once, one file each, again and again.

    Raises:
        TacitError: something that will not be better the next time, such as a wrong key file.
    """
    jobs = {path: load_chat(path) for path in paths}
    make = program_of(role, model, protocol, list(jobs.values()))
    failures: queue.Queue[BaseException] = queue.Queue()
    with ExitStack() as stack:
        for path, job in jobs.items():
            address = job.own_address(role)
            seat = ChatSeat(
                job=job,
                me=role,
                identity=own_identity(job, role, keys),
                listener=None if address is None else stack.enter_context(listen(*address)),
                connect_s=_WAIT_S,
            )
            loop = _Loop(seat, make(), path.stem, note, failures)
            threading.Thread(target=loop.run, name=f"serve-{path.stem}", daemon=True).start()
        note(f"{role}: waiting for users of {', '.join(path.stem for path in paths)}")
        while True:
            try:
                raise failures.get(timeout=_GLANCE_S)
            except queue.Empty:
                continue


class _Loop:
    """One user's chats, one after the other."""

    def __init__(
        self,
        seat: ChatSeat,
        program: Program,
        name: str,
        note: Callable[[str], None],
        failures: "queue.Queue[BaseException]",
    ) -> None:
        self._seat = seat
        self._program = program
        self._name = name
        self._note = note
        self._failures = failures
        self._pause = threading.Event()

    def run(self) -> None:
        """Serve until something fails that waiting does not mend."""
        while True:
            try:
                attend(self._seat, self._program, self._listen)
                self._note(f"{self._name}: the user left")
            except PartyError as error:
                self._note(f"{self._name}: {error}; waiting for the next meeting")
                self._pause.wait(_RETRY_S)
            except Exception as error:  # whatever it is, the main thread reports it
                self._failures.put(error)
                return

    def _listen(self, stage: str, done: int, total: int) -> None:
        if stage == "agree":
            self._note(f"{self._name}: a user is here")


def _own(
    protocol: ChatProtocol, vault: OwnerVault | SealedVault | FloatingVault, session: Session
) -> None:
    protocol.agree(session)
    if isinstance(vault, OwnerVault):
        announce(session, vault.ring.architecture)
        serve_owner(session, vault)
        return
    announce(session, vault.architecture)
    if isinstance(vault, SealedVault):
        serve_sealed_owner(session, vault)
    else:
        serve_floating_owner(session, vault)


def _deal(protocol: ChatProtocol, session: Session) -> None:
    protocol.agree(session)
    architecture = hear(session, "owner")
    match protocol.name:
        case "sealed":
            serve_sealed_dealer(session, architecture, reveal=protocol.reveal)
        case "floating":
            serve_floating_dealer(session, architecture, ratio=protocol.ratio)
        case "permuted":
            serve_dealer(session, architecture, counts=protocol.counts)
