"""The largest of a few numbers: all pairs are compared at once, and a table says who has won.

Every number of a group is opened once, c_i = x_i + r_i. The difference of two openings is that of
the numbers under the mask r_i - r_j, so that the dealer's codes of these differences are enough to
compare all pairs. The answers are opened under uniform bits β. A number has won if all comparisons
in which it takes part end well for it: if its bits β are those that the public ones ask for. The
dealer has shared a table for each number that holds a one at its β, and r_i beside it, and zeros
elsewhere: what is found at the place that is public is a share of whether x_i has won, and of r_i
if so. Wide groups would have long tables of words; theirs are of bits, and what is found there is
turned into numbers by one more message. How wide groups are best is tried out: the bytes of all
heats are known before.
"""

from dataclasses import dataclass
from functools import lru_cache
from math import prod

import torch
from torch import Tensor

from tacit.mpc import narrow, tables
from tacit.mpc.arithmetic.local import numeric, numeric_share
from tacit.mpc.contract import Channel, Declaration, Roles
from tacit.mpc.functions.curve import unpacked
from tacit.mpc.functions.curves import curve_of
from tacit.mpc.functions.ordering import Heat
from tacit.mpc.material.randomness import Parts, packed_words
from tacit.mpc.narrow import WORD_BYTES, bits_size
from tacit.mpc.protocols.sealed.compare import CompareMask, Comparison
from tacit.mpc.protocols.sealed.multithreshold import packed_rows
from tacit.mpc.protocols.sealed.piecewise import Piecewise
from tacit.mpc.protocols.sealed.unary import Blocks
from tacit.mpc.share import WORD_BITS, AnyShare, AnySpec, Share, Spec, words_of
from tacit.party.cost import exchange
from tacit.ring import Prg


@dataclass(frozen=True)
class Groups:
    """So many groups of equally many numbers, and how many numbers move with each of them."""

    count: int
    size: int
    parts: int

    @property
    def elements(self) -> int:
        """Return how many numbers are compared."""
        return self.count * self.size

    @property
    def pairs(self) -> int:
        """Return how many comparisons there are."""
        return self.count * self.size * (self.size - 1) // 2

    @property
    def patterns(self) -> int:
        """Return in how many ways the comparisons of one number can end."""
        return 1 << (self.size - 1)

    def differences(self, words: Tensor) -> Tensor:
        """Subtract the later of each pair from the earlier: (size, count) give flat pairs."""
        earlier, later, _, _ = tables.kept(*_schedule(self.size, words.device))
        return (words[earlier] - words[later]).view(-1)

    def pattern(self, bits: Tensor, *, wins: bool) -> Tensor:
        """Read the bits (pairs, count) of each number's comparisons as a number: (size, count).

        With ``wins`` those bits are flipped that tell a victory from a defeat, so that β is what
        the answers under β ask for exactly where all of them are victories.
        """
        _, _, pairs, is_earlier = tables.kept(*_schedule(self.size, bits.device))
        own = bits.view(-1, self.count)[pairs]
        if wins:
            own = own ^ is_earlier[..., None]
        places = torch.arange(self.size - 1, device=bits.device)[None, :, None]
        return (own << places).sum(1)


@lru_cache(maxsize=64)
def _schedule(size: int, device: torch.device) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """List the pairs; and for each number its pairs, and in which of them it is the earlier."""
    pairs = [(i, j) for i in range(size) for j in range(i + 1, size)]
    own = [[at for at, pair in enumerate(pairs) if i in pair] for i in range(size)]
    first = [[int(pairs[at][0] == i) for at in some] for i, some in enumerate(own)]
    earlier, later = [i for i, _ in pairs], [j for _, j in pairs]
    a, b, c, d = (
        tables.laid_out(torch.tensor(one, dtype=torch.int64), device)
        for one in (earlier, later, own, first)
    )
    return a, b, c, d


