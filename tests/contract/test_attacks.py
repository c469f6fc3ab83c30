"""Every attack of the tables: blind where nothing leaks, sighted where all does, and view-bound.

The null tests fail by chance with a probability below 1e-4 each: the bound is four deviations of
the AUC of a blind guess, sqrt((m + n + 1) / (12 m n)).
"""

import ast
import importlib
import inspect
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import get_type_hints

import numpy as np
import pytest
import torch
from torch import Tensor

from tacit.audit import (
    Ranking,
    auc,
    embedding,
    inversion,
    privacy,
    reconstruction,
    seeded,
    toss,
)
from tacit.audit.membership import ATTACKS as MEMBERSHIP
from tacit.audit.membership import (
    GAMES,
    SeenGradients,
    SeenLabels,
    SeenRounds,
    SeenScores,
    SeenShadows,
)
from tacit.audit.privacy import SeenChange
from tacit.audit.property import attacks

ROWS, CLASSES, MODELS = 600, 4, 8
ATTACKS = {**MEMBERSHIP, **privacy.ATTACKS}
BLIND = 4 * ((ROWS + 1) / (12 * (ROWS / 2) ** 2)) ** 0.5


def answers(draw, labels, is_known):
    """Return log-probabilities that are sure of the label of the known rows alone."""
    logits = draw.normal(0, 1, (*is_known.shape, CLASSES))
    at = np.broadcast_to(labels, is_known.shape)[..., None]
    boost = np.where(is_known, 12.0, 0.0)[..., None]
    np.put_along_axis(logits, at, np.take_along_axis(logits, at, -1) + boost, -1)
    return torch.log_softmax(torch.tensor(logits), -1)


class Scene:
    """Draws every view, with or without a leak."""

    def __init__(self, leaks):
        self.draw = np.random.default_rng(7)
        self.member = np.arange(ROWS) % 2 == 0
        self.labels = self.draw.integers(0, CLASSES, ROWS)
        self.known = self.member if leaks else np.zeros(ROWS, bool)
        self.leaks = leaks

    def shift(self, *shape):
        """Return noise that is 6 deviations lower for members, if there is a leak."""
        return torch.tensor(self.draw.normal(0, 1, shape) - 6.0 * self.known)

    def scores(self):
        return answers(self.draw, self.labels, self.known), torch.tensor(self.labels)

    def see(self, view):
        return getattr(self, f"_{view.__name__}")()

    def _SeenScores(self):
        log_probs, labels = self.scores()
        return SeenScores(log_probs=log_probs, labels=labels)

    def _SeenLabels(self):
        wrong = self.draw.integers(0, CLASSES, (ROWS, 9))
        found = np.where(self.known[:, None], self.labels[:, None], wrong)
        return SeenLabels(answers=torch.tensor(found), labels=torch.tensor(self.labels))

    def _SeenShadows(self):
        coins = toss(ROWS, MODELS, generator=seeded(1))
        inside = coins.numpy() if self.leaks else np.zeros(coins.shape, bool)
        log_probs, labels = self.scores()
        return SeenShadows(
            log_probs=log_probs,
            labels=labels,
            shadow_log_probs=answers(self.draw, self.labels, inside),
            shadow_coins=coins,
        )

    def _SeenGradients(self):
        known = torch.arange(0, ROWS, 7)
        return SeenGradients(
            norms=torch.stack([self.shift(ROWS).exp() for _ in range(3)], dim=1),
            losses=self.shift(ROWS).exp(),
            known=known,
            known_members=torch.tensor(self.member)[known],
        )

    def _SeenRounds(self):
        quiet, pushed, returned = (self.shift(5, ROWS).exp() for _ in range(3))
        return SeenRounds(quiet=quiet, pushed=pushed + 9, returned=returned)

    def _SeenChange(self):
        return SeenChange(changes=-self.shift(ROWS))


def view_of(attack):
    return get_type_hints(attack)["seen"]


def area(name, *, leaks):
    scene = Scene(leaks)
    scores = ATTACKS[name](scene.see(view_of(ATTACKS[name])), generator=seeded(0))
    return auc(Ranking(scores, scene.member))[0]


@pytest.mark.parametrize("name", ATTACKS)
def test_where_nothing_leaks_the_attack_guesses_blindly(name):
    assert abs(area(name, leaks=False) - 0.5) < BLIND


