"""Shadow models on the machines of a Ray cluster."""

import logging
import socket
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from tacit.errors import ConfigError, DataError

TrainOne = Callable[[Tensor, Tensor, Tensor, int], Tensor]
"""Given rows, labels, a coin and a seed, return a model's outputs on all rows."""

Work = tuple[int, Tensor, int]
"""The number of a model, its coin and its seed."""

LOCAL = "local"
_PATIENCE_S = 5.0


def train_on_ray(
    train_one: TrainOne, x: Tensor, y: Tensor, work: Sequence[Work], *, address: str
) -> Iterator[tuple[int, Tensor]]:
    """Train models on a Ray cluster and yield their outputs as they are ready.

    Rows and trainer are sent to the cluster in Ray's own form, which its machines unpack as code:
    use one that you trust with the data.

    Args:
        train_one: trains one model; every machine must have this package.
        x: rows.
        y: labels.
        work: what is trained.
        address: "local" for a cluster of this machine, else where the cluster is.

    Raises:
        ConfigError: Ray is not installed, or there is no cluster.
        DataError: a machine could not train a model.
    """
    ray = _load_ray()
    _check_reachable(address)
    where = None if address == LOCAL else address
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # about its own future settings
            ray.init(address=where, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise ConfigError(f"no Ray cluster at {address!r}: {error}") from error
    try:
        yield from _train(ray, train_one, x, y, work)
    except ray.exceptions.RayTaskError as error:
        raise DataError(
            f"a shadow model could not be trained on {address}: {error.cause}"
        ) from None
    finally:
        ray.shutdown()


# Ray is untyped, hence Any.
def _train(
    ray: Any, train_one: TrainOne, x: Tensor, y: Tensor, work: Sequence[Work]
) -> Iterator[tuple[int, Tensor]]:
    @ray.remote(num_cpus=1)  # type: ignore[untyped-decorator]
    def train_apart(rows: Any, labels: Any, coin: Any, seed: int) -> Any:
        torch.set_num_threads(1)
        # Shared memory of the cluster is read-only, which torch does not like.
        x, y = torch.tensor(rows), torch.tensor(labels)
        return train_one(x, y, torch.tensor(coin), seed).numpy()

    rows, labels = ray.put(x.numpy()), ray.put(y.numpy())
    waiting = {
        train_apart.remote(rows, labels, coin.numpy(), seed): number for number, coin, seed in work
    }
    while waiting:
        (ready,), _ = ray.wait(list(waiting), num_returns=1)
        yield waiting.pop(ready), torch.tensor(ray.get(ready))


def _check_reachable(address: str) -> None:
    """Knock before Ray does: it would go on knocking for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host:
        return  # "local", or "auto": Ray knows where
    try:
        socket.create_connection((host, int(port)), timeout=_PATIENCE_S).close()
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"no Ray cluster at {address!r}: {error}; start one with: ray start --head"
        ) from error


def _load_ray() -> Any:
    try:
        import ray
    except ModuleNotFoundError:
        raise ConfigError(
            "shadow models on several machines need Ray; run: pip install 'tacit-ml[fl]'"
        ) from None
    return ray
