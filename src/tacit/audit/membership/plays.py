"""The games behind a membership audit: each grants an attacker its view, and no more."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tacit.audit.membership.threats import ATTACKS, SETTINGS, Effort
from tacit.audit.membership.views import Push, see_gradients, see_labels, see_scores, see_shadows
from tacit.audit.shadows import Fleet, toss, train_shadows
from tacit.audit.target import Classifier, TorchClassifier, Trainer, builder_of, fresh
from tacit.audit.views import seeded
from tacit.errors import ConfigError
from tacit.plugins import load


@dataclass(frozen=True, kw_only=True, eq=False)
class Scene:
    """The game master's knowledge: the target, the candidates, and who is a member.

    Attributes:
        known_share: of the records, whose membership a white-box attacker knows already.
        push: how a malicious participant attacks.
    """

    target: Classifier
    trainer: Trainer | None
    x: Tensor
    y: Tensor
    is_member: Tensor
    effort: Effort = Effort()  # noqa: RUF009  it is frozen
    fleet: Fleet = Fleet()  # noqa: RUF009  it is frozen
    known_share: float = 0.2
    push: Push = Push()  # noqa: RUF009  it is frozen

    def __post_init__(self) -> None:
        if not 0 < self.known_share < 1:
            raise ConfigError(f"known_share: wanted between 0 and 1, got {self.known_share}")


Played = dict[str, tuple[NDArray[np.float64], NDArray[np.bool_]]]
"""Scores by attack, with the records that they are judged on."""


def _attack(name: str, seen: object, scene: Scene, judged: Tensor | None = None) -> Played:
    """Run the attacks of a threat on its view."""
    every = torch.ones(len(scene.y), dtype=torch.bool) if judged is None else judged
    return {
        attack: (ATTACKS[attack](seen, generator=seeded(scene.effort.seed)), every.numpy())
        for attack in SETTINGS[name].attacks
    }


def _play_scores(scene: Scene) -> Played:
    return _attack("scores", see_scores(scene.target, scene.x, scene.y), scene)


def _play_labels(scene: Scene) -> Played:
    generator = seeded(scene.effort.seed + 1)
    return _attack("labels", see_labels(scene.target, scene.x, scene.y, generator=generator), scene)


def _play_shadows(scene: Scene) -> Played:
    if scene.trainer is None:
        raise ConfigError("shadow models need a trainer")
    coins = toss(len(scene.y), scene.effort.shadows, generator=seeded(scene.effort.seed + 2))
    outputs = train_shadows(
        scene.trainer, scene.x, scene.y, coins, seed=scene.effort.seed, fleet=scene.fleet
    )
    seen = see_shadows(scene.target, scene.x, scene.y, outputs=outputs, coins=coins)
    return _attack("shadows", seen, scene)


def _play_gradients(scene: Scene) -> Played:
    keys = torch.empty(len(scene.y)).uniform_(generator=seeded(scene.effort.seed + 3))
    known = keys.argsort()[: max(int(scene.known_share * len(keys)), 2)]
    judged = torch.ones(len(keys), dtype=torch.bool)
    judged[known] = False
    seen = see_gradients(
        scene.target, scene.x, scene.y, known=known, known_members=scene.is_member[known]
    )
    return _attack("gradients", seen, scene, judged)


def _play_participant(scene: Scene) -> Played:
    build = builder_of(scene.trainer)
    if build is None:
        raise ConfigError("a malicious participant needs a trainer of torch modules")
    seen = load("audit.rounds").play_rounds(
        fresh(build, scene.effort.seed),
        scene.x,
        scene.y,
        scene.is_member,
        push=scene.push,
        seed=scene.effort.seed,
    )
    return _attack("participant", seen, scene)


PLAYS: dict[str, Callable[[Scene], Played]] = {
    "scores": _play_scores,
    "labels": _play_labels,
    "shadows": _play_shadows,
    "gradients": _play_gradients,
    "participant": _play_participant,
}


def why_not(name: str, scene: Scene) -> str:
    """Say why a threat cannot be played with this target; nothing if it can."""
    if name == "shadows" and scene.trainer is None:
        return "shadow models need a trainer"
    if name == "gradients" and not isinstance(scene.target, TorchClassifier):
        return "the model has no gradients"
    if name == "participant":
        build = builder_of(scene.trainer)
        if build is None:
            return "it needs a trainer of torch modules"
        if any(True for _ in fresh(build, 0).buffers()):
            return "the model keeps statistics of batches, which are not averaged"
    return ""
