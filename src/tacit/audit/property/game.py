"""What an audit says about property inference."""

from collections.abc import Sequence

import torch
from torch import Tensor

from tacit.audit.estimators import Ranking, draw_roc, measure_ranking
from tacit.audit.findings import Finding, Threat, judge
from tacit.audit.property.attacks import (
    ClassifySets,
    ReadUpdates,
    SeenUpdates,
    SeenWeights,
    classify_sorted,
)
from tacit.audit.views import Attack, seeded

UPDATE_ATTACKS: dict[str, Attack[SeenUpdates, Tensor]] = {"updates": ReadUpdates()}
WEIGHT_ATTACKS: dict[str, Attack[SeenWeights, Tensor]] = {
    "sorted neurons": classify_sorted,
    "sets of neurons": ClassifySets(),
}

UPDATE_THREAT = Threat(
    name="property inference from updates",
    who="the server of federated learning",
    sees="the updates of clients, after their defence",
    knows="the model, the terms of the round, rows of its own with and without the property",
)
WEIGHT_THREAT = Threat(
    name="property inference from weights",
    who="whoever holds the finished model",
    sees="its weights",
    knows="the architecture, and models trained on data of known properties",
)
_REMEDIES = (
    "aggregate securely, so that a client's update is seen in a sum alone",
    "noise at the level of the client; noise for single records does not hide a property",
)


def audit_updates(
    seen: SeenUpdates,
    has_property: Sequence[bool],
    name: str,
    attack: Attack[SeenUpdates, Tensor],
    *,
    seed: int = 0,
) -> Finding:
    """Score a guess at which updates come from clients with the property."""
    return _finding(UPDATE_THREAT, name, attack(seen, generator=seeded(seed)), has_property)


def audit_weights(
    seen: SeenWeights,
    has_property: Sequence[bool],
    name: str,
    attack: Attack[SeenWeights, Tensor],
    *,
    seed: int = 0,
) -> Finding:
    """Score a guess at which models were trained on data with the property."""
    return _finding(WEIGHT_THREAT, name, attack(seen, generator=seeded(seed)), has_property)


def _finding(threat: Threat, name: str, scores: Tensor, truth: Sequence[bool]) -> Finding:
    ranking = Ranking(scores.double().numpy(), torch.tensor(list(truth)).numpy())
    curve = draw_roc(name, ranking, title="Who has the property?")
    return judge(threat, name, *measure_ranking(name, ranking), curves=(curve,), remedies=_REMEDIES)
