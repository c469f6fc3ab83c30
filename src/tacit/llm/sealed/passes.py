"""What a pass is: public facts that the user tells the two others."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from tacit.errors import FrameError
from tacit.llm.model.architecture import Architecture

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
