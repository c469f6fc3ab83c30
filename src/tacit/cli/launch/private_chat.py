"""The user's side of a private chat, alone or with the two others as child processes."""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Protocol

from tacit.cli.commands.conversation import Partner
from tacit.cli.commands.models import find_model, free_memory_bytes
from tacit.cli.jobs.chat_job import ROLES, Role, load_chat, write_chat
from tacit.cli.jobs.config import PartyEntry
from tacit.cli.launch.chat_protocol import ChatProtocol
from tacit.cli.launch.companions import companions
from tacit.cli.launch.serve_llm import ChatSeat, own_identity
from tacit.crypto import make_identity
from tacit.errors import PartyError
from tacit.llm import (
    DEALER_BYTES,
    OWNER_BYTES,
    USER_BYTES,
    Architecture,
    Tokenizer,
    check_vocabulary,
    open_checkpoint,
)
from tacit.llm.backend.reconnecting import (
    Enter,
    ReconnectingBackend,
    SessionBackend,
    enter_floating,
    enter_private,
    enter_sealed,
)
from tacit.llm.permuted import Network
from tacit.llm.sealed import SEALED_DEALER_BYTES, SEALED_OWNER_BYTES, SEALED_USER_BYTES
from tacit.party import Child, Event, Progress, Session, joined, python_command
from tacit.transport import listen

_HOST = "127.0.0.1"
_CONNECT_S = 60.0
_WAITS_S = (5, 30, 120, 600)
_ATTEMPTS = 2
"""How often owner and dealer are met again before we give up."""


class Note(Protocol):
    """Says to the user where the parties stand."""

    def __call__(self, party: str, stage: str) -> None:
        """Take note of a stage; each is shown once."""
        ...

    def tell(self, party: str, text: str) -> None:
        """Say something, every time."""
        ...


@contextmanager
def chat_here(model: str | None, protocol: ChatProtocol, note: Note) -> Iterator[Partner]:
    """Start owner and dealer on this machine, be the user, and give what one talks to.

    The three have keys that are thrown away at the end, and meet over TLS on free local ports.

    Raises:
        TacitError: the model cannot be used, or a party failed.
    """
    path = find_model(model)
    checkpoint = open_checkpoint(path)
    needed = OWNER_BYTES + USER_BYTES + DEALER_BYTES
    if protocol.is_sealed:
        needed = SEALED_OWNER_BYTES + SEALED_USER_BYTES + SEALED_DEALER_BYTES
    checkpoint.check_memory(free_memory_bytes(), bytes_per_weight=needed)
    tokenizer = checkpoint.tokenizer()
    with ExitStack() as stack:
        private = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tacit-")))
        listeners = {name: stack.enter_context(listen(_HOST, 0)) for name in ROLES}
        entries: dict[str, PartyEntry] = {
            name: PartyEntry(
                address=f"{_HOST}:{listeners[name].getsockname()[1]}",
                key=make_identity(name, private).fingerprint,
            )
            for name in ROLES
        }
        job = private / "chat.toml"
        write_chat(job, entries)
        commands: dict[Role, list[str]] = {
            "owner": _command(job, "owner", private, protocol, "--model", str(path)),
            "dealer": _command(job, "dealer", private, protocol),
        }
        children = [Child(name, line, listeners[name]) for name, line in commands.items()]

        def on_event(party: str, event: Event) -> None:
            note(party, event.get("stage", event["event"]))

        def on_restart(party: str, reason: str) -> None:
            note.tell(party, f"{reason}; starting it again")

        others = stack.enter_context(companions(children, on_event=on_event, on_restart=on_restart))
        seat = ChatSeat(
            job=load_chat(job),
            me="user",
            identity=own_identity(load_chat(job), "user", private),
            listener=listeners["user"],
            connect_s=_CONNECT_S,
        )
        yield stack.enter_context(
            partnered(
                seat, checkpoint.name, tokenizer, protocol, note=note, before_again=others.look
            )
        )


