"""What a federated job trains: its rows and its model, as a task that knows no job file."""

import functools
from collections.abc import Sequence
from pathlib import Path

from torch import nn

from tacit.cli.jobs.federated_job import FederatedData, FederatedJob
from tacit.data import Dataset, load_data, load_file, split_dataset
from tacit.data.dataset import split_by_row
from tacit.federated import Shards, Task, build_model, build_stack, divide_rows, join_rows


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
    train, test = _split(_load(data, search), data)
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


def _split(whole: Dataset, data: FederatedData) -> tuple[Dataset, Dataset]:
    if data.set is not None:
        return (
            split_dataset(whole, part="train", test_share=data.test_share),
            split_dataset(whole, part="test", test_share=data.test_share),
        )
    return (
        split_by_row(whole, part="train", test_share=data.test_share),
        split_by_row(whole, part="test", test_share=data.test_share),
    )


def _load(data: FederatedData, search: Sequence[Path]) -> Dataset:
    return load_data(data.set, file=data.file, label=data.label, search=search)
