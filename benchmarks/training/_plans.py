"""Plans of trainings that are timed or trained in the clear, from sizes alone."""

from collections.abc import Mapping

from torch import nn

from tacit.data import Holding
from tacit.data.source import OwnerTable
from tacit.mpc import Roles
from tacit.training import (
    Privacy,
    TrainData,
    Training,
    TrainModel,
    TrainPlan,
    TrainProtection,
    TrainSpec,
)


def plan_of(
    module: nn.Module,
    inputs: tuple[int, ...],
    rows: Mapping[str, int],
    *,
    roles: Roles,
    training: Training,
    model: TrainModel,
    protocol: str = "sealed",
    test_rows: int = 0,
    privacy: Privacy | None = None,
) -> TrainPlan:
    """Plan a training of a network on so many rows of each owner."""
    share = test_rows / sum(rows.values()) if test_rows else 0.1
    spec = TrainSpec(
        data=TrainData(owners={name: OwnerTable() for name in rows}, test_share=share),
        model=model,
        training=training,
        privacy=privacy,
        protocol=TrainProtection(
            kind=protocol,
            dealer=roles.dealer,
            compute=roles.computing,
            show_to=(roles.first,) if privacy is None else (),
        ),
    )
    held = tuple(Holding(name, count, inputs, "classes") for name, count in rows.items())
    return TrainPlan.of(spec, held, module)
