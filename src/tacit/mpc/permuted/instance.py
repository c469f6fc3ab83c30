"""One use of a function on permuted values: public facts, and the order that is drawn for it."""

from dataclasses import dataclass
from functools import cached_property, lru_cache

from torch import Tensor

from tacit.mpc import narrow
from tacit.mpc.permuted.dummies import FlipsAndDummies, Symmetry
from tacit.mpc.permuted.order import RowLayout
from tacit.mpc.permuted.view import PermutedView
from tacit.mpc.share import Spec
from tacit.result import Leak
from tacit.ring import Prg


@dataclass(frozen=True)
class PermutedInstance:
    """What is shown to whoever looks, and what it answers. Made by `instance_of`."""

    view: PermutedView
    hiding: FlipsAndDummies
    x: Spec

    @cached_property
    def out(self) -> Spec:
        """Return the facts about the result."""
        return self.view.out(self.x)

    @cached_property
    def size(self) -> int:
        """Return how many bytes of every value travel."""
        return narrow.size_of(self.x)

    @cached_property
    def layout(self) -> RowLayout:
        """Return the rows that are shown, dummies among them."""
        return self.hiding.widened(self.view.layout(self.x))

    @cached_property
    def symmetry(self) -> Symmetry | None:
        """Return how flipped signs are undone, if they are flipped."""
        return self.hiding.symmetry(self.view, self.x)

    @cached_property
    def answered(self) -> int:
        """Return how many words are answered."""
        return self.layout.rows * self.view.columns(self.x)

    def draw_order(self, prg: Prg) -> tuple[Tensor, Tensor]:
        """Draw the order of what is shown, and the way back from what is answered."""
        order = self.layout.draw(prg)
        columns, follows = self.view.columns(self.x), self.view.follows
        back = self.layout.way_back(order, columns=columns, follows=follows)
        return order, back[: self.out.elements]

    def draw_flips_and_dummies(self, prg: Prg) -> tuple[Tensor, Tensor]:
        """Draw signs and dummies; both are empty if there are none."""
        signs = self.hiding.draw_signs(prg, self.view, self.x)
        return signs, self.hiding.draw_dummies(prg, self.view, self.x)

    def leak(self, to: str, why: str) -> Leak:
        """Say what whoever looks learns."""
        return Leak(
            to=to,
            what=self.hiding.label(self.view, self.x),
            why=why,
            kind="protocol",
            elements=self.x.elements,
        )


@lru_cache(maxsize=1024)
def instance_of(view: PermutedView, hiding: FlipsAndDummies, x: Spec) -> PermutedInstance:
    """Work out the public facts of a use once; small uses would spend their time on them."""
    return PermutedInstance(hiding.computed(view, x), hiding, x)
