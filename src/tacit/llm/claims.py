"""What the protocols of a chat promise, and what they do not: said before it begins."""

from typing import Literal

from tacit.llm.model.architecture import Architecture
from tacit.result import Claim

Reveal = Literal["token", "sample", "scores"]
"""What the user is shown of the model's answer: the token that is best after the user's own noise
and slopes, one that the dealer's noise has drawn, or all scores."""


def rows_to_steal(a: Architecture) -> int:
    """Return from how many tokens a user who cheats reads every matrix of a model.

    It is what the attack in the tests takes, which reads one column of every matrix per row, and a
    token's embedding. It is no bound: a row could be made to show several.
    """
    tokens = 1 if a.tied_output else a.vocab  # tied, the others follow from the output matrix
    columns = max(tokens, 1 + a.ffn, 1 + a.heads * a.head_dim) + a.width
    return columns + (a.context if a.positions == "learned" else 0)


def permuted_claims(a: Architecture) -> tuple[Claim, ...]:
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


_SHOWN: dict[Reveal, tuple[str, tuple[str, ...]]] = {
    "token": (
        "tokens",
        (
            "noise and slopes are the user's: each token can tell how two scores of its choice "
            "compare, so that k tokens give a difference of scores to k bits; --reveal sample has "
            "the dealer draw, --quota limits tokens",
        ),
    ),
    "sample": (
        "tokens drawn with the dealer's noise",
        (
            "a user who departs from the protocol can add numbers to its share of the scores, and "
            "compare them as if the noise were its own",
        ),
    ),
    "scores": (
        "all scores",
        ("scores of many texts give away the output matrix up to a change of basis",),
    ),
}


_BESIDE = (
    "two counts per pass (rows out of range, rows of scores that saturated), and powers of two "
    "above values"
)


def sealed_claims(reveal: Reveal) -> tuple[Claim, ...]:
    """Return what holds for a model that is served under the sealed protocol."""
    shown, caveats = _SHOWN[reveal]
    return (
        Claim(
            subject="the text, against the owner or the dealer",
            guarantee="nothing but lengths, which include what is taken back or refused, and times",
            assumptions=("the dealer works with nobody else, and all parties follow the protocol",),
        ),
        Claim(
            subject="the weights, against the user",
            guarantee=f"shown are {shown}, {_BESIDE}",
            assumptions=("all parties follow the protocol", *caveats),
        ),
    )
