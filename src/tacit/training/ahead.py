"""What a training will run, before it is started."""

from tacit.training.schedule import Plans, actions
from tacit.training.task import TrainTask


def plan_training(task: TrainTask) -> Plans:
    """Return the plans of a task as it will be trained, with how often each is run in a row.

    ``runs`` is the same list as `Trained.runs` of a training that was not interrupted.

    Raises:
        RangeError: numbers do not fit.
    """
    plans = task.planned(Plans.made)
    task = plans.task
    plans.get("share")
    if plans.has_starts:
        plans.get("start")
    for action in actions(task):
        if action.is_look:
            if task.looks:
                plans.get("watch")
        else:
            plan = plans.get("step", rate=task.rate_at(action.step))
            plans.cache.keep(0, plan.kept_openings, {}, {})
    if task.score_to:
        plans.get("score")
    if task.give_to:
        plans.get("give")
    return plans
