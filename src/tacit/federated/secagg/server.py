"""The server's side of a SecAgg round: it adds inputs as they come and keeps one sum.

Its stages are the rounds 0 to 4 of Bonawitz et al. (CCS 2017), Figure 4; those who answered them
are U1 to U5 there, and here the roster, `_present`, `_alive` and, for the last two, who answered.
"""

import struct
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import cast, final

import numpy as np

from tacit.crypto import ShamirShare, make_key_pair, recover
from tacit.errors import DisagreementError, FrameError, PartyError
from tacit.federated.contract import Aggregate, VoidRound, pack, records, unpack
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
    agreed,
    client_name,
    commit_seed,
    commit_share,
    key_pair_of,
    open_message,
    pair_key,
    read_advert,
    read_roster,
    self_key,
    to_bitmap,
)
from tacit.federated.secagg.plan import SecAggPlan, Words, add_masks, from_wire, mean_of

STAGES = ("advertise", "share", "mask", "attest", "unmask")
_INDEX = struct.Struct("<I")
_KINDS = (ADVERT, SHARES, INPUT, ATTEST, UNMASK)


@final
class SecAggServer:
    """Collects one stage after the other; whoever is silent in a stage has dropped out.

    `invite`, then for every stage: `accept` what clients answer, `close` to end the stage and
    learn what to send to whom. After the last stage `total` is the sum of the inputs of
    `survivors`, exact modulo 2^(8 · word_bytes).

    Guarantee: a sum is given only if every secret was recovered and fits what its owner committed
    to: exact or void. Bad messages are refused by name and their senders count as silent.
    Cost: memory for one sum and about 200 bytes per client and neighbour.
    """

    def __init__(self, plan: SecAggPlan, *, largest_weight: int = 1) -> None:
        self.plan, self._largest_weight = plan, largest_weight
        self._stage = 0
        self._adverts: dict[int, Advert] = {}
        self._probe = make_key_pair()  # to try keys with
        self._roster: Roster | None = None
        self._awaited: set[int] = set()  # positions; from the second stage on
        self._answered: set[int] = set()
        self._held = Held()
        self._present: frozenset[int] = frozenset()
        self._sum: Words = np.zeros(plan.length, plan.dtype)
        self._alive: tuple[int, ...] = ()
        self._alive_set: frozenset[int] = frozenset()
        self._flags = b""
        self._tags: dict[int, dict[int, bytes]] = {}

    @property
    def stage(self) -> str:
        """Name the stage whose answers are awaited; "done" after the last."""
        return STAGES[self._stage] if self._stage < len(STAGES) else "done"

    @property
    def survivors(self) -> tuple[int, ...]:
        """The indices of the clients whose inputs the sum holds."""
        adverts = self._known_roster().adverts
        return tuple(adverts[position].index for position in self._alive)

    def invite(self) -> dict[int, bytes]:
        """Write the first message to every client."""
        return {index: open_message(self.plan, index) for index in range(self.plan.clients)}

    def accept(self, index: int, message: bytes) -> None:
        """Take a client's answer of this stage.

        Raises:
            PartyError: it is no valid answer, or a second one; names the client.
        """
        name = client_name(index)
        if self._stage >= len(STAGES) or not 0 <= index < self.plan.clients:
            raise DisagreementError(name, f"nothing is awaited from it in the stage {self.stage!r}")
        layout = {"share": "bb", "mask": "v"}.get(self.stage, "b")
        fields = cast(list[bytes], unpack(message, _KINDS[self._stage], layout, sender=name))
        if self.stage == "advertise":
            self._take_advert(index, fields[0])
            return
        position = self._known_roster().position.get(index, -1)
        if position not in self._awaited or position in self._answered:
            raise DisagreementError(
                name, f"it is not awaited in the stage {self.stage!r}, or again"
            )
        if self.stage == "share":
            self._take_parcels(position, *fields)
        elif self.stage == "mask":
            self._take_input(name, fields[0])
        elif self.stage == "attest":
            self._take_tags(position, fields[0])
        else:
            self._take_shares(position, fields[0])
        self._answered.add(position)

    def close(self) -> dict[int, bytes]:
        """End the stage and write what each client that is still there gets next.

        Raises:
            VoidRound: too few are left, or the secrets cannot be recovered.
        """
        finish = (
            self._close_adverts,
            self._close_shares,
            self._close_inputs,
            self._close_attests,
            self._close_unmask,
        )[self._stage]
        messages = finish()
        self._awaited = {self._known_roster().position[index] for index in messages}
        self._answered = set()
        self._stage += 1
        return messages

    def complain(self, index: int, error: PartyError) -> None:
        """Do without a client: it counts as silent from here on."""

    def aggregate(self) -> Aggregate:
        """Return the mean of those who stayed."""
        most = self._largest_weight
        return mean_of(self.plan, self.total(), self.survivors, largest_weight=most)

    def total(self) -> Words:
        """Return the sum of the survivors' words.

        Raises:
            VoidRound: the round is not over.
        """
        if self.stage != "done":
            raise VoidRound(SERVER, f"the round has no sum yet, it awaits the stage {self.stage!r}")
        return self._sum

    def _take_advert(self, index: int, body: bytes) -> None:
        advert = read_advert(body, index)
        if index in self._adverts:
            raise DisagreementError(client_name(index), "it has shown its keys already")
        advert.verify(self.plan.session)
        if any(advert.identity == other.identity for other in self._adverts.values()):
            raise PartyError(client_name(index), "another client has the same identity")
        # A key that nobody can agree with would make all its neighbours fail, and be blamed.
        for point in (advert.sealing, advert.masking):
            agreed(self._probe, point, of=index)
        self._adverts[index] = advert

    def _take_parcels(self, position: int, commitment: bytes, body: bytes) -> None:
        roster = self._known_roster()
        name = client_name(roster.adverts[position].index)
        parcels = records(body, PARCEL_BYTES, sender=name)
        around = roster.holders(position)
        if len(parcels) != len(around) or len(commitment) != COMMIT_BYTES:
            raise FrameError(name, f"wanted {len(around)} parcels of shares, got {len(parcels)}")
        self._held.commitments[position] = commitment
        self._held.parcels[position] = dict(zip(around, parcels, strict=True))

    def _take_input(self, name: str, body: bytes | memoryview) -> None:
        if len(body) != self.plan.upload_bytes:
            raise FrameError(
                name, f"wanted an input of {self.plan.upload_bytes} bytes, got {len(body)}"
            )
        # Added at once: no input is kept.
        np.add(self._sum, from_wire(self.plan, body), out=self._sum)

    def _take_tags(self, position: int, body: bytes) -> None:
        roster = self._known_roster()
        name = client_name(roster.adverts[position].index)
        tags, others = records(body, TAG_BYTES, sender=name), roster.holders(position)[1:]
        if len(tags) != len(others):
            raise FrameError(name, f"wanted a tag for {len(others)} neighbours, got {len(tags)}")
        self._tags[position] = dict(zip(others, tags, strict=True))

    def _take_shares(self, position: int, body: bytes) -> None:
        roster = self._known_roster()
        holder = roster.adverts[position].index
        name = client_name(holder)
        found = []
        for record in records(body, _INDEX.size + SHARE_BYTES, sender=name):
            owner, share = _INDEX.unpack(record[:4])[0], record[4:]
            place = roster.position.get(owner, -1)
            which = SELF if place in self._alive_set else PAIR
            parcel = self._held.parcels.get(place, {}).get(position)
            start = which * COMMIT_BYTES
            # A share of the other secret of the same client is refused here too: it opens another
            # commitment. An honest server holds no seed and key of one client even by mistake.
            if parcel is None or parcel[start : start + COMMIT_BYTES] != commit_share(
                self.plan.session, owner, holder, which, share
            ):
                raise PartyError(name, f"its share of {client_name(owner)} is not the one it got")
            found.append((place, share))
        if len({place for place, _ in found}) < len(found):
            raise PartyError(name, "it gave two shares of one client")
        for place, share in found:
            self._held.shares.setdefault(place, {})[position] = share

    # End of round 0: everybody gets U1.
    def _close_adverts(self) -> dict[int, bytes]:
        body = b"".join(self._adverts[index].to_bytes() for index in sorted(self._adverts))
        try:
            self._roster = read_roster(self.plan, body)
        except PartyError as error:
            raise VoidRound(SERVER, f"too few showed their keys: {error.reason}") from error
        return dict.fromkeys(sorted(self._adverts), pack(ROSTER, body))

    # End of round 1: each gets what the others of U2 have sealed for it.
    def _close_shares(self) -> dict[int, bytes]:
        roster = self._known_roster()
        self._present = frozenset(self._answered)
        self._need(len(self._present), "shared their secrets")
        messages = {}
        for position in sorted(self._present):
            parcels = (
                _INDEX.pack(roster.adverts[owner].index) + self._held.parcels[owner][position]
                for owner in roster.holders(position)[1:]
                if owner in self._present
            )
            messages[roster.adverts[position].index] = pack(DELIVERY, b"".join(parcels))
        return messages

    # End of round 2: U3 is told, and from here on it is fixed.
    def _close_inputs(self) -> dict[int, bytes]:
        self._alive = tuple(sorted(self._answered))
        self._alive_set = frozenset(self._alive)
        self._need(len(self._alive), "sent their inputs")
        self._flags = to_bitmap(self._alive, len(self._known_roster().adverts))
        return dict.fromkeys(self.survivors, pack(SURVIVORS, self._flags))

    # End of round 3: each gets its neighbours' tags. No minimum: a client counts those itself.
    def _close_attests(self) -> dict[int, bytes]:
        roster = self._known_roster()
        messages = {}
        for position in sorted(self._tags):
            vouched = (
                _INDEX.pack(roster.adverts[other].index) + self._tags[other][position]
                for other in roster.holders(position)[1:]
                if other in self._tags
            )
            messages[roster.adverts[position].index] = pack(ATTESTED, b"".join(vouched))
        return messages

    def _close_unmask(self) -> dict[int, bytes]:
        remove_masks(self._sum, self._known_roster(), self._held, self._present, self._alive_set)
        return {}

    def _need(self, count: int, what: str) -> None:
        if count < self.plan.minimum:
            raise VoidRound(SERVER, f"{count} clients {what}, the plan wants {self.plan.minimum}")

    def _known_roster(self) -> Roster:
        if self._roster is None:
            raise VoidRound(SERVER, "nobody has been listed yet")
        return self._roster


