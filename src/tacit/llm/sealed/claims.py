"""What the sealed protocol promises to the parties of a chat, and what it does not."""

from tacit.llm.sealed.choosing import Reveal
from tacit.result import Claim

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
