"""`permuted2`: P1 sees values in random order, and computes functions on them."""

from tacit.mpc.arithmetic.kernels import ARITHMETIC
from tacit.mpc.permuted.dummies import FlipsAndDummies, read_flips_and_dummies
from tacit.mpc.permuted.view import seen_through
from tacit.mpc.protocol import TWO_SERVERS, MpcProtocol
from tacit.mpc.protocols.permuted2.kernel import SeenBySecond
from tacit.result import Claim


def hidden_by(hiding: FlipsAndDummies) -> MpcProtocol:
    """Make the protocol whose second party sees values permuted, and hidden as stated."""
    return MpcProtocol(
        name=" ".join(("permuted2", *hiding.spelling())),
        claims=(
            Claim(
                subject="inputs and intermediate values, towards P0 (the first computing party)",
                guarantee="it sees only uniformly random words and the declared outputs",
                assumptions=TWO_SERVERS,
            ),
            Claim(
                subject="the inputs of non-linear functions, towards P1 (the second computing "
                "party)",
                guarantee="no guarantee",
                assumptions=(
                    "P1 sees these values in random order, fresh in every call; a value that "
                    "comes again is recognised; what it can infer depends on how many there are "
                    "and on what it knows already: let the owner of the data be P1, so that what "
                    "is at risk is the model",
                    "the dealer knows the orders; it does not tell P1",
                    "P1 follows the protocol: a malicious one undoes the orders by tagging what it "
                    "hands over, sees every value in its place, and is not noticed",
                    *hiding.assumptions(),
                ),
            ),
        ),
        shows_to=frozenset({"second"}),
        helper_is_online=False,
        kernels={
            **ARITHMETIC,
            **seen_through(lambda view: SeenBySecond(view, hiding)),
        },
        options=lambda words: hidden_by(read_flips_and_dummies(words)),
    )


PROTOCOL = hidden_by(FlipsAndDummies())
