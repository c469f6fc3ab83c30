"""A prf: the randomness that two parties share for one batch, drawn by name.

Oblivious transfer is prepared with it, which tells the user what token a chosen place stands for,
one of V, in place of steps 3 to 6 of PermLLM's algorithm 6.5 (under BFV). The owner knows the
permutation in which scores were shown, the user the place it chose. Beforehand the dealer has given
the user one random place c and the pad there, and the owner all pads (Beaver 1995). Online the user
sends e = place − c, and the owner its whole permutation, padded and shifted by e.
"""

from typing import final

import torch
from torch import Tensor

from tacit.ring import Prg

_WIDE = 1 << 15
_PAD_BITS = 31
"""A token fits them, and an int32 has them without its sign."""


@final
class PrfStream:
    """Draw words and permutations under labels; both owners of the key draw the same.

    The same label gives the same words again. A prf that ``keeps`` remembers what was drawn, so
    that it can be drawn before it is wanted; what it returns must not be changed.

    Guarantee: as `Prg`; what different labels give is independent.
    """

    def __init__(
        self, prg: Prg, *, keeps: bool = False, device: torch.device | None = None
    ) -> None:
        self._prg = prg
        self._device = device
        self._kept: dict[str, Tensor] | None = {} if keeps else None

    def words(self, label: str, *shape: int) -> Tensor:
        """Draw uniform ring words."""
        if self._kept is not None and label in self._kept:
            return self._kept[label]
        drawn = self._prg.fork(label).words(shape)
        if self._device is not None:
            drawn = drawn.to(self._device)
        if self._kept is not None:
            self._kept[label] = drawn
        return drawn

    def shuffles(self, label: str, rows: int, width: int) -> Tensor:
        """Draw one permutation of 0 … width − 1 for every row, as (rows, width).

        Guarantee: uniform, but for equal keys: a chance below width² / 2^65 per row.
        """
        if self._kept is None:
            return _sorting(self.words(label, rows, width))
        if f"{label} permutation" not in self._kept:
            self._kept[f"{label} permutation"] = _sorting(self.words(label, rows, width))
            del self._kept[label]
        return self._kept[f"{label} permutation"]

    def shuffles_within(self, label: str, heads: int, valid: Tensor) -> Tensor:
        """Draw for every row and head a permutation that puts the valid places first.

        Args:
            label: the name of this draw.
            heads: how many heads.
            valid: (rows, places), which places of a row exist; every row has one at least.

        Returns:
            (rows, heads, places); the first entries of a row are its valid places, shuffled.
        """
        keys = self.words(label, valid.shape[0], heads, valid.shape[1]) & (2**63 - 1)
        return keys.masked_fill_(~valid.unsqueeze(1), 2**63 - 1).argsort(2)

    def places(self, label: str, rows: int, bound: int) -> Tensor:
        """Draw uniform integers below ``bound``."""
        return self._prg.fork(label).below(bound, rows)


def _sorting(keys: Tensor) -> Tensor:
    """Return what sorts each row."""
    if keys.shape[1] < _WIDE or keys.is_cuda:
        return keys.argsort(1)
    # Torch sorts a long row by its digits only when it is all there is: ten times as fast.
    return torch.stack([row.argsort() for row in keys])


def pads(owner: PrfStream, runs: int, vocab: int) -> Tensor:
    """Draw every pad, as the owner or the dealer: int32 (runs, vocab)."""
    drawn: Tensor = owner.words("id.pads", runs, vocab) & (2**_PAD_BITS - 1)
    return drawn.to(torch.int32).cpu()


def picks(user: PrfStream, runs: int, vocab: int) -> Tensor:
    """Draw the places whose pads the user gets, as the user or the dealer: (runs,)."""
    return user.places("id.picks", runs, vocab)


def deal_pads(user: PrfStream, owner: PrfStream, runs: int, vocab: int) -> Tensor:
    """Return the user's pads, as the dealer: int32 (runs,)."""
    return pads(owner, runs, vocab).gather(1, picks(user, runs, vocab).unsqueeze(1)).squeeze(1)


def shift_of(place: int, pick: int, vocab: int) -> int:
    """Return what the user sends.

    Guarantee: uniform to the owner, who does not know the pick.
    """
    return (place - pick) % vocab


def pad_table(permutation: Tensor, pad: Tensor, shift: int) -> Tensor:
    """Return the owner's message: int32 (vocab,).

    Guarantee: the user can read the entry at its place alone; it has the pad of one place.
    Cost: 4 bytes per token of the vocabulary.
    """
    return permutation.cpu().to(torch.int32) ^ pad.roll(shift)


def unpad(message: Tensor, place: int, pad: int) -> int:
    """Read the one entry that the user can, as the user."""
    return int(message[place]) ^ pad
