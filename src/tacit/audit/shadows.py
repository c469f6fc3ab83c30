"""Shadow models: many trained like the target, kept on disk by what decides their outcome."""

import hashlib
import os
import secrets
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from pickle import PicklingError  # noqa: TID251  the name of the error only; nothing is read
from typing import final
from zipfile import BadZipFile

import numpy as np
import torch
from torch import Tensor

from tacit.audit.target import Trainer
from tacit.cluster import open_cluster
from tacit.errors import ConfigError

Report = Callable[[int, int], None]
"""Told how many shadow models are ready, of how many."""


@final
@dataclass(frozen=True, kw_only=True)
class Fleet:
    """How shadow models are trained: settings that change the time, never the outcome.

    Attributes:
        cache: a folder to keep outputs in, so that an interrupted audit goes on; None keeps none.
        workers: processes that train side by side.
        ray: "local" or the address of a Ray cluster, to train on its machines instead.
        report: told after every model.
    """

    cache: Path | None = None
    workers: int = 1
    ray: str | None = None
    report: Report = lambda done, total: None

    def __post_init__(self) -> None:
        if self.workers < 1:
            raise ConfigError(f"workers must be 1 or more, got {self.workers}")


def toss(rows: int, models: int, *, generator: torch.Generator) -> Tensor:
    """Return (models, rows) coins: every record is in exactly half of the models.

    Raises:
        ConfigError: the number of models is not even, so that half of them cannot hold a record.
    """
    if models < 2 or models % 2:
        raise ConfigError(f"wanted an even number of shadow models, 2 or more, got {models}")
    keys = torch.empty(models, rows).uniform_(generator=generator)
    return keys.argsort(dim=0).argsort(dim=0) < models // 2


def train_shadows(
    trainer: Trainer, x: Tensor, y: Tensor, coins: Tensor, *, seed: int, fleet: Fleet
) -> Tensor:
    """Train a model per row of `coins` on the records it holds; return all outputs.

    Every model's outputs are written to the cache as soon as it is ready, under a hash of the
    trainer's code and settings, the data, the coins and the seed: the next run reads them.

    Returns:
        (models, rows, classes) logarithms of probabilities on all records.
    """
    seeds = [seed + 1 + number for number in range(len(coins))]
    base = _digest(trainer.recipe.encode(), _bytes(x), _bytes(y))
    keys = [_digest(base, _bytes(coin), str(own)) for coin, own in zip(coins, seeds, strict=True)]
    found: dict[int, Tensor] = {}
    for number, key in enumerate(keys):
        kept = _read(fleet.cache, key)
        if kept is not None:
            found[number] = kept
    missing = [number for number in range(len(coins)) if number not in found]
    fleet.report(len(found), len(coins))
    for number, outputs in _train(trainer, x, y, coins, seeds, missing, fleet):
        _write(fleet.cache, keys[number], outputs)
        found[number] = outputs
        fleet.report(len(found), len(coins))
    return torch.stack([found[number] for number in range(len(coins))])


def _train(
    trainer: Trainer,
    x: Tensor,
    y: Tensor,
    coins: Tensor,
    seeds: Sequence[int],
    missing: Sequence[int],
    fleet: Fleet,
) -> Iterator[tuple[int, Tensor]]:
    if fleet.ray is not None and missing:
        _check_travels(trainer)
        work = [(number, coins[number], seeds[number]) for number in missing]
        yield from _train_on_ray(trainer, x, y, work, address=fleet.ray)
        return
    if fleet.workers == 1 or len(missing) < 2:
        for number in missing:
            yield number, train_one(trainer, x, y, coins[number], seeds[number])
        return
    _check_travels(trainer)
    with ProcessPoolExecutor(fleet.workers, get_context("spawn"), _start_worker) as pool:
        jobs: dict[Future[np.ndarray], int] = {
            pool.submit(
                _train_apart, trainer, x.numpy(), y.numpy(), coins[number].numpy(), seeds[number]
            ): number
            for number in missing
        }
        try:
            for job in as_completed(jobs):
                yield jobs[job], torch.from_numpy(job.result())
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _check_travels(trainer: Trainer) -> None:
    """Refuse what cannot be sent to a process of ours, before any is started."""
    try:
        ForkingPickler.dumps(trainer)
    except (AttributeError, TypeError, PicklingError) as error:
        raise ConfigError(
            f"this trainer cannot be sent to other processes ({error}); build the model in a "
            "function of a module, or train with one worker"
        ) from error


def train_one(trainer: Trainer, x: Tensor, y: Tensor, coin: Tensor, seed: int) -> Tensor:
    """Train one model on the records of a coin and return its outputs on all."""
    return trainer(x[coin], y[coin], seed=seed).log_probs(x).float()


def _start_worker() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends a worker amid a model, wordlessly


def _train_on_ray(
    trainer: Trainer,
    x: Tensor,
    y: Tensor,
    work: Sequence[tuple[int, Tensor, int]],
    *,
    address: str,
) -> Iterator[tuple[int, Tensor]]:
    """Train models, each a number, a coin and a seed, on a Ray cluster; every machine has tacit."""
    with open_cluster(address) as cluster:
        rows, labels = cluster.share(x.numpy()), cluster.share(y.numpy())
        waiting = {
            cluster.submit(_train_apart, trainer, rows, labels, coin.numpy(), seed): number
            for number, coin, seed in work
        }
        for ready in as_completed(waiting):
            yield waiting[ready], torch.tensor(ready.result())


def _train_apart(
    trainer: Trainer, x: np.ndarray, y: np.ndarray, coin: np.ndarray, seed: int
) -> np.ndarray:
    torch.set_num_threads(1)
    # Copied: shared memory of a cluster is read-only, which torch does not like.
    rows, labels, inside = (torch.tensor(part) for part in (x, y, coin))
    return train_one(trainer, rows, labels, inside, seed).numpy()


def _read(cache: Path | None, key: str) -> Tensor | None:
    if cache is None:
        return None
    try:
        with (cache / f"{key}.npz").open("rb") as file, np.load(file, allow_pickle=False) as kept:
            return torch.from_numpy(kept["outputs"])
    except (OSError, ValueError, KeyError, EOFError, BadZipFile):
        return None  # not there, or cut off while it was written: it is trained again


def _write(cache: Path | None, key: str, outputs: Tensor) -> None:
    if cache is None:
        return
    try:
        cache.mkdir(parents=True, exist_ok=True, mode=0o700)
        part = cache / f".{key}.{secrets.token_hex(4)}.npz"
        np.savez(part, outputs=outputs.numpy())
        os.replace(part, cache / f"{key}.npz")
    except OSError as error:
        raise ConfigError(f"{cache}: cannot keep shadow models there: {error.strerror}") from error


def _bytes(values: Tensor) -> bytes:
    array = np.ascontiguousarray(values.cpu().numpy())
    return f"{array.dtype}{array.shape}".encode() + array.tobytes()


def _digest(*parts: bytes | str) -> str:
    digest = hashlib.sha256()
    for part in parts:
        raw = part.encode() if isinstance(part, str) else part
        digest.update(len(raw).to_bytes(8, "big"))
        digest.update(raw)
    return digest.hexdigest()
