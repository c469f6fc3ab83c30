"""What a federated job trains: its rows and its model, as a task that knows no job file."""

import functools
from collections.abc import Sequence
from pathlib import Path

from torch import nn

from tacit.data import Rows, Source, load_file
from tacit.data.partition import split, split_by_row
from tacit.federated import Shards, Task, build_model, build_stack, divide_rows, join_rows
from tacit.jobs.federated_job import FederatedData, FederatedJob


def task_of(job: FederatedJob, search: Sequence[Path], *, clients: int | None = None) -> Task:
    """Return what the job trains.

    Args:
        job: the job.
        search: folders that may hold data sets.
        clients: among how many its rows are divided; all of them, if not given. A node's own rows
            are those of one.
    """
    count = job.federated.clients if clients is None else clients
    return Task(
        spec=job.spec(),
        load=functools.partial(load_shards, job.data, count, tuple(search)),
        build=functools.partial(_build, job),
        device=job.train.device,
        drops=job.federated.simulated_drops,
    )


@functools.lru_cache(maxsize=1)
def load_shards(data: FederatedData, clients: int, search: tuple[Path, ...]) -> Shards:
    """Load the rows and divide them; nodes of a simulation share one copy per process."""
    if data.files:
        wholes = [load_file(file, label=data.label) for file in data.files]
        return join_rows([_split(whole, data) for whole in wholes], [*map(str, data.files)])
    source = Source(set=data.set, file=data.file, label=data.label)
    train, test = _split(source.whole(search), data)
    return divide_rows(
        train, test, clients, partition=data.division(), rows=data.rows, seed=data.seed
    )


def _build(job: FederatedJob, shards: Shards) -> nn.Module:
    shape, table = shards.row_shape, job.model
    if table.stack:
        return build_stack(
            table.stack, shape, shards.classes, seed=table.seed, dropout=table.dropout
        )
    return build_model(table.name, shape, shards.classes, seed=table.seed, dropout=table.dropout)


def _split(whole: Rows, data: FederatedData) -> tuple[Rows, Rows]:
    # Of a file, each row decides for itself, so that (ε, δ) for one row of it holds.
    divide = split_by_row if data.set is None else split
    train = divide(whole, part="train", test_share=data.test_share)
    return train, divide(whole, part="test", test_share=data.test_share)
