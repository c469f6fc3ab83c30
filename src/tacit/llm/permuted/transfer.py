"""Which token a chosen place stands for: one of V by oblivious transfer from prepared randomness.

The owner knows the permutation in which scores were shown, the user the place it chose. Beforehand
the dealer has given the user one random place c and the pad there, and the owner all pads (Beaver
1995). Online the user sends e = place − c, and the owner its whole permutation, padded and shifted
by e.
"""

import torch
from torch import Tensor

from tacit.llm.permuted.prf_stream import PrfStream

_PAD_BITS = 31


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
