"""A client that shows another's mask key as its own, so that two masks of a third one cancel.

In the complete graph a server with the clients that may collude is short of one honest client to
read somebody's input alone. Every mask that cancels would stand for one.
"""

from dataclasses import replace

import numpy as np

from support.federated import Cast
from tacit.crypto import ShamirShare, agree, derive, recover_bytes
from tacit.federated.contract import pack, records, unpack
from tacit.federated.secagg import client, plan_neighbourhood, plan_secagg
from tacit.federated.secagg.messages import (
    ATTESTED,
    DELIVERY,
    PARCEL_BYTES,
    ROSTER,
    SEED_BYTES,
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

FRIEND, GONE, VICTIM, STAYED = 0, (1, 2, 3), 4, (5, 6, 7, 8, 9)
"""Of ten clients one colludes. The victim masks with those who will be said to have left, with its
friend and with the last of those who stay: before and behind it in order, so with opposite signs.
"""
HEAD = 9


def make_cast():
    near = plan_neighbourhood(10, minimum=6, drop_rate=0.1, colluding_share=0.1)
    plan = plan_secagg(10, 3, bound=1.0, neighbourhood=near, minimum=6)
    rows = np.arange(10 * plan.length, dtype=plan.dtype).reshape(10, plan.length)
    cast = Cast(plan, rows * plan.dtype.type(2654435761), known=True)
    friend, copied = cast.clients[FRIEND], cast.clients[STAYED[-1]]
    friend._masking = replace(friend._masking, public=copied._masking.public)
    return cast


def read_victim(cast, key_of):
    """Read the victim's words by all that the clients answer, all in their order and once."""
    lists = cast.stage("advertise", cast.server.invite())
    roster = read_roster(cast.plan, unpack(lists[VICTIM], ROSTER, "b", sender="server")[0])
    parcels = cast.stage("share", lists)
    (body,) = unpack(parcels[VICTIM], DELIVERY, "b", sender="server")
    to_victim = [
        one
        for one in records(body, 4 + PARCEL_BYTES, sender="server")
        if one[0] in (FRIEND, *GONE, STAYED[-1])
    ]
    parcels[VICTIM] = pack(DELIVERY, b"".join(to_victim))
    inputs = {i: cast.answer("mask", i, parcels[i]) for i in (FRIEND, VICTIM, *STAYED)}
    stayed = pack(SURVIVORS, to_bitmap([FRIEND, VICTIM, *STAYED], 10))
    vouched = {i: cast.clients[i].attest(stayed)[HEAD:] for i in (FRIEND, *STAYED)}
    given = {}
    for i in vouched:
        tags = b"".join(
            sender.to_bytes(4, "little") + made[at * TAG_BYTES : (at + 1) * TAG_BYTES]
            for sender, made in vouched.items()
            for at, other in enumerate(roster.holders(sender)[1:])
            if other == i
        )
        said = cast.clients[i].unmask(pack(ATTESTED, tags))[HEAD:]
        for one in records(said, 4 + SHARE_BYTES, sender=f"client {i}"):
            given.setdefault(one[0], {})[i] = one[4:]
    seeds = {owner: recover(roster, owner, given[owner]) for owner in (VICTIM, *GONE)}
    words = np.array(from_wire(cast.plan, inputs[VICTIM][HEAD:]))
    session, theirs = cast.plan.session, roster.adverts[VICTIM].masking
    pairs = {i: key_pair_of(seeds[i], session, b"mask") for i in GONE}
    add_masks(
        words,
        plus=[key_of(pairs[i], theirs, session, between=(i, VICTIM)) for i in GONE],
        minus=[self_key(seeds[VICTIM], session)],
    )
    return words


def recover(roster, owner, given):
    around, threshold = roster.holders(owner), roster.plan.neighbourhood.threshold
    shares = [
        ShamirShare(around.index(holder) + 1, threshold, np.frombuffer(one, "<u8"))
        for holder, one in given.items()
    ]
    return recover_bytes(shares[:threshold])


def key_without_names(mine, theirs, session, *, between):
    """Derive a key as 0.1 and 0.2 did: whoever has the public key of another has its keys."""
    return derive(agree(mine, theirs), context=b"tacit masked pair" + session, length=SEED_BYTES)


def test_a_client_with_the_mask_key_of_another_takes_no_mask_off():
    cast = make_cast()
    assert not np.any(read_victim(cast, pair_key) == cast.words[VICTIM])


def test_it_took_one_off_while_keys_did_not_name_the_two_that_have_them(monkeypatch):
    monkeypatch.setattr(client, "pair_key", key_without_names)
    cast = make_cast()
    assert np.array_equal(read_victim(cast, key_without_names), cast.words[VICTIM])
