"""`permuted3`: the helper sees values in random order, and computes functions on them."""

from tacit.mpc.arithmetic.kernels import ARITHMETIC
from tacit.mpc.permuted.dummies import FlipsAndDummies, read_flips_and_dummies
from tacit.mpc.permuted.view import seen_through
from tacit.mpc.protocol import TWO_SERVERS, MpcProtocol
from tacit.mpc.protocols.permuted3.kernel import SeenByHelper
from tacit.result import Claim


def hidden_by(hiding: FlipsAndDummies) -> MpcProtocol:
    """Make the protocol whose helper sees values permuted, and hidden as stated."""
    return MpcProtocol(
        name=" ".join(("permuted3", *hiding.spelling())),
        claims=(
            Claim(
                subject="inputs and intermediate values, towards the two computing parties",
                guarantee="each sees only uniformly random words and the declared outputs",
                assumptions=TWO_SERVERS,
            ),
            Claim(
                subject="the inputs of non-linear functions, towards the helper",
                guarantee="no guarantee",
                assumptions=(
                    "the helper sees these values in random order, fresh in every call; a value "
                    "that comes again is recognised; what it can infer depends on how many there "
                    "are and on what it knows already",
                    *hiding.assumptions(),
                ),
            ),
        ),
        shows_to=frozenset({"dealer"}),
        helper_is_online=True,
        kernels={
            **ARITHMETIC,
            **seen_through(lambda view: SeenByHelper(view, hiding)),
        },
        options=lambda words: hidden_by(read_flips_and_dummies(words)),
    )


PROTOCOL = hidden_by(FlipsAndDummies())
