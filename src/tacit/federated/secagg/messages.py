"""What client and server of a SecAgg round say to each other, and what is signed and derived."""

import functools
import hashlib
import hmac
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from tacit.crypto import KeyPair, agree, derive
from tacit.errors import FrameError, InputError, PartyError
from tacit.federated.contract import pack, records, unpack
from tacit.federated.secagg.graph import Neighbourhood, draw_order, holders
from tacit.federated.secagg.plan import SESSION_BYTES, SecAggPlan

# In the order in which they are sent; the server sends OPEN, ROSTER (U1), DELIVERY (U2),
# SURVIVORS (U3) and ATTESTED (U4), a client the one after each.
OPEN, ADVERT, ROSTER, SHARES, DELIVERY, INPUT, SURVIVORS, ATTEST, ATTESTED, UNMASK = range(10)
SEED_BYTES = 16  # an AES-128 key
SHARE_BYTES = 24  # three field elements: a seed of 16 bytes and its padding
SELF, PAIR = 0, 1  # the two secrets of a client, of which nobody may learn both
COMMIT_BYTES = 32  # SHA-256: binding at 2^128, as good as the keys
SEALED_BYTES = 2 * SHARE_BYTES + 28  # AES-GCM: a nonce of 12 bytes, a tag of 16
PARCEL_BYTES = 2 * COMMIT_BYTES + SEALED_BYTES

_ADVERT = struct.Struct("<I32s32s32s64s")
_PLAN = struct.Struct(f"<IQddBIII{SESSION_BYTES}s")
ADVERT_BYTES = _ADVERT.size
TAG_BYTES = 16  # a forger has one try per session, 2^-128
SERVER = "server"


@dataclass(frozen=True)
class Advert:
    """A client's public keys for one round, signed with the key that it is known by."""

    index: int
    sealing: bytes
    masking: bytes
    identity: bytes
    signature: bytes

    def to_bytes(self) -> bytes:
        """Write the record."""
        return _ADVERT.pack(self.index, self.sealing, self.masking, self.identity, self.signature)

    def verify(self, session: bytes) -> None:
        """Check the signature.

        Raises:
            PartyError: it is not this client's; names the client.
        """
        text = advert_text(session, self.index, self.sealing, self.masking)
        check_signature(self.identity, self.signature, text, of=client_name(self.index))


@dataclass(frozen=True)
class Roster:
    """Everyone who takes part in a round, by position: the order in which they are listed."""

    plan: SecAggPlan
    body: bytes
    adverts: tuple[Advert, ...]
    ring: tuple[int, ...]  # position of the client at each place
    place: tuple[int, ...]  # place of the client at each position
    position: dict[int, int]  # of each index

    def holders(self, position: int) -> list[int]:
        """List the positions that hold shares of this client's secrets, itself first."""
        places = holders(
            self.place[position], len(self.adverts), self.plan.neighbourhood.neighbours
        )
        return [self.ring[place] for place in places]


def read_advert(body: bytes, index: int) -> Advert:
    """Read a client's keys.

    Raises:
        PartyError: not such a record, or another client's.
    """
    if len(body) != ADVERT_BYTES:
        raise FrameError(
            client_name(index), f"wanted {ADVERT_BYTES} bytes of keys, got {len(body)}"
        )
    advert = Advert(*_ADVERT.unpack(body))
    if advert.index != index:
        raise PartyError(client_name(index), f"it gave itself out as client {advert.index}")
    return advert


@functools.lru_cache(maxsize=2)  # simulated clients share one copy
def read_roster(plan: SecAggPlan, body: bytes) -> Roster:
    """Read the list of those who take part; every side finds the same graph in it.

    The order on the ring comes from a hash of all keys, so the server cannot simply choose it.

    Raises:
        PartyError: the server's list is not one of this plan.
    """
    found = [Advert(*_ADVERT.unpack(one)) for one in records(body, ADVERT_BYTES, sender=SERVER)]
    indices = [advert.index for advert in found]
    # In order and without repetition: one list has one spelling, so the hash below is of the set.
    if indices != sorted(set(indices)) or (indices and indices[-1] >= plan.clients):
        raise PartyError(SERVER, f"wanted a list of different clients in order, got {indices}")
    # One identity twice would count its holder twice towards every threshold.
    if len({advert.identity for advert in found}) < len(found):
        raise PartyError(SERVER, "two clients of the list have the same identity")
    least = max(plan.minimum, plan.neighbourhood.threshold)
    if len(found) < least:
        raise PartyError(SERVER, f"the list has {len(found)} clients, the plan wants {least}")
    count = len(found)
    ring = list(range(count))
    if plan.neighbourhood.neighbours < count - 1:
        ring = draw_order(
            hashlib.sha256(b"tacit masked ring" + plan.session + body).digest(), count
        )
    place = [0] * count
    for at, position in enumerate(ring):
        place[position] = at
    where = {index: position for position, index in enumerate(indices)}
    return Roster(plan, body, tuple(found), tuple(ring), tuple(place), where)


def client_name(index: int) -> str:
    """Name a client in a message."""
    return f"client {index}"


def open_message(plan: SecAggPlan, index: int) -> bytes:
    """Write the invitation to a round."""
    near = plan.neighbourhood
    body = _PLAN.pack(
        plan.clients,
        plan.dimension,
        plan.bound,
        plan.scale,
        plan.word_bytes,
        near.neighbours,
        near.threshold,
        plan.minimum,
        plan.session,
    )
    return pack(OPEN, index, body)


