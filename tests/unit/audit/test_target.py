"""Classifiers and trainers behind one interface."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier
from torch import nn

from tacit.audit import SklearnTrainer, TorchClassifier, TorchTrainer, as_classifier
from tacit.errors import ConfigError, DataError


def build():
    return nn.Linear(3, 2)


@pytest.fixture
def rows():
    draw = np.random.default_rng(0)
    y = draw.integers(0, 2, 40)
    x = draw.normal(size=(40, 3)) + 2 * y[:, None]
    return torch.tensor(x, dtype=torch.float32), torch.tensor(y)


def test_the_same_seed_trains_the_same_model_and_leaves_torch_alone(rows):
    trainer = TorchTrainer(build=build, epochs=3)
    before = torch.random.get_rng_state()
    first, second = (trainer(*rows, seed=4).log_probs(rows[0]) for _ in range(2))
    assert torch.equal(first, second)
    assert torch.equal(before, torch.random.get_rng_state())
    assert not torch.equal(first, trainer(*rows, seed=5).log_probs(rows[0]))


def test_training_learns(rows):
    found = TorchTrainer(build=build, epochs=30)(*rows, seed=0).log_probs(rows[0])
    assert float((found.argmax(1) == rows[1]).float().mean()) > 0.85
    torch.testing.assert_close(found.exp().sum(1), torch.ones(40, dtype=torch.float64))


def test_a_recipe_tells_settings_and_architectures_apart():
    base = TorchTrainer(build=build)
    wider = TorchTrainer(build=lambda: nn.Linear(4, 2))
    assert base.recipe == TorchTrainer(build=build).recipe
    assert len({base.recipe, TorchTrainer(build=build, epochs=9).recipe, wider.recipe}) == 3


def test_scikit_learn_models_answer_for_classes_they_have_not_seen(rows):
    trainer = SklearnTrainer(estimator=DecisionTreeClassifier(), classes=3)
    found = trainer(*rows, seed=0).log_probs(rows[0])
    assert found.shape == (40, 3)
    assert float(found[:, 2].exp().max()) < 1e-9
    assert "DecisionTreeClassifier" in trainer.recipe


def test_models_of_users_are_wrapped(rows):
    x, y = rows
    fitted = LogisticRegression().fit(x.numpy(), y.numpy())
    assert as_classifier(fitted, classes=2).log_probs(x).shape == (40, 2)
    assert isinstance(as_classifier(build(), classes=2), TorchClassifier)
    with pytest.raises(ConfigError, match="got dict"):
        as_classifier({}, classes=2)


def test_a_model_without_a_logit_per_class_is_refused(rows):
    with pytest.raises(DataError, match="logit per class"):
        TorchClassifier(nn.Linear(3, 1)).log_probs(rows[0])


def test_labels_beyond_the_classes_are_refused(rows):
    fitted = LogisticRegression().fit(rows[0].numpy(), rows[1].numpy() + 5)
    with pytest.raises(DataError, match="wanted classes 0 to 1"):
        as_classifier(fitted, classes=2).log_probs(rows[0])
