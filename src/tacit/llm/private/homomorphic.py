"""Which token a chosen place stands for, by a BFV dot product with an encrypted one-hot vector.

The way of PermLLM (algorithm 6.5). It needs no dealer, and more time than the transfer from
prepared randomness in `tacit.llm.private.transfer`, which is the default.
"""

from collections.abc import Sequence
from typing import Any

from tacit.errors import ConfigError, DataError, FrameError

try:
    import tenseal
except ImportError:
    tenseal = None

_DEGREE = 8192
_MODULUS = 1032193  # a prime that is 1 modulo 2 · 8192, as batching wants
_SLOTS = 4096  # of a vector: a sum over all of them stays in one half of the batch


class Picker:
    """The user's end: a secret key, and vectors that pick one entry of the owner's.

    Guarantee: the owner learns nothing about the place, if ring-LWE is hard at 128 bits.
    Cost: one ciphertext of about 0.2 MB for every 4096 tokens of the vocabulary, one back.
    """

    def __init__(self, vocab: int) -> None:
        if vocab >= _MODULUS:
            raise ConfigError(f"BFV names at most {_MODULUS - 1} tokens, got {vocab}")
        self._vocab = vocab
        self._context = _library().context(
            _library().SCHEME_TYPE.BFV, poly_modulus_degree=_DEGREE, plain_modulus=_MODULUS
        )
        self._context.generate_galois_keys()

    def public(self) -> bytes:
        """Return what the owner needs to compute: the keys that decrypt nothing."""
        out: bytes = self._context.serialize(save_secret_key=False)
        return out

    def ask(self, place: int) -> list[bytes]:
        """Encrypt a one-hot vector, piece by piece."""
        out = []
        for start in range(0, self._vocab, _SLOTS):
            size = min(_SLOTS, self._vocab - start)
            hot = [int(start + at == place) for at in range(size)]
            out.append(_library().bfv_vector(self._context, hot).serialize())
        return out

    def read(self, answer: bytes) -> int:
        """Decrypt the owner's answer: the entry at our place."""
        value = _library().bfv_vector_from(self._context, answer).decrypt()[0] % _MODULUS
        if not 0 <= value < self._vocab:
            raise DataError("the owner's answer is not the name of a token")
        return int(value)


class Names:
    """The owner's end: answers with the entry that an encrypted vector picks.

    Guarantee: no guarantee against a user who studies the noise of the answer; it is not flooded.
    A user who only decrypts learns one entry.
    """

    def __init__(self, user: str, public: bytes) -> None:
        self._user = user
        try:
            self._context = _library().context_from(public)
        except (ValueError, RuntimeError) as error:
            raise FrameError(user, "sent keys that are none") from error

    def answer(self, order: Sequence[int], asked: Sequence[bytes]) -> bytes:
        """Multiply the order in which scores were shown with what was asked, and add up."""
        total = None
        try:
            for number, piece in enumerate(asked):
                part = [int(one) for one in order[number * _SLOTS : (number + 1) * _SLOTS]]
                product = _library().bfv_vector_from(self._context, piece).dot(part)
                total = product if total is None else total + product
        except (ValueError, RuntimeError) as error:
            raise FrameError(self._user, "sent a ciphertext that is none") from error
        if total is None:
            raise FrameError(self._user, "asked for nothing")
        out: bytes = total.serialize()
        return out


def pieces(vocab: int) -> int:
    """Return how many ciphertexts a question takes."""
    return -(-vocab // _SLOTS)


def _library() -> Any:  # it has no types
    if tenseal is None:
        raise ConfigError("naming tokens by BFV needs TenSEAL: pip install 'tacit[he]'")
    return tenseal
