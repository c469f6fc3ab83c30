"""Masked rounds with drop-outs at every stage: the sum is exact or the round is void."""

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.federated import Cast
from tacit.errors import DisagreementError, FrameError, PartyError
from tacit.federated.contract import VoidRound, pack, unpack
from tacit.federated.secagg import STAGES, Neighbourhood, plan_secagg
from tacit.federated.secagg.messages import ADVERT


def make(clients, *, neighbours, threshold, minimum=2, dimension=3, word_bytes=4, known=False):
    near = Neighbourhood(neighbours=neighbours, threshold=threshold)
    plan = plan_secagg(
        clients,
        dimension,
        bound=1.0,
        neighbourhood=near,
        minimum=minimum,
        word_bytes=word_bytes,
    )
    rows = np.arange(clients * plan.length, dtype=plan.dtype).reshape(clients, plan.length)
    return Cast(plan, rows * plan.dtype.type(2654435761), known=known)


@settings(max_examples=200)
@given(data=st.data())
def test_the_sum_of_the_survivors_is_exact_or_the_round_is_void(data):
    clients = data.draw(st.integers(3, 8))
    neighbours = data.draw(st.sampled_from([2, 4, clients - 1]))
    around = min(neighbours, clients - 1) + 1
    threshold = data.draw(st.integers(2, around))
    cast = make(clients, neighbours=neighbours, threshold=threshold, dimension=2)
    subset = st.sets(st.integers(0, clients - 1), max_size=max(1, clients // 3))
    silent = {stage: data.draw(subset) for stage in STAGES}
    try:
        total = cast.run(silent)
    except VoidRound:
        return
    assert np.array_equal(total, cast.expected())
    unheard = set().union(*(silent[stage] for stage in STAGES[:3]))
    assert set(cast.server.survivors) <= set(range(clients)) - unheard


@pytest.mark.parametrize("stage", STAGES)
def test_a_drop_out_in_any_single_stage_is_survived(stage):
    cast = make(7, neighbours=6, threshold=4)
    total = cast.run({stage: {2}})
    assert np.array_equal(total, cast.expected())
    assert (2 in cast.server.survivors) == (STAGES.index(stage) > STAGES.index("mask"))


@pytest.mark.parametrize("word_bytes", [2, 3, 4, 5, 8])
def test_words_of_every_width_add_up(word_bytes):
    cast = make(5, neighbours=4, threshold=3, word_bytes=word_bytes)
    total = cast.run({"mask": {0}})
    low = cast.plan.dtype.type(2 ** (8 * word_bytes) - 1)
    assert np.array_equal(total & low, cast.expected() & low)


def test_the_server_keeps_one_sum_however_many_inputs_come():
    cast = make(6, neighbours=5, threshold=4, dimension=100_000)
    messages = cast.stage("advertise", cast.server.invite())
    messages = cast.stage("share", messages)
    tracemalloc.start()
    try:
        for index, message in messages.items():
            answer = cast.answer("mask", index, message)
            before = tracemalloc.get_traced_memory()[0]
            cast.server.accept(index, answer)
            assert tracemalloc.get_traced_memory()[0] - before < 10_000
    finally:
        tracemalloc.stop()


def test_two_clients_can_add_up():
    cast = make(2, neighbours=1, threshold=2)
    assert np.array_equal(cast.run(), cast.expected())


@pytest.mark.parametrize(
    ("stage", "what"), [("share", "shared their secrets"), ("mask", "sent their inputs")]
)
def test_a_round_with_too_few_inputs_is_void(stage, what):
    cast = make(6, neighbours=5, threshold=2, minimum=5)
    with pytest.raises(VoidRound, match=f"4 clients {what}, the plan wants 5"):
        cast.run({stage: {0, 1}})


def test_a_round_with_too_few_shares_left_is_void():
    cast = make(6, neighbours=5, threshold=5)
    with pytest.raises(VoidRound, match="recovery wants 5"):
        cast.run({"unmask": {0, 1}})


def test_a_forged_share_names_its_holder_and_does_no_harm():
    def forge(stage, index, answer):
        if (stage, index) == ("unmask", 3):
            return answer[:-1] + bytes([answer[-1] ^ 1])
        return answer

    cast = make(6, neighbours=5, threshold=4)
    total = cast.run(tamper=forge)
    assert np.array_equal(total, cast.expected())
    assert [error.party for error in cast.refused] == ["client 3"]


def test_a_client_that_commits_to_another_secret_voids_the_round_and_is_named():
    def forge(stage, index, answer):
        if (stage, index) == ("share", 1):
            return answer[:9] + bytes([answer[9] ^ 1]) + answer[10:]  # its first commitment
        return answer

    cast = make(5, neighbours=4, threshold=3)
    with pytest.raises(VoidRound, match="'client 1' failed: it shared another secret"):
        cast.run(tamper=forge)


def test_an_input_of_another_size_is_refused_by_name():
    cast = make(5, neighbours=4, threshold=3)
    total = cast.run(
        tamper=lambda stage, index, answer: (
            answer + b"x" if (stage, index) == ("mask", 4) else answer
        )
    )
    assert np.array_equal(total, cast.expected())
    assert 4 not in cast.server.survivors
    assert isinstance(cast.refused[0], FrameError)


def test_an_answer_of_another_round_is_refused():
    first, second = make(4, neighbours=3, threshold=3), make(4, neighbours=3, threshold=3)
    first.run()
    stale = first.view["advertise"][0]
    second.server.invite()
    with pytest.raises(PartyError, match="'client 0' failed: its signature does not fit"):
        second.server.accept(0, stale)


def test_a_second_answer_is_refused():
    cast = make(4, neighbours=3, threshold=3)
    messages = cast.stage("advertise", cast.server.invite())
    answer = cast.clients[0].share(messages[0])
    cast.server.accept(0, answer)
    with pytest.raises(PartyError, match="client 0"):
        cast.server.accept(0, answer)


def test_one_identity_is_one_client():
    """In malicious mode this alone keeps one colluding key from being many clients."""
    cast = make(4, neighbours=3, threshold=3)
    cast.clients[1]._signing = cast.clients[0]._signing
    cast.server.invite()
    cast.server.accept(0, cast.clients[0].advertise())
    with pytest.raises(PartyError, match="'client 1' failed: another client has the same identity"):
        cast.server.accept(1, cast.clients[1].advertise())


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda cast: pack(ADVERT, own_advert(cast, 0)[9:-1]), "bytes of keys, got"),
        (lambda cast: own_advert(cast, 1), "it gave itself out as client 1"),
    ],
    ids=["short", "of another"],
)
def test_keys_that_are_not_the_clients_own_are_refused_by_the_server_too(change, why):
    cast = make(4, neighbours=3, threshold=3)
    cast.server.invite()
    cast.server.accept(2, cast.clients[2].advertise())
    with pytest.raises(DisagreementError, match="it has shown its keys already"):
        cast.server.accept(2, own_advert(cast, 2))
    with pytest.raises(PartyError, match=why):
        cast.server.accept(0, change(cast))