def read_open(message: bytes) -> tuple[SecAggPlan, int]:
    """Read the invitation to a round."""
    index, body = unpack(message, OPEN, "ib", sender=SERVER)
    if len(cast(bytes, body)) != _PLAN.size:
        raise FrameError(
            SERVER, f"wanted a plan of {_PLAN.size} bytes, got {len(cast(bytes, body))}"
        )
    clients, dimension, bound, scale, word_bytes, near, threshold, minimum, session = _PLAN.unpack(
        cast(bytes, body)
    )
    plan = SecAggPlan(
        clients=clients,
        dimension=dimension,
        bound=bound,
        scale=scale,
        word_bytes=word_bytes,
        neighbourhood=Neighbourhood(neighbours=near, threshold=threshold),
        minimum=minimum,
        session=session,
    )
    return plan, cast(int, index)


def advert_text(session: bytes, index: int, sealing: bytes, masking: bytes) -> bytes:
    """Return what a client signs when it shows its keys."""
    return b"tacit masked advert" + session + struct.pack("<I", index) + sealing + masking


def attest_text(roster: Roster, survivors: bytes) -> bytes:
    """Return what a client vouches for when it has seen the list of survivors."""
    # U1 as well as U3: else two lists of clients could share one list of survivors. The first is
    # of whole records and the second as long as the first says, so the join has one reading.
    seen = hashlib.sha256(roster.body + survivors).digest()
    return b"tacit masked survivors" + roster.plan.session + seen


def attest_tag(key: bytes, sender: int, receiver: int, text: bytes) -> bytes:
    """Vouch for a text towards one neighbour, with the key that only the two have.

    Guarantee: nobody else can make the tag, if HMAC-SHA256 is a pseudorandom function; a tag for
    one direction is none for the other.
    Cost: 16 bytes.
    """
    head = struct.pack("<II", sender, receiver)
    return hmac.digest(key, head + text, "sha256")[:TAG_BYTES]


def check_signature(identity: bytes, signature: bytes, text: bytes, *, of: str) -> None:
    """Check a signature.

    Raises:
        PartyError: it does not fit.
    """
    try:
        Ed25519PublicKey.from_public_bytes(identity).verify(signature, text)
    except (InvalidSignature, ValueError) as error:
        raise PartyError(of, "its signature does not fit what it is said to have signed") from error


def commit_share(session: bytes, owner: int, holder: int, which: int, share: bytes) -> bytes:
    """Commit to a share, so that a changed one is noticed and its holder named.

    Guarantee: hiding as long as the share cannot be guessed, which holds while fewer than the
    threshold are known; binding if SHA-256 is collision-resistant.
    Cost: 32 bytes.
    """
    head = struct.pack("<IIB", owner, holder, which)
    return hashlib.sha256(b"tacit masked share" + session + head + share).digest()


def commit_seed(session: bytes, owner: int, seed: bytes) -> bytes:
    """Commit to the seed of a client's own mask; see `commit_share`."""
    head = struct.pack("<I", owner)
    return hashlib.sha256(b"tacit masked seed" + session + head + seed).digest()


def key_pair_of(seed: bytes, session: bytes, purpose: bytes) -> KeyPair:
    """Derive an X25519 key pair from a seed: the seed is what is shared, not the key."""
    # 16 bytes are three field elements a share, the 32 of a key would be five.
    raw = derive(seed, context=b"tacit masked key " + purpose + session)
    private = X25519PrivateKey.from_private_bytes(raw)
    return KeyPair(public=private.public_key().public_bytes_raw(), private=private)


def pair_key(mine: KeyPair, theirs: bytes, session: bytes, *, between: tuple[int, int]) -> bytes:
    """Derive the key of the mask between two clients, named by their indices in any order.

    The names are a part of it. One that shows the public key of another as its own would else have
    a third client put on the same mask twice, with opposite signs: two masks fewer on its input.
    """
    context = b"tacit masked pair" + session + struct.pack("<II", *sorted(between))
    return derive(agreed(mine, theirs, of=between[1]), context=context, length=SEED_BYTES)


def agreed(mine: KeyPair, theirs: bytes, *, of: int) -> bytes:
    """Return the secret of two clients, or refuse the other's key by its name.

    Raises:
        PartyError: the key is a point of small order; names client ``of``, whose it is.
    """
    try:
        return agree(mine, theirs)
    except InputError as error:
        raise PartyError(client_name(of), f"its key is none: {error}") from error


def self_key(seed: bytes, session: bytes) -> bytes:
    """Derive the key of a client's own mask."""
    return derive(seed, context=b"tacit masked self" + session, length=SEED_BYTES)


def seal_context(session: bytes, owner: int, holder: int) -> bytes:
    """Return what a sealed parcel of shares is bound to."""
    return b"tacit masked parcel" + session + struct.pack("<II", owner, holder)


def to_bitmap(chosen: Sequence[int], count: int) -> bytes:
    """Write a set of positions as bits."""
    flags = np.zeros(count, np.uint8)
    flags[list(chosen)] = 1
    return np.packbits(flags, bitorder="little").tobytes()


def from_bitmap(bitmap: bytes, count: int) -> list[int]:
    """Read a set of positions.

    Raises:
        FrameError: not as long as it must be.
    """
    if len(bitmap) != -(-count // 8):
        raise FrameError(SERVER, f"wanted {-(-count // 8)} bytes of flags, got {len(bitmap)}")
    flags = np.unpackbits(np.frombuffer(bitmap, np.uint8), count=count, bitorder="little")
    found: list[int] = np.flatnonzero(flags).tolist()
    return found
