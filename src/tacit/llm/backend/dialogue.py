"""A chat as its user has it: answers as they come, what they took, and what they showed."""

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Literal, Protocol

from torch import Tensor

from tacit.errors import ConfigError, DataError
from tacit.llm.model.architecture import Architecture, LanguageModel
from tacit.llm.model.plain import Between, Cache, generate, no_word
from tacit.llm.model.template import Message, prompt_ids
from tacit.llm.model.tokenizer import Spelling, Tokenizer
from tacit.llm.sampling import Place, Sampling, chooser
from tacit.party import merge
from tacit.result import Claim, Leak

Ending = Literal["stop", "length"]
"""The model came to an end, or the limit or the context did."""


class TooLongError(DataError):
    """A conversation leaves no room for an answer in the model's context."""


@dataclass(frozen=True, kw_only=True)
class Spent:
    """What an answer cost on the user's links, and what it showed to whom.

    ``payload_bytes`` and ``round_trips`` are those that the user waits for; ``offline_bytes`` are
    sent ahead.
    """

    payload_bytes: int
    round_trips: int
    leaks: tuple[Leak, ...]
    offline_bytes: int = 0

    def __add__(self, other: "Spent") -> "Spent":
        return Spent(
            payload_bytes=self.payload_bytes + other.payload_bytes,
            round_trips=self.round_trips + other.round_trips,
            offline_bytes=self.offline_bytes + other.offline_bytes,
            leaks=merge(self.leaks + other.leaks),
        )


NOTHING = Spent(payload_bytes=0, round_trips=0, leaks=())


class Backend(Protocol):
    """What continues a text, token by token: a model in the clear, or a private session."""

    @property
    def architecture(self) -> Architecture:
        """Return the shape of the model."""
        ...

    def speak(
        self, prompt: Sequence[int], *, sampling: Sampling, limit: int, between: Between = no_word
    ) -> Generator[int, None, None]:
        """Yield up to ``limit`` tokens that follow the prompt; ends early at a full context.

        ``between`` is called between the parts in which a long prompt is read; what it raises
        ends the answer there, and what was read is kept.
        """
        ...

    def take_spent(self) -> Spent:
        """Return what was spent since the last call."""
        ...


class PlainBackend:
    """Continue texts with a model in this process; keeps what it has read between calls.

    Guarantee: no guarantee; the text and the model are in one place.
    """

    def __init__(self, model: LanguageModel) -> None:
        self._model = model
        self._kept: tuple[list[int], Cache] = [], Cache()
        self._seen = 0

    @property
    def architecture(self) -> Architecture:
        """Return the shape of the model."""
        return self._model.architecture

    def speak(
        self, prompt: Sequence[int], *, sampling: Sampling, limit: int, between: Between = no_word
    ) -> Generator[int, None, None]:
        """Yield up to ``limit`` tokens that follow the prompt; ends early at a full context."""
        said = list(prompt)
        choose_next = chooser(sampling)

        def choose(scores: Tensor) -> int:
            return choose_next(scores, [Place(token) for token in said])

        fresh, cache = self._recall(said)
        speech = generate(
            self._model, fresh, choose=choose, limit=limit, cache=cache, between=between
        )
        for token in speech:
            self._kept = list(said), cache
            said.append(token)
            self._seen += 1
            yield token
            # Whoever interrupts the next step leaves a cache that is half written.
            self._kept = [], Cache()

    def take_spent(self) -> Spent:
        """Return that nothing was sent, and that everything was seen."""
        seen, self._seen = self._seen, 0
        leak = Leak(
            to="whoever runs this model",
            what="the whole conversation",
            why="plain chat has no privacy",
            kind="protocol",
            elements=seen,
        )
        return Spent(payload_bytes=0, round_trips=0, leaks=(leak,))

    def _recall(self, prompt: Sequence[int]) -> tuple[list[int], Cache]:
        """Return the tokens that were not read yet, and the cache of those that were."""
        (read, cache), self._kept = self._kept, ([], Cache())
        is_ours = len(read) < len(prompt) and list(prompt[: len(read)]) == read
        # In ChatGLM the whole prompt is read in both directions, so a longer one is another one.
        if not is_ours or self.architecture.family == "chatglm":
            return list(prompt), Cache()
        return list(prompt[len(read) :]), cache


@dataclass(frozen=True, kw_only=True)
class Ask:
    """What a user wants: a conversation to be answered, and how."""

    messages: tuple[Message, ...]
    sampling: Sampling = field(default_factory=Sampling)
    limit: int = 256
    stops: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.limit < 1:
            raise ConfigError(f"the limit must be at least 1 token, got {self.limit}")
        if not all(self.stops):
            raise ConfigError("a stop text must not be empty")


@dataclass(frozen=True, kw_only=True)
class Receipt:
    """What one answer took: until its first token was there, and after that.

    Work on the second token may have begun when the first is there, and is counted before it.
    """

    prompt_tokens: int
    tokens: int
    prompt_seconds: float
    seconds: float
    ending: Ending
    prompt_spent: Spent
    spent: Spent

    @property
    def leaks(self) -> tuple[Leak, ...]:
        """Return everything that was shown to anyone."""
        return merge(self.prompt_spent.leaks + self.spent.leaks)

    @property
    def tokens_per_s(self) -> float | None:
        """Return the speed after the first token, or None if there was no second."""
        after_first = self.seconds - self.prompt_seconds
        return (self.tokens - 1) / after_first if self.tokens > 1 and after_first > 0 else None


