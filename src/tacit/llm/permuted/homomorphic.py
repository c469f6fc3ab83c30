"""Which token a chosen place stands for, by a BFV dot product with an encrypted one-hot vector.

The way of PermLLM (algorithm 6.5). It needs no dealer, and more time than the transfer from
prepared randomness in `tacit.llm.permuted.prf_stream`, which is the default.
"""

from collections.abc import Sequence
from typing import Any

from tacit.errors import ConfigError, DataError, FrameError

try:
    import tenseal
    from tenseal import sealapi
except ImportError:
    tenseal = sealapi = None

_DEGREE = 8192
_MODULUS = 1032193  # a prime that is 1 modulo 2 · 8192, as batching wants
_SLOTS = 4096  # of a vector: a sum over all of them stays in one half of the batch


class Picker:
    """The user's end: a secret key, and vectors that pick one entry of the owner's.

    Guarantee: the owner learns nothing about the place, if ring-LWE is hard at 128 bits.
    Cost: one ciphertext of about 0.43 MB for every 4096 tokens of the vocabulary, one back; once,
    keys of 55 MB.
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

    Raises:
        FrameError: the keys are none, or of other parameters than the agreed ones: smaller ones
            would make the answer say more about the owner's vector than one entry.
    """

    def __init__(self, user: str, public: bytes) -> None:
        self._user = user
        try:
            self._context = _library().context_from(public)
            found = _parameters(self._context)
        # The library gives None for parameters that it finds unsound: no attributes.
        except (ValueError, RuntimeError, AttributeError) as error:
            raise FrameError(user, "sent keys that are none") from error
        for name, wanted in _agreed().items():
            if found[name] != wanted:
                raise FrameError(
                    user, f"sent BFV keys with {name} {found[name]}, agreed is {wanted}"
                )

    def answer(self, permutation: Sequence[int], asked: Sequence[bytes]) -> bytes:
        """Multiply the permutation in which scores were shown with what was asked, and add up."""
        total = None
        try:
            for number, piece in enumerate(asked):
                part = [int(one) for one in permutation[number * _SLOTS : (number + 1) * _SLOTS]]
                vector = _library().bfv_vector_from(self._context, piece)
                self._check_vector(vector, len(part))
                product = vector.dot(part)
                total = product if total is None else total + product
        except (ValueError, RuntimeError) as error:
            raise FrameError(self._user, "sent a ciphertext that is none") from error
        if total is None:
            raise FrameError(self._user, "asked for nothing")
        out: bytes = total.serialize()
        return out

    def _check_vector(self, vector: Any, size: int) -> None:  # a type of the library
        """Refuse a vector that is not one fresh ciphertext of the wanted length."""
        parts = vector.ciphertext()
        first = self._context.seal_context().data.first_parms_id()
        if vector.size() != size or len(parts) != 1:
            raise FrameError(
                self._user, f"sent an encrypted vector of {vector.size()} slots, wanted {size}"
            )
        if parts[0].size() != 2 or parts[0].parms_id() != first:
            raise FrameError(self._user, "sent a ciphertext that is not fresh")


def _agreed() -> dict[str, object]:
    """List the parameters that both sides use, by name."""
    moduli = sealapi.CoeffModulus.BFVDefault(_DEGREE, sealapi.SEC_LEVEL_TYPE.TC128)
    return {
        "scheme": str(sealapi.SCHEME_TYPE.BFV),
        "ring degree": _DEGREE,
        "plain modulus": _MODULUS,
        "ciphertext modulus": [modulus.value() for modulus in moduli],
    }


def _parameters(context: Any) -> dict[str, object]:  # a type of the library
    found = context.seal_context().data.key_context_data().parms()
    return {
        "scheme": str(found.scheme()),
        "ring degree": found.poly_modulus_degree(),
        "plain modulus": found.plain_modulus().value(),
        "ciphertext modulus": [modulus.value() for modulus in found.coeff_modulus()],
    }


def pieces(vocab: int) -> int:
    """Return how many ciphertexts a question takes."""
    return -(-vocab // _SLOTS)


def _library() -> Any:  # it has no types
    if tenseal is None:
        raise ConfigError("naming tokens by BFV needs TenSEAL: pip install 'tacit-ml[he]'")
    return tenseal
