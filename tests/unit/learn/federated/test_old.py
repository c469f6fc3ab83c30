"""Names of version 0.1: they still do what they did, and warn."""

import pytest
import torch

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'tacit-ml[fl]'")

import tacit.learn.federated as room
from tacit.learn.federated import FederatedSpec, PrivacySpec, calibrate, flower, round_config

PRIVACY = PrivacySpec(kind="central", clip=1.0, epsilon=5.0, delta=1e-4)
SPEC = FederatedSpec(clients=10, rounds=2, minimum=8, privacy=PRIVACY)


def old(name):
    with pytest.warns(DeprecationWarning, match=f"{name} is called tacit"):
        return getattr(room, name)


def test_what_version_01_exported_is_found_and_warns():
    names = "Adaptive Course Crowd Hall Policy Promise Recipe Terms Wish promise run_course"
    assert all(callable(old(name)) for name in names.split())
    with pytest.raises(AttributeError, match="no attribute 'Halls'"):
        _ = room.Halls


def test_an_old_policy_is_a_spec_with_the_same_rounds():
    policy = old("Policy")(
        clients=10, rounds=2, aggregator="masked", wish=old("Wish")(**vars(PRIVACY)), minimum=8
    )
    assert policy.terms(7) == round_config(SPEC, 7)
    with pytest.warns(DeprecationWarning, match="client_mod"):
        assert callable(flower.guard(policy, diary=None))


def test_an_old_promise_is_the_calibrated_mechanism():
    crowd = old("Crowd")(clients=10, minimum=8, colluding=1, rounds=2, dimension=7)
    assert old("promise")(PRIVACY, crowd, is_split=True) == calibrate(SPEC, 7)


def test_an_old_course_runs_as_many_rounds_as_it_says():
    class Still:
        def carry(self, weights, config, meter):
            raise room.VoidRound("server", "nobody came")

    outcome = old("run_course")(
        Still(),
        torch.zeros(7),
        round_config(SPEC, 7),
        old("Course")(rounds=2),
        judge=lambda weights: (),
        on_round=lambda report: None,
    )
    assert len(outcome.rounds) == 2
    planned = round_config(SPEC, 7).mechanism.claim.epsilon
    assert outcome.rounds[-1].claim.epsilon == pytest.approx(planned)
