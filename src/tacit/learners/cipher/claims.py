"""What learners on ciphertexts promise, and what they do not."""

from collections.abc import Sequence

from tacit.result import Claim

_FOLLOWS = "all parties follow the protocol; ciphertexts are not checked"


def claims_of_boosting(active: str, passive: Sequence[str], cipher: str) -> tuple[Claim, ...]:
    """Return what SecureBoost promises, and what it does not."""
    others = ", ".join(passive)
    return (
        Claim(
            subject=f"labels of {active}, towards {others}",
            guarantee="no guarantee",
            assumptions=(
                "gradients are encrypted, but everyone sees which rows lie in which node, and rows "
                "of a node are alike in their labels",
            ),
        ),
        Claim(
            subject=f"columns of {others}, towards {active}",
            guarantee="no guarantee",
            assumptions=(
                "it sees how gradients add up in every bin of every column, node by node; values, "
                "names and edges are not sent",
            ),
        ),
        Claim(
            subject=f"gradients of single rows, towards {others}",
            guarantee="hidden",
            assumptions=(_FOLLOWS, f"the cipher {cipher} holds"),
        ),
    )


def claims_of_regression(
    labelled: str, other: str, coordinator: str | None, cipher: str
) -> tuple[Claim, ...]:
    """Return what a regression by a cipher promises, and what it does not."""
    if coordinator is None:
        return (
            Claim(
                subject=f"rows of {labelled} and {other}, towards each other",
                guarantee="hidden, but for what the gradients of one's own weights tell",
                assumptions=(
                    _FOLLOWS,
                    f"the cipher {cipher} holds",
                    "what follows from a gradient over many rows is not bounded",
                ),
            ),
        )
    return (
        Claim(
            subject=f"rows, towards {coordinator}",
            guarantee="no guarantee",
            assumptions=("it decrypts every gradient, chooses all weights and knows who matches",),
        ),
        Claim(
            subject=f"rows of {labelled} and {other}, and which of them match, towards each other",
            guarantee="hidden, but for what one's own weights tell after every step",
            assumptions=(
                _FOLLOWS,
                f"the cipher {cipher} holds; {coordinator} works with neither owner",
            ),
        ),
    )
