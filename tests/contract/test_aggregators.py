"""What every aggregator must do, whatever its privacy: one suite over the whole table."""

import tracemalloc
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from support.federated import Stage, make_spec, provided
from tacit.errors import ConfigError, PartyError
from tacit.federated import (
    AGGREGATORS,
    Privacy,
    Training,
    Update,
    VoidRound,
    find_aggregator,
    round_config,
    run_round,
)
from tacit.federated.contract import HELPER, kind_of, pack, unpack
from tacit.federated.encrypted import DECRYPT, PART
from tacit.federated.keyed.authority import RELEASED
from tacit.federated.plain import SELECTED, UPDATE
from tacit.federated.shuffled import roles as shuffled_roles
from tacit.federated.shuffled.roles import CONFIRMED
from tacit.federated.spec import GOES_WITH
from tacit.ring import Prg

CASES = [(name, kind) for name in AGGREGATORS for kind in GOES_WITH[name]]
CLIENTS, DIMENSION = 6, 5
GENEROUS = 1e4  # ε: noise too small to hide a wrong mean


def make_policy(name, kind, **changes):
    wished = {"kind": kind, "clip": 1.0}
    if kind != "none":
        wished |= {"epsilon": GENEROUS, "accountant": "basic"}
    if kind == "record":
        # A client's training brings the noise; what is added up is clipped to what that allows for.
        wished |= {"accountant": None, "records": 100, "delta": 1e-3, "epsilon": 9.0}
    settings = {
        "clients": CLIENTS,
        "rounds": 1,
        "aggregator": name,
        "privacy": Privacy(**wished),
        "minimum": 4,
        "drop_rate": 0.2,
        "colluding_share": 0.0,
        "train": Training(steps=1, batch=10, rate=1.0),
        "largest_weight": 9 if kind == "none" and name != "bounded" else 1,
    }
    return make_spec(**{**settings, **changes})


def make_offers(weights=(1,) * CLIENTS):
    # Of one direction and full length: the shuffle model's few reports suffice for a rough check.
    vector = np.zeros(DIMENSION, np.float32)
    vector[0] = 1.0
    return [Update(vector * (0.5 + 0.1 * i), weight) for i, weight in enumerate(weights)]


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_the_mean_is_that_of_the_survivors(name, kind):
    stage = Stage(make_policy(name, kind), make_offers(), silent={2})
    found = stage.run()
    assert found.survivors == (0, 1, 3, 4, 5)
    wanted = np.mean([stage.offers[i].values for i in found.survivors], axis=0)
    # The shuffle model's randomiser keeps a variance of order d / n however large ε is. Both
    # bounds are eight deviations of the noise or more.
    assert np.allclose(found.mean, wanted, atol=2.0 if kind == "shuffle" else 0.08)


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_a_round_has_as_many_stages_as_the_table_says(name, kind):
    stage, asked = Stage(make_policy(name, kind), make_offers()), []

    def noting(messages):
        asked.append(set(messages))
        yield from stage.exchange(messages)

    run_round(stage.server, noting, stage.meter)
    assert len(asked) == stage.aggregator.stages, asked


class Weighed:
    """A server's side that notes by how much its memory grows with every answer it accepts."""

    def __init__(self, server):
        self.server, self.grown = server, []

    def accept(self, index, message):
        before = tracemalloc.get_traced_memory()[0]
        self.server.accept(index, message)
        self.grown.append(tracemalloc.get_traced_memory()[0] - before)

    def __getattr__(self, name):
        return getattr(self.server, name)


# "bounded" keeps shares until they are checked, all of them.
@pytest.mark.parametrize("name", [name for name in AGGREGATORS if name != "bounded"])
def test_the_memory_of_a_server_does_not_grow_with_clients_times_parameters(name):
    policy = make_policy(name, "shuffle" if name == "shuffled" else "none")
    offers = [Update(np.full(50_000, 1e-3, np.float32), 1) for _ in range(CLIENTS)]
    stage = Stage(policy, offers)
    server = Weighed(stage.aggregator.make_server(stage.terms, Prg.from_os()))
    tracemalloc.start()
    try:
        run_round(server, stage.exchange, stage.meter)
    finally:
        tracemalloc.stop()
    # The first input may make the sum's memory; an update is 200,000 bytes. A model that is passed
    # on is opened besides.
    assert sum(grown > 20_000 for grown in server.grown) <= 1


