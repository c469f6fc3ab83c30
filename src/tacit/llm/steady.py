"""A private voice that outlives its sessions: when one breaks, it meets the others again."""

import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress

from tacit.errors import DisagreementError, FrameError, HandshakeError, PartyError
from tacit.llm.announce import hear
from tacit.llm.architecture import Architecture
from tacit.llm.dialogue import Spent
from tacit.llm.private import Client, MaskedWeights, Memory, Network
from tacit.llm.sampling import Sampling
from tacit.llm.veiled import PrivateVoice, Wait
from tacit.party import Session, merge

Meet = Callable[[], AbstractContextManager[Session]]
"""Connects to the owner and the dealer."""

_FINAL = (DisagreementError, FrameError, HandshakeError)
"""What a second meeting would not mend."""


class SteadyVoice:
    """Continue texts as `PrivateVoice` does, and go on in a new session when one breaks.

    What the model has read is kept; if the owner has lost it, the text is read again from its
    beginning. It gives up when ``attempts`` meetings in a row bring no token. ``network``
    describes the link to the owner; which messages are sent depends on it.

    Guarantee: that of `PrivateVoice`. The owner sees that two sessions are one conversation.
    """

    def __init__(
        self,
        meet: Meet,
        *,
        on_wait: Wait,
        on_break: Callable[[PartyError], None],
        attempts: int = 2,
        network: Network | None = None,
    ) -> None:
        self._meet = meet
        self._attempts = attempts
        self._network = network
        self._on_wait = on_wait
        self._on_break = on_break
        self._known: MaskedWeights | None = None
        self._memories: tuple[Memory, ...] = ()
        self._spent = _NOTHING
        self._open()

    @property
    def architecture(self) -> Architecture:
        """Return the shape of the owner's model."""
        return self._voice.architecture

    def speak(
        self, prompt: Sequence[int], *, sampling: Sampling, limit: int
    ) -> Generator[int, None, None]:
        """Yield up to ``limit`` tokens that follow the prompt; ends early at a full context."""
        said: list[int] = []
        failures = 0
        while True:
            try:
                if failures:
                    self._open()
                rest = limit - len(said)
                speech = self._voice.speak([*prompt, *said], sampling=sampling, limit=rest)
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
        spent, self._spent = _add(self._spent, self._voice.take_spent()), _NOTHING
        return spent

    def close(self) -> None:
        """Leave in good order, at all parties.

        Raises:
            PartyError: one of them is not there any more.
        """
        try:
            self._voice.close()
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
            client = Client(self._session, architecture, known=self._known, network=self._network)
        except BaseException:
            self.fail()
            raise
        self._known = client.masked
        self._voice = PrivateVoice(
            client, architecture, on_wait=self._on_wait, memories=self._memories
        )

    def _drop(self, error: PartyError, *, keep: bool) -> None:
        """Leave a broken session, keeping what a new one needs."""
        self._on_break(error)
        self._spent = _add(self._spent, self._voice.take_spent())
        self._memories = self._voice.memories if keep else ()
        self.fail()


_NOTHING = Spent(payload_bytes=0, round_trips=0, leaks=())


def _add(first: Spent, second: Spent) -> Spent:
    return Spent(
        payload_bytes=first.payload_bytes + second.payload_bytes,
        round_trips=first.round_trips + second.round_trips,
        offline_bytes=first.offline_bytes + second.offline_bytes,
        leaks=merge(first.leaks + second.leaks),
    )
