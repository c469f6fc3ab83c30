"""Divide rows: among clients, alike, by label shards or by Dirichlet draws; into train and test."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tacit.data.rows import Labels, Rows
from tacit.errors import ConfigError, DataError

Places = NDArray[np.int64]
"""Of rows, in the order of a set."""
How = Literal["iid", "shards", "dirichlet"]

Part = Literal["train", "test", "all"]
PARTS: tuple[Part, ...] = ("train", "test", "all")
USUAL_TEST_SHARE = 0.3
PUBLIC_SEED = 0
"""Of choices that all parties make alike, such as which rows of a public set are tested on."""
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
) -> tuple[Places, ...]:
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
) -> list[Places]:
    return np.array_split(generator.permutation(len(labels)), clients)


def _shards(
    labels: Labels, clients: int, partition: Partition, generator: np.random.Generator
) -> list[Places]:
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
) -> list[Places]:
    for _ in range(_ATTEMPTS):
        parts: list[list[Places]] = [[] for _ in range(clients)]
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


PARTITIONS: dict[str, Callable[[Labels, int, Partition, np.random.Generator], list[Places]]] = {
    "iid": _iid,
    "shards": _shards,
    "dirichlet": _dirichlet,
}


def data_generator(seed: int | None = None) -> np.random.Generator:
    """Make a generator for dividing and ordering rows; never for anything that must be secret."""
    return np.random.default_rng(seed)


def split(
    rows: Rows, *, part: Part, test_share: float | None = None, seed: int = PUBLIC_SEED
) -> Rows:
    """Take the rows to train on, those to test on, or all.

    The same seed gives the same rows to every party. Each class is divided in the same
    proportion; the order of the rows is kept.

    Args:
        rows: what to divide.
        part: which rows to take.
        test_share: the share of the rows to test on. If not given, the published test set where
            there is one, else 0.3.
        seed: of the generator that chooses.

    Raises:
        ConfigError: another part, or a share that is not between 0 and 1.
        DataError: a part would be empty.
    """
    if part not in PARTS:
        raise ConfigError(f"wanted one of {', '.join(PARTS)} as the part of the data, got {part!r}")
    if test_share is not None and not 0 < test_share < 1:
        raise ConfigError(f"wanted a test share between 0 and 1, got {test_share}")
    if part == "all":
        return rows
    is_test = _test_rows(rows, test_share, seed)
    _check_parts(rows, is_test)
    return rows.take(np.flatnonzero(is_test if part == "test" else ~is_test))


def split_by_row(rows: Rows, *, part: Part, test_share: float | None = None) -> Rows:
    """Take the rows to train on or those to test on, each by what the row itself holds.

    A row more or less changes nothing for the others, as it would with `split`: what is promised
    about one row of those to train on then holds for one row of the file. Equal rows are told apart
    by their number.

    Raises:
        DataError: a part would be empty.
    """
    if part == "all":
        return rows
    share = USUAL_TEST_SHARE if test_share is None else test_share
    seen: dict[bytes, int] = {}
    is_test = np.zeros(len(rows), bool)
    labels = _classes_of(rows)
    for at, (row, label) in enumerate(zip(rows.unscaled(), labels, strict=True)):
        held = row.tobytes() + int(label).to_bytes(8, "little", signed=True)
        seen[held] = seen.get(held, 0) + 1
        drawn = hashlib.sha256(held + seen[held].to_bytes(8, "little")).digest()
        is_test[at] = int.from_bytes(drawn[:8]) < share * 2.0**64
    _check_parts(rows, is_test)
    return rows.take(np.flatnonzero(is_test if part == "test" else ~is_test))


def _check_parts(rows: Rows, is_test: NDArray[np.bool_]) -> None:
    if is_test.all() or not is_test.any():
        raise DataError(
            f"data set {rows.name!r} has {len(is_test)} rows, too few for a part to train on "
            "and one to test on"
        )


def _test_rows(rows: Rows, test_share: float | None, seed: int) -> NDArray[np.bool_]:
    count = len(rows)
    if test_share is None and rows.published_test_rows:
        return np.arange(count) >= count - rows.published_test_rows
    share = USUAL_TEST_SHARE if test_share is None else test_share
    labels = _classes_of(rows)
    generator = np.random.default_rng(seed)
    is_test = np.zeros(count, bool)
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        wanted = round(share * members.size)
        is_test[generator.permutation(members)[:wanted]] = True
    return is_test


def _classes_of(rows: Rows) -> NDArray[np.int64]:
    """Return the class of every row; one class for all where there are none."""
    return np.zeros(len(rows), np.int64) if rows.labels is None else rows.labels