@pytest.mark.parametrize("name", ["plain", "masked", "encrypted", "keyed"])
def test_clients_weigh_as_many_as_they_have_examples(name):
    offers = make_offers(weights=(1, 2, 3, 4, 5, 9))
    found = Stage(make_policy(name, "none"), offers).run()
    wanted = np.average(
        [offer.values for offer in offers], axis=0, weights=[offer.weight for offer in offers]
    )
    assert found.weight == 24
    assert np.allclose(found.mean, wanted, atol=1e-5)


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_a_longer_update_counts_no_more_than_the_clip(name, kind):
    offers = make_offers()
    offers[0] = Update(offers[0].values * 1e6, 1)
    found = Stage(make_policy(name, kind), offers).run()
    assert np.linalg.norm(found.mean) < 3.0


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_an_update_that_is_not_finite_is_refused_by_name_or_hidden_as_zeros(name, kind):
    offers = make_offers()
    offers[3] = Update(np.full(DIMENSION, np.nan, np.float32), 1)
    stage = Stage(make_policy(name, kind), offers)
    found = stage.run()
    assert np.isfinite(found.mean).all()
    if kind == "none":
        assert 3 not in found.survivors
        assert [error.party for error in stage.meter.refused] == ["client 3"]
    else:
        # That a training diverged is a fact about data, and no noise would cover it.
        assert stage.meter.refused == []
        assert 3 in found.survivors


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_a_round_with_too_few_clients_is_void(name, kind):
    with pytest.raises(VoidRound, match=r"3 .*wants 4"):
        Stage(make_policy(name, kind), make_offers(), silent={0, 1, 2}).run()


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_an_answer_cut_short_is_refused_by_name(name, kind):
    def cut(index, answer):
        return answer[:-1] if index == 1 and isinstance(answer, bytes) else answer

    stage = Stage(make_policy(name, kind), make_offers(), tamper=cut)
    found = stage.run()
    assert 1 not in found.survivors
    assert stage.meter.refused[0].party == "client 1"


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_the_promise_keeps_its_target_or_says_that_there_is_none(name, kind):
    claim = round_config(make_policy(name, kind), DIMENSION).mechanism.claim
    if kind == "none":
        assert claim.guarantee == "no guarantee"
    else:
        assert claim.epsilon <= GENEROUS
        per_record = "adding or removing one record"
        assert claim.relation == (per_record if kind == "record" else "replacing one client")


def test_a_privacy_that_does_not_fit_the_aggregator_is_refused():
    with pytest.raises(ConfigError, match="'shuffled' goes with privacy shuffle, got 'central'"):
        make_policy("shuffled", "central")


def test_a_target_that_cannot_be_met_is_refused_before_anything_runs():
    asked = Privacy(kind="shuffle", clip=1.0, epsilon=1e-5, delta=1e-9)
    with pytest.raises(ConfigError, match="the best this plan reaches"):
        round_config(make_policy("shuffled", "shuffle", privacy=asked, rounds=1000), DIMENSION)


class Repeating:
    """A server's side that is given every answer of a client twice, and once from a stranger."""

    def __init__(self, server, told):
        self.server, self.told = server, told

    def accept(self, index, message):
        self.server.accept(index, message)
        if index < 0 or kind_of(message, sender="x") == CONFIRMED:  # says no more the second time
            return
        for one in (index, CLIENTS):
            with pytest.raises(PartyError) as caught:
                self.server.accept(one, message)
            self.told.append(caught.value.party)

    def __getattr__(self, name):
        return getattr(self.server, name)


@pytest.mark.parametrize("name", AGGREGATORS)
def test_an_answer_counts_once_and_only_from_a_client_of_the_round(name):
    kind = GOES_WITH[name][0]
    stage, told = Stage(make_policy(name, kind), make_offers()), []
    found = run_round(Repeating(stage.server, told), stage.exchange, stage.meter)
    assert found.survivors == tuple(range(CLIENTS))
    wanted = Stage(make_policy(name, kind), make_offers()).run().mean
    assert np.allclose(found.mean, wanted, atol=4.0 if kind == "shuffle" else 0.16)
    assert {f"client {index}" for index in range(CLIENTS)} <= set(told)


@pytest.mark.parametrize("name", sorted(AGGREGATORS.keys() - {"plain", "bounded"}))
def test_a_server_says_no_mean_before_its_round_is_over(name):
    server = Stage(make_policy(name, GOES_WITH[name][0]), make_offers()).server
    server.invite()
    with pytest.raises(VoidRound):
        server.aggregate()


INVITED = ["masked", "shuffled", "encrypted"]


