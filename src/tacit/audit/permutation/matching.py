"""Attacks on permuted values. A permutation hides the order of values, never the values."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class PermutedView:
    """All that a matching attack may hold.

    Attributes:
        seen: the values of one batch, in random order.
        guesses: for every candidate row the values that it would have caused, as far as the
            viewer can tell from the weights that it knows.
    """

    seen: Tensor
    guesses: Tensor


def rank_candidates(view: PermutedView) -> Tensor:
    """Order candidates by how well their values occur among those seen, best first.

    The score of a candidate is how far its values are, on average, from the nearest one seen:
    zero up to rounding for a row of the batch, if the weights are the right ones. It needs no
    order, and the other rows of the batch only add values in between.
    """
    seen = view.seen.reshape(-1).sort().values
    guesses = view.guesses.reshape(len(view.guesses), -1).contiguous()
    after = torch.searchsorted(seen, guesses).clamp(max=len(seen) - 1)
    before = (after - 1).clamp(min=0)
    gaps = torch.minimum((seen[after] - guesses).abs(), (guesses - seen[before]).abs())
    return gaps.mean(dim=1).argsort()


def count_recognised(view: PermutedView, batch: Sequence[int]) -> int:
    """Count the rows of a batch among as many best candidates: the score of the attack."""
    best = rank_candidates(view)[: len(batch)].tolist()
    return len(set(best) & set(batch))


def match_repeats(first: Tensor, second: Tensor) -> Tensor:
    """Find for every run of one list the run of another that showed the most similar values.

    No weights are needed: under the same weights the same row shows the same values again.

    Args:
        first: values seen in each run, (runs, values).
        second: the same of later runs.
    """
    return torch.cdist(first.sort(dim=1).values, second.sort(dim=1).values, p=1).argmin(dim=1)


def nearest(queries: Tensor, candidates: Tensor, *, count: int) -> Tensor:
    """Find the candidates nearest to each query (section 5.5.4.2 of seed 000)."""
    distances = torch.cdist(queries.double(), candidates.double())
    return distances.topk(count, dim=1, largest=False).indices
