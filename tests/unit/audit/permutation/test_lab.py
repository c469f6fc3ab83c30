"""What the lab records is what the protocol shows, and its attacks find what they should."""

from dataclasses import replace

import pytest
import torch
from sklearn.datasets import load_digits

from support.mpc import ROLES
from support.training import train_plan
from tacit.audit.permutation import (
    LabSettings,
    claims,
    count_recognised,
    first_arguments,
    match_repeats,
    metrics,
    pictures,
    prediction_subject,
    rank_candidates,
    sheets,
    study,
    training_subject,
    watch,
)
from tacit.audit.permutation.subject import Planner
from tacit.data import Holding
from tacit.errors import ConfigError
from tacit.inference.service import ServiceTask
from tacit.inference.spec import InferData, InferModel, InferProtection, InferRing, InferSpec
from tacit.nn import make_model, parse_layers

SETTINGS = LabSettings(runs=12, candidates=40, batches=(1, 4), attacked=3)


@pytest.fixture(scope="module")
def digits():
    found = load_digits()
    labels = torch.nn.functional.one_hot(torch.tensor(found.target[:120]), 10).double()
    return torch.tensor(found.data[:120] / 16), labels


def make_subject(digits, protocol="permuted3", layers=("dense 12", "relu", "dense 10")):
    rows, labels = digits
    task = train_plan(
        roles=ROLES,
        protocol=protocol,
        model=make_model(parse_layers(layers, (64,), seed=1), (64,)),
        holdings=(
            Holding(ROLES.first, 60, (64,), "classes"),
            Holding(ROLES.second, 60, (64,), "classes"),
        ),
        split="rows",
        test_rows=20,
        batch=20,
        rate=0.5,
    )
    return training_subject(task, rows, labels, name="t", looks=2)


def sorted_words(values, frac_bits=16):
    return torch.round(values.reshape(-1) * 2**frac_bits).sort().values


@pytest.mark.parametrize(
    "layers", [("dense 12", "relu", "dense 10"), ("dense 12", "tanh", "dense 10")]
)
def test_what_is_recorded_is_the_hidden_layer_in_another_order(digits, layers):
    subject = make_subject(digits, layers=layers)
    batch, weights = [3, 5, 8], subject.points[0]
    (seen,) = watch([Planner(subject).run(batch, weights)], subject.roles)
    raw = first_arguments(subject.model, weights, subject.rows[torch.tensor(batch)])
    found = seen.glimpses[0].values
    assert found.numel() == raw.numel()
    assert (sorted_words(found) - sorted_words(raw)).abs().max() < 64  # roundings of 64 products
    assert not torch.allclose(found.reshape(-1), raw.reshape(-1), atol=1e-2)


def test_nothing_is_recorded_of_a_sealed_run_but_words(digits):
    findings = study(make_subject(digits, protocol="sealed"), SETTINGS)
    assert findings.recognitions == ()
    assert findings.repeats == (0, 0)
    assert claims(findings) == ()
    words = [one for one in findings.correlations if "masked words" in one.what]
    # Four tests at one in ten thousand each.
    assert len(words) == 4
    assert all(one.p > 1e-4 for one in words)


def test_a_viewer_with_the_weights_recognises_every_row_and_without_them_none(digits):
    findings = study(make_subject(digits), replace(SETTINGS, runs=40))
    for one in findings.recognitions:
        if one.knows == "the weights":
            assert one.hits == one.trials
        else:
            assert one.hits <= 0.4 * one.trials
    assert findings.repeats == (40, 40)
    by_what = {one.what: one.value for one in findings.correlations if one.step == 0}
    assert by_what["hidden values in order (nobody sees them)"] > 0.6
    # Over orders of 40 rows the mean is 0.04 and the deviation 0.04; over 12 rows it is 0.14.
    assert by_what["first layer as carol sees it"] < 0.3
    assert {one.what for one in findings.retrievals} >= {"hidden values in order", "chance"}
    assert any("public" in text for text in claims(findings)[0].assumptions)
    assert len(sheets(findings)) == 3
    assert all(metric.samples for metric in metrics(findings))
    assert pictures(findings)[0].width == 8


def test_under_permuted2_the_second_party_is_the_viewer(digits):
    findings = study(make_subject(digits, protocol="permuted2"), SETTINGS)
    assert findings.subject.viewer == ROLES.second
    assert findings.recognitions[0].hits == findings.recognitions[0].trials


def test_of_a_mixture_the_lab_sees_what_is_permuted_and_nothing_else(digits):
    subject = make_subject(digits, protocol="sealed; activations: permuted3")
    assert (subject.viewer, subject.is_permuted) == (ROLES.dealer, True)
    (seen,) = watch([Planner(subject).run([3, 5, 8], subject.points[0])], subject.roles)
    assert [glimpse.function for glimpse in seen.glimpses] == ["step"]


def test_flipped_signs_do_not_stop_matching(digits):
    findings = study(make_subject(digits, protocol="permuted3 flips"), SETTINGS)
    knowing = [one for one in findings.recognitions if one.knows == "the weights"]
    assert all(one.hits == one.trials for one in knowing)


def test_the_scores_of_a_linear_model_are_one_number_per_row(digits):
    rows, labels = digits
    model = make_model(parse_layers(("dense 1",), (64,), seed=0), (64,))
    spec = InferSpec(
        data=InferData(owner=ROLES.first),
        model=InferModel(owner=ROLES.second, bound=4.0),
        protocol=InferProtection(kind="permuted3", dealer=ROLES.dealer),
        ring=InferRing(frac_bits=16),
    )
    task = ServiceTask(spec=spec, name="p", model=model, clients=("ann",))
    findings = study(prediction_subject(task, model.initial, rows, labels.argmax(-1)), SETTINGS)
    assert findings.smallest == 1
    assert not findings.subject.is_start_public
    # One number in "random order" is that number.
    by_what = {one.what: one.value for one in findings.correlations}
    seen, raw = (
        by_what["first layer as carol sees it"],
        by_what["hidden values in order (nobody sees them)"],
    )
    assert seen == pytest.approx(raw, abs=1e-3)


def test_a_candidate_whose_values_were_all_seen_comes_first():
    guesses = torch.tensor([[0.0, 1.0], [2.0, 3.0], [2.0, 9.0]])
    seen = torch.tensor([3.0, 7.0, 2.0, 8.5])
    assert rank_candidates(seen, guesses).tolist()[0] == 1
    assert count_recognised(seen, guesses, [1, 2]) == 2


def test_rows_that_come_again_are_found_by_their_sorted_values():
    first = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    second = torch.tensor([[6.0, 4.0, 5.0], [3.0, 1.0, 2.0]])
    assert match_repeats(first, second).tolist() == [1, 0]


def test_a_lab_that_looks_at_nothing_is_refused():
    with pytest.raises(ConfigError, match="at least 8 runs"):
        LabSettings(runs=2)
