"""The same training in the clear: the same start, the same batches, the same steps."""

from torch import Tensor

from tacit.learn.training.programs import initial_state, measure, train_step
from tacit.learn.training.schedule import actions
from tacit.learn.training.task import TrainTask
from tacit.learn.training.verbs import PlainStepOps


def train_plain(task: TrainTask, rows: Tensor, labels: Tensor) -> list[tuple[int, float, float]]:
    """Train in floating point, and return step, loss and accuracy at every look."""
    weights = {name: value.double() for name, value in task.model.initial.items()}
    state = {name: value.double() for name, value in initial_state(task).items()}
    shown = []
    for action in actions(task):
        x, y = rows[action.rows], labels[action.rows]
        ops = PlainStepOps(task.optimiser.dials(action.step))
        if action.is_look:
            loss, right = measure(ops, task, task.model(ops, weights, x), y)
            shown.append((action.step, float(loss), float(right) / task.answers))
        else:
            rate = task.rate_at(action.step)
            weights, state = train_step(ops, task, weights, state, x, y, rate=rate)
    return shown
