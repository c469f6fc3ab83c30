"""The table of membership attacks, the threat models that they belong to, and how much is tried."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from annotated_types import Ge, Lt

from tacit.audit.findings import Threat
from tacit.audit.membership import attacks
from tacit.audit.ranking import Scores
from tacit.spec import LOCAL, Count, refuse

# Attacks take different views, hence the dots; `SETTINGS` says which, and a test holds it.
ATTACKS: Mapping[str, Callable[..., Scores]] = {
    "loss": attacks.loss,
    "confidence": attacks.confidence,
    "entropy": attacks.entropy,
    "modified entropy": attacks.modified_entropy,
    "label gap": attacks.label_gap,
    "label robustness": attacks.label_robustness,
    "calibrated loss": attacks.calibrated_loss,
    "shadow classifier": attacks.shadow_classifier,
    "LiRA, online": attacks.lira_online,
    "LiRA, offline": attacks.lira_offline,
    "RMIA, online": attacks.rmia_online,
    "RMIA, offline": attacks.rmia_offline,
    "gradient norm": attacks.gradient_norm,
    "gradient features": attacks.gradient_features,
    "gradient ascent": attacks.gradient_ascent,
    "losses of the rounds": attacks.round_losses,
}


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A threat model, and the attacks that its view feeds."""

    threat: Threat
    attacks: tuple[str, ...]


SETTINGS: Mapping[str, Setting] = {
    "scores": Setting(
        threat=Threat(
            name="membership, probabilities",
            who="a client of the model",
            sees="the probability of every class",
            knows="the record and its label",
        ),
        attacks=("loss", "confidence", "entropy", "modified entropy"),
    ),
    "labels": Setting(
        threat=Threat(
            name="membership, classes only",
            who="a client of the model",
            sees="the class of the record and of noisy copies",
            knows="the record and its label",
        ),
        attacks=("label gap", "label robustness"),
    ),
    "shadows": Setting(
        threat=Threat(
            name="membership, shadow models",
            who="a client who trains models of the same kind",
            sees="the probability of every class",
            knows="records of the same distribution, the architecture, how it is trained",
        ),
        attacks=(
            *("calibrated loss", "shadow classifier"),
            *("LiRA, online", "LiRA, offline", "RMIA, online", "RMIA, offline"),
        ),
    ),
    "gradients": Setting(
        threat=Threat(
            name="membership, weights",
            who="whoever holds the trained model",
            sees="all weights, so every record's gradient",
            knows="the record, its label, and for some records whether they are members",
        ),
        attacks=("gradient norm", "gradient features"),
    ),
    "participant": Setting(
        threat=Threat(
            name="membership, malicious participant",
            who="a participant of federated training",
            sees="the mean model of every round, into which it can push",
            knows="the record and its label",
        ),
        attacks=("gradient ascent", "losses of the rounds"),
    ),
}


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
        strange = [name for name in self.threats if name not in SETTINGS]
        if strange:
            refuse("threats", f"wanted some of {', '.join(SETTINGS)}, got {strange[0]!r}")
        if self.shadows < 4 or self.shadows % 2:
            refuse("shadows", f"wanted an even number, 4 or more, got {self.shadows}")
