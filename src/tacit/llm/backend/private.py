"""A private chat at its user, over sessions that may break: what it has read is kept."""

import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, suppress
from dataclasses import replace
from typing import Any, Protocol

from tacit.errors import DisagreementError, FrameError, HandshakeError, PartyError
from tacit.llm.backend.dialogue import NOTHING, Chat, Manner, Spent
from tacit.llm.backend.programs import Enter, Speaker, enter_by
from tacit.llm.backend.protocol import ChatProtocol, hear
from tacit.llm.model.architecture import Architecture
from tacit.llm.model.checkpoint import Checkpoint
from tacit.llm.model.plain import Between, common, no_word
from tacit.llm.model.tokenizer import check_vocabulary
from tacit.llm.permuted import Network
from tacit.llm.sampling import Sampling
from tacit.mpc.material.offline import Material
from tacit.party import Session
from tacit.result import Leak, Phase

Meet = Callable[[], AbstractContextManager[Session]]
"""Connects to the owner and the dealer."""

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
    enter = enter_by(
        protocol,
        waiting(note, "the others" if protocol.is_sealed else "the dealer"),
        network=network,
        material=material,
        on_empty=lambda: note.tell(
            "user", "what was dealt is used up; have more dealt for the next session"
        ),
    )

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


_MOST = 4
"""How many conversations are kept; each holds its keys and values at two parties or three."""
_FINAL = (DisagreementError, FrameError, HandshakeError)
"""What a second meeting would not mend."""


class PrivateBackend:
    """Continue texts through sessions with an owner and a dealer; meet again when one breaks.

    Several conversations are kept, so that one who comes back does not pay for another who spoke
    in between; what the model has read is not read again. If the owner has lost it, the text is
    read from its beginning. It gives up when ``attempts`` meetings in a row bring no token.

    Guarantee: that of the protocol. The owner sees that two sessions are one conversation.
    Cost: what `take_spent` says; what is common with a text before costs nothing again.
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
        self._memories: list[Any] = []  # of the speaker's kind; the one used last is last
        self._spent = NOTHING
        self._mark: _Mark  # of the session that is on
        self._open()

    @property
    def architecture(self) -> Architecture:
        """Return the shape of the owner's model."""
        return self._architecture

    def speak(
        self, prompt: Sequence[int], *, sampling: Sampling, limit: int, between: Between = no_word
    ) -> Generator[int, None, None]:
        """Yield up to ``limit`` tokens that follow the prompt; ends early at a full context.

        Raises:
            ConfigError: the tokens cannot be chosen like that under this protocol.
        """
        said: list[int] = []
        failures = 0
        while True:
            try:
                if failures:
                    self._open()
                text = [*prompt, *said]
                memory = self._recall(text)
                speech = self._speaker.generate(
                    memory,
                    text[len(memory.read) :],
                    sampling,
                    limit=limit - len(said),
                    between=between,
                )
                with closing(speech):  # left early, it still ends at a step that the owner is at
                    for token in speech:
                        failures = 0
                        said.append(token)
                        yield token
                return
            except PartyError as error:
                failures += 1
                if failures > self._attempts or isinstance(error, _FINAL):
                    raise
                self._on_break(error)
                self._spent = self.take_spent()
                if failures > 1:  # the owner may have lost what was read
                    self._memories.clear()
                self.fail()
                if len(said) == limit:
                    return

    def take_spent(self) -> Spent:
        """Return what all sessions sent and showed since the last call."""
        now = _Mark(self._session)
        spent = self._spent + now.since(self._mark)
        self._mark, self._spent = now, NOTHING
        return spent

    def close(self) -> None:
        """Leave in good order, at all parties.

        Raises:
            PartyError: one of them is not there any more.
        """
        try:
            self._speaker.leave()
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
        session = self._stack.enter_context(self._meet())
        try:
            self._architecture = hear(session, "owner")
            self._speaker = self._enter(session, self._architecture)
        except BaseException:
            self.fail()
            raise
        # What was told before the first text is shown with it.
        self._session = session
        self._mark = _Mark(session, known=())

    def _recall(self, text: Sequence[int]) -> Any:  # of the speaker's kind
        """Return the conversation that this text continues, taken back to what they share.

        That is the one with most in common, if that is half of it at least; else a new one, or if
        there is no room the one used longest ago.
        """
        best = max(self._memories, key=lambda one: common(one.read, text), default=None)
        if best is None or 2 * common(best.read, text) < len(best.read):
            is_full = len(self._memories) >= _MOST
            best = self._memories[0] if is_full else self._speaker.begin()
        # In ChatGLM the whole prompt is read in both directions, so a longer one is another one.
        is_whole = self._architecture.family == "chatglm"
        best.rewind(0 if is_whole else common(best.read, text[:-1]))
        self._memories = [one for one in self._memories if one is not best] + [best]
        return best


class _Mark:
    """The meter and the ledger of a session at one moment; ``known`` stands for the ledger."""

    def __init__(self, session: Session, *, known: tuple[Leak, ...] | None = None) -> None:
        traffic = session.meter.traffic() + session.meter.arrivals()
        self._bytes: dict[Phase, int] = {"setup": 0, "offline": 0, "online": 0}
        for one in traffic:
            self._bytes[one.phase] += one.payload_bytes
        self._rounds = session.meter.rounds("online")
        self._leaks = session.ledger.entries() if known is None else known

    def since(self, before: "_Mark") -> Spent:
        """Return what happened between another mark and this one."""
        known = {(leak.to, leak.what, leak.why): leak.elements for leak in before._leaks}
        fresh = [
            (leak, leak.elements - known.get((leak.to, leak.what, leak.why), 0))
            for leak in self._leaks
        ]
        return Spent(
            payload_bytes=self._bytes["online"] - before._bytes["online"],
            offline_bytes=self._bytes["offline"] - before._bytes["offline"],
            # A round trip is two messages, one after the other.
            round_trips=(self._rounds - before._rounds + 1) // 2,
            leaks=tuple(replace(leak, elements=more) for leak, more in fresh if more > 0),
        )


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
