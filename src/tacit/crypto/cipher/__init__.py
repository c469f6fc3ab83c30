"""Additively homomorphic ciphers behind one seam: `paillier` and `bfv`.

They stand here, on gmpy2 and SEAL, because libraries of them trust who made a key or a ciphertext.
A peer here may be malicious: a modulus comes with a proof that n-th powers hide everything
(`numbers.is_permutation`), every number is checked against its modulus before it is computed with,
nothing that a peer sent is read as a file of SEAL's (`saved`), what is released is re-randomised
whatever the key owner made of the key, and its noise is flooded.
"""

from tacit.crypto.cipher.bfv import BfvSecretKey, bfv_parts, load_bfv
from tacit.crypto.cipher.contract import (
    KEY_ID_BYTES,
    CipherLayout,
    Ciphertext,
    Numbers,
    PublicKey,
    Scheme,
    SecretKey,
)
from tacit.crypto.cipher.keys import dump_secret, dump_share, load_secret, load_share
from tacit.crypto.cipher.paillier import BITS, load_paillier, make_paillier, paillier_parts
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

    Guarantee: its form is checked, and of Paillier the proof that n-th powers hide everything: with
    a bad key of Paillier an owner hurts its own secrets alone. With a public key of BFV that is no
    encryption of 0 (it cannot be told) it reads the weights off a released result.
    Cost: 0.1 s for Paillier at 3072 bits; none beyond reading for BFV.
    """
    if scheme == "paillier":
        return load_paillier(data)
    if scheme == "bfv":
        return load_bfv(data)
    raise ConfigError(f"wanted one of the ciphers {', '.join(SCHEMES)}, got {scheme!r}")


def wire_bytes(scheme: Scheme, layout: CipherLayout, *, bits: int = BITS) -> int:
    """Return how many bytes a ciphertext takes on the wire, before there is a key."""
    count, size = bfv_parts(layout) if scheme == "bfv" else paillier_parts(layout, bits)
    return KEY_ID_BYTES + count * size


def opened_bytes(scheme: Scheme, layout: CipherLayout, *, bits: int = BITS) -> int:
    """Return how many bytes a decrypted result under a mask has, before there is a key."""
    return 8 * layout.size if scheme == "bfv" else paillier_parts(layout, bits)[0] * bits // 8


__all__ = [
    "BITS",
    "SCHEMES",
    "CipherLayout",
    "Ciphertext",
    "KeyShare",
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
    "opened_bytes",
    "share_key",
    "wire_bytes",
]
