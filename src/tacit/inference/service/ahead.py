"""What a service will run, before it is started."""

from collections.abc import Mapping
from dataclasses import dataclass

from tacit.inference.service.bounds import check_plan
from tacit.inference.service.server import Plans
from tacit.inference.service.task import ServiceTask
from tacit.mpc import Plan


@dataclass(frozen=True, kw_only=True)
class ServicePlans:
    """The plans of a service: those of its start, and those of a batch of every size."""

    start: tuple[Plan, ...]
    batches: Mapping[int, tuple[Plan, ...]]


def plan_service(task: ServiceTask, *, parties: tuple[str, ...]) -> ServicePlans:
    """Plan a service between these parties; what a number of questions costs follows."""
    plans = Plans(task)
    plans.fill(first_run=1)
    clips = {size: (plan,) for size, plan in plans.clips.items()}
    return ServicePlans(
        start=(check_plan(task, parties), plans.get(0)),
        batches={size: (*clips.get(size, ()), plans.get(size)) for size in task.sizes},
    )