@pytest.mark.parametrize("name", INVITED)
def test_a_client_takes_no_second_invitation(name):
    """A second one would have it send its update again, under what it sent already."""
    stage = Stage(make_policy(name, GOES_WITH[name][0]), make_offers())
    invitation = stage.server.invite()[0]
    assert isinstance(stage.answer(0, invitation), bytes)
    again = stage.answer(0, invitation)
    assert isinstance(again, PartyError)
    assert again.reason == "it invited this client a second time"


@pytest.mark.parametrize("name", INVITED)
def test_a_client_does_no_step_of_a_round_that_it_was_not_invited_to(name):
    stage = Stage(make_policy(name, GOES_WITH[name][0]), make_offers())
    later = []

    def noting(messages):
        later.append(messages.get(0))
        yield from stage.exchange(messages)

    run_round(stage.server, noting, stage.meter)
    fresh = Stage(make_policy(name, GOES_WITH[name][0]), make_offers())
    steps = [one for one in later[1:] if one is not None]
    assert steps or name == "encrypted"  # where another client may have been asked to decrypt
    for message in steps or [pack(DECRYPT, b"", b"")]:
        refused = fresh.answer(0, message)
        assert isinstance(refused, PartyError)
        assert refused.reason == "it did not invite this client to the round"


@pytest.mark.parametrize("name", ["masked", "encrypted"])
def test_a_client_answers_no_message_that_its_round_does_not_have(name):
    stage = Stage(make_policy(name, GOES_WITH[name][0]), make_offers())
    stage.answer(0, stage.server.invite()[0])
    refused = stage.answer(0, pack(250))
    assert isinstance(refused, PartyError)
    assert "it sent a message of kind 250" in refused.reason


@pytest.mark.parametrize(
    ("weight", "values", "why"),
    [
        (0, [0.0] * DIMENSION, "its weight is not 1 to 9"),
        (10, [0.0] * DIMENSION, "its weight is not 1 to 9"),
        (1, [np.inf] + [0.0] * (DIMENSION - 1), "no finite numbers"),
    ],
)
def test_a_plain_server_checks_what_clients_of_other_code_send(weight, values, why):
    stage = Stage(make_policy("plain", "none"), make_offers())
    with pytest.raises(PartyError, match=f"'client 2' failed: .*{why}"):
        stage.server.accept(2, pack(UPDATE, weight, np.asarray(values, "<f4").tobytes()))


@pytest.mark.parametrize("name", ["masked", "shuffled", "encrypted", "keyed"])
def test_a_server_with_other_terms_than_the_client_is_refused(name):
    kind = GOES_WITH[name][0]
    mine = Stage(make_policy(name, kind), make_offers())
    theirs = round_config(provided(make_policy(name, kind, minimum=3))[0], DIMENSION)
    server = find_aggregator(name).make_server(theirs, Prg.from_os())
    with pytest.raises(PartyError, match="'server' failed: its plan of the round is not the one"):
        mine.clients[0].answer(server.invite()[0], lambda: mine.offers[0])


@pytest.mark.parametrize("name", ["masked", "shuffled", "encrypted", "keyed"])
def test_a_server_that_shows_the_agreed_digest_beside_other_terms_is_refused(name, monkeypatch):
    """What a client goes by is its own plan, so the digest alone makes no round right."""
    kind = GOES_WITH[name][0]
    mine = Stage(make_policy(name, kind), make_offers())
    theirs = round_config(provided(make_policy(name, kind, minimum=3))[0], DIMENSION)
    monkeypatch.setattr(type(theirs), "agreed", theirs.agreed)
    server = find_aggregator(name).make_server(theirs, Prg.from_os())
    with pytest.raises(PartyError, match="'server' failed: its plan of the round is not the one"):
        mine.clients[0].answer(server.invite()[0], lambda: mine.offers[0])


def test_an_update_above_the_clip_is_refused_by_a_plain_server_and_named():
    def swell(index, answer):
        if index != 4:
            return answer
        values = np.frombuffer(answer[-4 * DIMENSION :], "<f4") * 50
        return answer[: -4 * DIMENSION] + values.astype("<f4").tobytes()

    stage = Stage(make_policy("plain", "none"), make_offers(), tamper=swell)
    assert 4 not in stage.run().survivors
    assert "the clip is 1" in str(stage.meter.refused[0])