@contextmanager
def chat_as_user(
    job: Path,
    model: str | None,
    protocol: ChatProtocol,
    *,
    keys: Path,
    network: Network | None,
    note: Note,
) -> Iterator[Partner]:
    """Be the user of a chat whose owner and dealer are elsewhere.

    Of the model only its description and tokenizer are needed here.

    Raises:
        TacitError: a key or the tokenizer is wrong, or a party failed.
    """
    found = load_chat(job)
    checkpoint = open_checkpoint(find_model(model))
    needed = SEALED_USER_BYTES if protocol.is_sealed else USER_BYTES
    checkpoint.check_memory(free_memory_bytes(), bytes_per_weight=needed)
    tokenizer = checkpoint.tokenizer()
    with ExitStack() as stack:
        address = found.own_address("user")
        seat = ChatSeat(
            job=found,
            me="user",
            identity=own_identity(found, "user", keys),
            listener=None if address is None else stack.enter_context(listen(*address)),
            connect_s=found.network.connect_s,
        )
        yield stack.enter_context(
            partnered(
                seat,
                checkpoint.name,
                tokenizer,
                protocol,
                note=note,
                network=network,
            )
        )


@contextmanager
def partnered(
    seat: ChatSeat,
    name: str,
    tokenizer: Tokenizer,
    protocol: ChatProtocol,
    *,
    note: Note,
    network: Network | None = None,
    before_again: Callable[[], None] = lambda: None,
) -> Iterator[Partner]:
    """Connect as the user, and leave in good order, or with a reason.

    When a session breaks, ``before_again`` may say that another meeting would be in vain.
    """

    @contextmanager
    def meet() -> Iterator[Session]:
        with joined(
            seat.me,
            seat.meeting(),
            peers=seat.job.peers(seat.me),
            identity=seat.identity,
            listener=seat.listener,
            progress=Progress(lambda stage, done, total: note("user", stage)),
        ) as session:
            protocol.agree(session)
            yield session

    enter = _enter(protocol, network, note)

    def enter_checked(
        session: Session, architecture: Architecture, memories: Any
    ) -> SessionBackend:
        # Before the owner is told to send its weights. Memories are of the backend's own kind: Any.
        check_vocabulary(tokenizer, architecture.vocab)
        return enter(session, architecture, memories)

    def on_break(error: PartyError) -> None:
        before_again()
        note.tell("user", f"{error}; meeting again")

    backend = ReconnectingBackend(meet, enter_checked, on_break=on_break, attempts=_ATTEMPTS)
    try:
        yield Partner(name=name, backend=backend, tokenizer=tokenizer)
    except BaseException:
        backend.fail()
        raise
    backend.close()


def _enter(protocol: ChatProtocol, network: Network | None, note: Note) -> Enter:
    match protocol.name:
        case "sealed":
            return enter_sealed(on_wait=_waiting(note, "the others"), reveal=protocol.reveal)
        case "floating":
            return enter_floating(on_wait=_waiting(note, "the others"), ratio=protocol.ratio)
        case "permuted":
            return enter_private(
                on_wait=_waiting(note, "the dealer"),
                network=network,
                counts=protocol.counts,
                device=protocol.device,
                naming=protocol.naming,
            )


def _waiting(note: Note, whom: str) -> Callable[[float], None]:
    """Return what says at growing intervals that somebody is slow, in every wait anew."""
    told = 0

    def wait(seconds: float) -> None:
        nonlocal told
        passed = max((limit for limit in _WAITS_S if seconds >= limit), default=0)
        if passed > told:
            note.tell("user", f"has waited for {whom} for more than {passed} s")
        told = passed

    return wait


def _command(job: Path, role: Role, keys: Path, protocol: ChatProtocol, *more: str) -> list[str]:
    chosen = protocol.arguments(role)
    return python_command("serve-llm", str(job), "--as", role, "--keys", str(keys), *more, *chosen)