_AT_ONCE = 128  # masks in one pass over the sum: it is read 128 times less, their keys are few
_CHUNK = 7  # bytes of a secret in one field element of 61 bits, as `share_bytes` cuts them


@dataclass
class Held:
    """What the server keeps of every client, by position: small, whatever the dimension."""

    commitments: dict[int, bytes] = field(default_factory=dict)
    parcels: dict[int, dict[int, bytes]] = field(default_factory=dict)
    shares: dict[int, dict[int, bytes]] = field(default_factory=dict)


def remove_masks(
    total: Words, roster: Roster, held: Held, present: frozenset[int], alive: frozenset[int]
) -> None:
    """Take off the sum the own masks of those who stayed and the pairs' of those who left.

    Guarantee: every secret that is used fits its owner's commitment or public key, or the round is
    void.
    Cost: 0 rounds; one mask for every survivor, and one for every neighbour left behind.

    Raises:
        VoidRound: a secret has too few shares, or is not what its owner committed to.
    """
    # Round 4 at the server: Σ_{U3} y_u less PRG(b_u) of all in U3, and less ± PRG(s_{u,v}) of all
    # pairs of u in U3 with v in U2 \ U3; pairs within U3 have cancelled. Who left before U2 put
    # no mask on anybody. What is recovered is checked against what its owner showed in round 0
    # or 1: a client that shared garbage would else turn the sum into garbage that nobody notices.
    lost = [
        position
        for position in sorted(present - alive)
        if any(other in alive for other in roster.holders(position))
    ]
    seeds = _recover_seeds(roster, held, [*sorted(alive), *lost])
    _in_batches(total, (_own(roster, held, place, seeds[place]) for place in sorted(alive)))
    _in_batches(
        total, (key for place in lost for key in _left_behind(roster, place, seeds[place], alive))
    )