@pytest.mark.parametrize("name", ["keyed", "shuffled"])
def test_a_session_is_answered_once_by_whoever_helps_many_clients(name):
    """Also where no journal on disk remembers it."""
    stage, asked = Stage(make_policy(name, GOES_WITH[name][0]), make_offers()), []

    def noting(messages):
        asked.extend(message for index, message in messages.items() if index == HELPER)
        yield from stage.exchange(messages)

    run_round(stage.server, noting, stage.meter)
    again = stage.answer(HELPER, asked[0])
    assert isinstance(again, PartyError)
    assert again.reason == "it asked for a session that was answered before"


@pytest.mark.parametrize("late", [False, True])
def test_pads_that_nobody_asked_the_authority_for_are_not_taken_off(late):
    """Twice off, or off a sum that still grows, they would leave a wrong sum without a word."""
    stage = Stage(make_policy("keyed", "none"), make_offers())
    pads = pack(RELEASED, bytes(stage.server.plan.upload_bytes))
    if late:
        stage.run()
    else:
        stage.server.invite()
    with pytest.raises(PartyError, match="nothing is awaited from it"):
        stage.server.accept(HELPER, pads)


def test_pads_of_another_length_void_the_round():
    def shortened(index, answer):
        return pack(RELEASED, bytes(8)) if index == HELPER else answer

    with pytest.raises(VoidRound, match="wanted pads of"):
        Stage(make_policy("keyed", "none"), make_offers(), tamper=shortened).run()


def unopened(answer):
    """Spoil the first report that the shuffler gives back, where it is sealed for the server."""
    boxes, tags = unpack(answer, shuffled_roles.RELEASED, "bb", sender="shuffler")
    return pack(shuffled_roles.RELEASED, bytes(len(boxes)), tags)


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda answer: None, "it did not answer"),
        (unopened, "it returned a report that does not open"),
        (lambda answer: PartyError("shuffler", "no"), "no"),
    ],
)
def test_a_shuffler_that_gives_nothing_or_something_else_back_voids_the_round(spoil, why):
    stage = Stage(make_policy("shuffled", "shuffle"), make_offers())

    def exchange(messages):
        for index, answer in stage.exchange(messages):
            told = spoil(answer) if index == HELPER else answer
            if told is not None:
                yield index, told

    with pytest.raises(VoidRound, match=f"'shuffler' failed: {why}"):
        run_round(stage.server, exchange, stage.meter)


@pytest.mark.parametrize(
    ("places", "why"),
    [([0, 0], "at most 2 different"), ([0, 1, 2], "at most 2 different"), ([DIMENSION], "entry 5")],
)
def test_a_plain_server_takes_as_many_entries_as_there_are_and_each_once(places, why):
    stage = Stage(make_policy("plain", "none"), make_offers())
    mechanism = replace(stage.terms.mechanism, selection=SimpleNamespace(answers=2))
    server = stage.aggregator.make_server(replace(stage.terms, mechanism=mechanism), Prg.from_os())
    values = np.zeros(len(places), "<f4").tobytes()
    with pytest.raises(PartyError, match=why):
        server.accept(1, pack(SELECTED, 1, np.array(places, "<u4").tobytes(), values))


def by_threshold(**changes):
    key = {"cipher": "paillier", "threshold": 3}
    return Stage(make_policy("encrypted", "none", **key), make_offers(), **changes)


def test_one_holder_of_a_shared_key_is_not_two():
    """The sum would be opened by fewer clients than the key wants."""

    def copied(index, answer):
        if kind_of(answer, sender="x") != PART:
            return answer
        parts.append(answer)
        return parts[0] if len(parts) == 2 else answer

    parts = []
    stage = by_threshold(tamper=copied)
    stage.run()
    again = [error for error in stage.meter.refused if "another client's" in error.reason]
    assert len(again) == 1  # another was asked in its place


def test_too_few_who_decrypt_void_the_round():
    def silent(index, answer):
        is_part = kind_of(answer, sender="x") == PART
        return PartyError(f"client {index}", "gone") if is_part else answer

    with pytest.raises(VoidRound, match="0 clients decrypted the sum, the key wants 3"):
        by_threshold(tamper=silent).run()


def test_what_a_client_cannot_decrypt_is_the_server_s_failure():
    stage = by_threshold()
    sent = []

    def noting(messages):
        sent.append(messages)
        yield from stage.exchange(messages)

    run_round(stage.server, noting, stage.meter)
    index, message = next(iter(sent[-1].items()))
    survivors, body = unpack(message, DECRYPT, "bb", sender="server")
    fresh = by_threshold()
    fresh.answer(index, fresh.server.invite()[index])
    refused = fresh.answer(index, pack(DECRYPT, survivors, body[:-1]))
    assert isinstance(refused, PartyError)
    assert refused.party == "server"
