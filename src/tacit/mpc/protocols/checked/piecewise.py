"""Piecewise polynomials with tags: the kernel of `sealed` is run, and then its messages' tags.

Every message of a comparison is linear in dealt bits once earlier messages are open, and so is its
tag. Tags of bits are words of their own, one for each bit.
"""

from dataclasses import dataclass
from math import comb

import torch
from torch import Tensor

from tacit import ring
from tacit.errors import InputError
from tacit.mpc import narrow
from tacit.mpc.contract import Channel, Declaration, Roles
from tacit.mpc.functions.curve import PiecewiseCurve, unpacked
from tacit.mpc.material.randomness import Parts
from tacit.mpc.protocols.checked import wide
from tacit.mpc.protocols.checked.pending import TaggedShare, tagged
from tacit.mpc.protocols.checked.proofs import Proofs, proofs_of
from tacit.mpc.protocols.checked.tags import PartPair, Tagged, Tags, add_public, spread
from tacit.mpc.protocols.sealed.compare import CompareMask, Comparison, group_blocks
from tacit.mpc.protocols.sealed.conjunction import ConjunctionMask, joined_blocks, masked_blocks
from tacit.mpc.protocols.sealed.piecewise import Piecewise, SelectMask
from tacit.mpc.share import WORD_BITS, AnyShare, AnySpec, Spec

_PART = 1 << 17
"""So many wide numbers are made at a time: more would leave a core's cache, and fill memory."""


@dataclass(frozen=True)
class PiecewiseTagged(Piecewise):
    """Apply piecewise polynomials to every element, with tags.

    Guarantee: that of `Piecewise`; a wrong message is noticed at the next check.
    Cost: that of `Piecewise`; from the dealer 16 bytes for every dealt bit and 32 for every word.
    """

    def declare(self, roles: Roles, *operands: AnySpec) -> Declaration:
        """Say what comes out and what is sent."""
        plain = super().declare(roles, *operands)
        x = self.argument(operands[0])
        if self.drop or x.ring_bits != WORD_BITS:
            raise InputError("'checked' has no functions that rescale; use protocol 'sealed'")
        return Declaration(out=plain.out, needs=self._tagged(x), rounds=plain.rounds)

    def _comparison(self, x: Spec) -> Comparison:
        curve = self.curves[0]
        return Comparison(x.elements, narrow.bits_of(x.largest + curve.reach), len(curve.breaks))

    def _tagged(self, x: Spec) -> tuple[Tagged, ...]:
        comparison, degree = self._comparison(x), self.curves[0].degree
        mask = CompareMask(x.elements, comparison.blocks)
        select = SelectMask(mask, comparison.thresholds, degree)
        (planes,) = mask.correction_shapes()
        _, powers = select.correction_shapes()
        count = x.elements
        items = (
            PartPair(0, 0, (count,)),
            PartPair(2, 2, planes, count),
            PartPair(1, 1, (comparison.thresholds, comparison.words), count),
            PartPair(3, 3, powers),
        )
        tree = tuple(_tagged_tree(need, count) for need in comparison.needs())
        return (Tagged(select, items), *tree)

    def run(self, channel: Channel, material: tuple[Parts, ...], *operands: AnyShare) -> AnyShare:
        """Run the kernel, and note what was sent."""
        x, first = tagged(operands[0]), channel.is_first
        spec = self.argument(x.spec)
        read = [
            need.read(parts, is_first=first)
            for need, parts in zip(self._tagged(spec), material, strict=True)
        ]
        note = _Note(channel)
        out = super().run(note, tuple(own for own, _ in read), x)  # type: ignore[arg-type]
        (mine, theirs), *bits = note.messages
        (r, codes, rho, powers), *tree = (tags for _, tags in read)
        proofs_of(channel).exchanged(
            wide.carry(x.numbers.reshape(*x.numbers.shape[:2], -1) + r.wide()), theirs
        )
        c, comparison = mine + theirs, self._comparison(spec)
        opened = _Opened.of(bits, comparison)
        for part in _parts(len(c), comparison.thresholds * len(comparison.blocks.widths())):
            _note_bits(channel, self.curves[0], comparison, c[part], codes, rho, tree, opened, part)
        tau = unpacked(bits[-1][0] ^ bits[-1][1], len(c))
        numbers = [_selected(channel, curve, c, tau, r, powers) for curve in self.curves]
        shape = self.out(spec).shape
        joined = torch.stack(numbers, dim=2)
        return TaggedShare(
            out.words,  # type: ignore[union-attr]
            self.out(spec),
            joined.reshape(*joined.shape[:2], *shape),
        )


