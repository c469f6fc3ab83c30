"""What the clients of a run hold before it begins: keys that the server must not have."""

import functools
from dataclasses import dataclass, field
from typing import cast

from tacit.crypto.cipher import (
    BITS,
    KeyShare,
    PublicKey,
    Scheme,
    SecretKey,
    dump_secret,
    dump_share,
    load_public,
    load_secret,
    load_share,
    make_key,
    share_key,
)
from tacit.crypto.cipher.paillier import PaillierPublicKey, PaillierSecretKey
from tacit.errors import ConfigError, DataError
from tacit.federated.contract import pack, unpack
from tacit.federated.spec import FederatedSpec
from tacit.ring import Prg

_SECRET = 67
_SHARED_BYTES = 32


@dataclass(frozen=True, kw_only=True)
class ClientSecret:
    """What one client keeps to itself.

    Attributes:
        shared: a key that all clients have, for the tags of verified sums.
        cipher: the secret key of the cipher, or this client's share of it.
    """

    shared: bytes = field(repr=False)
    cipher: bytes = field(default=b"", repr=False)

    def to_bytes(self) -> bytes:
        """Write the file of this client."""
        return pack(_SECRET, self.shared, self.cipher)


def read_secret(data: bytes) -> ClientSecret:
    """Read what `ClientSecret.to_bytes` wrote.

    Raises:
        DataError: it is no such file.
    """
    if not data:
        raise DataError("this client was given no secret: `provision` makes one for each client")
    shared, cipher = cast(list[bytes], unpack(data, _SECRET, "bb", sender="this client"))
    if len(shared) != _SHARED_BYTES:
        raise DataError("this client's secret has a key of another length")
    return ClientSecret(shared=shared, cipher=cipher)


def provision(
    spec: FederatedSpec, prg: Prg, *, bits: int = BITS
) -> tuple[bytes | None, tuple[bytes, ...]]:
    """Make the keys of a run: the public key of its cipher, if any, and each client's secret.

    Args:
        spec: what all sides hold to; nodes find the public key in its ``federated.public_key``.
        prg: where keys come from.
        bits: of a Paillier key.

    Guarantee: whoever runs this knows every key, and must forget them: one of the clients, or
    someone whom all of them trust; not the server. All sides check the proof of a Paillier key, but
    it adds nothing to that trust.
    Cost: about a second for Paillier; a secret is 5 or 6 kB with Paillier, 0.9 MB with BFV.
    """
    fed = spec.federated
    public, own = None, (b"",) * fed.clients
    if not fed.needs_secrets:
        return public, own
    if fed.aggregator == "encrypted":
        key = make_key(fed.cipher, prg.bytes, bits=bits)
        public = key.public.to_bytes()
        if fed.threshold is None:
            own = (dump_secret(key),) * fed.clients
        else:
            shares = share_key(
                cast(PaillierSecretKey, key),
                threshold=fed.threshold,
                holders=fed.clients,
                randomness=prg.bytes,
            )
            own = tuple(map(dump_share, shares))
    shared = prg.bytes(_SHARED_BYTES)
    return public, tuple(ClientSecret(shared=shared, cipher=one).to_bytes() for one in own)


@functools.lru_cache(maxsize=4)
def public_key_of(scheme: Scheme, data: bytes | None) -> PublicKey:
    """Read the public key of a run, and keep what makes it fast.

    Raises:
        ConfigError: there is none, or it is no key.
    """
    if data is None:
        raise ConfigError(
            "aggregator 'encrypted' wants the public key of its clients: `provision` makes it, and "
            "a job names its file in federated.public_key"
        )
    try:
        return load_public(scheme, data)
    except DataError as error:
        raise ConfigError(f"the public key of the job cannot be used: {error}") from error


@functools.lru_cache(maxsize=4)
def secret_key_of(scheme: Scheme, data: bytes, public: bytes | None) -> SecretKey:
    """Read a client's whole key; it must be that of the job.

    Raises:
        DataError: it is no key, or one of another job.
    """
    key = load_secret(scheme, data)
    if key.public.to_bytes() != public:
        raise DataError("this client's secret is of another key than the job's")
    return key


@functools.lru_cache(maxsize=64)
def share_of_key(
    data: bytes, public: bytes | None, threshold: int | None, holders: int
) -> KeyShare:
    """Read a client's share of the key; it must be that of the job.

    Raises:
        DataError: it is no share, or one of another job.
    """
    known = cast(PaillierPublicKey, public_key_of("paillier", public))
    share = load_share(data, known)
    if share.public is not known or (share.threshold, share.holders) != (threshold, holders):
        raise DataError("this client's share is of another key, threshold or job")
    return share
