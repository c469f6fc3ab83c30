"""Local training: pictures are changed as they should be, and only pictures."""

import numpy as np
import pytest
import torch

from tacit.data import load_dataset, split_dataset
from tacit.errors import ConfigError
from tacit.federated import Learner, Training, build_model, build_stack
from tacit.federated.training import augment
from tacit.ring import Prg


@pytest.mark.parametrize("shape", [(3, 2, 8, 6), (3, 2, 3, 8, 6)])
def test_a_flip_mirrors_some_rows_and_leaves_the_others(shape):
    x = torch.arange(float(np.prod(shape))).view(shape)
    found = augment(x, "flip", Prg(b"\0" * 16))
    pairs = list(zip(found.flatten(0, 1), x.flatten(0, 1), strict=True))
    flipped = [torch.equal(new, old.flip(-1)) for new, old in pairs]
    same = [torch.equal(new, old) for new, old in pairs]
    assert all(a != b for a, b in zip(flipped, same, strict=True))
    assert any(flipped)
    assert any(same)


@pytest.mark.parametrize("shape", [(20, 5, 9, 7), (20, 5, 3, 9, 7)])
def test_a_shift_moves_a_pixel_by_two_at_most_and_each_row_by_itself(shape):
    x = torch.zeros(shape)
    x[..., 4, 3] = 1.0
    found = augment(x, "shift", Prg(b"\0" * 16)).flatten(0, 1)
    assert (found.flatten(1).sum(1) == x.flatten(0, 1).flatten(1).sum(1)).all()
    places = {tuple(row.nonzero()[0, -2:].tolist()) for row in found}
    assert places == {(y, z) for y in range(2, 7) for z in range(1, 6)}


def test_only_pictures_can_be_augmented():
    model = build_model("linear", (4,), 2, seed=0)
    with pytest.raises(ConfigError, match="wants pictures, got rows of 4 numbers"):
        Learner(
            model,
            torch.zeros(3, 4),
            torch.zeros(3, dtype=torch.int64),
            [np.arange(3)],
            training=Training(augment="shift"),
        )


def test_pictures_in_colour_are_learned_from():
    """Two classes that differ in one colour channel, of the shape of CIFAR-10."""
    labels = torch.arange(12) % 2
    features = torch.rand(12, 3, 32, 32) * 0.1
    features[:, 0] += labels[:, None, None].float()
    model = build_model("cnn", (3, 32, 32), 2, seed=0)
    recipe = Training(steps=15, batch=6, rate=0.2)
    learner = Learner(model, features, labels, [np.arange(12)], training=recipe)
    weights = learner.first_weights()
    weights = weights + torch.from_numpy(learner.updates(weights, [0], Prg(b"\0" * 16))[0].values)
    assert torch.equal(learner.odds(weights, features).argmax(1), labels)


def stacked(features, labels, *, steps=1, batch=6):
    """One client with six rows and two members: rows 0 and 3 are the first one's, and so on."""
    model = build_stack(("linear", "mlp"), features.shape[1:], 2, seed=0)
    recipe = Training(steps=steps, batch=batch, rate=0.1)
    return model, Learner(model, features, labels, [np.arange(len(features))], training=recipe)


def moved(model, change):
    """Say which learners of a stack an update touches."""
    sizes = [sum(p.numel() for p in one.parameters()) for one in (*model.members, model.head)]
    parts = torch.split(torch.from_numpy(change), sizes)
    return [bool(part.abs().max() > 0) for part in parts]


@pytest.mark.parametrize("row", range(6))
def test_every_row_is_learned_by_one_learner_of_a_stack(row):
    features, labels = torch.rand(6, 4), torch.tensor([0, 1] * 3)
    model, learner = stacked(features, labels)
    before = learner.updates(learner.first_weights(), [0], Prg(b"\0" * 16))[0].values
    labels[row] = 1 - labels[row]
    after = learner.updates(learner.first_weights(), [0], Prg(b"\0" * 16))[0].values
    assert moved(model, after - before) == [row % 3 == one for one in range(3)]


def test_a_stack_answers_with_what_its_last_learner_says():
    model = build_stack(("linear", "mlp"), (4,), 3, seed=0)
    x = torch.rand(5, 4)
    every = model.train()(x)
    assert every.shape == (3, 5, 3)
    assert torch.equal(model.eval()(x), every[-1])


def test_the_first_weights_of_a_stack_follow_from_its_seed():
    one, other = (build_stack(("mlp", "mlp"), (4,), 2, seed=seed) for seed in (0, 0))
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))
    first, second = (member[1].weight for member in one.members)
    assert not torch.equal(first, second)


def test_a_stack_of_one_is_refused():
    with pytest.raises(ConfigError, match="two models or more"):
        build_stack(("linear",), (4,), 2, seed=0)


def test_a_stack_learns():
    data = load_dataset("digits", ())
    train, test = (split_dataset(data, part=part, seed=0) for part in ("train", "test"))
    x, y = torch.tensor(train.features, dtype=torch.float32), torch.tensor(train.labels)
    model = build_stack(("linear", "mlp"), x.shape[1:], 10, seed=0)
    recipe = Training(steps=150, batch=64, rate=1.0)
    learner = Learner(model, x, y, [np.arange(len(x))], training=recipe)
    weights = learner.first_weights()
    weights = weights + torch.from_numpy(learner.updates(weights, [0], Prg(b"\0" * 16))[0].values)
    x_test = torch.tensor(test.features, dtype=torch.float32)
    found = learner.odds(weights, x_test).argmax(1).numpy()
    assert (found == test.labels).mean() > 0.9
