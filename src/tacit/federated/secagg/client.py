"""A client's side of a SecAgg round: a state machine of bytes in and bytes out.

The protocol is that of Bonawitz et al., "Practical Secure Aggregation for Privacy-Preserving
Machine Learning" (CCS 2017), Figure 4, with the sparse graph of Bell et al. (CCS 2020). The names
of the paper: a client u has the keys c_u (here: sealing) and s_u (masking), the seed b_u of its own
mask and sends y_u = x_u + PRG(b_u) + Σ_v ± PRG(s_{u,v}). U1 ⊇ U2 ⊇ U3 ⊇ U4 ⊇ U5 are those who
answered rounds 0 to 4. Two things differ: what is shared is the seed from which s_u is derived, not
the key itself, and each share is committed to, so that a changed one is traced to its holder.
"""

import hmac
import struct
from typing import cast, final

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tacit.crypto import ShamirShare, derive, seal, share_bytes, unseal
from tacit.errors import InputError, PartyError
from tacit.federated.contract import pack, records, unpack
from tacit.federated.secagg.messages import (
    ADVERT,
    ATTEST,
    ATTESTED,
    COMMIT_BYTES,
    DELIVERY,
    INPUT,
    PAIR,
    PARCEL_BYTES,
    ROSTER,
    SEALED_BYTES,
    SEED_BYTES,
    SELF,
    SERVER,
    SHARE_BYTES,
    SHARES,
    SURVIVORS,
    TAG_BYTES,
    UNMASK,
    Advert,
    Roster,
    advert_text,
    agreed,
    attest_tag,
    attest_text,
    client_name,
    commit_seed,
    commit_share,
    from_bitmap,
    key_pair_of,
    pair_key,
    read_roster,
    seal_context,
    self_key,
)
from tacit.federated.secagg.plan import SecAggPlan, Words, add_masks, to_wire
from tacit.ring import Prg

_STEPS = ("advertise", "share", "mask", "attest", "unmask", "done")
_INDEX = struct.Struct("<I")
_SAVED = 64  # the kind of a saved state: above all kinds of messages, so none passes for one
_NO_TAG = bytes(TAG_BYTES)  # for a neighbour that never shared: it is not asked


