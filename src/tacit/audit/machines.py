"""Shadow models on the machines of a Ray cluster."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import as_completed

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from tacit.cluster import open_cluster

TrainOne = Callable[[Tensor, Tensor, Tensor, int], Tensor]
"""Given rows, labels, a coin and a seed, return a model's outputs on all rows."""

Work = tuple[int, Tensor, int]
"""The number of a model, its coin and its seed."""

Array = npt.NDArray[np.generic]


def train_on_ray(
    train_one: TrainOne, x: Tensor, y: Tensor, work: Sequence[Work], *, address: str
) -> Iterator[tuple[int, Tensor]]:
    """Train models on a Ray cluster and yield their outputs as they are ready.

    Args:
        train_one: trains one model; every machine must have this package.
        x: rows.
        y: labels.
        work: what is trained.
        address: "local" for a cluster of this machine, else where the cluster is; see
            `open_cluster` for what it is trusted with.

    Raises:
        ConfigError: Ray is not installed, or there is no cluster.
        DataError: a machine could not train a model.
    """
    with open_cluster(address) as cluster:
        rows, labels = cluster.share(x.numpy()), cluster.share(y.numpy())
        waiting = {
            cluster.submit(_train_apart, train_one, rows, labels, coin.numpy(), seed): number
            for number, coin, seed in work
        }
        for ready in as_completed(waiting):
            yield waiting[ready], torch.tensor(ready.result())


def _train_apart(train_one: TrainOne, rows: Array, labels: Array, coin: Array, seed: int) -> Array:
    torch.set_num_threads(1)
    # Shared memory of the cluster is read-only, which torch does not like.
    x, y = torch.tensor(rows), torch.tensor(labels)
    found: Array = train_one(x, y, torch.tensor(coin), seed).numpy()
    return found