def _in_batches(total: Words, signed: Iterator[tuple[bool, bytes]]) -> None:
    while batch := list(islice(signed, _AT_ONCE)):
        add_masks(
            total,
            plus=[key for is_plus, key in batch if is_plus],
            minus=[key for is_plus, key in batch if not is_plus],
        )


def _own(roster: Roster, held: Held, position: int, seed: bytes) -> tuple[bool, bytes]:
    index, session = roster.adverts[position].index, roster.plan.session
    if commit_seed(session, index, seed) != held.commitments[position]:
        raise VoidRound(client_name(index), "it shared another secret than it committed to")
    return False, self_key(seed, session)


def _left_behind(
    roster: Roster, position: int, seed: bytes, alive: frozenset[int]
) -> Iterator[tuple[bool, bytes]]:
    """Yield the masks that a client's neighbours put on for it, to be taken off again."""
    advert, session = roster.adverts[position], roster.plan.session
    pairs = key_pair_of(seed, session, b"mask")
    if pairs.public != advert.masking:
        raise VoidRound(client_name(advert.index), "it shared another key than it advertised")
    for other in roster.holders(position)[1:]:
        if other in alive:
            their = roster.adverts[other]
            key = pair_key(pairs, their.masking, session, between=(advert.index, their.index))
            # The later of a pair has subtracted the mask, Δ = −1: there it is added back.
            yield their.index > advert.index, key