def _tagged_tree(need: ConjunctionMask, count: int) -> Tagged:
    (products,) = need.correction_shapes()
    masks = (len(need.group.variables()), *need.lanes)
    return Tagged(need, (PartPair(0, 0, masks, count), PartPair(1, 1, products, count)))


class _Note:
    """A channel that notes what is exchanged: words once, and then bits."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self.is_first = channel.is_first
        self.messages: list[tuple[Tensor, Tensor]] = []

    def exchange_low(self, mine: Tensor, bits: int) -> Tensor:
        total = self._channel.exchange_low(mine, bits)
        self.messages.append((mine, total - mine))
        return total

    def exchange_bits(self, mine: Tensor, count: int) -> Tensor:
        theirs = self._channel.exchange_bits(mine, count)
        self.messages.append((mine, theirs))
        return theirs


@dataclass(frozen=True, eq=False)
class _Opened:
    """Exchanged bits: of each message the sum of both parts, and the other party's part."""

    both: list[Tensor]
    theirs: list[Tensor]

    @classmethod
    def of(cls, bits: list[tuple[Tensor, Tensor]], comparison: Comparison) -> "_Opened":
        count = comparison.elements
        theirs = [spread(came, count) for _, came in bits]
        both = [spread(mine ^ came, count) for mine, came in bits]
        return cls(both, theirs)


