"""What a training will run, before it is started."""

from tacit.learn.training.schedule import Plans, actions
from tacit.learn.training.task import TrainTask
from tacit.mpc import Plan


def plan_training(task: TrainTask) -> tuple[TrainTask, tuple[tuple[Plan, int], ...]]:
    """Return the task as it will be trained, and every plan with how often it is run in a row.

    The same list as `Trained.runs` of a training that was not interrupted.

    Raises:
        RangeError: numbers do not fit.
    """
    plans = task.planned(Plans.made)
    task = plans.task
    plans.get("share")
    for action in actions(task):
        if action.is_look:
            plans.get("watch")
        else:
            plans.get("step", rate=task.rate_at(action.step))
    if task.score_to:
        plans.get("score")
    if task.give_to:
        plans.get("give")
    return task, tuple(plans.runs)
