"""Federated training under audit: the finished model, and what a round shows of single rows."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import final

import numpy as np
import torch
from torch import Tensor, nn

from tacit.audit.findings import Finding
from tacit.audit.membership import Effort
from tacit.audit.privacy import run_one_round
from tacit.audit.privacy.claims import claim_of_spec, try_federated
from tacit.audit.reconstruction import Round, Work, audit_round, choose_attacks, do_work
from tacit.audit.target import TorchClassifier, code_of, code_of_module
from tacit.audit.targets.own import Build
from tacit.audit.targets.target import (
    Shaped,
    Side,
    Target,
    Tested,
    bounds_of,
    picture_of_set,
    to_pictures,
)
from tacit.audit.views import fresh
from tacit.data.partition import Partition, data_generator, divide
from tacit.errors import ConfigError
from tacit.federated import (
    FederatedSpec,
    Shards,
    Task,
    Update,
    round_config,
    run_rounds,
    train_federated,
)
from tacit.federated.front import task_of
from tacit.ring import KEY_BYTES, Prg

_SHOWN = 8
_MOST_CLIENTS = 40
_ONE_EACH = (
    "Reconstruction is tried on the most exposed clients there are: each holds one row, and takes "
    "one step on it with the model of the first round."
)


@final
@dataclass(frozen=True, kw_only=True)
class FederatedTrainer:
    """Trains together with others, on the local engine, with the rows divided anew.

    Attributes:
        build: makes the module.
        spec: what all sides hold to, and how they train.
        division: how rows are dealt to the clients.
    """

    build: Callable[[], nn.Module]
    spec: FederatedSpec
    division: Partition

    @property
    def recipe(self) -> str:
        """Return the settings that decide the outcome, and the code."""
        spec = self.spec
        parts = (spec.federated, spec.privacy, spec.train, self.division)
        model = code_of_module(fresh(self.build, 0))
        return "\n".join([*map(repr, parts), model, code_of(run_rounds)])

    def __call__(self, x: Tensor, y: Tensor, *, seed: int) -> TorchClassifier:
        """Return the model that the clients end with."""
        parts = divide(y.numpy(), self.spec.federated.clients, self.division, data_generator(seed))
        rows = Shards(x, y, parts, x, y, int(y.max()) + 1)
        spec = replace(
            self.spec,
            federated=replace(self.spec.federated, engine="local"),
            train=replace(self.spec.train, device="cpu"),
        )
        task = Task(spec=spec, load=lambda: rows, build=lambda shards: fresh(self.build, seed))
        prg = Prg(seed.to_bytes(KEY_BYTES, "big", signed=True))
        outcome = train_federated(task, prg=prg)
        trained = fresh(self.build, seed)
        torch.nn.utils.vector_to_parameters(
            torch.from_numpy(outcome.weights).float(), trained.parameters()
        )
        return TorchClassifier(trained)


def target_of_rounds(
    spec: FederatedSpec, search: Sequence[Path] = (), *, rows: int | None = None
) -> Target:
    """Train as the spec says on the rows that it names, and attack a round of it.

    Args:
        spec: where rows come from, and how they are trained on.
        search: folders that may hold data sets.
        rows: at most so many of members, and of strangers; searches are shorter then.

    Raises:
        ConfigError: no rows are named, or there are several models.
    """
    if spec.model.stack:
        raise ConfigError(
            "audit: wanted a job with one model; a stack (model.stack) is not audited"
        )
    if spec.data is None:
        raise ConfigError("audit: wanted [data], which says where rows come from")
    shards = task_of(spec, search).load()
    count = min(len(shards.labels), len(shards.test_labels), rows or len(shards.labels))
    shape = tuple(shards.features.shape[1:])
    trainer = FederatedTrainer(
        build=Build(spec.model.name, shape, shards.classes, spec.model.dropout),
        spec=spec,
        division=spec.data.division(),
    )
    return federated_target(
        trainer,
        (shards.features[:count], shards.labels[:count]),
        (shards.test_features[:count], shards.test_labels[:count]),
        classes=shards.classes,
        picture=picture_of_set(spec.data.set, search),
        is_quick=rows is not None,
    )


def federated_target(
    trainer: FederatedTrainer,
    members: Side,
    others: Side,
    *,
    classes: int,
    picture: tuple[int, ...] = (),
    is_quick: bool = False,
) -> Target:
    """Train as the spec says, and attack a round of it.

    Args:
        trainer: says how it is trained, and what the server sees.
        members: rows of the clients.
        others: rows of nobody.
        classes: how many.
        picture: height and width of a row that is a picture; empty if it is none.
        is_quick: search less.
    """
    rebuilt, notes = rebuild_rows(trainer, members, others, picture=picture, is_quick=is_quick)
    return Target(
        model=trainer(*members, seed=0),
        trainer=trainer,
        members=members,
        non_members=others,
        classes=classes,
        findings=rebuilt,
        notes=notes,
        picture=picture,
        # The target already is what a participant would see.
        threats=("scores", "labels", "shadows", "gradients"),
        put_to_the_test=partial(_try_rounds, trainer.spec),
    )


def _try_rounds(spec: FederatedSpec, effort: Effort) -> Tested:
    claim = claim_of_spec(spec)
    try:
        rounds = try_federated(spec, effort)
    except ConfigError as error:
        note = f"The noise of a round was not put to the test: {error}"
        return Tested(claims=(claim,), notes=(note,))
    return Tested(verdicts=rounds, claims=(claim, *(one.claim for one in rounds)))


def rebuild_rows(
    trainer: FederatedTrainer,
    members: Side,
    others: Side,
    *,
    picture: tuple[int, ...],
    is_quick: bool,
) -> tuple[tuple[Finding, ...], tuple[str, ...]]:
    """Attack a round: every update, or the mean where that is all there is.

    Args:
        trainer: says what the server sees.
        members: rows of the clients.
        others: rows of nobody, for line-ups.
        picture: height and width of a row that is a picture; empty if it is none.
        is_quick: search less.
    """
    spec = trainer.spec
    if spec.federated.aggregator == "shuffled":
        return (), ("Reconstruction from shuffled reports was not tried.",)
    x, y = members
    is_single = not spec.federated.is_split and spec.privacy.kind in ("none", "central")
    count = _SHOWN if is_single else min(spec.federated.clients, _MOST_CLIENTS, len(y))
    rows, rest = (to_pictures(side, picture) for side in (x, others[0]))
    target = Round(
        model=nn.Sequential(Shaped(tuple(x.shape[1:])), fresh(trainer.build, 0)),
        rows=rows[:count],
        labels=y[:count],
        others=rest,
        classes=int(torch.cat([y, others[1]]).max()) + 1,
        per_client=1 if is_single else count,
        work=Work(rate=spec.train.rate),
        bounds=bounds_of(x),
    )
    seen = None if is_single else _mean_of_round(spec, target)
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


def _mean_of_round(spec: FederatedSpec, target: Round) -> tuple[Tensor, ...]:
    """Run one round on single rows; return the mean as a gradient."""
    clients, rate = len(target.labels), target.work.rate
    gradients = [
        do_work(target.model, target.rows[i : i + 1], target.labels[i : i + 1], target.work)
        for i in range(clients)
    ]
    moves = [-rate * torch.cat([part.flatten() for part in one]) for one in gradients]
    config = round_config(spec, len(moves[0]))
    fed = spec.federated
    # Nobody falls silent or works with the server here: what is looked at is the mean.
    few = replace(
        fed,
        clients=clients,
        minimum=max(2, fed.threshold or 0, clients // 2),
        colluding_share=0.0,
        server="curious",
    )
    config = replace(config, spec=replace(spec, federated=few))
    updates = [Update(move.numpy().astype(np.float32), 1) for move in moves]
    found = run_one_round(spec.federated.aggregator, config, updates, Prg.from_os())
    mean = torch.from_numpy(np.asarray(found.mean))
    parts = torch.split(-mean.float() / rate, [part.numel() for part in gradients[0]])
    return tuple(part.view_as(like) for part, like in zip(parts, gradients[0], strict=True))
