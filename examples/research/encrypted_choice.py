"""Which token a chosen place stands for, by an encrypted one-hot vector: PermLLM's algorithm 6.5.

    python encrypted_choice.py          (needs tacit-ml[he])

Document 000, section 6.3.4: the user sees the scores of N tokens in an order π that the owner
alone knows, and chooses a place. It encrypts the one-hot vector of that place under BFV, in pieces
(steps 3 and 4); the owner takes the inner product with π⁻¹, piece by piece, and adds up (step 5);
the user decrypts the token (step 6). The owner learns nothing of the place. Here numbers stand in
coefficients instead of slots: an inner product is one coefficient of a product of polynomials,
without rotations and their keys. But then all other coefficients hold entries of π⁻¹ too. Prints
the token that was named, what was sent, and how much of the order an honest user reads off an
answer that is not masked, and off a masked one.

Chats of `tacit.llm` use oblivious transfer from prepared randomness instead: 4 bytes per token, and
no library that parses what a peer sent.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tacit.crypto.cipher.saved import Words
from tacit.crypto.cipher.seal import OwnKeys, Ring, SealKeys
from tacit.errors import DataError
from tacit.ring import Prg

VOCAB = 20_000
DEGREE = 8192
PRIMES = 3  # one for products, one for noise that drowns theirs, one that is sent
LAST = np.array([DEGREE - 1])


def make_ring(vocab: int) -> Ring:
    """Return the parameters that both sides take: answers have no bits beyond a token's."""
    return Ring(degree=DEGREE, plain_bits=vocab.bit_length(), primes=PRIMES, special_bits=38)


def count_pieces(vocab: int) -> int:
    """Return how many ciphertexts a question takes."""
    return -(-vocab // DEGREE)


class User:
    """P1: a secret key, and vectors that pick one entry of the owner's.

    Guarantee: the owner learns nothing about the place, if ring-LWE is hard at 128 bits.
    Cost: 0.20 MB for every 8192 tokens, 0.13 MB back; once, a key of 0.47 MB.
    """

    def __init__(self, vocab: int) -> None:
        self._vocab, self._own = vocab, OwnKeys(make_ring(vocab))
        self._keys = SealKeys(make_ring(vocab), self._own.public)
        self.public = self._own.public

    def ask(self, place: int) -> list[bytes]:
        """Encrypt a one-hot vector, piece by piece (steps 3 and 4)."""
        hot = np.zeros((count_pieces(self._vocab), DEGREE), np.uint64)
        hot.reshape(-1)[place] = 1
        return [self._own.encrypt(piece) for piece in hot]

    def read(self, answer: bytes) -> int:
        """Decrypt the entry at our place (step 6)."""
        found = int(self.read_all(answer, LAST)[0])
        if not 1 <= found <= self._vocab:
            raise DataError("the owner's answer is not the name of a token")
        return found - 1

    def read_all(self, answer: bytes, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """Decrypt any coefficients: what a curious user does."""
        part = self._keys.load(answer, PRIMES - 1, is_seeded=False)
        return self._own.decrypt(part, places) % self._keys.ring.plain_modulus


class Owner:
    """P0: answers with the entry that an encrypted vector picks (step 5).

    Guarantee, if ``is_masked`` and the user's key and vector are honest: an answer tells one entry
    and nothing of how it came, to 2^-43: all other coefficients are random, noise is flooded. A
    user whose vector is not one-hot learns one other sum of entries.
    """

    def __init__(self, vocab: int, public: bytes) -> None:
        self._vocab, self._prg = vocab, Prg.from_os()
        self._keys = SealKeys(make_ring(vocab), public)

    def answer(
        self, order: Sequence[int], asked: Sequence[bytes], *, is_masked: bool = True
    ) -> bytes:
        """Multiply the order in which scores were shown with what was asked, and add up."""
        keys, total = self._keys, None
        for piece, factor in zip(asked, lay_out(order), strict=True):
            part = keys.to_ntt(keys.load(piece, 0, is_seeded=True))
            total = keys.multiply_add(total, part, keys.prepare(factor))
        mask = keys.draw_plain(self._prg.bytes)
        mask[LAST if is_masked else slice(None)] = 0
        return keys.dump(keys.flooded(keys.from_ntt(total), mask, self._prg.bytes), PRIMES - 1)


def lay_out(order: Sequence[int]) -> Words:
    """Lay entries out backwards, plus 1 so that no polynomial is zero.

    With the one-hot vector at coefficient i and entry i at 8191 - i, the coefficient 8191 of the
    product is the inner product.
    """
    entries = np.asarray(order, np.uint64) + np.uint64(1)
    padded = np.zeros(count_pieces(len(entries)) * DEGREE, np.uint64)
    padded[: len(entries)] = entries
    return np.ascontiguousarray(padded.reshape(-1, DEGREE)[:, ::-1])


def main() -> None:
    """Name one token; then read what an answer tells beside it."""
    order = np.random.default_rng(1).permutation(VOCAB)
    place = 12_345
    user = User(VOCAB)
    owner = Owner(VOCAB, user.public)
    asked = user.ask(place)
    answer = owner.answer(order.tolist(), asked)
    print(f"named {user.read(answer)}, and place {place} shows {order[place]}")
    print(f"sent {sum(map(len, asked)):,} B and {len(answer):,} B, once {len(user.public):,} B")
    # The one-hot vector moves its whole piece: what follows our entry stands in front of it.
    piece = order[place - place % DEGREE :][:DEGREE] + 1
    wanted = piece[place % DEGREE + 1 :]
    places = DEGREE - 2 - np.arange(len(wanted))
    for name, is_masked in (("bare", False), ("masked", True)):
        told = user.read_all(owner.answer(order.tolist(), asked, is_masked=is_masked), places)
        print(f"{name} {int((told == wanted).sum())} of {len(wanted)} other entries read")


if __name__ == "__main__":
    main()