@dataclass(frozen=True)
class LargestMask:
    """Everything that finding the largest of each group needs but the trees of its comparisons.

    A uniform r for every number and all that moves with it, codes of the differences of those that
    are compared, a uniform bit β for each comparison, and for each number a table by its bits β:
    of words, or of bits and beside it a uniform bit ρ with what it selects.
    """

    groups: Groups
    blocks: Blocks
    is_direct: bool

    def first(self, prg: Prg) -> Parts:
        """Draw the first shares: of r, β and perhaps ρ; of codes, table and what ρ selects."""
        codes, *others = self.correction_shapes()
        drawn = [prg.words(self._masks()), prg.words(self._bits())]
        if not self.is_direct:
            drawn.append(prg.words(self._selectors()))
        drawn += [prg.words(codes), prg.words(others[0])]
        return tuple(drawn if self.is_direct else [*drawn, prg.words(others[1])])

    def second(self, prg: Prg) -> Parts:
        """Draw the second shares of r, β and ρ."""
        drawn = [prg.words(self._masks()), prg.words(self._bits())]
        if not self.is_direct:
            drawn.append(prg.words(self._selectors()))
        return tuple(drawn)

    def correction(self, first: Parts, second: Parts) -> Parts:
        """Compute the second shares of codes, of tables and of what ρ selects."""
        dealt, r, groups = first[len(second) :], first[0] + second[0], self.groups
        codes = self._compare().codes(groups.differences(r[0])) ^ dealt[0]
        beta = unpacked(first[1] ^ second[1], groups.pairs)
        at = groups.pattern(beta, wins=False)
        numbers = torch.cat((torch.ones_like(r[:1]), r))
        if self.is_direct:
            table = -dealt[1]
            table.scatter_add_(0, at.expand(1, *numbers.shape), numbers[None])
            return codes, table
        hot = torch.zeros((groups.patterns, groups.elements), dtype=torch.uint8, device=r.device)
        hot.scatter_(0, at.view(1, -1), 1)
        table = packed_rows(hot, packed_words(groups.elements)) ^ dealt[1]
        rho = unpacked(first[2] ^ second[2], groups.elements).view(1, groups.size, -1)
        return codes, table, rho * numbers - dealt[2]

    def correction_shapes(self) -> tuple[tuple[int, ...], ...]:
        """Return the shapes of codes, table and of what ρ selects."""
        (codes,) = self._compare().correction_shapes()
        numbers = (self.groups.parts + 1, *self._masks()[1:])
        if self.is_direct:
            return codes, (self.groups.patterns, *numbers)
        return codes, (self.groups.patterns, packed_words(self.groups.elements)), numbers

    def _compare(self) -> CompareMask:
        return CompareMask(self.groups.pairs, self.blocks)

    def _masks(self) -> tuple[int, ...]:
        return self.groups.parts, self.groups.size, self.groups.count

    def _bits(self) -> tuple[int, ...]:
        return 1, packed_words(self.groups.pairs)

    def _selectors(self) -> tuple[int, ...]:
        return 1, packed_words(self.groups.elements)