class Answer:
    """An answer, text as it comes, once; ``text`` and ``receipt`` read it to its end."""

    def __init__(
        self,
        backend: Backend,
        tokenizer: Tokenizer,
        ask: Ask,
        *,
        between: Between = no_word,
        on_end: Callable[[str, Receipt | None], None] = lambda text, receipt: None,
    ) -> None:
        """Ask for an answer; nothing is read before somebody iterates over it.

        Args:
            backend: what continues the conversation.
            tokenizer: of its model.
            ask: the conversation, and how it is answered.
            between: as in `Backend.speak`.
            on_end: told what was said, and what it took if it was read to its end.

        Raises:
            TooLongError: the conversation leaves no room for an answer.
        """
        self._backend, self._tokenizer, self._ask = backend, tokenizer, ask
        self._between, self._on_end = between, on_end
        self._prompt = prompt_ids(tokenizer, ask.messages)
        context = backend.architecture.context
        if len(self._prompt) >= context:
            raise TooLongError(
                f"the conversation is too long: {len(self._prompt)} tokens, and the model's "
                f"context is {context}; start a new one"
            )
        self._said: list[str] = []
        self._receipt: Receipt | None = None
        self._rest = self._read()

    @property
    def prompt_tokens(self) -> int:
        """Return how many tokens the conversation has, with the marks of its template."""
        return len(self._prompt)

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
        if self._receipt is None:
            raise RuntimeError("this answer was left before its end, and has no receipt")
        return self._receipt

    def close(self) -> None:
        """Leave the answer where it is."""
        self._rest.close()

    def _read(self) -> Generator[str, None, None]:
        until, spelling = _Until(self._ask.stops), Spelling(self._tokenizer)
        began, first_s, tokens = time.monotonic(), 0.0, 0
        first_spent = NOTHING
        ending: Ending = "length"
        try:
            speech = self._backend.speak(
                self._prompt,
                sampling=self._ask.sampling,
                limit=self._ask.limit,
                between=self._between,
            )
            # Closed at once when nobody listens any more, so that a peer does not wait for us.
            with closing(speech):
                for token in speech:
                    tokens += 1
                    if tokens == 1:
                        first_s, first_spent = time.monotonic() - began, self._backend.take_spent()
                    is_end = token in self._tokenizer.stops
                    if not is_end and (text := until.push(spelling.push(token))):
                        self._said.append(text)
                        yield text
                    if is_end or until.is_met:
                        ending = "stop"
                        break
            if not until.is_met and (text := until.push(spelling.finish()) + until.finish()):
                self._said.append(text)
                yield text
            self._receipt = Receipt(
                prompt_tokens=len(self._prompt),
                tokens=tokens,
                prompt_seconds=first_s,
                seconds=time.monotonic() - began,
                ending=ending,
                prompt_spent=first_spent,
                spent=self._backend.take_spent(),
            )
        finally:
            self._on_end("".join(self._said), self._receipt)


class _Until:
    """Pass text on until one of some texts appears in it; hold back what may become one."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = stops
        self._held = ""
        self.is_met = False

    def push(self, text: str) -> str:
        text = self._held + text
        self._held = ""
        if ends := [at for stop in self._stops if (at := text.find(stop)) >= 0]:
            self.is_met = True
            return text[: min(ends)]
        keep = max((_overlap(text, stop) for stop in self._stops), default=0)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def finish(self) -> str:
        held, self._held = self._held, ""
        return held


def _overlap(text: str, stop: str) -> int:
    """Return how much of the end of a text is the beginning of ``stop``."""
    sizes = range(min(len(text), len(stop) - 1), 0, -1)
    return next((size for size in sizes if text.endswith(stop[:size])), 0)


@dataclass(frozen=True, kw_only=True)
class Manner:
    """How answers are made; all of it is the user's own choice and unknown to the others.

    ``longest_prompt`` is how many tokens a program may have an endpoint read; None: the context.
    """

    sampling: Sampling = field(default_factory=Sampling)
    limit: int = 256
    system: str | None = None
    longest_prompt: int | None = None

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
    _answer: Answer | None = None

    def say(self, text: str) -> Answer:
        """Say something, and return the answer: iterate over it, or take its ``text``.

        An answer before this one that was not read to its end, ends where it was left. The oldest
        turns are forgotten when the context is full.

        Raises:
            TooLongError: the text alone is too long for the context.
        """
        self.close()
        self.messages.append(Message(role="user", content=text))
        self._answer = self._fitting()
        return self._answer

    def close(self) -> None:
        """Leave the last answer where it is, if it was not read to its end."""
        if self._answer is not None:
            self._answer.close()

    def reply(self, ask: Ask, *, between: Between = no_word) -> Answer:
        """Return the answer to other messages than those of this chat, to be iterated over.

        ``between`` is called between the parts in which a long prompt is read; what it raises
        ends the answer there.
        """
        return Answer(self.backend, self.tokenizer, ask, between=between)

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

    def _fitting(self) -> Answer:
        """Ask for an answer, forgetting the oldest turns of a talk that has grown too long."""
        while True:
            try:
                ask = self.manner.ask(self.messages)
                return Answer(self.backend, self.tokenizer, ask, on_end=self._heard)
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
