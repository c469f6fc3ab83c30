"""The key authority: releases the pads of one sum of a round, never those of a client.

A functional encryption scheme for inner products of many clients, in its cheapest sound form: the
key of a function is good for one round. Client i sends x_i + F(k_i, round); the authority, which
knows every k_i and never sees what clients send, gives the server Σ y_i F(k_i, round) for one y.
"""

import hashlib
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast, final

import numpy as np
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from tacit.crypto import KeyPair, agree, derive
from tacit.errors import FrameError, InputError, PartyError
from tacit.federated.contract import HELPER, Enter, pack, records, unpack
from tacit.federated.secagg.messages import SERVER
from tacit.federated.secagg.plan import Words, add_masks
from tacit.federated.secagg.sides import company_of, read_words

OPEN, UPLOAD, RELEASE, RELEASED = range(88, 92)
AUTHORITY = HELPER
"""The index under which messages go to the authority."""
KEY_BYTES, SIGNATURE_BYTES = 32, 64
MOST_WORDS = 1 << 28  # a server names how many: with named keys clients must have signed it too
LARGEST_WEIGHT = 255  # a byte of the record
_SUMMAND = struct.Struct("<IB32s32s64s")
SUMMAND_BYTES = _SUMMAND.size
_PAD_BYTES = 16
_NO_KEY, _NO_SIGNATURE = bytes(KEY_BYTES), bytes(SIGNATURE_BYTES)


@dataclass(frozen=True, kw_only=True)
class Summand:
    """One client of a sum: its key for the round, and how often it counts."""

    index: int
    public: bytes
    weight: int = 1
    identity: bytes = _NO_KEY
    signature: bytes = _NO_SIGNATURE

    def to_bytes(self) -> bytes:
        """Write the record."""
        return _SUMMAND.pack(self.index, self.weight, self.public, self.identity, self.signature)


def release_message(invitation: bytes, summands: Sequence[Summand]) -> bytes:
    """Ask for the pads of a weighted sum."""
    return pack(RELEASE, invitation, b"".join(one.to_bytes() for one in summands))


def pad_key(mine: KeyPair, theirs: bytes, *, invitation: bytes, index: int) -> bytes:
    """Derive the key of a client's pad in a round; client and authority find the same.

    All of the invitation is a part of it: the digest of the model, so that pads of clients that
    were given different ones do not come off; who may be in a sum, and how few, which the authority
    compares with its own job; how many words there are, so that the authority works
    out no more than clients sent; and their width, as pads added up in wider words than clients did
    would tell carries, which are no function of the sum.

    Guarantee: to everyone else it is uniform, and independent of every other client's and of every
    other invitation's, if X25519 and HMAC-SHA256 hold.
    Cost: one scalar multiplication.
    """
    name = hashlib.sha256(invitation).digest()
    context = b"tacit keyed pad" + name + struct.pack("<I", index)
    return derive(agree(mine, theirs), context=context, length=_PAD_BYTES)


def summand_text(invitation: bytes, index: int, public: bytes) -> bytes:
    """Write what a client signs: that this key is its own, in a round of this model and size."""
    name = hashlib.sha256(invitation).digest()
    return b"tacit keyed term" + name + struct.pack("<I", index) + public