@dataclass(frozen=True)
class Largest:
    """Find the largest number of each group, and what belongs to it.

    Of (parts, …, size) it makes (parts, …). The first part is compared and is at most ``bound``;
    all are taken over from the winner, which is the first of equal ones. With ``is_placed`` a part
    more says which of its group it was.

    Guarantee: the parties see x + r for uniform r and bits masked by uniform bits, and nothing
    else; exact for every x within its bound.
    Cost, for groups of m: 1 round of 8 bytes per element and part each way, the rounds of (m - 1)/2
    comparisons per element, and 1 round of as many bits; from the dealer for each element 2^(m - 1)
    words for each part and one. If it is not ``is_direct``: bits in place of those words, and 1
    round more of one bit per element.
    """

    bound: float
    is_placed: bool = False
    is_direct: bool = True

    def declare(self, roles: Roles, *operands: AnySpec) -> Declaration:
        """Say what comes out and what is sent."""
        x = numeric(operands[0], "finding the largest")
        groups, comparison = self._groups(x), self._comparison(x)
        size = narrow.size_for(WORD_BITS)
        opened = [exchange(*roles.computing, size * groups.parts * groups.elements)]
        bits = [groups.pairs] if self.is_direct else [groups.pairs, groups.elements]
        told = [exchange(*roles.computing, bits_size(packed_words(one), one)) for one in bits]
        return Declaration(
            out=self._out(x),
            needs=(self._mask(x), *comparison.needs()),
            rounds=(*opened, *comparison.rounds(roles), *told),
        )

    def run(self, channel: Channel, material: tuple[Parts, ...], *operands: AnyShare) -> AnyShare:
        """Open x + r, compare all pairs, look up who has won, and take it over."""
        x = numeric_share(operands[0])
        groups = self._groups(x.spec)
        if self.is_direct:
            r, beta, codes, table = material[0]
        else:
            r, beta, rho, codes, table, selected = material[0]
        words = x.words.reshape(groups.parts, groups.count, groups.size).transpose(1, 2)
        c = channel.exchange_low(words + r, WORD_BITS)
        zero = torch.zeros(1, dtype=torch.int64, device=c.device)
        apart = groups.differences(c[0])
        masked = self._comparison(x.spec).run(channel, apart, zero, codes, material[1:]) ^ beta
        told = unpacked(masked ^ channel.exchange_bits(masked, groups.pairs), groups.pairs)
        at = groups.pattern(told, wins=True)
        if self.is_direct:
            won = table.gather(0, at.expand(1, groups.parts + 1, *at.shape))[0]
        else:
            won = _selected(channel, groups, _looked_up(table, at), r, rho, selected)
        # x = c - r of the winner: its c is public, and its r was found with it.
        found = (c * won[:1] - won[1:]).sum(1)
        if self.is_placed:
            places = torch.arange(groups.size, device=c.device)[:, None] << x.spec.frac_bits
            found = torch.cat((found, (won[:1] * places).sum(1)))
        out = self._out(x.spec)
        return Share(found.view(out.shape), out)

    def _groups(self, x: Spec) -> Groups:
        parts, size = x.shape[0], x.shape[-1]
        return Groups(x.elements // (parts * size), size, parts)

    def _comparison(self, x: Spec) -> Comparison:
        largest = min(x.largest, words_of(self.bound, x.frac_bits))
        return Comparison(self._groups(x).pairs, narrow.bits_of(2 * largest), 1)

    def _mask(self, x: Spec) -> LargestMask:
        return LargestMask(self._groups(x), self._comparison(x).blocks, self.is_direct)

    def _out(self, x: Spec) -> Spec:
        shape = (x.shape[0] + int(self.is_placed), *x.shape[1:-1])
        last = (x.shape[-1] - 1) << x.frac_bits if self.is_placed else 0
        return Spec(shape=shape, frac_bits=x.frac_bits, largest=max(x.largest, last))


def _looked_up(table: Tensor, at: Tensor) -> Tensor:
    """Read one bit of every column of packed rows, in the row that is given for it; pack them."""
    words = table.shape[1]
    columns = torch.arange(at.numel(), device=at.device)
    found = table.view(-1).take(at.reshape(-1) * words + (columns >> 6)) >> (columns & 63) & 1
    return packed_rows(found.to(torch.uint8)[None], words)


def _selected(
    channel: Channel, groups: Groups, won: Tensor, r: Tensor, rho: Tensor, selected: Tensor
) -> Tensor:
    """Turn shares of bits into numbers: of 1 and r where a bit is set, and of zeros elsewhere."""
    masked = won ^ rho
    told = masked ^ channel.exchange_bits(masked, groups.elements)
    tau = unpacked(told, groups.elements).view(1, groups.size, groups.count)
    ones = torch.full_like(r[:1], 1 if channel.is_first else 0)
    # A bit τ ⊕ ρ is τ + (1 - 2τ)·ρ.
    return tau * torch.cat((ones, r)) + (1 - 2 * tau) * selected


ROUND_BYTES = 1 << 18
"""So many bytes are worth a round. In half a round trip the networks that plans are forecast for
carry 125 kB in a data centre, 625 kB in a city and 200 kB on a slow line."""
_WIDEST, _WIDEST_DIRECT = 16, 10
_ROLES = Roles(first="P0", second="P1", dealer="dealer")  # names do not matter to a cost


@lru_cache(maxsize=256)
def heats(
    rows: int, length: int, frac_bits: int, bound: float, *, is_placed: bool
) -> tuple[Heat, ...]:
    """Find the cheapest heats that leave one number of each row.

    Args:
        rows: how many.
        length: of each row.
        frac_bits: of the numbers.
        bound: how large they can be.
        is_placed: whether positions are wanted, which move with the numbers from the second heat.
    """
    known: dict[tuple[int, int], tuple[int, tuple[Heat, ...]]] = {}

    def best(left: int, parts: int) -> tuple[int, tuple[Heat, ...]]:
        if left == 1:
            return 0, ()
        if (left, parts) not in known:
            found = []
            for heat in _options(left, is_placed=is_placed):
                groups = -(-left // heat.size)
                shape = (parts, rows, groups, heat.size)
                price = _price(heat, shape, frac_bits, bound, is_placed=is_placed and parts == 1)
                later, rest = best(groups, 2 if is_placed else 1)
                found.append((price + later, (heat, *rest)))
            known[left, parts] = min(found, key=lambda one: one[0])
        return known[left, parts]

    return best(length, 1)[1]


def _options(left: int, *, is_placed: bool) -> list[Heat]:
    widths = range(2, min(left, _WIDEST) + 1)
    direct = [Heat(size) for size in widths if size <= _WIDEST_DIRECT]
    found = [*direct, *(Heat(size, is_direct=False) for size in widths)]
    return found if is_placed else [*found, Heat(2, by_relu=True)]


def _price(
    heat: Heat, shape: tuple[int, ...], frac_bits: int, bound: float, *, is_placed: bool
) -> int:
    """Count the bytes of a heat, both ways and from the dealer, and its rounds as bytes."""
    kernel: Largest | Piecewise
    if heat.by_relu:
        shape, apart = shape[:-1], 2 * bound
        kernel, most = Piecewise("relu", (curve_of("relu", frac_bits, apart),)), apart
    else:
        kernel, most = Largest(bound, is_placed, heat.is_direct), bound
    declared = kernel.declare(_ROLES, Spec.of(shape=shape, frac_bits=frac_bits, bound=most))
    sent = sum(message.payload_bytes for one in declared.rounds for message in one)
    dealt = sum(prod(shape) for need in declared.needs for shape in need.correction_shapes())
    return ROUND_BYTES * len(declared.rounds) + sent + WORD_BYTES * dealt
