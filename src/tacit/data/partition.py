"""Divide the rows of a data set among clients: alike, by label shards, or by Dirichlet draws."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tacit.errors import ConfigError, DataError

Rows = NDArray[np.int64]
Labels = NDArray[np.int64]
How = Literal["iid", "shards", "dirichlet"]

_ATTEMPTS = 100


@dataclass(frozen=True, kw_only=True)
class Partition:
    """How rows are divided.

    Attributes:
        how: "iid": everyone gets rows of the same mixture; "shards": rows are sorted by label, cut
            into pieces, and everyone gets ``shards`` of them (McMahan et al. 2017); "dirichlet":
            the clients' shares of each label are drawn from Dirichlet(alpha) (Hsu et al. 2019).
        shards: pieces per client; few make clients that know few labels.
        alpha: small values make clients that differ more.
        least: fewest rows a client may get.
    """

    how: How = "iid"
    shards: int = 2
    alpha: float = 0.5
    least: int = 1

    def __post_init__(self) -> None:
        if self.how not in PARTITIONS:
            raise ConfigError(f"how must be one of {', '.join(PARTITIONS)}, got {self.how!r}")
        if self.shards < 1 or self.least < 1:
            raise ConfigError(
                f"shards and least must be at least 1, got {self.shards} and {self.least}"
            )
        if not 0 < self.alpha < float("inf"):
            raise ConfigError(f"alpha must be positive and finite, got {self.alpha}")


def divide(
    labels: Labels, clients: int, partition: Partition, generator: np.random.Generator
) -> tuple[Rows, ...]:
    """Give every row to exactly one client; return each client's row numbers, sorted.

    Raises:
        ConfigError: no clients.
        DataError: too few rows for everyone to have enough of them.
    """
    if clients < 1:
        raise ConfigError(f"clients must be at least 1, got {clients}")
    if len(labels) < clients * partition.least:
        raise DataError(
            f"{len(labels)} rows cannot give {clients} clients {partition.least} each; "
            "ask for fewer clients"
        )
    parts = PARTITIONS[partition.how](labels, clients, partition, generator)
    return tuple(np.sort(rows) for rows in parts)


def _iid(
    labels: Labels, clients: int, partition: Partition, generator: np.random.Generator
) -> list[Rows]:
    return np.array_split(generator.permutation(len(labels)), clients)


def _shards(
    labels: Labels, clients: int, partition: Partition, generator: np.random.Generator
) -> list[Rows]:
    count = clients * partition.shards
    if len(labels) < count:
        raise DataError(f"{len(labels)} rows cannot be cut into {count} shards")
    shuffled = generator.permutation(len(labels))
    by_label = shuffled[np.argsort(labels[shuffled], kind="stable")]
    pieces = np.array_split(by_label, count)
    order = generator.permutation(count).reshape(clients, partition.shards)
    return [np.concatenate([pieces[at] for at in row]) for row in order]


def _dirichlet(
    labels: Labels, clients: int, partition: Partition, generator: np.random.Generator
) -> list[Rows]:
    for _ in range(_ATTEMPTS):
        parts: list[list[Rows]] = [[] for _ in range(clients)]
        for label in np.unique(labels):
            rows = generator.permutation(np.flatnonzero(labels == label))
            shares = generator.dirichlet(np.full(clients, partition.alpha))
            cuts = np.round(np.cumsum(shares)[:-1] * len(rows)).astype(np.int64)
            for part, piece in zip(parts, np.split(rows, cuts), strict=True):
                part.append(piece)
        joined = [np.concatenate(part) for part in parts]
        if min(map(len, joined)) >= partition.least:
            return joined
    raise DataError(
        f"in {_ATTEMPTS} draws of Dirichlet({partition.alpha:g}) somebody of {clients} clients "
        f"got fewer than {partition.least} rows; raise alpha, or ask for fewer clients"
    )


PARTITIONS: dict[str, Callable[[Labels, int, Partition, np.random.Generator], list[Rows]]] = {
    "iid": _iid,
    "shards": _shards,
    "dirichlet": _dirichlet,
}


def data_generator(seed: int | None = None) -> np.random.Generator:
    """Make a generator for dividing and ordering rows; never for anything that must be secret."""
    return np.random.default_rng(seed)
