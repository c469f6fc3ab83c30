"""The table of membership attacks, and the threat models that they belong to."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tacit.audit.findings import Threat
from tacit.audit.membership import shadowed, thresholds, whitebox
from tacit.audit.ranking import Scores

# Attacks take different views, hence the dots; `SETTINGS` says which, and a test holds it.
ATTACKS: Mapping[str, Callable[..., Scores]] = {
    "loss": thresholds.loss,
    "confidence": thresholds.confidence,
    "entropy": thresholds.entropy,
    "modified entropy": thresholds.modified_entropy,
    "label gap": thresholds.label_gap,
    "label robustness": thresholds.label_robustness,
    "calibrated loss": shadowed.calibrated_loss,
    "shadow classifier": shadowed.shadow_classifier,
    "LiRA, online": shadowed.lira_online,
    "LiRA, offline": shadowed.lira_offline,
    "RMIA, online": shadowed.rmia_online,
    "RMIA, offline": shadowed.rmia_offline,
    "gradient norm": whitebox.gradient_norm,
    "gradient features": whitebox.gradient_features,
    "gradient ascent": whitebox.gradient_ascent,
    "losses of the rounds": whitebox.round_losses,
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
