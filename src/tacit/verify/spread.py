"""Many rows at once: on the cores of this machine, or on the machines of a Ray cluster."""

import socket
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.errors import ConfigError, DataError
from tacit.verify.box import Domain, balls
from tacit.verify.ensemble import Ensemble, check_rows
from tacit.verify.jit import processor_time
from tacit.verify.search import ANYWHERE, CHUNK_BOXES, Budget, Timed, Verdict, verify_boxes
from tacit.verify.stored import parse_stored, store_ensemble

CHUNK_ROWS = 16
"""Rows that a thread or a machine of a cluster gets at a time."""
CHUNKS_PER_CORE = 2
"""Chunks under way, so that no core waits for the next."""
PATIENCE_S = 5.0
"""For how long a cluster that is named by host and port may take to open the door."""


@dataclass(frozen=True, eq=False)
class Inquiry:
    """What is asked about every row."""

    eps: npt.ArrayLike
    rho: float | None = None
    domain: Domain = ANYWHERE
    budget: Budget | None = None
    """Per row; 60 seconds when not given."""


def verify_each(
    ensemble: Ensemble, rows: npt.ArrayLike, inquiry: Inquiry, *, workers: int = 1
) -> Iterator[Timed]:
    """Verify rows on `workers` threads; answers come in the order of the rows, as they are ready.

    The search leaves Python's lock alone, so threads are enough to use every core.
    """
    if workers < 1:
        raise ConfigError(f"workers must be at least 1, got {workers}")
    inputs = check_rows(ensemble, rows)
    _ = ensemble.index  # made before the threads start, so that it is made once
    if workers == 1:
        for some in _cut(inputs, CHUNK_BOXES):
            yield from _answer(ensemble, some, inquiry)
        return
    pool = ThreadPoolExecutor(workers)
    try:
        chunks = _cut(inputs, CHUNK_ROWS)
        for answers in pool.map(lambda some: list(_answer(ensemble, some, inquiry)), chunks):
            yield from answers
    finally:
        # Whoever stops here does not wait for rows that nobody will read.
        pool.shutdown(cancel_futures=True)


def verify_many(
    ensemble: Ensemble,
    rows: npt.ArrayLike,
    eps: npt.ArrayLike,
    *,
    rho: float | None = None,
    domain: Domain = ANYWHERE,
    budget: Budget | None = None,
    workers: int = 1,
) -> list[Verdict]:
    """Verify every row, on `workers` threads; the budget is per row."""
    inquiry = Inquiry(eps, rho, domain, budget)
    return [one.verdict for one in verify_each(ensemble, rows, inquiry, workers=workers)]


def verify_on_ray(
    ensemble: Ensemble, rows: npt.ArrayLike, inquiry: Inquiry, *, address: str = "auto"
) -> Iterator[Timed]:
    """Verify rows on a Ray cluster; answers come in the order of the rows, as they are ready.

    Tacit must be installed on every machine of the cluster. Rows and model travel unencrypted
    unless the cluster is set up otherwise.

    Args:
        ensemble: the model.
        rows: the inputs.
        inquiry: what is asked about each.
        address: of the cluster; ``local`` starts one on this machine alone.
    """
    inputs = check_rows(ensemble, rows)
    ray = _import_ray()
    is_ours = not ray.is_initialized()
    if is_ours:
        _join(ray, address)
    try:
        yield from _hand_out(ray, store_ensemble(ensemble), inputs, inquiry)
    finally:
        if is_ours:
            ray.shutdown()


def _answer(ensemble: Ensemble, rows: Any, inquiry: Inquiry) -> Iterator[Timed]:
    begun = processor_time()
    try:
        boxes = balls(ensemble, rows, inquiry.eps, inquiry.domain)
    except DataError:
        if len(rows) == 1:
            raise
        # Rows before the one that is refused are answered.
        for at in range(len(rows)):
            yield from _answer(ensemble, rows[at : at + 1], inquiry)
        return
    share = (processor_time() - begun) / len(rows)
    for one in verify_boxes(ensemble, boxes, rho=inquiry.rho, budget=inquiry.budget):
        yield Timed(one.verdict, one.seconds + share, one.inside)


def _cut(inputs: Any, size: int) -> Iterator[Any]:
    return (inputs[start : start + size] for start in range(0, len(inputs), size))


def _hand_out(ray: Any, model: bytes, inputs: Any, inquiry: Inquiry) -> Iterator[Timed]:
    """Keep a few chunks per core under way."""
    handle, task = ray.put(model), ray.remote(_answer_chunk)
    under_way: deque[Any] = deque()
    most = CHUNKS_PER_CORE * max(1, int(ray.cluster_resources().get("CPU", 1)))
    for some in _cut(inputs, CHUNK_ROWS):
        if len(under_way) == most:
            yield from ray.get(under_way.popleft())
        under_way.append(task.remote(handle, some, inquiry))
    while under_way:
        yield from ray.get(under_way.popleft())


def _answer_chunk(model: bytes, inputs: Any, inquiry: Inquiry) -> list[Timed]:
    return list(_answer(_recall(model), np.array(inputs), inquiry))


@lru_cache(maxsize=2)
def _recall(model: bytes) -> Ensemble:
    """Unpack a model once per process of the cluster."""
    return parse_stored(model)


def _join(ray: Any, address: str) -> None:
    _check_reachable(address)
    try:
        ray.init(address=address, include_dashboard=False, log_to_driver=False)
    except ConnectionError as missing:
        raise ConfigError(
            f"there is no Ray cluster at {address!r}; start one with `ray start --head`, "
            "or use the address local"
        ) from missing


def _check_reachable(address: str) -> None:
    """Knock before Ray does: it would go on knocking for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host:
        return  # "local", or "auto": Ray knows where
    try:
        socket.create_connection((host, int(port)), timeout=PATIENCE_S).close()
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"there is no Ray cluster at {address!r}: {error}; start one with "
            "`ray start --head`, or use the address local"
        ) from error


def _import_ray() -> Any:
    try:
        import ray
    except ModuleNotFoundError as missing:
        raise ConfigError(
            "a Ray cluster needs Ray; install it with: pip install 'tacit-ml[fl]'"
        ) from missing
    return ray
