"""Additively homomorphic ciphers behind one seam: `paillier` and `bfv`."""

from tacit.crypto.cipher.bfv import BfvSecretKey, load_bfv
from tacit.crypto.cipher.contract import Ciphertext, Layout, Numbers, PublicKey, Scheme, SecretKey
from tacit.crypto.cipher.keys import dump_secret, dump_share, load_secret, load_share
from tacit.crypto.cipher.paillier import BITS, load_paillier, make_paillier
from tacit.crypto.cipher.threshold import KeyShare, combine, share_key
from tacit.crypto.field import Randomness
from tacit.errors import ConfigError

SCHEMES: tuple[Scheme, ...] = ("paillier", "bfv")


def make_key(scheme: Scheme, randomness: Randomness, *, bits: int = BITS) -> SecretKey:
    """Make a key pair; ``bits`` is for Paillier alone.

    Guarantee: that of the cipher's public key. Cost: about a second for Paillier at 3072 bits.
    """
    if scheme == "paillier":
        return make_paillier(randomness, bits)
    if scheme == "bfv":
        return BfvSecretKey()
    raise ConfigError(f"wanted one of the ciphers {', '.join(SCHEMES)}, got {scheme!r}")


def load_public(scheme: Scheme, data: bytes) -> PublicKey:
    """Read a public key that a peer sent, or refuse it.

    Guarantee: only its form is checked: a key owner who makes a bad key hurts its own secrets.
    Cost: none beyond reading.
    """
    if scheme == "paillier":
        return load_paillier(data)
    if scheme == "bfv":
        return load_bfv(data)
    raise ConfigError(f"wanted one of the ciphers {', '.join(SCHEMES)}, got {scheme!r}")


__all__ = [
    "BITS",
    "SCHEMES",
    "Ciphertext",
    "KeyShare",
    "Layout",
    "Numbers",
    "PublicKey",
    "Scheme",
    "SecretKey",
    "combine",
    "dump_secret",
    "dump_share",
    "load_public",
    "load_secret",
    "load_share",
    "make_key",
    "share_key",
]