def _recover_seeds(roster: Roster, held: Held, wanted: Iterable[int]) -> dict[int, bytes]:
    """Recover many secrets; those with shares at the same points in one go."""
    threshold = roster.plan.neighbourhood.threshold
    groups: dict[tuple[int, ...], list[tuple[int, list[bytes]]]] = defaultdict(list)
    for position in wanted:
        given = held.shares.get(position, {})
        ranked = [
            (point, given[holder])
            for point, holder in enumerate(roster.holders(position), 1)
            if holder in given
        ][:threshold]  # any t points give the polynomial
        if len(ranked) < threshold:
            name = client_name(roster.adverts[position].index)
            raise VoidRound(
                SERVER, f"{len(ranked)} shares of {name} are left, recovery wants {threshold}"
            )
        points = tuple(point for point, _ in ranked)
        groups[points].append((position, [share for _, share in ranked]))
    seeds: dict[int, bytes] = {}
    for points, members in groups.items():
        seeds |= _recover_group(points, members, threshold)
    return seeds


def _recover_group(
    points: tuple[int, ...], members: list[tuple[int, list[bytes]]], threshold: int
) -> dict[int, bytes]:
    columns = zip(*(shares for _, shares in members), strict=True)
    stacked = [
        ShamirShare(
            point,
            threshold,
            np.frombuffer(b"".join(column), "<u8").astype(np.uint64).reshape(-1, 3),
        )
        for point, column in zip(points, columns, strict=True)
    ]
    # What a dishonest owner shared may fill the eighth byte, or the padding: it is cut off, and the
    # comparison with what that owner showed in round 0 or 1 finds it out.
    octets = recover(stacked).astype("<u8").view(np.uint8).reshape(len(members), 3, 8)
    padded = octets[:, :, :_CHUNK].reshape(len(members), -1)
    return {
        position: row[:SEED_BYTES].tobytes()
        for (position, _), row in zip(members, padded, strict=True)
    }
