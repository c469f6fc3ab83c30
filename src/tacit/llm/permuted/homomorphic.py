"""Which token a chosen place stands for, by a BFV inner product with an encrypted one-hot vector.

The way of PermLLM (algorithm 6.5), with numbers in coefficients instead of slots: an inner product
is one coefficient of a product of polynomials, without rotations and their keys. It needs no
dealer, and more time than the transfer from prepared randomness in `tacit.llm.permuted.prf_stream`,
which is the default. SEAL never parses what a peer sent: see `tacit.crypto.cipher.saved`.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from tacit.crypto.cipher.saved import Words
from tacit.crypto.cipher.seal import Keys, OwnKeys, Ring
from tacit.errors import DataError, FrameError
from tacit.ring import Prg

_DEGREE = 8192
_PRIMES = 3  # one for products, one for noise that drowns theirs, one that is sent
_LAST = np.array([_DEGREE - 1])


class Picker:
    """The user's end: a secret key, and vectors that pick one entry of the owner's.

    Guarantee: the owner learns nothing about the place, if ring-LWE is hard at 128 bits.
    Cost: one ciphertext of 0.20 MB for every 8192 tokens of the vocabulary, 0.13 MB back; once, a
    key of 0.47 MB.
    """

    def __init__(self, vocab: int) -> None:
        self._vocab = vocab
        self._own = OwnKeys(_ring(vocab))
        self._keys = Keys(_ring(vocab), self._own.public)

    def public(self) -> bytes:
        """Return what the owner needs to compute: a key that decrypts nothing."""
        return self._own.public

    def ask(self, place: int) -> list[bytes]:
        """Encrypt a one-hot vector, piece by piece."""
        hot = np.zeros((pieces(self._vocab), _DEGREE), np.uint64)
        hot.reshape(-1)[place] = 1
        return [self._own.encrypt(piece) for piece in hot]

    def read(self, answer: bytes) -> int:
        """Decrypt the owner's answer: the entry at our place.

        Raises:
            DataError: it is no ciphertext, or names no token.
        """
        part = self._keys.load(answer, _PRIMES - 1, is_seeded=False)
        found = int(self._own.decrypt(part, _LAST)[0]) % self._keys.ring.plain_modulus
        if not 1 <= found <= self._vocab:
            raise DataError("the owner's answer is not the name of a token")
        return found - 1


class Names:
    """The owner's end: answers with the entry that an encrypted vector picks.

    Guarantee: an answer tells one number of as many bits as the vocabulary has, and nothing of how
    it came, to 2^-43, if the user's key and vector are honest: all other coefficients are random,
    and noise is flooded. A user whose vector is none learns one other sum of entries.

    Raises:
        FrameError: the key is none of the agreed parameters.
    """

    def __init__(self, user: str, vocab: int, public: bytes) -> None:
        self._user, self._vocab = user, vocab
        self._prg = Prg.from_os()  # the dealer knows the conversation's own
        try:
            self._keys = Keys(_ring(vocab), public)
        except DataError as error:
            raise FrameError(user, f"sent no BFV key for {vocab} tokens: {error}") from error

    def answer(self, permutation: Sequence[int], asked: Sequence[bytes]) -> bytes:
        """Multiply the permutation in which scores were shown with what was asked, and add up."""
        if len(asked) != pieces(self._vocab) or len(permutation) != self._vocab:
            raise FrameError(
                self._user, f"asked in {len(asked)} pieces, wanted {pieces(self._vocab)}"
            )
        keys, total = self._keys, None
        try:
            for piece, factor in zip(asked, _factors(permutation), strict=True):
                part = keys.to_ntt(keys.load(piece, 0, is_seeded=True))
                total = keys.multiply_add(total, part, keys.prepare(factor))
        except DataError as error:
            raise FrameError(self._user, f"sent a ciphertext that is none: {error}") from error
        mask = keys.draw_plain(self._prg.bytes)
        mask[_LAST] = 0
        out: Any = keys.flooded(keys.from_ntt(total), mask, self._prg.bytes)
        return keys.dump(out, _PRIMES - 1)


def pieces(vocab: int) -> int:
    """Return how many ciphertexts a question takes."""
    return -(-vocab // _DEGREE)


@cache
def _ring(vocab: int) -> Ring:
    """Return the parameters that both sides take: answers have no bits beyond a name's."""
    return Ring(degree=_DEGREE, plain_bits=vocab.bit_length(), primes=_PRIMES, special_bits=38)


def _factors(permutation: Sequence[int]) -> Words:
    """Lay entries out backwards, plus 1 so that no polynomial is zero.

    With the one-hot vector at coefficient i and entry i at 8191 − i, the coefficient 8191 of the
    product is the inner product.
    """
    entries = np.asarray(permutation, np.uint64) + np.uint64(1)
    padded = np.zeros(pieces(len(entries)) * _DEGREE, np.uint64)
    padded[: len(entries)] = entries
    return np.ascontiguousarray(padded.reshape(-1, _DEGREE)[:, ::-1])
