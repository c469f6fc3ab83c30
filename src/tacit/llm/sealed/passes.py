"""What a pass is: public facts that the user tells the two others."""

from dataclasses import dataclass

import torch
from torch import Tensor

from tacit.errors import FrameError
from tacit.llm.model.architecture import Architecture

MOST_ROWS = 256
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
    """

    conversation: int
    past: int
    rows: int
    prompt: int
    is_scored: bool

    def words(self) -> Tensor:
        """Write the pass as it travels."""
        return torch.tensor(
            [self.conversation, self.past, self.rows, self.prompt, int(self.is_scored)]
        )


PASS_WORDS = 5
LEAVE = torch.tensor([-1, 0, 0, 0, 0])


def read_pass(words: Tensor, *, sender: str, architecture: Architecture) -> Pass | None:
    """Read what a user sent, and check it; None if it leaves."""
    conversation, past, rows, prompt, scored = (int(word) for word in words)
    if conversation == -1:
        return None
    is_sound = (
        conversation >= 0
        and past >= 0
        and 1 <= rows <= max(MOST_ROWS, prompt + 1)
        and past + rows <= architecture.context
        and 0 <= prompt <= past + rows
        and (prompt == 0 or architecture.family == "chatglm")
        and scored in (0, 1)
    )
    if not is_sound:
        raise FrameError(sender, f"asks for a pass of {rows} tokens after {past}")
    return Pass(
        conversation=conversation, past=past, rows=rows, prompt=prompt, is_scored=bool(scored)
    )
