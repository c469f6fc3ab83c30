"""What comes back to a feature owner while training, for whoever wants to know what it tells."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, kw_only=True, eq=False)
class Returned:
    """One message with gradients, beside the values that it answers.

    Attributes:
        step: number of the batch.
        share: of the batch that is in this message; below 1 with micro-batches.
        rows: which rows it is about.
        cut: (rows, width) their values as they arrived at the label owner.
        gradient: (rows, width) as the feature owner unpacks it.
    """

    step: int
    share: float
    rows: Tensor
    cut: Tensor
    gradient: Tensor


OnReturned = Callable[[str, Returned], None]
"""Is shown every message with gradients, and to whom it goes."""