@final
class SecAggClient:
    """Takes part in one masked round, each step once and in order.

    Args:
        plan: what the client itself holds to be agreed, not what a server says; see `check_plan`.
        index: which client this is.
        signing: the key that the others know it by.
        prg: where its secrets come from.
        known: the public keys of all who may take part, if the job names them. Without it whoever
            runs the server can invent clients, and the guarantee is against a curious server.

    Guarantee: a server that follows the protocol, together with fewer colluding clients than the
    plan allows, learns of this client's input nothing but the sum over those who stayed, if AES and
    X25519 hold. A server that does not is kept from both secrets of any client by the threshold,
    and each neighbourhood agrees on who stayed. Nothing is proved about the range of
    the inputs of others.
    Cost: 5 messages; the input is ``plan.upload_bytes``, the rest about 200 bytes per neighbour.
    """

    def __init__(
        self,
        plan: SecAggPlan,
        index: int,
        *,
        signing: Ed25519PrivateKey,
        prg: Prg,
        known: frozenset[bytes] | None = None,
    ) -> None:
        self._plan, self._index, self._signing, self._known = plan, index, signing, known
        self._prg = prg
        self._take_seeds([prg.bytes(SEED_BYTES) for _ in range(3)])
        self._step = 0
        self._roster: Roster | None = None
        self._shares: dict[int, bytes] = {}  # of each position that is present, both secrets
        self._survivors = b""
        self._pair_keys: dict[int, tuple[bytes, bytes]] = {}  # to seal with, to vouch with

    @property
    def plan(self) -> SecAggPlan:
        """What this client takes part in."""
        return self._plan

    # Round 0, AdvertiseKeys.
    def advertise(self) -> bytes:
        """Say which keys others reach this client by."""
        self._enter("advertise")
        return pack(ADVERT, self._advert().to_bytes())

    # Round 1, ShareKeys: the list is U1.
    def share(self, message: bytes) -> bytes:
        """Share both secrets among the neighbours, each share sealed to its holder.

        Raises:
            PartyError: the list of clients is wrong, or a neighbour's key is not its own.
        """
        self._enter("share")
        (body,) = unpack(message, ROSTER, "b", sender=SERVER)
        self._roster = roster = read_roster(self._plan, cast(bytes, body))
        mine = roster.position.get(self._index)
        if mine is None or roster.adverts[mine] != self._advert():
            raise PartyError(SERVER, f"its list does not hold the keys of {self.name}")
        around = roster.holders(mine)
        for position in around[1:]:
            self._check_advert(roster.adverts[position])
        threshold = self._plan.neighbourhood.threshold
        sharings = [
            share_bytes(seed, threshold=threshold, parties=len(around), randomness=self._prg.bytes)
            for seed in self._seeds[:2]
        ]
        parcels = [
            self._parcel(roster.adverts[position], own, pair)
            for position, own, pair in zip(around, *sharings, strict=True)
        ]
        self._shares[mine] = b"".join(_to_bytes(sharing[0]) for sharing in sharings)
        commitment = commit_seed(self._plan.session, self._index, self._seeds[SELF])
        return pack(SHARES, commitment, b"".join(parcels))

    # Round 2, MaskedInputCollection: the parcels come from U2.
    def mask(self, message: bytes, words: Words) -> bytes:
        """Hide the words under the masks with all neighbours that are present, and one's own.

        Raises:
            PartyError: too few neighbours are left, or one has sent something false; names it.
        """
        self._enter("mask")
        roster = self._known_roster()
        (body,) = unpack(message, DELIVERY, "b", sender=SERVER)
        around = set(roster.holders(roster.position[self._index]))
        for parcel in records(cast(bytes, body), _INDEX.size + PARCEL_BYTES, sender=SERVER):
            self._keep(roster, around, parcel)
        self._need(len(self._shares), "sent shares")
        plus, minus = [self_key(self._seeds[SELF], self._plan.session)], list[bytes]()
        for position in self._shares:
            other = roster.adverts[position]
            if other.index != self._index:
                # Δ_{u,v} = 1 for u before v and −1 after: the two masks of a pair cancel.
                side = plus if self._index < other.index else minus
                between = self._index, other.index
                session = self._plan.session
                side.append(pair_key(self._masking, other.masking, session, between=between))
        masked = np.array(words, self._plan.dtype)
        if masked.shape != (self._plan.length,):
            raise InputError(f"wanted {self._plan.length} words, got shape {masked.shape}")
        add_masks(masked, plus=plus, minus=minus)
        return pack(INPUT, to_wire(self._plan, masked))

    # Round 3, ConsistencyCheck: the list is U3. The paper signs it for everybody; here each
    # neighbour gets a MAC under a key that only the two have: 16 bytes instead of 64, and the
    # honest neighbours of one client are enough, since only they can unmask it.
    def attest(self, message: bytes) -> bytes:
        """Vouch to every neighbour for the list of those whose inputs arrived; never two lists.

        Raises:
            PartyError: the list leaves this client out, names one that was never there, or is too
                short for the sum to hide anyone.
        """
        self._enter("attest")
        roster = self._known_roster()
        (flags,) = unpack(message, SURVIVORS, "b", sender=SERVER)
        self._survivors = cast(bytes, flags)
        alive = set(from_bitmap(self._survivors, len(roster.adverts)))
        mine = roster.position[self._index]
        around = set(roster.holders(mine))
        # U3 ⊆ U2 as this client has seen them: with a neighbour whose parcel was kept from it there
        # is no common mask, and fewer would hide this input than the threshold counts.
        if mine not in alive or (alive & around) - self._shares.keys():
            raise PartyError(SERVER, f"its list of survivors contradicts what {self.name} has seen")
        if len(alive) < self._plan.minimum:
            raise PartyError(
                SERVER, f"{len(alive)} inputs arrived, a sum of {self._plan.minimum} may be shown"
            )
        self._need(len(alive & around), "sent inputs")
        text = attest_text(roster, self._survivors)
        tags = [
            self._tag(roster.adverts[position], text) if position in self._shares else _NO_TAG
            for position in roster.holders(mine)[1:]
        ]
        return pack(ATTEST, b"".join(tags))

    # Round 4, Unmasking. Of v in U3 the share of b_v, of v in U2 \ U3 that of s_v, never both:
    # with both the server would hold y_v and all its masks.
    def unmask(self, message: bytes) -> bytes:
        """Give up, of each neighbour, the share of one secret: its own mask's if it stayed.

        Raises:
            PartyError: too few neighbours vouch for the same list of survivors: the server has
                shown different lists.
        """
        self._enter("unmask")
        roster = self._known_roster()
        (body,) = unpack(message, ATTESTED, "b", sender=SERVER)
        self._check_attested(roster, cast(bytes, body))
        alive = set(from_bitmap(self._survivors, len(roster.adverts)))
        given = []
        for position, both in self._shares.items():
            which = SELF if position in alive else PAIR
            start = which * SHARE_BYTES
            index = roster.adverts[position].index
            given.append(_INDEX.pack(index) + both[start : start + SHARE_BYTES])
        return pack(UNMASK, b"".join(given))

    @property
    def name(self) -> str:
        """How others speak of this client."""
        return client_name(self._index)

    def save(self) -> bytes:
        """Write the state, secrets and all, for the same client to go on from later.

        Guarantee: none; keep it where the client keeps its data. Never go on twice from one state:
        that is how both secrets of a peer would come out.
        """
        held = b"".join(_INDEX.pack(position) + both for position, both in self._shares.items())
        body = self._roster.body if self._roster else b""
        secret = self._signing.private_bytes_raw() + b"".join(self._seeds)
        return pack(_SAVED, self._step, secret, body, held, self._survivors)

    @classmethod
    def load(
        cls, saved: bytes, plan: SecAggPlan, index: int, *, known: frozenset[bytes] | None = None
    ) -> "SecAggClient":
        """Go on from what `save` wrote."""
        step, secret, body, held, survivors = unpack(saved, _SAVED, "ibbbb", sender="this client")
        raw = cast(bytes, secret)
        signing = Ed25519PrivateKey.from_private_bytes(raw[:32])
        client = cls(plan, index, signing=signing, prg=Prg.from_os(), known=known)
        client._step = cast(int, step)
        client._take_seeds(records(raw[32:], SEED_BYTES, sender="this client"))
        client._roster = read_roster(plan, cast(bytes, body)) if body else None
        size = _INDEX.size + 2 * SHARE_BYTES
        client._shares = {
            _INDEX.unpack(one[:4])[0]: one[4:]
            for one in records(cast(bytes, held), size, sender="this client")
        }
        client._survivors = cast(bytes, survivors)
        return client

    def _enter(self, step: str) -> None:
        wanted = _STEPS[self._step]
        if step != wanted:
            raise PartyError(
                SERVER, f"it asked {self.name} to {step}, but the next step is to {wanted}"
            )
        self._step += 1

    def _known_roster(self) -> Roster:
        if self._roster is None:
            raise PartyError(SERVER, f"it showed {self.name} no list of clients")
        return self._roster

    def _take_seeds(self, seeds: list[bytes]) -> None:
        """Derive the keys from three seeds: of the own mask, of the pairs', of the sealing."""
        # Two key pairs, c and s of the paper: that of the masks is given up if this client drops
        # out, and what was sealed, and vouched for, must not be open to the server then.
        session = self._plan.session
        self._seeds = seeds
        self._masking = key_pair_of(seeds[PAIR], session, b"mask")
        self._sealing = key_pair_of(seeds[2], session, b"seal")

    def _advert(self) -> Advert:
        sealing, masking = self._sealing.public, self._masking.public
        text = advert_text(self._plan.session, self._index, sealing, masking)
        identity = self._signing.public_key().public_bytes_raw()
        # Ed25519 is deterministic: the record is the same whenever it is made.
        return Advert(self._index, sealing, masking, identity, self._signing.sign(text))

    def _check_advert(self, advert: Advert) -> None:
        # A signature under a key that nobody knows proves nothing: the server has checked it, and
        # one that does not follow the protocol could have made it.
        if self._known is None:
            return
        if advert.identity not in self._known:
            raise PartyError(client_name(advert.index), "its key is not one that the job names")
        advert.verify(self._plan.session)

    def _parcel(self, holder: Advert, own: ShamirShare, pair: ShamirShare) -> bytes:
        session, shares = self._plan.session, (_to_bytes(own), _to_bytes(pair))
        commitments = [
            commit_share(session, self._index, holder.index, which, one)
            for which, one in enumerate(shares)
        ]
        if holder.index == self._index:
            return b"".join(commitments) + bytes(SEALED_BYTES)
        associated = seal_context(session, self._index, holder.index)
        sealed = seal(self._keys_with(holder)[0], b"".join(shares), associated=associated)
        return b"".join(commitments) + sealed

    def _keys_with(self, other: Advert) -> tuple[bytes, bytes]:
        # Needed to seal, to open and to vouch; a client that was loaded agrees anew.
        if other.index not in self._pair_keys:
            secret, session = (
                agreed(self._sealing, other.sealing, of=other.index),
                self._plan.session,
            )
            self._pair_keys[other.index] = (
                derive(secret, context=b"tacit masked seal" + session),
                derive(secret, context=b"tacit masked attest" + session),
            )
        return self._pair_keys[other.index]

    def _tag(self, other: Advert, text: bytes) -> bytes:
        return attest_tag(self._keys_with(other)[1], self._index, other.index, text)

    def _keep(self, roster: Roster, around: set[int], parcel: bytes) -> None:
        owner = _INDEX.unpack(parcel[:4])[0]
        position = roster.position.get(owner, -1)
        if position in self._shares or position not in around:
            raise PartyError(
                SERVER,
                f"it gave {self.name} a share of {client_name(owner)} again, or of no neighbour",
            )
        commitments, sealed = parcel[4 : 4 + 2 * COMMIT_BYTES], parcel[4 + 2 * COMMIT_BYTES :]
        associated = seal_context(self._plan.session, owner, self._index)
        try:
            key = self._keys_with(roster.adverts[position])[0]
            both = unseal(key, sealed, associated=associated)
        except InputError as error:
            raise PartyError(client_name(owner), "its sealed share does not open") from error
        halves = both[:SHARE_BYTES], both[SHARE_BYTES:]
        expected = b"".join(
            commit_share(self._plan.session, owner, self._index, which, one)
            for which, one in enumerate(halves)
        )
        if expected != commitments:
            raise PartyError(client_name(owner), "its share is not the one that it committed to")
        self._shares[position] = both

    def _check_attested(self, roster: Roster, body: bytes) -> None:
        """Find enough neighbours that vouch for the same list; a wrong tag counts as none."""
        mine = roster.position[self._index]
        missing = self._shares.keys() - {mine}
        text, valid = attest_text(roster, self._survivors), 1
        for record in records(body, _INDEX.size + TAG_BYTES, sender=SERVER):
            index = _INDEX.unpack(record[:4])[0]
            position = roster.position.get(index, -1)
            if position in missing:
                missing.remove(position)
                key = self._keys_with(roster.adverts[position])[1]
                wanted = attest_tag(key, index, self._index, text)
                valid += hmac.compare_digest(record[4:], wanted)
        self._need(valid, "vouch for the same list of survivors")

    def _need(self, count: int, what: str) -> None:
        # |U| ≥ t, the check of the paper's rounds 1 to 4, within the neighbourhood.
        if count < self._plan.neighbourhood.threshold:
            raise PartyError(
                SERVER,
                f"of the neighbours of {self.name}, {count} {what}; the plan wants "
                f"{self._plan.neighbourhood.threshold}",
            )


def _to_bytes(one: ShamirShare) -> bytes:
    return one.values.astype("<u8").tobytes()
