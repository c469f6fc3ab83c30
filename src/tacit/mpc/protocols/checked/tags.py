"""Tags: for every word that one party is dealt, the other can tell whether it was used rightly.

For a word w of one party the dealer draws t, which goes to that party, and gives the other
k = t - Δ·w modulo 2^108, where Δ is the other's own secret of 44 bits. Whatever is linear in dealt
words is linear in t and k as well, so t = Δ·u + k holds for every message u that is sent, and
nobody who does not know Δ can find the t of another u. Bits in XOR shares have tags of 64 bits,
t = k ⊕ u·Δ (after Bendlin et al. 2011; modulo a power of two after Cramer et al. 2018).
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from tacit import ring
from tacit.mpc.material.randomness import Need, Parts
from tacit.mpc.protocols.checked import wide
from tacit.ring import Prg

KEY_BITS = 44
"""Of Δ for words. To pass off u + 2^v·odd, v ≤ 63, for u takes the tag t + Δ·2^v·odd modulo 2^108,
and as 108 - 63 > 44 that is another one for each Δ: a guess is right with chance 2^-44."""
MINE, TAG, KEY = range(3)
"""The components of wide numbers: my share, the tag of it, and the key to the other's share."""


@dataclass(frozen=True)
class TagKeys:
    """A party's secret Δ for words, and that for bits; P0 is the one that adds what is public."""

    words: int
    bits: int
    is_first: bool

    def __repr__(self) -> str:
        return "TagKeys()"


def draw_keys(prg: Prg, *, is_first: bool) -> TagKeys:
    """Draw a party's secrets from a generator that it shares with the dealer."""
    # One Δ for a session, as shares with tags are kept from run to run. Whoever guesses wrong ends
    # the session (`CheatingError`): it has one guess.
    first, second = prg.fork("keys").words((2,)).tolist()
    return TagKeys(first & ((1 << KEY_BITS) - 1), second, is_first)


@dataclass(frozen=True)
class PartPair:
    """A pair of parts of a need: where they are among the parts of P0 and of P1; None for nothing.

    ``bits`` is the number of bits that matter in a row of packed words, or None for ring words.
    """

    first: int | None
    second: int | None
    shape: tuple[int, ...]
    bits: int | None = None

    def tag_shape(self) -> tuple[int, ...]:
        """Return the shape of its tags: two words for a word, one for a bit."""
        return (2, *self.shape) if self.bits is None else (*self.shape[:-1], self.bits)


@dataclass(frozen=True)
class Tagged:
    """A need whose parts come with tags and keys.

    P0 draws the tags of its own parts and its keys to P1's; the dealer sends P1 what fits.

    Guarantee: what P1 gets is uniform; a party learns nothing of the other's words or of its Δ.
    """

    inner: Need
    items: tuple[PartPair, ...]

    def first(self, prg: Prg) -> Parts:
        """Draw the first party's part, its tags and its keys."""
        # Of the same stream, not of a fork: a step may have several needs, each with other tags.
        return (*self.inner.first(prg), *(prg.words(shape) for shape in self._shapes()))

    def second(self, prg: Prg) -> Parts:
        """Draw what the second party can make without the dealer."""
        return self.inner.second(prg)

    def correction(self, first: Parts, second: Parts) -> Parts:
        """Refuse: this needs the parties' secrets, see `correct`."""
        raise TypeError("tags are corrected with the keys of both parties")

    def correct(
        self, first: Parts, second: Parts, inner: Parts, keys: tuple[TagKeys, TagKeys]
    ) -> Parts:
        """Compute what P1 gets: what the inner need sends, keys to P0's parts, tags of its own."""
        drawn = iter(first[len(first) - len(self._shapes()) :])
        theirs = second + inner
        found: list[Tensor] = []
        # A party is checked with the other's Δ. P0 has drawn the tags of its own words and the keys
        # to P1's, so that P1 is sent what fits: k = t - Δ1·w0, and t = k + Δ0·w1.
        for item in self.items:
            if item.first is not None:
                found.append(_key(item, first[item.first], next(drawn), keys[1]))
            if item.second is not None:
                found.append(_tag(item, theirs[item.second], next(drawn), keys[0]))
        return (*inner, *found)

    def wrap(self, first: Parts, second: Parts, inner: Parts, shared: tuple[Prg, Prg]) -> Parts:
        """Compute what P1 gets, as the dealer, who draws both parties' secrets with them."""
        keys = draw_keys(shared[0], is_first=True), draw_keys(shared[1], is_first=False)
        return self.correct(first, second, inner, keys)

    def correction_shapes(self) -> tuple[tuple[int, ...], ...]:
        """Return the shapes of what P1 gets."""
        return (*self.inner.correction_shapes(), *self._shapes())

    def _shapes(self) -> tuple[tuple[int, ...], ...]:
        return tuple(
            item.tag_shape()
            for item in self.items
            for part in (item.first, item.second)
            if part is not None
        )

    def read(self, parts: Parts, *, is_first: bool) -> tuple[Parts, tuple["Tags", ...]]:
        """Take my parts of the inner need apart from the tags and keys of each item."""
        count = len(self._shapes())
        own, rest = parts[: len(parts) - count], iter(parts[len(parts) - count :])
        found = []
        for item in self.items:
            ours, other = (
                next(rest) if at is not None else None for at in (item.first, item.second)
            )
            place = item.first if is_first else item.second
            tag, key = (ours, other) if is_first else (other, ours)
            found.append(Tags(item, None if place is None else own[place], tag, key))
        return own, tuple(found)


