"""What a client of a masked round refuses: a server that cheats, peers that are not themselves."""

from dataclasses import replace

import numpy as np
import pytest

from support.federated import Cast
from tacit.errors import FrameError, InputError, PartyError
from tacit.federated.contract import pack, unpack
from tacit.federated.secagg import Neighbourhood, SecAggClient, plan_secagg
from tacit.federated.secagg.messages import (
    ADVERT_BYTES,
    ATTESTED,
    ROSTER,
    SURVIVORS,
    attest_text,
    read_open,
    read_roster,
    to_bitmap,
)
from tacit.ring import Prg


@pytest.fixture
def cast():
    plan = plan_secagg(
        6, 2, bound=1.0, neighbourhood=Neighbourhood(neighbours=5, threshold=4), minimum=4
    )
    return Cast(plan, np.ones((6, plan.length), plan.dtype), known=True)


def up_to(cast, *stages):
    messages = cast.server.invite()
    for stage in stages:
        messages = cast.stage(stage, messages)
    return messages


def test_a_server_that_asks_for_both_secrets_is_refused(cast):
    messages = up_to(cast, "advertise", "share", "mask", "attest")
    client = cast.clients[0]
    client.unmask(messages[0])
    with pytest.raises(PartyError, match="'server' failed: it asked client 0 to unmask"):
        client.unmask(messages[0])


def test_a_server_that_shows_a_second_list_of_survivors_is_refused(cast):
    messages = up_to(cast, "advertise", "share", "mask")
    cast.clients[0].attest(messages[0])
    with pytest.raises(PartyError, match="asked client 0 to attest"):
        cast.clients[0].attest(pack(SURVIVORS, to_bitmap([0, 1, 2, 3], 6)))


def test_a_server_that_shows_different_lists_to_different_clients_is_found_out(cast):
    up_to(cast, "advertise", "share", "mask")
    whole, part = to_bitmap(range(6), 6), to_bitmap([0, 2, 3, 4, 5], 6)
    vouched = {i: cast.clients[i].attest(pack(SURVIVORS, whole)) for i in range(1, 6)}
    cast.clients[0].attest(pack(SURVIVORS, part))
    # In the complete graph the tags stand in the order of the ring: client 0 comes after client 5.
    records = b"".join(
        i.to_bytes(4, "little") + vouched[i][9 + 16 * (5 - i) : 9 + 16 * (6 - i)] for i in vouched
    )
    with pytest.raises(PartyError, match="'server' failed: of the neighbours of client 0, 1 vouch"):
        cast.clients[0].unmask(pack(ATTESTED, records))


def test_a_tag_that_was_meant_for_another_vouches_for_nothing(cast):
    messages = up_to(cast, "advertise", "share", "mask", "attest")
    swapped = bytearray(messages[1][9:])
    for at, one in enumerate(range(0, len(swapped), 20)):
        swapped[one + 4 : one + 20] = messages[0][9:][20 * at + 4 : 20 * at + 20]
    with pytest.raises(PartyError, match="1 vouch for the same list of survivors; the plan wants"):
        cast.clients[1].unmask(pack(ATTESTED, bytes(swapped)))


def test_too_few_who_vouch_give_no_share(cast):
    messages = up_to(cast, "advertise", "share", "mask", "attest")
    few = pack(ATTESTED, messages[0][9 : 9 + 2 * 20])
    with pytest.raises(PartyError, match="3 vouch for the same list of survivors; the plan"):
        cast.clients[0].unmask(few)


def test_one_tag_given_often_counts_once(cast):
    messages = up_to(cast, "advertise", "share", "mask", "attest")
    again = pack(ATTESTED, messages[0][9 : 9 + 20] * 5)
    with pytest.raises(PartyError, match="2 vouch for the same list"):
        cast.clients[0].unmask(again)


