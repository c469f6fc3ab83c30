"""What protocols have in common in which somebody computes functions on permuted values."""

from abc import ABC
from collections.abc import Callable
from typing import Any, ClassVar

from tacit.mpc.arithmetic.kernels import ARITHMETIC
from tacit.mpc.arithmetic.local import numeric
from tacit.mpc.contract import Channel, Roles, Seat
from tacit.mpc.permuted.hiding import (
    FlipsAndDummies,
    PermutedInstance,
    instance_of,
    read_flips_and_dummies,
)
from tacit.mpc.permuted.view import EachRow, EachValue, PermutedView
from tacit.mpc.protocol import MpcProtocol
from tacit.mpc.share import AnySpec
from tacit.result import Claim, Leak


class SeenKernel(ABC):
    """A kernel through which a party sees the inputs of a function, in an order it cannot know."""

    seat: ClassVar[Seat]
    """Who sees them."""
    why: ClassVar[str]
    view: PermutedView
    hiding: FlipsAndDummies

    def instance(self, x: AnySpec) -> PermutedInstance:
        """Return the public facts of this use."""
        return instance_of(self.view, self.hiding, numeric(x, "a function"))

    def leak(self, instance: PermutedInstance, roles: Roles) -> Leak:
        """Say what is seen, by whom."""
        return instance.leak(getattr(roles, self.seat), self.why)

    def attend(self, channel: Channel, *operands: AnySpec) -> None:
        """Write down, as anyone else, what is seen."""
        channel.session.ledger.record(self.leak(self.instance(operands[0]), channel.roles))


def permuted_protocol(
    name: str,
    kernel: Any,  # a kind of `SeenKernel`, made of a view and what hides more
    claims: Callable[[FlipsAndDummies], tuple[Claim, ...]],
    hiding: FlipsAndDummies | None = None,
) -> MpcProtocol:
    """Make the protocol in which one party sees values permuted, and hidden as stated."""
    hiding = hiding or FlipsAndDummies()

    def seen(view: PermutedView) -> Any:
        return kernel(view, hiding)

    return MpcProtocol(
        name=" ".join((name, *hiding.spelling())),
        claims=claims(hiding),
        shows_to=frozenset({kernel.seat}),
        helper_is_online=kernel.seat == "dealer",
        kernels={
            **ARITHMETIC,
            "elementwise": lambda name, frac_bits, bound: seen(EachValue(name, frac_bits)),
            "is_positive": lambda: seen(EachValue("step", 0)),
            "pieces": lambda pieces, frac_bits, bound: seen(EachValue(pieces, frac_bits)),
            "rowwise": lambda *public: seen(EachRow(*public)),
        },
        options=lambda words: permuted_protocol(
            name, kernel, claims, read_flips_and_dummies(words)
        ),
    )
