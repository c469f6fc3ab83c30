"""What a user orders: material for a prompt, or for a block of tokens to come."""

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from tacit.errors import FrameError
from tacit.llm.model.architecture import Architecture

Form = Literal["incremental", "resent"]
"""How attention of one new token is computed: `Incremental` or `Resent`."""

FORMS: tuple[Form, ...] = get_args(Form)
MAX_ROWS = 1 << 16
"""Of one order, whatever context an owner announces: sizes are computed from it."""


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Public facts about a piece of work; all three parties know them.

    Attributes:
        number: counts the batches of a conversation.
        past: tokens in the cache before it.
        rows: tokens it adds: a prompt's, at once, or as many steps of one token each.
        prompt: for ChatGLM, how many tokens of the first prompt precede ``<sop>``.
        masked_kv: rows of the cache that the user holds masked, before it.
        form: how attention is computed, if this is a block of steps; None for a prompt.
        scored: for a prompt, how many of its last rows get scores.
    """

    number: int
    past: int
    rows: int
    prompt: int
    masked_kv: int
    form: Form | None
    scored: int = 1

    @property
    def is_prompt(self) -> bool:
        """Say whether all rows are computed at once."""
        return self.form is None

    @property
    def runs(self) -> int:
        """Return how many passes through the model this is."""
        return 1 if self.is_prompt else self.rows

    @property
    def scores(self) -> int:
        """Return how many rows of scores come out, in all runs."""
        return self.scored if self.is_prompt else self.rows

    def rows_of(self, run: int) -> slice:
        """Return which rows belong to a run."""
        return slice(0, self.rows) if self.is_prompt else slice(run, run + 1)

    def scored_by(self, run: int) -> slice:
        """Return which rows of scores belong to a run."""
        return slice(0, self.scores) if self.is_prompt else slice(run, run + 1)

    def masked_before(self, run: int) -> int:
        """Return how many rows the user holds masked before a run."""
        return self.past + run if run and self.form != "resent" else self.masked_kv

    @property
    def end(self) -> int:
        """Return the length of the cache after all runs."""
        return self.past + self.rows

    def masked_after(self, runs: int) -> int:
        """Return how many rows the user holds masked after so many runs."""
        if not runs or self.form == "resent":
            return self.masked_kv
        return self.end if self.is_prompt else self.past + runs

    def words(self) -> Tensor:
        """Write the batch as it travels."""
        form = -1 if self.form is None else FORMS.index(self.form)
        return torch.tensor(
            [self.number, self.past, self.rows, self.prompt, self.masked_kv, form, self.scored]
        )


BATCH_WORDS = 7


def read_batch(words: Tensor, *, sender: str, architecture: Architecture) -> Batch:
    """Read a batch that a peer sent, and check it."""
    number, past, rows, prompt, masked_kv, form, scored = (int(word) for word in words)
    is_sound = (
        number >= 0
        and past >= 0
        and 1 <= rows <= MAX_ROWS
        and past + rows <= architecture.context
        and 0 <= masked_kv <= past
        and -1 <= form < len(FORMS)
        and 1 <= scored <= rows
        and 0 <= prompt <= past + rows
    )
    if not is_sound:
        raise FrameError(
            sender, f"ordered what the model cannot do: {past} tokens, then {rows}, form {form}"
        )
    return Batch(
        number=number,
        past=past,
        rows=rows,
        prompt=prompt,
        masked_kv=masked_kv,
        form=None if form < 0 else FORMS[form],
        scored=scored,
    )
