"""What the label owner works out first, and by hand, is what autograd says all at once."""

import pytest
import torch
from torch import nn

from support.split import CLASSES, WIDTH, fixed_keys, make_task, run_split
from tacit.split import Defence, Flat, ShapedTop, cut, make_model, stepping
from tacit.split.stepping import linear_layer, make_scorer


def head(*, width, hidden):
    torch.manual_seed(3)
    if not hidden:
        return nn.Linear(width, CLASSES)
    return nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, CLASSES))


def learn(task, hidden):
    with fixed_keys():
        width = WIDTH * len(task.feature_owners)
        found = run_split(task, top=head(width=width, hidden=hidden))
    modules = [*found["bottoms"].values(), found["top"]]
    weights = [weight.detach() for module in modules for weight in module.parameters()]
    return weights, [epoch.loss for epoch in found["lab"]["epochs"]]


@pytest.mark.parametrize("changes", [{}, {"micro_batches": 3}, {"owners": ("clinic", "bank")}])
@pytest.mark.parametrize("hidden", [0, 12])
@pytest.mark.parametrize("is_defended", [False, True])
def test_a_training_learns_the_same_by_every_scorer(monkeypatch, changes, hidden, is_defended):
    defences = (Defence(kind="distance-correlation", weight=0.1),) if is_defended else ()
    task = make_task(defences=defences, epochs=2, **changes)
    first, losses = learn(task, hidden)
    monkeypatch.setattr(stepping, "SMALL_WEIGHTS", 0)
    monkeypatch.setattr(stepping, "linear_layer", lambda top: None)
    together, all_at_once = learn(task, hidden)
    for one, other in zip(first, together, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)
    assert losses == pytest.approx(all_at_once, rel=1e-4)


def reference(layer, cuts, y, share):
    """Return the gradients at the cuts and at the weights, by autograd."""
    leaves = [one.clone().requires_grad_() for one in cuts]
    loss = share * nn.functional.cross_entropy(layer(torch.cat(leaves, 1)), y)
    found = torch.autograd.grad(loss, [*leaves, *layer.parameters()])
    return found[: len(cuts)], found[len(cuts) :]


@pytest.mark.parametrize("has_bias", [True, False])
@pytest.mark.parametrize("widths", [(4,), (3, 5, 1)])
def test_a_linear_layer_by_hand_has_the_gradients_of_autograd(widths, has_bias):
    torch.manual_seed(5)
    layer = nn.Linear(sum(widths), 6, bias=has_bias)
    scorer, wanted = make_scorer(layer, ()), [torch.zeros_like(p) for p in layer.parameters()]
    for part, share in enumerate((0.75, 0.25)):  # of one batch
        cuts = [10 * torch.randn(9, width) for width in widths]
        y = torch.randint(0, 6, (9,))
        found = scorer.expect(y, share)(cuts, part)
        back, gradients = reference(layer, cuts, y, share)
        for ours, theirs in zip(found.gradients, back, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-7)
        torch.testing.assert_close(found.logits, layer(torch.cat(cuts, 1)).detach())
        found.finish()
        wanted = [one + two for one, two in zip(wanted, gradients, strict=True)]
    for weight, gradient in zip(layer.parameters(), wanted, strict=True):
        torch.testing.assert_close(weight.grad, gradient, rtol=1e-5, atol=1e-6)


def test_weights_that_do_not_learn_get_no_gradient():
    layer = nn.Linear(3, 2)
    layer.weight.requires_grad_(False)
    scorer = make_scorer(layer, ())
    scorer.expect(torch.tensor([0, 1, 1, 0]), 1.0)([torch.randn(4, 3)], 0).finish()
    assert layer.weight.grad is None
    assert layer.bias.grad is not None


@pytest.mark.parametrize(("hidden", "is_one"), [(0, True), (16, False)])
def test_the_top_of_a_cut_model_is_known_for_what_it_is(hidden, is_one):
    model = make_model("mlp", shape=(2, 3), classes=4, width=5, hidden=hidden)
    bottom, top = cut(model, "cut")
    assert Flat(bottom)(torch.zeros(1, 2, 3)).shape == (1, 5)
    for one in (top, ShapedTop(top, (5,))):
        assert (linear_layer(one) is not None) == is_one
    assert linear_layer(ShapedTop(top, (5, 1))) is None


def test_a_layer_that_does_more_than_it_says_is_left_to_autograd():
    class Doubled(nn.Linear):
        def forward(self, x):
            return 2 * super().forward(x)

    assert linear_layer(Doubled(3, 2)) is None
    watched = nn.Linear(3, 2)
    watched.register_forward_hook(lambda module, inputs, output: 2 * output)
    assert linear_layer(watched) is None
