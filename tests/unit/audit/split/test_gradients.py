"""What gradients tell about labels, and that the defences keep it to what they declare."""

import pytest
import torch
from torch import nn

from support.split import FEATURES, WIDTH, make_bottom
from tacit.audit import clopper_pearson, seeded
from tacit.audit.split import SeenReturned, gradient_norm, score_ranking
from tacit.ring import Prg
from tacit.split import Defence
from tacit.split.defend import blur_gradient, hide_labels, keep_probability

ROWS = 2000


def gradients(labels, defences=()):
    """Return the rows of gradient that the label owner would send early in training."""
    x = torch.randn(ROWS, FEATURES, generator=seeded(0))
    torch.manual_seed(3)
    top = nn.Linear(WIDTH, 2)
    with torch.no_grad():
        top.bias.copy_(torch.tensor([1.5, -1.5]))  # it has learned that one class is rare
    h = make_bottom()(x).detach().requires_grad_()
    shown = hide_labels(defences, labels, 2, Prg(bytes(16)))
    nn.functional.cross_entropy(top(h), shown, reduction="sum").backward()
    return blur_gradient(defences, h.grad, Prg(bytes(16))), top


def rare_labels():
    return (torch.arange(ROWS) % 10 == 0).long()


def leak(defences):
    labels = rare_labels()
    rows, _ = gradients(labels, defences)
    scores = gradient_norm(SeenReturned(gradients=rows), generator=seeded(0))
    return score_ranking("x", scores, labels == 1)


def test_lengths_of_gradients_betray_a_rare_label():
    assert leak(()).low > 0.95


def test_equal_lengths_betray_nothing():
    metric = leak((Defence(kind="gradient-norm"),))
    assert metric.low < 0.55


@pytest.mark.parametrize("scale", [2.0, 8.0])
def test_noise_hides_more_the_more_there_is(scale):
    assert leak((Defence(kind="gradient-noise", scale=scale),)).value < leak(()).value


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_label_dp_holds_against_whoever_reads_the_label_off_the_gradient(epsilon):
    labels = (torch.arange(ROWS) % 2).long()
    rows, top = gradients(labels, (Defence(kind="label-dp", epsilon=epsilon),))
    # The gradient is (p − y)(w_1 − w_0): its side tells the label that was used, without error.
    side = rows @ (top.weight[1] - top.weight[0]).detach()
    guess = (side < 0).long()
    low, high = clopper_pearson(int((guess == labels).sum()), ROWS)
    assert low < keep_probability(2, epsilon) < high
