"""One answer in a conversation: from messages to text as it comes, and what it took."""

import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Literal, Protocol

from tacit.errors import ConfigError, DataError
from tacit.llm.backend.sampling import Sampling
from tacit.llm.model.architecture import Architecture
from tacit.llm.model.template import Message, prompt_ids
from tacit.llm.model.tokenizer import Spelling, Tokenizer
from tacit.party import merge
from tacit.result import Leak

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
        self, prompt: Sequence[int], *, sampling: Sampling, limit: int
    ) -> Generator[int, None, None]:
        """Yield up to ``limit`` tokens that follow the prompt; ends early at a full context."""
        ...

    def take_spent(self) -> Spent:
        """Return what was spent since the last call."""
        ...


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


class Reply:
    """An answer to iterate over, once, as text; ``receipt`` is there when it has ended."""

    def __init__(self, backend: Backend, tokenizer: Tokenizer, ask: Ask) -> None:
        self._backend = backend
        self._tokenizer = tokenizer
        self._ask = ask
        self._prompt = prompt_ids(tokenizer, ask.messages)
        self._tokens = 0
        self._first_s = 0.0
        self._first_spent = NOTHING
        self._ending: Ending = "length"
        self.receipt: Receipt | None = None
        context = backend.architecture.context
        if len(self._prompt) >= context:
            raise TooLongError(
                f"the conversation is too long: {len(self._prompt)} tokens, and the model's "
                f"context is {context}; start a new one"
            )

    def __iter__(self) -> Iterator[str]:
        until = _Until(self._ask.stops)
        spelling = Spelling(self._tokenizer)
        began = time.monotonic()
        for token in self._ids(began):
            if text := until.push(spelling.push(token)):
                yield text
            if until.is_met:
                self._ending = "stop"
                break
        if not until.is_met and (text := until.push(spelling.finish()) + until.finish()):
            yield text
        self.receipt = Receipt(
            prompt_tokens=len(self._prompt),
            tokens=self._tokens,
            prompt_seconds=self._first_s,
            seconds=time.monotonic() - began,
            ending=self._ending,
            prompt_spent=self._first_spent,
            spent=self._backend.take_spent(),
        )

    def _ids(self, began: float) -> Iterator[int]:
        """Yield the tokens of the answer, without the one that ends it."""
        speech = self._backend.speak(
            self._prompt, sampling=self._ask.sampling, limit=self._ask.limit
        )
        # Closed at once when nobody listens any more, so that a peer does not wait for us.
        with closing(speech):
            for token in speech:
                self._tokens += 1
                if self._tokens == 1:
                    self._first_s = time.monotonic() - began
                    self._first_spent = self._backend.take_spent()
                if token in self._tokenizer.stops:
                    self._ending = "stop"
                    return
                yield token


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
