"""A private backend that outlives its sessions: when one breaks, it meets the others again."""

import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, suppress
from typing import Any, Protocol

from tacit.errors import DisagreementError, FrameError, HandshakeError, PartyError
from tacit.llm.backend.announce import hear
from tacit.llm.backend.dialogue import NOTHING, Backend, Spent
from tacit.llm.backend.permuted import PermutedBackend, Wait
from tacit.llm.backend.sampling import Sampling
from tacit.llm.backend.stepwise import StepwiseBackend
from tacit.llm.model.architecture import Architecture
from tacit.llm.model.parts import Between, no_word
from tacit.llm.permuted import Client, MaskedWeights, Memory, Network
from tacit.llm.sealed import Reveal, SealedClient, SealedMemory
from tacit.mpc.material.offline import Material
from tacit.party import Session

Meet = Callable[[], AbstractContextManager[Session]]
"""Connects to the owner and the dealer."""


class SessionBackend(Backend, Protocol):
    """A backend of one session, and what another session needs to go on."""

    @property
    def memories(self) -> tuple[Any, ...]:  # each kind of backend has memories of its own
        """Return what is kept of the conversations."""
        ...

    def close(self) -> None:
        """Leave in good order, at all parties."""
        ...


Enter = Callable[[Session, Architecture, tuple[Any, ...]], SessionBackend]
"""Makes the backend of a new session, out of what was kept from the one before."""


def enter_private(
    *,
    on_wait: Wait,
    network: Network | None = None,
    counts: bool = False,
    device: str = "cpu",
) -> Enter:
    """Speak through `tacit.llm.permuted`; masked weights are kept from session to session.

    ``network`` describes the link to the owner; which messages are sent depends on it. With
    ``counts``, which all three must ask for alike, a repetition penalty is offered. ``device`` is
    where this party computes.
    """
    known: MaskedWeights | None = None

    def enter(
        session: Session, architecture: Architecture, memories: tuple[Memory, ...]
    ) -> PermutedBackend:
        nonlocal known
        # Whether or not a penalty is used: the owner must not learn that from them.
        client = Client(
            session,
            architecture,
            known=known,
            network=network,
            counts=counts,
            device=device,
        )
        known = client.masked
        return PermutedBackend(client, architecture, on_wait=on_wait, memories=memories)

    return enter


def enter_sealed(
    *,
    on_wait: Wait,
    reveal: Reveal = "token",
    device: str = "cpu",
    material: Material | None = None,
    on_empty: Callable[[], None] = lambda: None,
) -> Enter:
    """Speak through `tacit.llm.sealed`, with a dealer or on what was dealt before."""

    def enter(
        session: Session, architecture: Architecture, memories: tuple[SealedMemory, ...]
    ) -> StepwiseBackend[SealedMemory]:
        client = SealedClient(
            session,
            architecture,
            reveal=reveal,
            device=device,
            material=material,
            on_empty=on_empty,
        )
        return StepwiseBackend(client, SealedMemory, on_wait=on_wait, memories=memories)

    return enter


_FINAL = (DisagreementError, FrameError, HandshakeError)
"""What a second meeting would not mend."""


class ReconnectingBackend:
    """Continue texts as the backend that ``enter`` makes does, and go on when a session breaks.

    What the model has read is kept; if the owner has lost it, the text is read again from its
    beginning. It gives up when ``attempts`` meetings in a row bring no token.

    Guarantee: that of the backend. The owner sees that two sessions are one conversation.
    """

    def __init__(
        self,
        meet: Meet,
        enter: Enter,
        *,
        on_break: Callable[[PartyError], None],
        attempts: int = 2,
    ) -> None:
        self._meet = meet
        self._enter = enter
        self._attempts = attempts
        self._on_break = on_break
        self._memories: tuple[Any, ...] = ()  # of the backend's kind
        self._spent = NOTHING
        self._open()

    @property
    def architecture(self) -> Architecture:
        """Return the shape of the owner's model."""
        return self._backend.architecture

    def speak(
        self, prompt: Sequence[int], *, sampling: Sampling, limit: int, between: Between = no_word
    ) -> Generator[int, None, None]:
        """Yield up to ``limit`` tokens that follow the prompt; ends early at a full context."""
        said: list[int] = []
        failures = 0
        while True:
            try:
                if failures:
                    self._open()
                rest = limit - len(said)
                speech = self._backend.speak(
                    [*prompt, *said], sampling=sampling, limit=rest, between=between
                )
                with closing(speech):
                    for token in speech:
                        failures = 0
                        said.append(token)
                        yield token
                return
            except PartyError as error:
                failures += 1
                if failures > self._attempts or isinstance(error, _FINAL):
                    raise
                self._drop(error, keep=failures == 1)
                if len(said) == limit:
                    return

    def take_spent(self) -> Spent:
        """Return what all sessions sent and showed since the last call."""
        spent, self._spent = self._spent + self._backend.take_spent(), NOTHING
        return spent

    def close(self) -> None:
        """Leave in good order, at all parties.

        Raises:
            PartyError: one of them is not there any more.
        """
        try:
            self._backend.close()
            self._session.finish()
        except BaseException:
            self.fail()
            raise
        self._stack.close()

    def fail(self) -> None:
        """Leave because of the error that is being handled, and tell the others."""
        with suppress(PartyError):
            self._stack.__exit__(*sys.exc_info())

    def _open(self) -> None:
        self._stack = ExitStack()
        self._session = self._stack.enter_context(self._meet())
        try:
            architecture = hear(self._session, "owner")
            self._backend = self._enter(self._session, architecture, self._memories)
        except BaseException:
            self.fail()
            raise

    def _drop(self, error: PartyError, *, keep: bool) -> None:
        """Leave a broken session, keeping what a new one needs."""
        self._on_break(error)
        self._spent = self._spent + self._backend.take_spent()
        self._memories = self._backend.memories if keep else ()
        self.fail()
