"""The user's side of a private chat, over sessions that may break."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Protocol

from tacit.errors import PartyError
from tacit.llm.backend.dialogue import Chat, Manner
from tacit.llm.backend.private import Meet, PrivateBackend
from tacit.llm.backend.protocol import ChatProtocol
from tacit.llm.backend.speakers import Enter, Speaker, enter_permuted, enter_sealed
from tacit.llm.model.architecture import Architecture
from tacit.llm.model.checkpoint import Checkpoint
from tacit.llm.model.tokenizer import check_vocabulary
from tacit.llm.permuted import Network
from tacit.mpc.material.offline import Material
from tacit.party import Session

_WAITS_S = (2, 10, 30, 120, 600)
_ATTEMPTS = 2
"""How often owner and dealer are met again before we give up."""


class Note(Protocol):
    """Says to the user where the parties stand."""

    def __call__(self, party: str, stage: str, done: int = 0, total: int = 0) -> None:
        """Take note that a party is at a stage, ``done`` steps of ``total`` (0: unknown)."""
        ...

    def tell(self, party: str, text: str) -> None:
        """Say something, every time."""
        ...


class Silence:
    """Says nothing."""

    def __call__(self, party: str, stage: str, done: int = 0, total: int = 0) -> None:
        """Say nothing of a stage."""

    def tell(self, party: str, text: str) -> None:
        """Say nothing."""


@contextmanager
def connected(
    meet: Meet,
    checkpoint: Checkpoint,
    protocol: ChatProtocol,
    manner: Manner,
    *,
    note: Note,
    network: Network | None = None,
    before_again: Callable[[], None] = lambda: None,
    material: Material | None = None,
) -> Iterator[Chat]:
    """Connect as the user, and leave in good order, or with a reason.

    When a session breaks, ``before_again`` may say that another meeting would be in vain; with
    ``material`` that was dealt before it is: masks are used once.
    """
    tokenizer = checkpoint.tokenizer()
    enter = enter_by(protocol, network, note, material)

    def enter_checked(session: Session, architecture: Architecture) -> Speaker:
        # Before the owner is told to send its weights.
        check_vocabulary(tokenizer, architecture.vocab)
        return enter(session, architecture)

    @contextmanager
    def meet_alike() -> Iterator[Session]:
        with meet() as session:
            protocol.agree(session)
            yield session

    def on_break(error: PartyError) -> None:
        before_again()
        note.tell("user", f"{error}; meeting again")

    attempts = _ATTEMPTS if material is None else 0
    backend = PrivateBackend(meet_alike, enter_checked, on_break=on_break, attempts=attempts)
    talk = Chat(
        name=checkpoint.name,
        backend=backend,
        tokenizer=tokenizer,
        manner=manner,
        claims=protocol.claims(backend.architecture),
        note=lambda text: note.tell("user", text),
    )
    try:
        try:
            yield talk
        finally:
            # An answer that is left open ends here, at a step that the owner is at; the end of
            # the interpreter would find its step in the air.
            with suppress(PartyError):
                talk.close()
    except BaseException:
        backend.fail()
        raise
    backend.close()


def enter_by(
    protocol: ChatProtocol, network: Network | None, note: Note, material: Material | None = None
) -> Enter:
    """Return what sits down in each session."""
    if not protocol.is_sealed:
        return enter_permuted(protocol, on_wait=waiting(note, "the dealer"), network=network)

    def empty() -> None:
        note.tell("user", "what was dealt is used up; have more dealt for the next session")

    wait = waiting(note, "the others")
    return enter_sealed(protocol, on_wait=wait, material=material, on_empty=empty)


def waiting(note: Note, whom: str) -> Callable[[float], None]:
    """Return what says at growing intervals that somebody is slow, in every wait anew."""
    told = 0

    def wait(seconds: float) -> None:
        nonlocal told
        passed = max((limit for limit in _WAITS_S if seconds >= limit), default=0)
        if passed > told:
            note.tell("user", f"has waited for {whom} for more than {passed} s")
        told = passed

    return wait
