"""Many rows at once: on the cores of this machine, or on the machines of a Ray cluster."""

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from tacit.cluster import RayExecutor, open_cluster
from tacit.errors import ConfigError, DataError
from tacit.verify.box import Domain, balls
from tacit.verify.kernels.clock import processor_time
from tacit.verify.kernels.tables import Reals
from tacit.verify.models.ensemble import Ensemble, check_rows
from tacit.verify.models.load import parse_stored, store_ensemble
from tacit.verify.robustness import CHUNK_BOXES, verify_boxes
from tacit.verify.verdict import ANYWHERE, Budget, Timed, Verdict

CHUNK_ROWS = 16
"""Reals that a thread or a machine of a cluster gets at a time."""
CHUNKS_PER_CORE = 2
"""Chunks under way, so that no core waits for the next."""


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

    Tacit must be installed on every machine of the cluster. Reals and model travel unencrypted
    unless the cluster is set up otherwise.

    Args:
        ensemble: the model.
        rows: the inputs.
        inquiry: what is asked about each.
        address: of the cluster; ``local`` starts one on this machine alone.
    """
    inputs = check_rows(ensemble, rows)
    with open_cluster(address) as cluster:
        yield from _hand_out(cluster, store_ensemble(ensemble), inputs, inquiry)


def _answer(ensemble: Ensemble, rows: Reals, inquiry: Inquiry) -> Iterator[Timed]:
    begun = processor_time()
    try:
        boxes = balls(ensemble, rows, inquiry.eps, inquiry.domain)
    except DataError:
        if len(rows) == 1:
            raise
        # Reals before the one that is refused are answered.
        for at in range(len(rows)):
            yield from _answer(ensemble, rows[at : at + 1], inquiry)
        return
    share = (processor_time() - begun) / len(rows)
    for one in verify_boxes(ensemble, boxes, rho=inquiry.rho, budget=inquiry.budget):
        yield Timed(one.verdict, one.seconds + share, one.inside)


def _cut(inputs: Reals, size: int) -> Iterator[Reals]:
    return (inputs[start : start + size] for start in range(0, len(inputs), size))


def _hand_out(
    cluster: RayExecutor, model: bytes, inputs: Reals, inquiry: Inquiry
) -> Iterator[Timed]:
    """Keep a few chunks per core under way."""
    shared = cluster.share(model)
    under_way: deque[Future[list[Timed]]] = deque()
    most = CHUNKS_PER_CORE * cluster.cores
    for some in _cut(inputs, CHUNK_ROWS):
        if len(under_way) == most:
            yield from under_way.popleft().result()
        under_way.append(cluster.submit(_answer_chunk, shared, some, inquiry))
    while under_way:
        yield from under_way.popleft().result()


def _answer_chunk(model: bytes, inputs: Reals, inquiry: Inquiry) -> list[Timed]:
    return list(_answer(_recall(model), np.array(inputs), inquiry))


@lru_cache(maxsize=2)
def _recall(model: bytes) -> Ensemble:
    """Unpack a model once per process of the cluster."""
    return parse_stored(model)