@final
class Authority:
    """Knows the pads of all clients, sees none of their words, and releases one sum a round.

    Args:
        mine: its key pair; clients take the public half from their job.
        clients: how many there are in a round.
        minimum: fewest clients in a sum; none of them counts for more than this part of it.
        keys: the Ed25519 keys of all who may take part, if they are named.
        is_weighed: whether clients may count differently, as no job lets them. Weights are the
            server's choice: with 1 for a client and 255 for all others it reads that client's
            numbers modulo 255 off a sum that does not wrap. Never under differential privacy.
        enter: writes a session down before it is answered, and refuses one that was.

    Guarantee: to a server that does not work with it, one weighted sum a session of at least
    ``minimum`` clients, and nothing else; with ``keys`` also if that server does anything at all,
    without them if it invents no clients. Together with the server it opens every update.
    Cost: 1 message in, of 133 bytes a client; 1 out, of as many bytes as an update; one pass of
    AES-CTR over an update for every client.
    """

    def __init__(
        self,
        mine: KeyPair,
        *,
        clients: int,
        minimum: int,
        enter: Enter,
        keys: frozenset[bytes] | None = None,
        is_weighed: bool = False,
    ) -> None:
        self._mine, self._clients, self._minimum = mine, clients, minimum
        self._enter, self._keys, self._is_weighed = enter, keys, is_weighed

    @property
    def public(self) -> bytes:
        """The key that clients agree with; they take it from their job."""
        return self._mine.public

    def release(self, message: bytes) -> bytes:
        """Release the pads of a sum, once in a session.

        Raises:
            PartyError: the sum is not one that may be shown, or one of this session was.
        """
        invitation, body = cast(list[bytes], unpack(message, RELEASE, "bb", sender=SERVER))
        session, length, width, company = read_words(invitation, OPEN)
        if company != company_of(self._clients, self._minimum, self._keys):
            raise PartyError(
                SERVER,
                "it asked for pads of a round of another job: who may be in a sum, or how few, is "
                "not what this authority holds to",
            )
        if not 1 <= length <= MOST_WORDS or not 1 <= width <= 8:
            raise FrameError(SERVER, f"it asked for {length} pads of {width} bytes")
        summands = [
            Summand(
                index=index, weight=weight, public=public, identity=identity, signature=signature
            )
            for index, weight, public, identity, signature in map(
                _SUMMAND.unpack, records(body, SUMMAND_BYTES, sender=SERVER)
            )
        ]
        self._check(summands)
        for one in summands if self._keys is not None else ():
            self._check_signature(one, invitation)
        # Σ y_i F(k_i) by weight: the streams of all who count alike are added in one pass.
        groups: dict[int, list[bytes]] = {}
        try:
            for one in summands:
                key = pad_key(self._mine, one.public, invitation=invitation, index=one.index)
                groups.setdefault(one.weight, []).append(key)
        except InputError as error:
            raise PartyError(SERVER, f"it passed on a key of no client: {error}") from error
        self._enter(session)  # before anything leaves: a second answer would be another sum
        total: Words = np.zeros(length, np.uint32 if width <= 4 else np.uint64)
        for weight, keys in groups.items():
            part = np.zeros_like(total)
            add_masks(part, plus=keys)
            total += part * total.dtype.type(weight)
        octets = total.astype(total.dtype.newbyteorder("<"), copy=False).view(np.uint8)
        return pack(RELEASED, octets.reshape(length, -1)[:, :width].tobytes())

    def _check(self, summands: Sequence[Summand]) -> None:
        """Refuse sums that would tell more than a sum may."""
        if len(summands) < self._minimum:
            raise PartyError(
                SERVER, f"it asked for a sum of {len(summands)} clients, wanted {self._minimum}"
            )
        indices, publics = {one.index for one in summands}, {one.public for one in summands}
        # One client under two numbers, keys or identities would be two of the minimum.
        names = summands if self._keys is None else {one.identity for one in summands}
        if min(len(indices), len(publics), len(names)) < len(summands):
            raise PartyError(SERVER, "it asked for a sum with one client twice")
        if max(indices) >= self._clients:
            raise PartyError(SERVER, f"it asked for a client beyond the {self._clients} of a round")
        weights = [one.weight for one in summands]
        most = LARGEST_WEIGHT if self._is_weighed else 1
        if not 1 <= min(weights) <= max(weights) <= most:
            raise PartyError(SERVER, f"it asked for weights other than 1 to {most}")
        # Weights of 1 and 255 could make a sum of many clients nearly that of one.
        if max(weights) * self._minimum > sum(weights):
            raise PartyError(
                SERVER, f"it asked for a sum of which one client is more than 1/{self._minimum}"
            )

    def _check_signature(self, one: Summand, invitation: bytes) -> None:
        try:
            # Else a server would fill the minimum up with clients of its own invention.
            if one.identity not in (self._keys or ()):
                raise InvalidSignature
            text = summand_text(invitation, one.index, one.public)
            Ed25519PublicKey.from_public_bytes(one.identity).verify(one.signature, text)
        except (InvalidSignature, ValueError) as error:
            raise PartyError(
                SERVER, f"it passed on a key that client {one.index} has not signed"
            ) from error
