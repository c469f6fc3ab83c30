"""What a dealer deals ahead for one session of a sealed chat: so many passes, of fixed sizes.

The products of a pass depend on the masks of all keys and values before it, so a dealer that is
gone when the words are spoken has fixed which pass has how many rows, and in which slots of the
cache its keys and values lie. The words fit themselves to that: rows that are left over repeat
another one, and what they leave in the cache, or what was taken back, is void and never looked at.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from tacit.errors import ConfigError, DataError, FrameError
from tacit.llm.model.architecture import Architecture
from tacit.llm.model.plain import common
from tacit.llm.sealed.passes import CHUNK, PASS_WORDS, ROOM, Pass
from tacit.mpc.material.offline import MaterialFacts
from tacit.ring import Prg

DEAL = -2
"""In place of a conversation: no pass follows, but a schedule."""
MOST_TOKENS = 4096
"""In one file: all parties plan every pass of it before the first, and hold the plans."""
_HALF = 62
_PLAN_BYTES = 160 << 10
"""What the plan of a pass takes for each layer, at most; and twice that beside them."""


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """A row of passes: the prompt in chunks, then one token after the other.

    Attributes:
        prompt: rows for the first prompt; a longer one goes on token by token.
        tokens: passes of one token behind it, whether they read or write.
        identity: names the two files that are dealt together; a number below 2^124.
    """

    prompt: int
    tokens: int
    identity: int = field(default_factory=lambda: _draw_identity())

    def check(self, architecture: Architecture) -> None:
        """Refuse what cannot be dealt ahead.

        Raises:
            ConfigError: says what is too much.
        """
        if architecture.family == "chatglm":
            raise ConfigError(
                "a ChatGLM reads its prompt at once and in both directions, so that its length "
                "must be known when it is dealt for: chat with the dealer in the session"
            )
        if self.prompt < 1 or self.tokens < 1:
            raise ConfigError(
                f"wanted room for a prompt of at least 1 token, and at least 1 token behind it, "
                f"got {self.prompt} and {self.tokens}"
            )
        if self.prompt + self.tokens > MOST_TOKENS:
            raise ConfigError(
                f"{self.prompt} tokens of a prompt and {self.tokens} behind it are more than the "
                f"{MOST_TOKENS} that a file is dealt for at most: deal for fewer"
            )
        if self.prompt + self.tokens > architecture.context:
            raise ConfigError(
                f"{self.prompt} tokens of a prompt and {self.tokens} behind it are more than the "
                f"model's context of {architecture.context}: deal for fewer"
            )

    def passes(self) -> tuple[Pass, ...]:
        """List the passes; of the prompt's only the last is scored."""
        chunks = [min(CHUNK, self.prompt - at) for at in range(0, self.prompt, CHUNK)]
        out, past = list[Pass](), 0
        for rows in [*chunks, *[1] * self.tokens]:
            is_scored = past + rows >= self.prompt
            step = Pass(conversation=0, past=past, rows=rows, prompt=0, is_scored=is_scored)
            out.append(step)
            past += rows
        return tuple(out)

    def plan_bytes(self, architecture: Architecture) -> int:
        """Return about what its plans take in memory: one for every size of a pass."""
        sizes = -(-self.prompt // CHUNK) - (-(self.prompt + self.tokens) // ROOM) + 1
        return sizes * _PLAN_BYTES * (architecture.layers + 2)

    def words(self) -> Tensor:
        """Write the schedule as it travels, in place of a pass."""
        high, low = divmod(self.identity, 1 << _HALF)
        rest = [0] * (PASS_WORDS - 5)
        return torch.tensor([DEAL, self.prompt, self.tokens, high, low, *rest])

    @property
    def name(self) -> str:
        """Return the identity as files spell it."""
        return f"{self.identity:031x}"

    def about(self) -> str:
        """Write down what a file needs besides its identity."""
        return f"{self.prompt} {self.tokens}"


def _draw_identity() -> int:
    high, low = Prg.from_os().below(1 << _HALF, 2).tolist()
    return int(high << _HALF) + int(low)


def read_schedule(words: Tensor, *, sender: str, architecture: Architecture) -> Schedule:
    """Read what a user sent, and check it."""
    _, prompt, tokens, high, low, *_ = (int(word) for word in words)
    if not (0 <= high < 1 << _HALF and 0 <= low < 1 << _HALF):
        raise FrameError(sender, "names its material by a number that is none")
    schedule = Schedule(prompt=prompt, tokens=tokens, identity=(high << _HALF) + low)
    try:
        schedule.check(architecture)
    except ConfigError as error:
        raise FrameError(sender, f"asks for what cannot be dealt: {error}") from error
    return schedule


def read_about(facts: MaterialFacts) -> Schedule:
    """Read the schedule of a file.

    Raises:
        DataError: it has none.
    """
    try:
        prompt, tokens = map(int, facts.about.split())
        identity = int(facts.identity, 16)
        is_sound = min(prompt, tokens) >= 1 and prompt + tokens <= MOST_TOKENS
        if not (is_sound and 0 <= identity < 1 << 2 * _HALF):
            raise ValueError("no such schedule")
        return Schedule(prompt=prompt, tokens=tokens, identity=identity)
    except ValueError:
        raise DataError("the material is not that of a sealed chat; have it dealt anew") from None


class Slots:
    """Which token of the text lies in which slot of keys and values; some are void."""

    def __init__(self) -> None:
        self._places: list[int] = []

    @property
    def read(self) -> int:
        """Return how many tokens count."""
        return max(self._places, default=-1) + 1

    def follow(self, step: Pass) -> None:
        """Take up what a pass adds, after what it takes back."""
        self._places = [at if at < step.read else -1 for at in self._places]
        self._places += [-1] * step.pads + step.places().tolist()[step.pads :]

    def places(self) -> Tensor:
        """Return the place of each slot's token in the text, -1 for void ones."""
        return torch.tensor(self._places)


class Reading:
    """Fits texts to the passes of a schedule, as the user; knows what the model has read."""

    def __init__(self, schedule: Schedule) -> None:
        self._passes = schedule.passes()
        self._at = 0
        self._read: list[int] = []

    @property
    def left(self) -> int:
        """Return how many passes are left."""
        return len(self._passes) - self._at

    def check(self, text: Sequence[int]) -> None:
        """Refuse a text that the passes which are left cannot read.

        Raises:
            DataError: says how many tokens are too many.
        """
        fresh = len(text) - common(self._read, text)
        room = sum(step.rows for step in self._passes[self._at :])
        if fresh > room:
            raise DataError(
                f"{fresh} tokens have to be read, and what was dealt is enough for {room} more: "
                "have more dealt (tacit deal), or start with a shorter text"
            )

    def passes(self, text: Sequence[int]) -> Iterator[tuple[Pass, list[int], int]]:
        """Read a text to its end: each pass, its rows, and how many tokens it has then read.

        What an earlier text shares is not read again. A pass has at least one row that counts: if
        nothing is left to be read, it reads the last token again.
        """
        is_read = False
        while not is_read:
            step = self._passes[self._at]
            self._at += 1
            kept = min(common(self._read, text), len(text) - 1)
            now = list(text[kept : kept + step.rows])
            pads = step.rows - len(now)
            # Taken back first: if the pass fails, what it left in its slots is void.
            self._read = list(text[:kept])
            end = kept + len(now)
            yield replace(step, voids=step.past - kept, pads=pads), [*now[:1] * pads, *now], end
            self._read = list(text[:end])
            is_read = end == len(text) and step.is_scored
