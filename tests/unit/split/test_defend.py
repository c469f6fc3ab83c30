"""The losses are the formulas, stay finite where those do not, and label DP keeps its ε."""

from math import acos, log, sqrt

import pytest
import torch

from tacit.errors import ConfigError
from tacit.ring import Prg
from tacit.split import CutSpec, Defence, SplitData, SplitSpec, claims_of, epsilon_of
from tacit.split.defend import (
    blur_activations,
    blur_gradient,
    defence_loss,
    distance_correlation,
    hide_labels,
    keep_probability,
    plane_energy,
    sphere_energy,
)

H = torch.randn(12, 5, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
Y = torch.tensor([0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 3])  # 3 has a single member


def pairs():
    return [(a, b) for a in range(12) for b in range(12) if a != b and int(Y[a]) == int(Y[b])]


def test_plane_energy_is_the_mean_inverse_distance_of_same_class_pairs():
    wanted = sum(1 / float((H[a] - H[b]).norm()) for a, b in pairs()) / len(pairs())
    assert float(plane_energy(H, Y)) == pytest.approx(wanted, rel=1e-3)


def test_distances_of_points_that_are_near_keep_their_digits():
    near = H.float()[:1] + 1e-3 * H.float()
    near = 100 + near  # far from the origin: products of rows are 10^9 times the squared distances
    wanted = torch.cdist(near.double(), near.double(), compute_mode="donot_use_mm_for_euclid_dist")
    expected = sum(1 / sqrt(float(wanted[a, b]) ** 2 + 0.05**2) for a, b in pairs()) / len(pairs())
    assert float(plane_energy(near, Y)) == pytest.approx(expected, rel=1e-5)


def test_sphere_energy_is_the_mean_inverse_angle_of_same_class_pairs():
    def angle(a, b):
        return acos(float(H[a] @ H[b] / H[a].norm() / H[b].norm()))

    wanted = sum(1 / sqrt(angle(a, b) ** 2 + 0.05**2) for a, b in pairs()) / len(pairs())
    assert float(sphere_energy(H, Y)) == pytest.approx(wanted, rel=1e-6)


def test_distance_correlation_is_the_double_sum():
    def centre(d):
        return d - d.mean(0, keepdim=True) - d.mean(1, keepdim=True) + d.mean()

    near = centre(torch.cdist(H, H))
    onehot = torch.eye(4, dtype=torch.float64)[Y]
    apart = centre(torch.cdist(onehot, onehot))
    wanted = (near * apart).sum() / sqrt(float((near**2).sum() * (apart**2).sum()))
    assert float(distance_correlation(H, Y)) == pytest.approx(float(wanted), rel=1e-6)


@pytest.mark.parametrize("loss", [plane_energy, sphere_energy, distance_correlation])
def test_points_that_coincide_and_classes_of_one_give_finite_gradients(loss):
    h = torch.ones(4, 3, requires_grad=True)
    for labels in ([0, 0, 0, 0], [0, 1, 2, 3], [0, 0, 1, 2]):
        value = loss(h, torch.tensor(labels))
        (gradient,) = torch.autograd.grad(value, h)
        assert bool(torch.isfinite(value))
        assert bool(torch.isfinite(gradient).all())
    assert float(sphere_energy(h, torch.arange(4)).detach()) == 0.0


def test_energy_falls_as_a_class_spreads():
    near = H + 0.0
    near[:5] = H[0] + 0.1 * H[:5]
    assert plane_energy(near, Y) > plane_energy(H, Y)
    assert sphere_energy(near, Y) > sphere_energy(H, Y)


def test_a_weight_grows_over_its_warm_up():
    one = Defence(kind="potential-energy", weight=4.0, warmup=8)
    assert [one.weight_at(step) for step in (0, 3, 7, 100)] == [0.5, 2.0, 4.0, 4.0]
    assert float(defence_loss((one,), H, Y, 3)) == pytest.approx(2 * float(sphere_energy(H, Y)))


def test_label_dp_tells_the_truth_as_often_as_its_epsilon_allows():
    labels = torch.zeros(200_000, dtype=torch.int64)
    one = Defence(kind="label-dp", epsilon=2.0)
    shown = hide_labels((one,), labels, 5, Prg(bytes(16)))
    counts = torch.bincount(shown, minlength=5) / len(labels)
    keep = keep_probability(5, 2.0)
    # Deviations below 0.0012: five of them are passed with a probability below 1e-5.
    assert float(counts[0]) == pytest.approx(keep, abs=0.006)
    for other in counts[1:]:
        assert float(other) == pytest.approx((1 - keep) / 4, abs=0.006)
    assert log(keep / ((1 - keep) / 4)) == pytest.approx(2.0)
    assert epsilon_of(5, 1 - keep) == pytest.approx(2.0)


def test_what_is_done_at_the_cut_is_said_with_its_defences():
    told = [
        SplitSpec(data=SplitData(features=("a",), labels="b"), split=CutSpec(also_defend=one)).about
        for one in ((), (Defence(kind="label-dp", epsilon=2.0), Defence(kind="gradient-norm")))
    ]
    assert told == [
        "split at 'cut', no compression, no defence",
        "split at 'cut', no compression, label-dp, gradient-norm",
    ]


def test_only_label_dp_claims_anything():
    claims = claims_of((Defence(kind="label-dp", epsilon=2.0), Defence(kind="gradient-norm")))
    assert [(claim.epsilon, claim.guarantee) for claim in claims] == [
        (2.0, "ε-label differential privacy"),
        (None, "no guarantee"),
    ]
    assert [claim.guarantee for claim in claims_of(())] == ["no guarantee"] * 2


def test_a_loss_at_the_cut_layer_claims_nothing_for_the_labels_of_training_rows():
    labels, _ = claims_of((Defence(kind="potential-energy", weight=1.0),))
    assert labels.subject == "labels of the rows trained on, towards the feature owners"
    assert labels.guarantee == "no guarantee"
    assert any("finished bottom model" in text for text in labels.assumptions)


def test_gradient_norm_makes_all_rows_equally_long():
    gradient = torch.randn(10, 4) * torch.arange(1, 11)[:, None]
    even = blur_gradient((Defence(kind="gradient-norm"),), gradient, Prg(bytes(16)))
    assert float(even.norm(dim=1).std()) < 1e-5
    cosine = torch.nn.functional.cosine_similarity(even, gradient)
    torch.testing.assert_close(cosine, torch.ones(10))


def test_noise_has_the_size_that_was_asked_for():
    flat = torch.ones(500, 200)
    added = blur_gradient((Defence(kind="gradient-noise", scale=0.5),), flat, Prg(bytes(16))) - flat
    longest = float(flat.norm(dim=1).max())
    assert float(added.norm(dim=1).mean()) == pytest.approx(0.5 * longest, rel=0.02)
    noise = blur_activations((Defence(kind="activation-noise", scale=2.0),), flat, Prg(bytes(16)))
    assert float((noise - flat).std()) == pytest.approx(2.0, rel=0.02)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kind": "hope"}, "wanted one of"),
        ({"kind": "potential-energy"}, "needs weight"),
        ({"kind": "label-dp", "epsilon": 0.0}, "between 0 and 50"),
        ({"kind": "label-dp", "epsilon": 1.0, "weight": 1.0}, "has no weight"),
        ({"kind": "potential-energy", "weight": -1.0}, "at least 0"),
        ({"kind": "potential-energy", "weight": 1.0, "form": "cube"}, "'sphere' or 'plane'"),
    ],
)
def test_defences_that_make_no_sense_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        Defence(**settings)
