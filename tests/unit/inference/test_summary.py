from dataclasses import replace

import pytest
import torch

from support.mpc import ALICE, BOB, MEETING, PARTIES, ROLES
from tacit.errors import DisagreementError
from tacit.inference import predict
from tacit.inference.spec import InferData, InferModel, InferProtection, InferRing, InferSpec
from tacit.party import merge_results, run_threads, without_setup

SPEC = InferSpec(
    data=InferData(owner=ALICE),
    model=InferModel(owner=BOB, bound=1.0),
    protocol=InferProtection(
        kind="permuted3", dealer=ROLES.dealer, compute=ROLES.computing, reveal="score"
    ),
    ring=InferRing(frac_bits=16),
)


def results():
    def party(session):
        answer = predict(
            session,
            SPEC,
            features=torch.ones(4, 2, dtype=torch.float64) if session.me == ALICE else None,
            weights={"weight": torch.ones(2, 1), "bias": torch.zeros(1)}
            if session.me == BOB
            else None,
        )
        return answer.result

    return tuple(run_threads(dict.fromkeys(PARTIES, party), MEETING).values())


def test_the_views_of_all_parties_make_one_result_whose_cost_is_the_forecast():
    merged = merge_results(results())
    assert [party.name for party in merged.parties] == list(PARTIES)
    assert without_setup(merged.metered) == merged.forecast.cost


def test_what_several_parties_wrote_into_their_ledgers_is_kept_once():
    merged = merge_results(results())
    outputs = [leak for leak in merged.leakage if leak.kind == "output"]
    assert [(leak.to, leak.elements) for leak in outputs] == [(ALICE, 4)]
    assert sum(leak.kind == "protocol" for leak in merged.leakage) == 1


def test_views_that_contradict_each_other_are_refused():
    first, second, third = results()
    entry = replace(second.metered.traffic[0], payload_bytes=1)
    lying = replace(second, metered=replace(second.metered, traffic=(entry,)))
    with pytest.raises(DisagreementError, match="other end"):
        merge_results((first, lying, third))


def test_views_of_other_plans_are_refused():
    first, second, third = results()
    lying = replace(second, forecast=replace(second.forecast, plan_hash="another"))
    with pytest.raises(DisagreementError, match="another plan"):
        merge_results((first, lying, third))


def test_a_result_says_that_answers_are_not_protected():
    (claim,) = (c for c in results()[0].claims if "answers" in c.subject)
    assert claim.guarantee == "no guarantee"
