"""A chat as its user has it: say something, hear the answer, and see what it cost and showed."""

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field

from tacit.llm.backend.dialogue import (
    NOTHING,
    Ask,
    Backend,
    Receipt,
    Reply,
    Spent,
    TooLongError,
)
from tacit.llm.backend.sampling import Sampling
from tacit.llm.model.template import Message
from tacit.llm.model.tokenizer import Tokenizer
from tacit.result import Claim, Leak


@dataclass(frozen=True, kw_only=True)
class Manner:
    """How answers are made; all of it is the user's own choice and unknown to the others."""

    sampling: Sampling = field(default_factory=Sampling)
    limit: int = 256
    system: str | None = None

    def ask(self, talk: list[Message]) -> Ask:
        """Ask for the next answer in a conversation."""
        first = [] if self.system is None else [Message(role="system", content=self.system)]
        return Ask(messages=(*first, *talk), sampling=self.sampling, limit=self.limit)


def _silent(text: str) -> None:
    """Say nothing."""


@dataclass(eq=False, kw_only=True)
class Chat:
    """A conversation with a model; `tacit.llm.chat` opens one.

    Attributes:
        name: of the model.
        claims: what the protocol promises to whom, and what it does not.
        messages: what was said, by both.
    """

    name: str
    backend: Backend
    tokenizer: Tokenizer
    manner: Manner = field(default_factory=Manner)
    claims: tuple[Claim, ...] = ()
    note: Callable[[str], None] = _silent
    messages: list[Message] = field(default_factory=list)
    _spent: Spent = NOTHING
    _answer: "Answer | None" = None

    def say(self, text: str) -> "Answer":
        """Say something, and return the answer: iterate over it, or take its ``text``.

        An answer before this one that was not read to its end, ends where it was left. The oldest
        turns are forgotten when the context is full.

        Raises:
            TooLongError: the text alone is too long for the context.
        """
        if self._answer is not None:
            self._answer.close()
        self.messages.append(Message(role="user", content=text))
        self._answer = Answer(self._fitting(), self._heard)
        return self._answer

    def reply(self, ask: Ask) -> Reply:
        """Return the answer to other messages than those of this chat, to be iterated over."""
        return Reply(self.backend, self.tokenizer, ask)

    @property
    def spent(self) -> Spent:
        """Return what all answers so far sent and showed."""
        self._spent += self.backend.take_spent()
        return self._spent

    @property
    def learned(self) -> dict[str, tuple[Leak, ...]]:
        """Return what each side learned so far, by its name."""
        found: dict[str, tuple[Leak, ...]] = {}
        for leak in self.spent.leaks:
            found[leak.to] = (*found.get(leak.to, ()), leak)
        return found

    def _fitting(self) -> Reply:
        """Ask for an answer, forgetting the oldest turns of a talk that has grown too long."""
        while True:
            try:
                return self.reply(self.manner.ask(self.messages))
            except TooLongError:
                if len(self.messages) == 1:
                    self.messages.clear()
                    raise
                del self.messages[:2]
                self.note("the oldest turn no longer fits into the context and is left out")

    def _heard(self, text: str, receipt: Receipt | None) -> None:
        self.messages.append(Message(role="assistant", content=text))
        if receipt is not None:
            self._spent += receipt.prompt_spent + receipt.spent


class Answer:
    """An answer, text as it comes; ``text`` and ``receipt`` read it to its end."""

    def __init__(self, reply: Reply, on_end: Callable[[str, Receipt | None], None]) -> None:
        self._reply = reply
        self._on_end = on_end
        self._said: list[str] = []
        self._rest = self._read()

    def __iter__(self) -> Iterator[str]:
        return self._rest

    def __str__(self) -> str:
        return self.text

    @property
    def text(self) -> str:
        """Return the whole answer."""
        for _ in self._rest:
            pass
        return "".join(self._said)

    @property
    def receipt(self) -> Receipt:
        """Return what the whole answer took: bytes, round trips, seconds, and what was shown.

        Raises:
            RuntimeError: the answer was not read to its end, and cannot be any more.
        """
        self.text  # noqa: B018 - reads it to its end
        if self._reply.receipt is None:
            raise RuntimeError("this answer was left before its end, and has no receipt")
        return self._reply.receipt

    def close(self) -> None:
        """Leave the answer where it is."""
        self._rest.close()

    def _read(self) -> Generator[str, None, None]:
        try:
            for piece in self._reply:
                self._said.append(piece)
                yield piece
        finally:
            self._on_end("".join(self._said), self._reply.receipt)