def test_a_sum_over_too_few_is_not_helped(cast):
    up_to(cast, "advertise", "share", "mask")
    with pytest.raises(PartyError, match="3 inputs arrived, a sum of 4 may be shown"):
        cast.clients[0].attest(pack(SURVIVORS, to_bitmap([0, 1, 2], 6)))


def test_a_list_without_the_client_itself_is_refused(cast):
    up_to(cast, "advertise", "share", "mask")
    with pytest.raises(PartyError, match="contradicts what client 0 has seen"):
        cast.clients[0].attest(pack(SURVIVORS, to_bitmap([1, 2, 3, 4], 6)))


def test_a_neighbour_with_a_key_that_the_job_does_not_name_is_refused(cast):
    stranger = Cast(cast.plan, cast.words)
    cast.clients[5] = stranger.clients[5]
    messages = cast.stage("advertise", cast.server.invite())
    with pytest.raises(
        PartyError, match="'client 5' failed: its key is not one that the job names"
    ):
        cast.clients[0].share(messages[0])


@pytest.mark.parametrize("listed", ["without it", "with another key for it"])
def test_a_list_that_does_not_hold_the_keys_of_the_client_itself_is_refused(cast, listed):
    adverts = [one.advertise()[9:] for one in cast.clients]
    if listed == "without it":
        del adverts[0]
    else:
        adverts[0] = adverts[0][:4] + adverts[1][4:36] + adverts[0][36:]
    with pytest.raises(PartyError, match="its list does not hold the keys of client 0"):
        cast.clients[0].share(pack(ROSTER, b"".join(adverts)))


def test_a_list_in_which_one_key_is_two_clients_is_refused(cast):
    """Else one client that works with the server could be any number of them."""
    double = cast.clients[5]
    cast.clients[4] = SecAggClient(
        cast.plan, 4, signing=double._signing, prg=Prg.from_os(), known=double._known
    )
    adverts = [one.advertise()[9:] for one in cast.clients]
    with pytest.raises(PartyError, match="two clients of the list have the same identity"):
        cast.clients[0].share(pack(ROSTER, b"".join(adverts)))


@pytest.mark.parametrize("at", [4, 36], ids=["to seal with", "to mask with"])
def test_a_changed_key_in_the_list_is_refused(cast, at):
    messages = cast.stage("advertise", cast.server.invite())
    forged = bytearray(messages[1])
    forged[9 + at] ^= 1  # of client 0
    with pytest.raises(PartyError, match="'client 0' failed: its signature"):
        cast.clients[1].share(bytes(forged))


def test_a_client_under_the_number_of_another_is_refused(cast):
    adverts = [one.advertise()[9:] for one in cast.clients[:5]]
    adverts[4] = (5).to_bytes(4, "little") + adverts[4][4:]
    with pytest.raises(PartyError, match="'client 5' failed: its signature"):
        cast.clients[1].share(pack(ROSTER, b"".join(adverts)))


def test_a_clients_own_tag_vouches_for_nobody_else(cast):
    """Two clients have one key: what one of them made is not to come back as the other's."""
    up_to(cast, "advertise", "share", "mask")
    tags = cast.clients[0].attest(pack(SURVIVORS, to_bitmap(range(6), 6)))[9:]
    others = cast.clients[0]._roster.holders(0)[1:]
    back = b"".join(
        i.to_bytes(4, "little") + tags[16 * at : 16 * at + 16] for at, i in enumerate(others)
    )
    with pytest.raises(PartyError, match="1 vouch for the same list of survivors"):
        cast.clients[0].unmask(pack(ATTESTED, back))


def test_what_a_client_vouches_for_names_the_list_of_clients_and_who_stayed(cast):
    adverts = [one.advertise()[9:] for one in cast.clients]
    whole, part = (read_roster(cast.plan, b"".join(some)) for some in (adverts[:5], adverts[1:]))
    flags, fewer = to_bitmap(range(5), 5), to_bitmap(range(4), 5)
    assert len({attest_text(one, seen) for one in (whole, part) for seen in (flags, fewer)}) == 4