def _key(item: PartPair, part: Tensor, tag: Tensor, keys: TagKeys) -> Tensor:
    if item.bits is not None:
        return tag ^ (spread(part, item.bits) & keys.bits)
    product = wide.multiply(wide.split(part), part.new_tensor(keys.words))
    return wide.to_pairs(wide.carry(wide.from_pairs(tag) - product), tag)


def _tag(item: PartPair, part: Tensor, key: Tensor, keys: TagKeys) -> Tensor:
    if item.bits is not None:
        return key ^ (spread(part, item.bits) & keys.bits)
    product = wide.multiply(wide.split(part), part.new_tensor(keys.words))
    return wide.to_pairs(wide.carry(wide.from_pairs(key) + product), key)


def spread(words: Tensor, count: int) -> Tensor:
    """Spread packed bits (…, words) out into (…, count) words that are all ones or zero."""
    octets = words.contiguous().view(torch.uint8)
    bits = ring.unpack_bits(octets, 8 * octets.numel()).view(*words.shape[:-1], -1)
    return bits[..., :count].to(torch.int64).neg_()


@dataclass(frozen=True, eq=False, repr=False)
class Tags:
    """What a party has of one item: its own part, the tag of it, and the key to the other's."""

    item: PartPair
    part: Tensor | None
    tag: Tensor | None
    key: Tensor | None

    def wide(self, at: slice | None = None) -> Tensor:
        """Return words as wide numbers (limbs, components, …), of a stretch of the last dimension.

        What this party has nothing of is zero.
        """
        parts = [
            None if self.part is None else wide.split(_cut(self.part, at)),
            None if self.tag is None else wide.from_pairs(_cut(self.tag, at)),
            None if self.key is None else wide.from_pairs(_cut(self.key, at)),
        ]
        known = next(one for one in parts if one is not None)
        return torch.stack([torch.zeros_like(known) if one is None else one for one in parts], 1)


def _cut(words: Tensor, at: slice | None) -> Tensor:
    return words if at is None else words[..., at]


def add_public(
    numbers: Tensor, words: Tensor | int, keys: TagKeys, part: slice = slice(MINE, KEY + 1)
) -> Tensor:
    """Add public words to a shared number: P0 adds them, P1 takes Δ times them from its key.

    Args:
        numbers: (limbs, components, …), which are spent.
        words: what is added.
        keys: mine.
        part: which components there are.
    """
    known = words if isinstance(words, Tensor) else numbers.new_tensor(words)
    shape = np.broadcast_shapes(numbers.shape[2:], known.shape)
    if tuple(shape) != tuple(numbers.shape[2:]):
        numbers = numbers.expand(*numbers.shape[:2], *shape).clone()
    place = MINE if keys.is_first else KEY
    if not part.start <= place < part.stop:
        return numbers
    changed = numbers[:, place - part.start]
    amount = wide.split(known.view((1,) * (len(shape) - known.dim()) + known.shape))
    if keys.is_first:
        changed += amount
    else:
        changed -= wide.multiply(amount, known.new_tensor(keys.words))
    wide.carry(changed)
    return numbers
