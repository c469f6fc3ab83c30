"""What any stage says of a box, of an objective or of a point: one enum for all."""

from enum import IntEnum

from tacit.verify.kernels.jit import bare


class Outcome(IntEnum):
    """Whether the prediction holds. Of several outcomes the largest stands, but a counterexample.

    ROBUST: no input that was asked about changes the prediction.
    COUNTEREXAMPLE: one does.
    NEAR_TIE: some come too close to a tie for the library's softmax to be predicted.
    UNDECIDED: not told yet; after the budget, not told at all.
    """

    ROBUST = 0
    COUNTEREXAMPLE = 1
    NEAR_TIE = 2
    UNDECIDED = 3


@bare
def worse(one: Outcome, other: Outcome) -> Outcome:
    """Return the larger of two outcomes."""
    # Numba knows no maximum of enums.
    return one if one > other else other