def test_a_replayed_or_changed_parcel_is_refused_and_its_sender_named(cast):
    messages = up_to(cast, "advertise", "share")
    forged = bytearray(messages[0])
    forged[-1] ^= 1
    with pytest.raises(PartyError, match="its sealed share does not open"):
        cast.clients[0].mask(bytes(forged), cast.words[0])
    body = messages[1][9:]
    twice = pack(messages[1][4], body + body[: len(body) // 5])
    with pytest.raises(PartyError, match=r"a share of client . again"):
        cast.clients[1].mask(twice, cast.words[1])
    strange = pack(messages[2][4], (6).to_bytes(4, "little") + messages[2][13:])
    with pytest.raises(PartyError, match="a share of client 6 again, or of no neighbour"):
        cast.clients[2].mask(strange, cast.words[2])


def test_steps_out_of_order_are_refused(cast):
    with pytest.raises(PartyError, match="the next step is to advertise"):
        cast.clients[0].share(b"")


def test_a_saved_client_goes_on_where_it_was(cast):
    stages = ("advertise", "share", "mask", "attest", "unmask")
    messages = cast.server.invite()
    for stage in stages:
        cast.clients = [
            SecAggClient.load(one.save(), cast.plan, index)
            for index, one in enumerate(cast.clients)
        ]
        messages = cast.stage(stage, messages)
    assert np.array_equal(cast.server.total(), cast.expected())
    assert not cast.refused


@pytest.mark.parametrize("change", ["swapped", "twice", "beyond"])
def test_a_list_out_of_order_or_with_a_client_twice_is_refused(cast, change):
    (body,) = unpack(up_to(cast, "advertise")[0], ROSTER, "b", sender="server")
    adverts = [body[at : at + ADVERT_BYTES] for at in range(0, len(body), ADVERT_BYTES)]
    changed = {
        "swapped": [adverts[1], adverts[0], *adverts[2:]],
        "twice": [adverts[0], *adverts[:-1]],
        "beyond": adverts,
    }[change]
    plan = replace(cast.plan, clients=5) if change == "beyond" else cast.plan
    with pytest.raises(PartyError, match=r"wanted a list of different clients in order"):
        read_roster(plan, b"".join(changed))


def test_words_of_another_length_are_refused(cast):
    messages = up_to(cast, "advertise", "share")
    with pytest.raises(InputError, match=f"wanted {cast.plan.length} words"):
        cast.clients[0].mask(messages[0], cast.words[0][:-1])


def test_a_share_that_is_not_the_one_committed_to_is_refused(cast):
    messages = up_to(cast, "advertise", "share")
    forged = bytearray(messages[0])
    forged[9 + 4] ^= 1  # the first commitment of the first parcel
    with pytest.raises(PartyError, match="its share is not the one that it committed to"):
        cast.clients[0].mask(bytes(forged), cast.words[0])


def test_a_list_below_the_minimum_is_refused():
    near = Neighbourhood(neighbours=5, threshold=4)
    plan = plan_secagg(6, 2, bound=1.0, neighbourhood=near, minimum=5)
    few = Cast(plan, np.ones((6, plan.length), plan.dtype), known=True)
    adverts = [one.advertise()[9:] for one in few.clients[:4]]
    with pytest.raises(PartyError, match="the list has 4 clients, the plan wants 5"):
        few.clients[0].share(pack(ROSTER, b"".join(adverts)))


def test_flags_and_plans_of_another_length_are_refused(cast):
    up_to(cast, "advertise", "share", "mask")
    with pytest.raises(FrameError, match="wanted 1 bytes of flags, got 2"):
        cast.clients[0].attest(pack(SURVIVORS, to_bitmap(range(6), 9)))
    invitation = cast.server.invite()[0]
    assert read_open(invitation) == (cast.plan, 0)
    with pytest.raises(FrameError, match="wanted a plan of"):
        read_open(pack(invitation[4], 0, bytes(3)))