def own_advert(cast, index):
    return pack(ADVERT, cast.clients[index]._advert().to_bytes())


@pytest.mark.parametrize("which", ["_sealing", "_masking"])
def test_a_key_that_nobody_can_agree_with_is_its_owners_fault_and_no_neighbours(which):
    """Listed, it made every neighbour fail, and the round was void by their names."""
    cast = make(5, neighbours=4, threshold=3)
    bad = cast.clients[2]
    setattr(bad, which, replace(getattr(bad, which), public=bytes(32)))
    total = cast.run()
    assert np.array_equal(total, cast.expected())
    assert 2 not in cast.server.survivors
    assert {error.party for error in cast.refused} == {"client 2"}


def test_nothing_is_taken_from_strangers_or_after_the_end_and_no_sum_before():
    cast = make(4, neighbours=3, threshold=3)
    with pytest.raises(DisagreementError, match="'client 4' failed: nothing is awaited"):
        cast.server.accept(4, own_advert(cast, 3))
    with pytest.raises(VoidRound, match="the round has no sum yet"):
        cast.server.total()
    cast.run()
    with pytest.raises(DisagreementError, match="nothing is awaited from it in the stage 'done'"):
        cast.server.accept(0, own_advert(cast, 0))


@pytest.mark.parametrize(
    ("stage", "change", "why"),
    [
        ("share", lambda said: [said[0], said[1][: -len(said[1]) // 5]], "wanted 5 parcels"),
        ("mask", lambda said: [said[0] + bytes(4)], "wanted an input of"),
        ("attest", lambda said: [said[0][:-16]], "wanted a tag for 4 neighbours, got 3"),
        ("unmask", lambda said: [said[0] + said[0][:28]], "it gave two shares of one client"),
    ],
)
def test_too_much_and_too_little_is_refused_by_name_and_does_no_harm(stage, change, why):
    def tamper(at, index, answer):
        if (at, index) != (stage, 2):
            return answer
        said = unpack(answer, answer[4], "bb" if stage == "share" else "b", sender="client")
        return pack(answer[4], *change(said))

    cast = make(5, neighbours=4, threshold=3)
    total = cast.run(tamper=tamper)
    assert [why in str(error) for error in cast.refused] == [True]
    assert np.array_equal(total, cast.expected())
    assert (2 in cast.server.survivors) == (stage in ("attest", "unmask"))


def test_a_round_in_which_too_few_show_their_keys_is_void():
    cast = make(5, neighbours=4, threshold=3)
    with pytest.raises(VoidRound, match="too few showed their keys: the list has 2 clients"):
        cast.run({"advertise": {0, 1, 2}})
