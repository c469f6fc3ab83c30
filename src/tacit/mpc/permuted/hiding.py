"""Making permuted values say less: sign flips and dummies; and one use of a function on them."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import torch
from torch import Tensor

from tacit.errors import ConfigError
from tacit.mpc import narrow
from tacit.mpc.permuted.view import EachValue, PermutedView, RowLayout
from tacit.mpc.share import Spec
from tacit.result import Leak
from tacit.ring import Prg


@dataclass(frozen=True)
class Symmetry:
    """How f(x) follows from f(-x): it is ``scale``·f(-x) + ``slope``·x + ``constant``."""

    scale: int
    slope: int
    constant: int


SYMMETRIES = {
    "abs": Symmetry(1, 0, 0),
    "erf": Symmetry(-1, 0, 0),
    "gelu": Symmetry(1, 1, 0),
    "layer_norm": Symmetry(-1, 0, 0),
    "relu": Symmetry(1, 1, 0),
    "rms_norm": Symmetry(-1, 0, 0),
    "sigmoid": Symmetry(-1, 0, 1),
    "silu": Symmetry(1, 1, 0),
    "softplus": Symmetry(1, 1, 0),
    "tanh": Symmetry(-1, 0, 0),
}
"""Functions that can be computed from a value, or a row, whose sign was flipped."""

_SIGNS = {"exp": -1, "log": 1, "reciprocal": 1, "rsqrt": 1, "sqrt": 1}
"""Functions whose arguments all have one sign, by which another value would be known."""


@dataclass(frozen=True, kw_only=True)
class FlipsAndDummies:
    """What is done to values, besides permuting them, before someone sees them.

    Attributes:
        flips: flip signs at random, where the function has a symmetry that undoes it.
        dummies: this many values (or whole rows, for a function of rows) are mixed in.
        reach: the dummies are uniform between minus and plus this number, rounded down to a power
            of two. A dummy hides something only if it could be a value: choose a usual size.
    """

    flips: bool = False
    dummies: int = 0
    reach: float = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.dummies < 1 << 31:
            raise ConfigError(f"dummies are a number from 0 on, got {self.dummies}")
        if not 0 < self.reach < float("inf"):
            raise ConfigError(f"the reach of dummies is a positive number, got {self.reach}")

    def spelling(self) -> tuple[str, ...]:
        """Spell the options as `read_flips_and_dummies` reads it; nothing if there is none."""
        dummies = (f"dummies={self.dummies}", f"reach={self.reach:.17g}") if self.dummies else ()
        return (("flips",) if self.flips else ()) + dummies

    def assumptions(self) -> tuple[str, ...]:
        """Say what hiding values this way rests on."""
        flips = "signs are flipped at random before functions that are symmetric about zero"
        dummies = "dummies hide values only as far as they cannot be told from them"
        return ((flips,) if self.flips else ()) + ((dummies,) if self.dummies else ())

    def computed(self, view: PermutedView, x: Spec) -> PermutedView:
        """Return the function to compute: to a result that x is added to, at x's precision."""
        if self.flips and isinstance(view, EachValue) and x.frac_bits > view.frac_bits:
            symmetry = SYMMETRIES.get(str(view.function))
            if symmetry is not None and symmetry.slope:
                return EachValue(view.function, x.frac_bits)
        return view

    def symmetry(self, view: PermutedView, x: Spec) -> Symmetry | None:
        """Return how flipped signs are undone, or None where they cannot be."""
        symmetry = SYMMETRIES.get(str(view.function)) if self.flips else None
        is_fitting = symmetry is None or not symmetry.slope or x.frac_bits == view.frac_bits
        return symmetry if is_fitting else None

    def widened(self, layout: RowLayout) -> RowLayout:
        """Return the layout with rows for the dummies."""
        return RowLayout(layout.rows + self.dummies, layout.columns)

    def draw_signs(self, prg: Prg, view: PermutedView, x: Spec) -> Tensor:
        """Draw, per value, a word of ones to flip its sign or zero; alike within a row."""
        layout = view.layout(x)
        signs = prg.words((layout.rows if self.symmetry(view, x) else 0,)) >> 63
        return signs.repeat_interleave(layout.columns)

    def draw_dummies(self, prg: Prg, view: PermutedView, x: Spec) -> Tensor:
        """Draw the words of the dummies, row after row."""
        reach = min(int(self.reach * 2**x.frac_bits), x.largest)
        words = prg.words((self.dummies * view.layout(x).columns,))
        words = words >> (64 - max(1, reach.bit_length()))
        sign = _SIGNS.get(str(view.function))
        return words if sign is None else sign * words.abs()

    def label(self, view: PermutedView, x: Spec) -> str:
        """Say what is seen."""
        label = view.label
        is_flat = isinstance(view, EachValue)
        if self.symmetry(view, x) is not None:
            label += f", each {'value' if is_flat else 'row'} with a random sign"
        if self.dummies:
            kind = "dummies" if is_flat else "dummy rows"
            label += f", among {self.dummies} {kind} uniform within ±{self.reach:g}"
        return label


def read_flips_and_dummies(words: Sequence[str]) -> FlipsAndDummies:
    """Read what `FlipsAndDummies.spelling` spells."""
    given = {name: value for name, _, value in (word.partition("=") for word in words)}
    try:
        hiding = FlipsAndDummies(
            flips="flips" in given,
            dummies=int(given.get("dummies", "0")),
            reach=float(given.get("reach", "1")),
        )
    except ValueError:
        raise ConfigError(f"dummies and reach are numbers, got {' '.join(words)!r}") from None
    unknown = given.keys() - {"flips", "dummies", "reach"}
    if unknown or given.get("flips") or len(given) < len(words):
        raise ConfigError(
            "the options of a permuted protocol are flips, dummies=COUNT and reach=NUMBER, each "
            f"once, got {' '.join(words)!r}"
        )
    return hiding


def flip(words: Tensor, signs: Tensor) -> Tensor:
    """Flip signs of values or of shares of them."""
    return (words ^ signs).sub_(signs)


def unflip(result: Tensor, x: Tensor, signs: Tensor, *, symmetry: Symmetry, one: int) -> Tensor:
    """Turn my share of f(±x) into my share of f(x).

    Args:
        result: my share of f(±x).
        x: my share of x.
        signs: which signs were flipped.
        symmetry: of the function.
        one: what one is to me: its word for P0, zero for P1.
    """
    if symmetry.scale < 0:
        result = flip(result, signs)
    if symmetry.slope:
        result = result + (x & signs)
    if symmetry.constant and one:
        result = result + (signs & one)
    return result


def extend(words: Tensor, dummies: Tensor, *, is_first: bool) -> Tensor:
    """Append the dummies to my share: P0 holds them, P1 zeros."""
    if not len(dummies):
        return words
    return torch.cat((words, dummies if is_first else torch.zeros_like(dummies)))


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
