"""The games of a membership audit: who sees what, by which attacks, and how much is tried."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import torch
from annotated_types import Ge, Lt
from numpy.typing import NDArray
from torch import Tensor

from tacit.audit.estimators import Scores
from tacit.audit.findings import Threat
from tacit.audit.membership import attacks
from tacit.audit.membership.views import (
    Push,
    SeenGradients,
    SeenLabels,
    SeenRounds,
    SeenScores,
    SeenShadows,
    see_gradients,
    see_labels,
    see_scores,
    see_shadows,
)
from tacit.audit.shadows import Fleet, toss, train_shadows
from tacit.audit.target import Classifier, TorchClassifier, Trainer, builder_of
from tacit.audit.views import fresh, seeded
from tacit.errors import ConfigError
from tacit.plugins import load
from tacit.spec import LOCAL, Count, refuse

_NO_TRAINER = "shadow models need a trainer"
_NO_BUILDER = "it needs a trainer of torch modules"


@dataclass(frozen=True, kw_only=True)
class Effort:
    """[audit]: what is tried, and with how much effort.

    Attributes:
        threats: what an attacker is taken to see: some of scores, labels, shadows, gradients,
            participant; all that the target allows if empty.
        shadows: shadow models; even.
        canaries: in the one run that bounds ε.
        rounds: trials of a single round.
        confidence: of the ε lower bounds from one run; rounds are tried at 1 − 1e-6, or at this if
            it is larger.
        seed: of coins, models and attacks.
        workers: processes that train shadow models.
        cache: a folder for shadow models' outputs; beside the result if not given.
        sweep: values of a defence to train and attack with, one after the other.
        sweep_setting: "epochs", "weight_decay" or "dropout"; with [privacy], "multiplier".
    """

    threats: tuple[str, ...] = ()
    shadows: int = 16
    canaries: Annotated[int, Ge(2)] = 400
    rounds: Annotated[int, Ge(100)] = 4000
    confidence: Annotated[float, Ge(0.5), Lt(1)] = 0.95
    seed: int = 0
    workers: Count = field(default=1, metadata=LOCAL)
    cache: Path | None = field(default=None, metadata=LOCAL)
    sweep: tuple[float, ...] = ()
    sweep_setting: Literal["epochs", "weight_decay", "dropout", "multiplier"] = "weight_decay"

    def __post_init__(self) -> None:
        strange = [name for name in self.threats if name not in GAMES]
        if strange:
            refuse("threats", f"wanted some of {', '.join(GAMES)}, got {strange[0]!r}")
        if self.shadows < 4 or self.shadows % 2:
            refuse("shadows", f"wanted an even number, 4 or more, got {self.shadows}")


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
    effort: Effort = Effort()
    fleet: Fleet = Fleet()  # noqa: RUF009  it is frozen
    known_share: float = 0.2
    push: Push = Push()  # noqa: RUF009  it is frozen

    def __post_init__(self) -> None:
        if not 0 < self.known_share < 1:
            raise ConfigError(f"known_share: wanted between 0 and 1, got {self.known_share}")


Played = dict[str, tuple[NDArray[np.float64], NDArray[np.bool_]]]
"""Scores by attack, with the records that they are judged on."""


@dataclass(frozen=True, kw_only=True)
class Game:
    """A threat model, the view that it grants, and the attacks that are given this view alone."""

    threat: Threat
    see: Callable[[Scene], object]
    attacks: Mapping[str, Callable[..., Scores]]  # each takes its game's view, and a test holds it

    def play(self, scene: Scene) -> Played:
        """Run the attacks on what they may see; records they were told about are not judged."""
        seen, judged = self.see(scene), np.ones(len(scene.y), bool)
        if isinstance(seen, SeenGradients):
            judged[seen.known.numpy()] = False
        return {
            name: (attack(seen, generator=seeded(scene.effort.seed)), judged)
            for name, attack in self.attacks.items()
        }


def _show_scores(scene: Scene) -> SeenScores:
    return see_scores(scene.target, scene.x, scene.y)


def _show_labels(scene: Scene) -> SeenLabels:
    generator = seeded(scene.effort.seed + 1)
    return see_labels(scene.target, scene.x, scene.y, generator=generator)


def _show_shadows(scene: Scene) -> SeenShadows:
    if scene.trainer is None:
        raise ConfigError(_NO_TRAINER)
    coins = toss(len(scene.y), scene.effort.shadows, generator=seeded(scene.effort.seed + 2))
    outputs = train_shadows(
        scene.trainer, scene.x, scene.y, coins, seed=scene.effort.seed, fleet=scene.fleet
    )
    return see_shadows(scene.target, scene.x, scene.y, outputs=outputs, coins=coins)


def _show_gradients(scene: Scene) -> SeenGradients:
    keys = torch.empty(len(scene.y)).uniform_(generator=seeded(scene.effort.seed + 3))
    known = keys.argsort()[: max(int(scene.known_share * len(keys)), 2)]
    return see_gradients(
        scene.target, scene.x, scene.y, known=known, known_members=scene.is_member[known]
    )


def _show_rounds(scene: Scene) -> SeenRounds:
    build, seed = builder_of(scene.trainer), scene.effort.seed
    if build is None:
        raise ConfigError(_NO_BUILDER)
    seen: SeenRounds = load("audit.rounds").play_rounds(
        fresh(build, seed), scene.x, scene.y, scene.is_member, push=scene.push, seed=seed
    )
    return seen


GAMES: Mapping[str, Game] = {
    "scores": Game(
        threat=Threat(
            name="membership, probabilities",
            who="a client of the model",
            sees="the probability of every class",
            knows="the record and its label",
        ),
        see=_show_scores,
        attacks={
            "loss": attacks.loss,
            "confidence": attacks.confidence,
            "entropy": attacks.entropy,
            "modified entropy": attacks.modified_entropy,
        },
    ),
    "labels": Game(
        threat=Threat(
            name="membership, classes only",
            who="a client of the model",
            sees="the class of the record and of noisy copies",
            knows="the record and its label",
        ),
        see=_show_labels,
        attacks={"label gap": attacks.label_gap, "label robustness": attacks.label_robustness},
    ),
    "shadows": Game(
        threat=Threat(
            name="membership, shadow models",
            who="a client who trains models of the same kind",
            sees="the probability of every class",
            knows="records of the same distribution, the architecture, how it is trained",
        ),
        see=_show_shadows,
        attacks={
            "calibrated loss": attacks.calibrated_loss,
            "shadow classifier": attacks.shadow_classifier,
            "LiRA, online": attacks.lira_online,
            "LiRA, offline": attacks.lira_offline,
            "RMIA, online": attacks.rmia_online,
            "RMIA, offline": attacks.rmia_offline,
        },
    ),
    "gradients": Game(
        threat=Threat(
            name="membership, weights",
            who="whoever holds the trained model",
            sees="all weights, so every record's gradient",
            knows="the record, its label, and for some records whether they are members",
        ),
        see=_show_gradients,
        attacks={
            "gradient norm": attacks.gradient_norm,
            "gradient features": attacks.gradient_features,
        },
    ),
    "participant": Game(
        threat=Threat(
            name="membership, malicious participant",
            who="a participant of federated training",
            sees="the mean model of every round, into which it can push",
            knows="the record and its label",
        ),
        see=_show_rounds,
        attacks={
            "gradient ascent": attacks.gradient_ascent,
            "losses of the rounds": attacks.round_losses,
        },
    ),
}
ATTACKS = {name: attack for game in GAMES.values() for name, attack in game.attacks.items()}


def why_not(name: str, scene: Scene) -> str:
    """Say why a threat cannot be played with this target; nothing if it can."""
    if name == "shadows" and scene.trainer is None:
        return _NO_TRAINER
    if name == "gradients" and not isinstance(scene.target, TorchClassifier):
        return "the model has no gradients"
    if name == "participant":
        build = builder_of(scene.trainer)
        if build is None:
            return _NO_BUILDER
        if any(True for _ in fresh(build, 0).buffers()):
            return "the model keeps statistics of batches, which are not averaged"
    return ""
