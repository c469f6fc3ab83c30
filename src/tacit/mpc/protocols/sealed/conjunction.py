"""Products of several secret bits in one round, and the tree that compares with them.

A Beaver triple multiplies two bits. With masks for every factor and shares of the products of the
masks, a product of q bits takes one opening too: Π (d_i ⊕ a_i) is a sum over subsets of public
d's times a shared product of a's (as in Ohata and Nuida 2020). Four factors at a time make the
tree over the blocks of a comparison two levels deep instead of four.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, reduce
from itertools import combinations

import torch
from torch import Tensor

from tacit.mpc.contract import Channel
from tacit.mpc.material.randomness import Parts
from tacit.ring import Prg

Monomial = tuple[int, ...]
"""The variables of a product: p_i is i and g_i is fan_in + i, counted from the lowest block."""


@dataclass(frozen=True)
class Group:
    """What is computed from ``fan_in`` neighbouring blocks with (g, p) each.

    A block decides "less" (g) or leaves the decision to the block below it (p); so does a group:
    G = g_top ⊕ p_top·g_next ⊕ … and P is the product of all p, not needed in the last level.
    """

    fan_in: int
    is_last: bool

    def monomials(self) -> tuple[Monomial, ...]:
        """Return the products that make G, highest first, and then that of P."""
        return _monomials(self.fan_in, self.is_last)

    def variables(self) -> tuple[int, ...]:
        """Return the bits that have to be opened under a mask."""
        return tuple(sorted({v for monomial in self.monomials() for v in monomial}))

    def products(self) -> tuple[Monomial, ...]:
        """Return the products of masks that the dealer has to share."""
        return _products(self.fan_in, self.is_last)


@cache
def _monomials(fan_in: int, is_last: bool) -> tuple[Monomial, ...]:
    top = range(fan_in - 1, -1, -1)
    found = [(*range(i + 1, fan_in), fan_in + i) for i in top if i < fan_in - 1]
    return tuple(found if is_last else [*found, tuple(range(fan_in))])


@cache
def _products(fan_in: int, is_last: bool) -> tuple[Monomial, ...]:
    subsets = {
        subset
        for monomial in _monomials(fan_in, is_last)
        for size in range(2, len(monomial) + 1)
        for subset in combinations(monomial, size)
    }
    return tuple(sorted(subsets, key=lambda subset: (len(subset), subset)))


@dataclass(frozen=True)
class ConjunctionMask:
    """Uniform masks for the variables of a group and shares of the products of masks."""

    group: Group
    lanes: tuple[int, ...]

    def first(self, prg: Prg) -> Parts:
        """Draw the first shares of masks and products."""
        return prg.words(self._masks()), prg.words(self._products())

    def second(self, prg: Prg) -> Parts:
        """Draw the second share of the masks."""
        return (prg.words(self._masks()),)

    def correction(self, first: Parts, second: Parts) -> Parts:
        """Compute the second shares of the products."""
        places = {variable: at for at, variable in enumerate(self.group.variables())}
        masks = first[0] ^ second[0]
        known: dict[Monomial, Tensor] = {(v,): masks[at] for v, at in places.items()}
        for product in self.group.products():
            known[product] = known[product[:-1]] & known[product[-1:]]
        if not self.group.products():
            return (first[1],)
        return (torch.stack([known[one] for one in self.group.products()]) ^ first[1],)

    def correction_shapes(self) -> tuple[tuple[int, ...], ...]:
        """Return the shape of the products."""
        return (self._products(),)

    def _masks(self) -> tuple[int, ...]:
        return (len(self.group.variables()), *self.lanes)

    def _products(self) -> tuple[int, ...]:
        return (len(self.group.products()), *self.lanes)


def merge_blocks(
    channel: Channel, group: Group, g: Tensor, p: Tensor, material: Parts, count: int
) -> tuple[Tensor, Tensor]:
    """Merge neighbouring blocks: (fan_in, …) shares of g and p give (…) shares of G and P.

    Every word row holds ``count`` bits that matter.

    Cost: 1 round; one bit for each variable of each group, each way.
    """
    masks, _ = material
    mine = masked_blocks(group, g, p, masks)
    opened = mine ^ channel.exchange_bits(mine, count)
    return joined_blocks(group, g, p, opened, material, -1 if channel.is_first else 0)


def masked_blocks(group: Group, g: Tensor, p: Tensor, masks: Tensor) -> Tensor:
    """Lay out what has to be opened of the blocks, under my share of the masks."""
    rows = [p[v] if v < group.fan_in else g[v - group.fan_in] for v in group.variables()]
    return torch.stack(rows) ^ masks if rows else masks


def joined_blocks(
    group: Group, g: Tensor, p: Tensor, opened: Tensor, material: Parts, ones: int
) -> tuple[Tensor, Tensor]:
    """Join blocks whose masked variables are open; nothing is sent.

    ``ones`` is what stands for a public one in these shares: all ones for P0, zero for P1.
    """
    masks, products = material
    variables, top = group.variables(), group.fan_in - 1
    public = dict(zip(variables, opened, strict=True))
    shared: _Shared = {(v,): mask for v, mask in zip(variables, masks, strict=True)}
    shared |= dict(zip(group.products(), products, strict=True))
    shared[()] = ones
    # From the lowest block up: what is left is a function of the p above, by subsets of these.
    rest: _Shared = {}
    # G = Σ_i g_i·Π_{j>i} p_j: a group decides by its highest block that does not pass the decision
    # on. Folding a public d in halves the shared products that are left, so each is read once.
    for i in range(top):
        above = _subsets(range(i + 1, group.fan_in))
        if rest:
            rest = _fold(rest, i, public[i], above)
        for subset, own in _fold(shared, group.fan_in + i, public[group.fan_in + i], above).items():
            rest[subset] = _xor(rest[subset], own) if subset in rest else own
    joined = _xor(_fold(rest, top, public[top], ((),))[()], g[-1]) if top else g[-1]
    if group.is_last:
        return joined, p[-1]
    for i in range(group.fan_in):
        shared = _fold(shared, i, public[i], _subsets(range(i + 1, group.fan_in)))
    return joined, _tensor(shared[()])


_Shared = dict[Monomial, Tensor | int]
"""Shares of products of masks; of no mask it is what stands for a public one."""


@cache
def _subsets(variables: range) -> tuple[Monomial, ...]:
    return tuple(one for size in range(len(variables) + 1) for one in combinations(variables, size))


def _fold(shared: _Shared, variable: int, public: Tensor, over: tuple[Monomial, ...]) -> _Shared:
    """Multiply by d ⊕ a, whose d is public: a·rest + d·rest, for products with these subsets."""
    found: _Shared = {}
    for subset in over:
        with_it, without = shared[tuple(sorted((*subset, variable)))], shared[subset]
        found[subset] = _xor(public & without, with_it)
    return found


def _xor(spent: Tensor | int, other: Tensor | int) -> Tensor:
    """Add to what nobody needs any more."""
    return _tensor(spent).bitwise_xor_(_tensor(other))


def _tensor(value: Tensor | int) -> Tensor:
    assert isinstance(value, Tensor)  # noqa: S101 - a number stands for no mask alone
    return value


def plan_tree(blocks: int) -> tuple[Group, ...]:
    """Choose fan-ins of up to four whose product covers the blocks, in as few levels as can be."""
    # The dealer shares 2, 8, 22 and 52 products of masks for a group of 2, 3, 4 and 5; two levels
    # of four join the 16 blocks of a whole word.
    fan_ins: Sequence[int] = ()
    while _reach(fan_ins) < blocks:
        options = [(*fan_ins, q) for q in (2, 3, 4)]
        enough = [option for option in options if _reach(option) >= blocks]
        fan_ins = enough[0] if enough else options[-1]
    return tuple(Group(q, is_last=at == len(fan_ins) - 1) for at, q in enumerate(fan_ins))


def _reach(fan_ins: Sequence[int]) -> int:
    return reduce(lambda x, y: x * y, fan_ins, 1)
