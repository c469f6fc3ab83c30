"""A server that shows one client to be there and gone at once, to read its input alone."""

import struct

import numpy as np
import pytest

from support.federated import Cast
from tacit.crypto import ShamirShare, recover_bytes
from tacit.errors import PartyError
from tacit.federated.contract import pack, unpack
from tacit.federated.secagg import Neighbourhood, plan_neighbourhood, plan_secagg
from tacit.federated.secagg.messages import (
    ATTESTED,
    PAIR,
    ROSTER,
    SELF,
    SHARE_BYTES,
    SURVIVORS,
    TAG_BYTES,
    key_pair_of,
    pair_key,
    read_roster,
    self_key,
    to_bitmap,
)
from tacit.federated.secagg.plan import add_masks, from_wire


def make_cast(clients, neighbourhood):
    plan = plan_secagg(
        clients, 3, bound=1.0, neighbourhood=neighbourhood, minimum=max(2, int(0.6 * clients))
    )
    rows = np.arange(clients * plan.length, dtype=plan.dtype).reshape(clients, plan.length)
    return Cast(plan, rows * plan.dtype.type(2654435761))


def equivocate(cast):
    """Read the words of the client at the ring's first place, or return None.

    Half of the ring is shown a list on which the victim stayed, and gives up shares of its own
    mask; the other half one on which it left, and gives up shares of its pair key.
    """
    lists = cast.stage("advertise", cast.server.invite())
    (body,) = unpack(lists[0], ROSTER, "b", sender="server")
    roster = read_roster(cast.plan, body)
    parcels = cast.stage("share", lists)
    inputs = {i: cast.answer("mask", i, message) for i, message in parcels.items()}
    count = cast.plan.clients
    victim = roster.ring[0]
    with_victim, without = (
        pack(SURVIVORS, to_bitmap([i for i in range(count) if keep or i != victim], count))
        for keep in (True, False)
    )
    # The victim itself and those before it on the ring see it stay, those after it see it leave.
    sees = {roster.ring[at]: with_victim for at in range(-(count // 2 - 1), 1)}
    vouched = {i: cast.clients[i].attest(sees.get(i, without))[9:] for i in range(count)}
    given = {SELF: {}, PAIR: {}}
    for i in range(count):
        try:
            said = cast.clients[i].unmask(pack(ATTESTED, tags_for(roster, i, vouched)))
        except PartyError as error:
            cast.refused.append(error)
            continue
        for at in range(9, len(said), 4 + SHARE_BYTES):
            if struct.unpack_from("<I", said, at)[0] == victim:
                which = SELF if i in sees else PAIR
                given[which][i] = said[at + 4 : at + 4 + SHARE_BYTES]
    return read_input(cast, roster, victim, inputs[victim], given)


def tags_for(roster, receiver, vouched):
    found = []
    for sender, tags in vouched.items():
        others = roster.holders(sender)[1:]
        if receiver in others:
            at = others.index(receiver) * TAG_BYTES
            found.append(struct.pack("<I", sender) + tags[at : at + TAG_BYTES])
    return b"".join(found)


def read_input(cast, roster, victim, message, given):
    plan, around = cast.plan, roster.holders(victim)
    threshold = plan.neighbourhood.threshold
    if min(len(shares) for shares in given.values()) < threshold:
        return None
    own, pair = (
        recover_bytes(
            [
                ShamirShare(around.index(i) + 1, threshold, np.frombuffer(one, "<u8"))
                for i, one in given[which].items()
            ][:threshold]
        )
        for which in (SELF, PAIR)
    )
    words = np.array(from_wire(plan, message[9:]))
    pairs = key_pair_of(pair, plan.session, b"mask")
    keys = {
        i: pair_key(pairs, roster.adverts[i].masking, plan.session, between=(i, victim))
        for i in around[1:]
    }
    add_masks(
        words,
        plus=[key for i, key in keys.items() if i < victim],
        minus=[self_key(own, plan.session), *(key for i, key in keys.items() if i > victim)],
    )
    return words


@pytest.mark.parametrize("clients", [10, 40, 100])
def test_a_server_that_shows_two_lists_reads_nobody(clients):
    near = plan_neighbourhood(
        clients, minimum=int(0.6 * clients), drop_rate=0.1, colluding_share=0.1
    )
    cast = make_cast(clients, near)
    assert equivocate(cast) is None
    assert any("vouch for the same list" in str(error) for error in cast.refused)


@pytest.mark.parametrize(
    ("clients", "neighbours", "threshold"), [(10, 9, 3), (40, 24, 6), (100, 24, 12)]
)
def test_the_same_server_reads_its_victim_where_half_of_the_holders_suffice(
    clients, neighbours, threshold
):
    """These are the thresholds of 0.1 for a curious server: colluding neighbours plus two."""
    cast = make_cast(clients, Neighbourhood(neighbours=neighbours, threshold=threshold))
    found = equivocate(cast)
    assert cast.refused == []
    assert any(np.array_equal(found, row) for row in cast.words)
