"""What an audit can show: class representatives, and rows rebuilt from updates of a round."""

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn

from tacit.audit import Finding, seeded
from tacit.audit.inversion import Climb, SeenConfidences, score_representatives
from tacit.audit.privacy import run_one_round
from tacit.audit.reconstruction import Round, Work, audit_round, choose_attacks, do_work
from tacit.cli.jobs.audit_sides import Side, Target
from tacit.cli.jobs.federated_job import FederatedJob
from tacit.learn.federated import Update, round_config
from tacit.ring import Prg

_SHOWN = 8
_MOST_CLASSES = 20
_MOST_CLIENTS = 40
_ONE_EACH = (
    "Reconstruction is tried on the most exposed clients there are: each holds one row, and takes "
    "one step on it with the model of the first round."
)


class Shaped(nn.Module):
    """Takes pictures with a channel and hands rows on in the shape that a model wants."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self._shape = shape

    def forward(self, x: Tensor) -> Tensor:
        """Return (rows, *shape)."""
        return x.reshape(len(x), *self._shape)


def show_classes(target: Target, *, is_quick: bool) -> tuple[Finding, ...]:
    """Let a client of the model find out what its classes look like; nothing without pictures."""
    x, y = target.members
    rows = _pictured(x, target.picture)
    if rows.dim() != 4 or target.classes > _MOST_CLASSES:
        return ()
    if len(set(y.tolist())) < target.classes:
        return ()  # a class without rows has no mean to compare with
    seen = SeenConfidences(
        ask=lambda rows: target.model.log_probs(rows).exp().float(),
        shape=tuple(x.shape[1:]),
        classes=target.classes,
        bounds=_bounds(x),
    )
    found = Climb(steps=20 if is_quick else 60)(seen, generator=seeded(0))
    low, high = seen.bounds
    # Shown between black and white; which class is the nearest does not change by that.
    shown, rows = ((one - low) / (high - low) for one in (found.view(-1, *rows.shape[1:]), rows))
    return (score_representatives("climbing", shown, rows, y),)


def rebuild_rows(
    job: FederatedJob,
    model: nn.Module,
    members: Side,
    others: Side,
    *,
    picture: tuple[int, ...],
    is_quick: bool,
) -> tuple[tuple[Finding, ...], tuple[str, ...]]:
    """Attack a round of a federated job: every update, or the mean where that is all there is.

    Args:
        job: says what the server sees.
        model: of the first round.
        members: rows of the clients.
        others: rows of nobody, for line-ups.
        picture: height and width of a row that is a picture; empty if it is none.
        is_quick: search less.
    """
    if job.federated.aggregator == "shuffled":
        return (), ("Reconstruction from shuffled reports was not tried.",)
    x, y = members
    is_single = job.federated.aggregator == "plain" and job.privacy.kind in ("none", "central")
    count = _SHOWN if is_single else min(job.federated.clients, _MOST_CLIENTS, len(y))
    rows, rest = (_pictured(side, picture) for side in (x, others[0]))
    target = Round(
        model=nn.Sequential(Shaped(tuple(x.shape[1:])), model),
        rows=rows[:count],
        labels=y[:count],
        others=rest,
        classes=int(torch.cat([y, others[1]]).max()) + 1,
        per_client=1 if is_single else count,
        work=Work(learning_rate=job.train.rate),
        bounds=_bounds(x),
    )
    seen = None if is_single else _mean_of_round(job, target)
    attacks = choose_attacks(target, steps=100 if is_quick else 500)
    del attacks["blind"]  # what it reaches is the others' reference
    if not is_single:
        attacks.pop("Levenberg–Marquardt", None)  # hours, for the rows of all clients at once
    found = tuple(
        audit_round(target, name, attack, defence=None if seen is None else lambda _: seen)
        for name, attack in attacks.items()
    )
    if is_single:
        return found, (_ONE_EACH,)
    threat = replace(found[0].threat, sees=f"the mean over {count} clients, after their noise")
    return tuple(replace(one, threat=threat) for one in found), (_ONE_EACH,)


def _mean_of_round(job: FederatedJob, target: Round) -> tuple[Tensor, ...]:
    """Run one round of the job on single rows; return the mean as a gradient."""
    clients, rate = len(target.labels), target.work.learning_rate
    gradients = [
        do_work(target.model, target.rows[i : i + 1], target.labels[i : i + 1], target.work)
        for i in range(clients)
    ]
    moves = [-rate * torch.cat([part.flatten() for part in one]) for one in gradients]
    config = round_config(job.spec(), len(moves[0]))
    config = replace(config, clients=clients, minimum=max(2, clients // 2))
    updates = [Update(move.numpy().astype(np.float32), 1) for move in moves]
    found = run_one_round(job.federated.aggregator, config, updates, Prg.from_os())
    mean = torch.from_numpy(np.asarray(found.mean))
    parts = torch.split(-mean.float() / rate, [part.numel() for part in gradients[0]])
    return tuple(part.view_as(like) for part, like in zip(parts, gradients[0], strict=True))


def _pictured(x: Tensor, picture: tuple[int, ...] = ()) -> Tensor:
    if x.dim() == 2 and picture:
        return x.view(-1, 1, *picture)
    return x.unsqueeze(1) if x.dim() == 3 else x


def _bounds(x: Tensor) -> tuple[float, float]:
    return float(x.min()), float(x.max())