@pytest.mark.parametrize("name", ATTACKS)
def test_where_everything_leaks_the_attack_finds_it(name):
    # A class that is guessed right by chance for a stranger is all the gap attack has to fear.
    assert area(name, leaks=True) > 0.85


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_is_given_a_frozen_view_of_numbers_and_a_generator(name):
    attack = ATTACKS[name]
    assert list(inspect.signature(attack).parameters) == ["seen", "generator"]
    view = view_of(attack)
    assert is_dataclass(view)
    assert view.__dataclass_params__.frozen
    hints = get_type_hints(view)
    assert {hints[one.name] for one in fields(view)} == {Tensor}


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_repeats_itself_and_leaves_its_view_as_it_was(name):
    view = Scene(True).see(view_of(ATTACKS[name]))
    before = {one.name: getattr(view, one.name).clone() for one in fields(view)}
    first, second = (ATTACKS[name](view, generator=seeded(3)) for _ in range(2))
    assert np.array_equal(first, second)
    assert all(torch.equal(getattr(view, key), value) for key, value in before.items())


def test_the_attacks_cannot_reach_a_target_or_the_game():
    path = Path(privacy.__file__).parents[1] / "membership" / "attacks.py"
    names = {
        node.module
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom)
    }
    reach = {name for name in names if name.startswith("tacit")}
    assert reach <= {"tacit.audit.membership.views", "tacit.audit.estimators"}


def test_every_membership_attack_belongs_to_one_threat_with_its_view():
    named = [name for one in GAMES.values() for name in one.attacks]
    assert sorted(named) == sorted(MEMBERSHIP)
    for one in GAMES.values():
        assert len({view_of(MEMBERSHIP[name]) for name in one.attacks}) == 1


MODULES = {
    "embedding/attacks": set(),
    "inversion/attacks": {"split"},
    "inversion/painters": {"reconstruction"},
    "memorisation/extraction": {"memorisation.views"},
    "property/attacks": {"reconstruction"},
    "reconstruction/attacks": {"reconstruction.views"},
    "reconstruction/newton": {"reconstruction.attacks", "reconstruction.views"},
}
"""The modules of all other attacks, and what of the audit they may reach: views, never a game.

All may know the rules of the room, `audit.views`: what an attack is, and generators.
"""


@pytest.mark.parametrize("module", MODULES)
def test_other_attacks_reach_their_views_and_no_game_either(module):
    path = Path(privacy.__file__).parents[1] / f"{module}.py"
    names = {
        node.module
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom)
    }
    reach = {name for name in names if name.startswith("tacit.audit")}
    assert reach <= {f"tacit.audit.{name}" for name in {*MODULES[module], "views"}}


VIEWS = {
    "embedding": {"SeenHidden": "model depth hidden"},
    "inversion": {
        "SeenConfidences": "ask shape classes bounds",
        "SeenAnswers": "ask own answers",
        "SeenRecords": "ask rows labels column values shares",
        "SeenCourse": "models updates work own own_labels classes bounds",
    },
    "membership": {
        "SeenScores": "log_probs labels",
        "SeenLabels": "answers labels",
        "SeenShadows": "log_probs labels shadow_log_probs shadow_coins",
        "SeenGradients": "norms losses known known_members",
        "SeenRounds": "quiet pushed returned",
    },
    "memorisation": {
        "SeenSpeech": "answer vocab context is_causal",
        "SeenSpeakers": "speech prefixes second spell",
    },
    "privacy": {"SeenChange": "changes"},
    "property": {
        "SeenUpdates": "model updates records with_property without work",
        "SeenWeights": "targets shadows has_property",
    },
    "reconstruction": {"SeenUpdate": "model update shape classes records work bounds labels"},
    "split": {
        "SeenLayer": "leaked leaked_labels targets classes",
        "SeenRows": "leaked leaked_labels targets classes make_model",
        "SeenReturned": "gradients",
        "SeenCut": "leaked leaked_inputs targets",
        "SeenTraining": "epochs rows is_whole classes defences inputs leaked leaked_labels",
    },
}
"""All that any attacker holds: none of it the truth."""


@pytest.mark.parametrize("package", VIEWS)
def test_a_view_holds_nothing_but_what_its_attacker_has(package):
    module = importlib.import_module(f"tacit.audit.{package}")
    views = {name: fields(one) for name, one in vars(module).items() if name.startswith("Seen")}
    found = {name: " ".join(one.name for one in held) for name, held in views.items()}
    assert found == VIEWS[package]


OTHERS = (
    *embedding.ATTACKS.values(),
    *reconstruction.ATTACKS.values(),
    *(inversion.climb, inversion.decode_answers, inversion.guess_column),
    inversion.PaintVictim(victim=0),
    *(attacks.ReadUpdates(), attacks.classify_sorted, attacks.ClassifySets()),
)


@pytest.mark.parametrize("attack", OTHERS, ids=lambda one: getattr(one, "__name__", type(one)))
def test_other_attacks_take_a_frozen_view_and_a_generator_too(attack):
    call = attack if inspect.isfunction(attack) else type(attack).__call__
    names = [name for name in inspect.signature(call).parameters if name != "self"]
    assert names == ["seen", "generator"]
    view = get_type_hints(call)["seen"]
    assert is_dataclass(view)
    assert view.__dataclass_params__.frozen
