"""What a pass is: public facts that the user tells the two others, and what follows from them."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from tacit import ring
from tacit.errors import DataError, FrameError
from tacit.llm.claims import Reveal
from tacit.llm.model.architecture import Architecture
from tacit.llm.model.rotary import turns, visible
from tacit.llm.parties import Seats
from tacit.llm.sealed.bounds import FRAC_BITS
from tacit.mpc import Share
from tacit.result import Leak

MOST_ROWS = 256
ROOM = 16
CHUNK = 64
"""Rows of a prompt in one pass; material for all of them is on its way at once."""


@dataclass(frozen=True, kw_only=True)
class Pass:
    """Public facts about one pass through the model.

    Attributes:
        conversation: names it at the owner.
        past: tokens that both hold in their caches.
        rows: tokens that it adds.
        prompt: for ChatGLM, how many tokens of the first prompt precede ``<sop>``.
        is_scored: whether a token is chosen after it.
        expects_next: whether the dealer may deal for a pass of one token behind it already.
        voids: how many of the past ones do not count any more; only where all was dealt ahead.
        pads: how many rows in front repeat the first that counts, and are void behind it.
    """

    conversation: int
    past: int
    rows: int
    prompt: int
    is_scored: bool
    expects_next: bool = False
    voids: int = 0
    pads: int = 0

    @property
    def read(self) -> int:
        """Return how many tokens before it count."""
        return self.past - self.voids

    def places(self) -> Tensor:
        """Return where in the text each row stands."""
        return (torch.arange(self.rows) - self.pads).clamp(min=0) + self.read

    @property
    def room(self) -> int:
        """Return how many keys a pass has room for: one plan serves all that round up to it."""
        return -(-(self.past + self.rows) // ROOM) * ROOM

    def following(self) -> "Pass":
        """Return the pass that this one orders; what that will order is not known yet."""
        past = self.past + self.rows
        return replace(self, past=past, rows=1, is_scored=True, expects_next=False)

    def is_like(self, other: "Pass") -> bool:
        """Tell whether two passes are one, whatever they order."""
        return replace(self, expects_next=False) == replace(other, expects_next=False)

    def words(self) -> Tensor:
        """Write the pass as it travels."""
        return torch.tensor(
            [
                self.conversation,
                self.past,
                self.rows,
                self.prompt,
                int(self.is_scored),
                int(self.expects_next),
            ]
        )


def row_bytes(architecture: Architecture) -> int:
    """Return what the keys and values of one token take in words."""
    a = architecture
    return 2 * a.layers * a.kv_heads * a.head_dim * torch.int64.itemsize


def leaks_of_pass(
    step: Pass, reveal: Reveal, seats: Seats, parties: Sequence[str]
) -> tuple[Leak, ...]:
    """List what a pass tells beside what is opened; a dealer that dealt before is not there."""
    chosen = Leak(
        to=seats.user,
        what="how two scores that it chooses compare, if it hands in noise or slopes for that: "
        "each token can be such an answer",
        why="noise and slopes are the user's own",
        kind="protocol",
        elements=1,
    )
    sizes = tuple(
        Leak(
            to=peer,
            what="how many tokens are read, taken back and written, and when",
            why="sizes are not hidden",
            kind="size",
            elements=step.rows - step.pads,
        )
        for peer in (seats.owner, seats.dealer)
        if peer in parties
    )
    return (chosen, *sizes) if step.is_scored and reveal == "token" else sizes


PASS_WORDS = 6
LEAVE = torch.tensor([-1, *[0] * (PASS_WORDS - 1)])


def read_pass(words: Tensor, *, sender: str, architecture: Architecture) -> Pass | None:
    """Read what a user sent, and check it; None if it leaves."""
    conversation, past, rows, prompt, scored, ordering = (int(word) for word in words)
    if conversation == -1:
        return None
    is_sound = (
        conversation >= 0
        and past >= 0
        and 1 <= rows <= max(MOST_ROWS, prompt + 1)
        and past + rows + ordering <= architecture.context
        and 0 <= prompt <= past + rows
        and (prompt == 0 or architecture.family == "chatglm")
        and scored in (0, 1)
        and ordering in (0, 1)
    )
    if not is_sound:
        raise FrameError(sender, f"asks for a pass of {rows} tokens after {past}")
    return Pass(
        conversation=conversation,
        past=past,
        rows=rows,
        prompt=prompt,
        is_scored=bool(scored),
        expects_next=bool(ordering),
    )


def told_words(a: Architecture, step: Pass, slots: Tensor | None = None) -> dict[str, Tensor]:
    """Return the public words of a pass: what its rows turn by, and which keys they see.

    ``slots`` says where in the text the token of each key stands, if some are void (-1).
    """
    words = dict[str, Tensor]()
    _, signs = swap(a)
    held = torch.arange(step.past + step.rows) if slots is None else slots
    rows = step.places() - step.read
    for window in dict.fromkeys(map(a.window_of, range(a.layers))):
        where = {"start": step.read, "count": step.rows - step.pads, "prompt": step.prompt}
        seen = visible(a, **where, window=window)[rows]  # of each new token that counts
        seen = seen[:, held.clamp(min=0)] & (held >= 0)
        shown = torch.zeros(step.rows, step.room, dtype=torch.int64)
        shown[:, : seen.shape[1]] = seen
        words[f"seen.{window}"] = shown.repeat(a.heads // a.kv_heads, 1)
        if a.positions == "learned":
            continue
        cos, sin = (one[rows] for one in turns(a, **where, window=window))
        words[f"cos.{window}"] = ring.encode(cos.double(), frac_bits=FRAC_BITS)
        words[f"sin.{window}"] = ring.encode(sin.double() * signs, frac_bits=FRAC_BITS)
    return words


def swap(a: Architecture) -> tuple[list[int], Tensor]:
    """Return where the partner of each feature of a head is, and the sign of its sine."""
    kinds = 2 if a.positions == "rotary2d" else 1
    pairs = torch.arange(a.head_dim).view(kinds, 2, -1)
    signs = torch.tensor([-1.0, 1.0], dtype=torch.float64).view(1, 2, 1).expand(pairs.shape)
    return pairs.flip(1).flatten().tolist(), signs.flatten()


@dataclass(eq=False)
class KvShares:
    """A party's shares of the keys and values of every layer, by name as the program has them.

    Guarantee: one party's shares are uniform, whatever the text.
    """

    shares: dict[str, Share] = field(default_factory=dict)
    length: int = 0

    def upto(self, past: int) -> dict[str, Share]:
        """Return the shares of the first tokens.

        Raises:
            DataError: so many were never kept.
        """
        if past > self.length:
            raise DataError(f"wanted {past} tokens of a conversation, {self.length} are kept")
        if not past:
            return {}
        return {
            name: _with_words(share, share.words[:, :, :past])
            for name, share in self.shares.items()
        }

    def rewind(self, past: int) -> None:
        """Forget all but the first tokens.

        Raises:
            DataError: so many were never kept.
        """
        self.shares, self.length = self.upto(past), past

    def extend(self, past: int, keys: list[Share], values: list[Share]) -> None:
        """Write the shares of new tokens behind the first ``past`` ones."""
        old = self.upto(past)
        fresh = {f"{i}.k": one for i, one in enumerate(keys)}
        fresh |= {f"{i}.v": one for i, one in enumerate(values)}
        self.shares = {
            name: _with_words(share, torch.cat([old[name].words, share.words], 2))
            if past
            else share
            for name, share in fresh.items()
        }
        self.length = past + next(iter(fresh.values())).spec.shape[2]


def _with_words(share: Share, words: Tensor) -> Share:
    return Share(words, replace(share.spec, shape=tuple(words.shape)))
