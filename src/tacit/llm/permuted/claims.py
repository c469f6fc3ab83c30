"""What the permuted protocol promises, and what it does not: said before a chat begins."""

from tacit.llm.model.architecture import Architecture
from tacit.llm.permuted.seats import Seats
from tacit.llm.permuted.weights import matrices
from tacit.result import Claim, Leak


def rows_to_steal(a: Architecture) -> int:
    """Return from how many tokens a user who cheats reads every matrix of a model.

    It is what the attack in the tests takes, which reads one column of every matrix per row, and a
    token's embedding. It is no bound: a row could be made to show several.
    """
    tokens = 1 if a.tied_output else a.vocab  # tied, the others follow from the output matrix
    columns = max(tokens, 1 + a.ffn, 1 + a.heads * a.head_dim) + a.width
    return columns + (a.context if a.positions == "learned" else 0)


def claims(a: Architecture) -> tuple[Claim, ...]:
    """Return what holds for a model that is served under the permuted protocol."""
    return (
        Claim(
            subject="the text, against the owner or the dealer",
            guarantee="nothing but lengths and times",
            assumptions=(
                "owner and dealer follow the protocol and do not work together; AES-128 is sound",
            ),
        ),
        Claim(
            subject="the weights, against the user",
            guarantee="no guarantee",
            assumptions=(
                f"a user who cheats can compute all of them from about {rows_to_steal(a):,} "
                "tokens, and nobody notices",
                "serve only models whose weights the user may have; --protocol sealed shows the "
                "user tokens alone",
            ),
        ),
    )


def stolen_leak(a: Architecture, seats: Seats) -> Leak:
    """Return what a user has from the first text on."""
    return Leak(
        to=seats.user,
        what="no guarantee for the weights: a user who cheats can compute all of them from about "
        f"{rows_to_steal(a):,} tokens",
        why="it can add to what the owner computes, and sees what comes of it",
        kind="protocol",
        elements=sum(one.shape[0] * one.shape[1] for one in matrices(a)),
    )