def _parts(count: int, rows: int) -> list[slice]:
    size = max(1, _PART // max(1, rows))
    return [slice(at, min(at + size, count)) for at in range(0, count, size)]


def _note_bits(
    channel: Channel,
    curve: PiecewiseCurve,
    comparison: Comparison,
    c: Tensor,
    codes: Tags,
    rho: Tags,
    tree: list[tuple[Tags, ...]],
    opened: _Opened,
    part: slice,
) -> None:
    """Compute tags and keys of the bits that were exchanged for some elements, and note them."""
    proofs: Proofs = proofs_of(channel)
    # In the keys to P0's bits P1's secret stands for a public one; a tag ignores what is public.
    ones = 0 if channel.is_first else proofs.keys.bits
    shifted = c - curve.edges(c.device)[:, None]
    sides = []
    for name, one in (("tag", 0), ("key", ones)):
        levels = [tuple(getattr(item, name)[..., part] for item in level) for level in tree]
        sent = _messages(
            comparison,
            shifted,
            getattr(codes, name)[..., part],
            getattr(rho, name)[..., part],
            levels,
            [both[..., part] for both in opened.both],
            one,
        )
        sides.append(sent)
    for tags, keys, theirs in zip(*sides, opened.theirs, strict=True):
        proofs.exchanged_bits(tags, keys, theirs[..., part])


def _messages(
    comparison: Comparison,
    shifted: Tensor,
    codes: Tensor,
    rho: Tensor,
    tree: list[tuple[Tensor, ...]],
    opened: list[Tensor],
    ones: int,
) -> list[Tensor]:
    """Follow `Comparison.run` with one word for every bit: what every message is made of."""
    g, p = _picked(comparison, shifted, codes, ones)
    found = []
    for (group, count), (masks, products), public in zip(
        comparison.levels(), tree, opened, strict=False
    ):
        g = group_blocks(g, group.fan_in, count, filler=0)
        p = group_blocks(p, group.fan_in, count, filler=ones)
        found.append(masked_blocks(group, g, p, masks))
        g, p = joined_blocks(group, g, p, public, (masks, products), ones)
    top = -((shifted >> (comparison.bits - 1)) & 1)
    sign = g[0] ^ codes[-1] ^ (~top & ones)
    return [*found, sign ^ rho]


def _picked(
    comparison: Comparison, shifted: Tensor, codes: Tensor, ones: int
) -> tuple[Tensor, Tensor]:
    """Look g = [c < r] and p = [c == r] up in every block, (blocks, thresholds, elements)."""
    rows, first, last, at, bit = [], [], [], 0, 0
    for width in comparison.blocks.widths():
        steps = (1 << width) - 1
        digit = (shifted >> bit) & steps
        rows.append(digit + at)
        first.append(digit == 0)
        last.append(digit == steps)
        at, bit = at + steps, bit + width
    # [r >= 0] is one and [r > 2^width - 1] is zero; between them are the codes.
    place = torch.stack(rows)
    less = _looked_up(codes, place, at - 1).masked_fill_(torch.stack(last), 0)
    at_least = _looked_up(codes, place - 1, at - 1).masked_fill_(torch.stack(first), ones)
    return less, at_least.bitwise_xor_(less)


def _looked_up(codes: Tensor, rows: Tensor, last: int) -> Tensor:
    """Take from every column of codes (…, elements) what rows (…, elements) say."""
    count = codes.shape[1]
    places = rows.clamp(0, last).mul_(count).add_(torch.arange(count, device=rows.device))
    return codes.reshape(-1).index_select(0, places.view(-1)).view(rows.shape)


def _selected(
    channel: Channel, curve: PiecewiseCurve, c: Tensor, tau: Tensor, r: Tags, powers: Tags
) -> Tensor:
    """Add up the pieces of a curve in wide numbers, as `sealed.piecewise` does in words."""
    degree, keys = curve.degree, proofs_of(channel).keys
    rows = (max(0, degree - 1), len(curve.breaks) * (degree + 1))
    found = []
    for part in _parts(len(c), sum(rows) + 1):
        public, plain, selected = _coefficients(curve, c[part], tau[:, part])
        known = powers.wide(part)
        total = wide.multiply_rows(known[:, :, rows[0] :], selected)
        if degree > 0:
            total += wide.multiply(r.wide(part), plain[0])
        if degree > 1:
            total += wide.multiply_rows(known[:, :, : rows[0]], plain[1:])
        total = wide.carry(total)
        found.append(add_public(total, public, keys))
    return torch.cat(found, dim=-1)


def _coefficients(curve: PiecewiseCurve, c: Tensor, tau: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the public part, and factors of r^i (i > 0) and ρ·r^i; see `select_pieces`."""
    degree, steps = curve.degree, curve.steps(c.device)
    base = torch.zeros(degree + 1, dtype=torch.int64, device=c.device)
    base[: len(curve.pieces[0])] = torch.tensor(curve.pieces[0], device=c.device)
    chosen = ring.matmul(steps, tau) + base[:, None]
    sign = 1 - 2 * tau
    powers = [torch.ones_like(c)]
    for _ in range(degree):
        powers.append(powers[-1] * c)
    plain, selected = [], []
    for i in range(degree + 1):
        factors = [powers[j - i] * (comb(j, i) * (-1) ** i) for j in range(i, degree + 1)]
        plain.append(sum(chosen[j] * factors[j - i] for j in range(i, degree + 1)))
        change = sum(steps[j][:, None] * factors[j - i] for j in range(i, degree + 1))
        selected.append(change * sign)
    stacked = torch.stack(selected, dim=1).flatten(0, 1)  # (breaks, degree + 1) in one row
    rest = torch.stack(plain[1:]) if degree else c.new_zeros((0, len(c)))
    return plain[0], rest, stacked
