import numpy as np
import pytest
import torch

from support.mpc import ALICE, BOB, CAROL, MEETING, PARTIES, ROLES
from tacit.errors import ConfigError, DisagreementError, RangeError
from tacit.inference import Sizes, plan_prediction, predict, predict_plain
from tacit.inference.spec import InferData, InferModel, InferProtection, InferSpec
from tacit.mpc import PROTOCOLS
from tacit.party import run_threads

GENERATOR = np.random.default_rng(5)
FEATURES = torch.from_numpy(GENERATOR.uniform(-1, 1, size=(70, 6)))
WEIGHTS = {
    "weight": torch.from_numpy(GENERATOR.uniform(-4, 4, size=(6, 1))),
    "bias": torch.tensor([0.125], dtype=torch.float64),
}


def asked(*, data_owner=ALICE, model_owner=BOB, protocol="sealed", reveal="class", bound=1.0):
    return InferSpec(
        data=InferData(owner=data_owner, bound=bound),
        model=InferModel(owner=model_owner, bound=8.0),
        protocol=InferProtection(kind=protocol, dealer=ROLES.dealer, reveal=reveal),
    )


def run(wanted, *, features=FEATURES, weights=WEIGHTS):
    def party(session):
        return predict(
            session,
            wanted,
            features=features if session.me == wanted.data.owner else None,
            weights=weights if session.me == wanted.model.owner else None,
        )

    return run_threads(dict.fromkeys(PARTIES, party), MEETING)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("reveal", ["class", "score"])
def test_private_answers_equal_plain_ones_and_only_the_data_owner_gets_them(protocol, reveal):
    wanted = asked(protocol=protocol, reveal=reveal)
    predictions = run(wanted)
    plain = predict_plain(FEATURES, WEIGHTS, reveal=reveal)
    assert torch.allclose(predictions[ALICE].values, plain, rtol=0, atol=1e-4)
    assert predictions[BOB].values is None
    assert predictions[CAROL].values is None


def test_the_plan_can_be_made_from_public_sizes_alone():
    made = plan_prediction(asked(), Sizes(rows=70, features=6))
    assert made.runs == [(run(asked())[CAROL].plan, 1)]


def test_data_that_does_not_fit_the_model_is_a_disagreement_that_names_both_sizes():
    with pytest.raises(DisagreementError, match=r"has 5 features.*wants 6"):
        run(asked(), features=FEATURES[:, :5])


def test_data_beyond_the_promised_bound_is_refused():
    with pytest.raises(RangeError, match="exceed the bound"):
        run(asked(bound=0.5))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"model_owner": ALICE}, "owns both"),
        ({"data_owner": CAROL}, "must not own an input"),
        ({"protocol": "sealled"}, "unknown protocol"),
    ],
)
def test_a_task_that_protects_nothing_is_refused(change, words):
    with pytest.raises(ConfigError, match=words):
        asked(**change)


@pytest.mark.parametrize("sizes", [(0, 3), (3, 0), (1 << 20, 1 << 10)])
def test_impossible_sizes_are_refused(sizes):
    with pytest.raises(ConfigError):
        Sizes(rows=sizes[0], features=sizes[1])
