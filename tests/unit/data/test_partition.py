"""Rows divided among clients: each row once, and as unlike as was asked for."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.data import Partition, divide
from tacit.data.partition import PARTITIONS
from tacit.errors import ConfigError, DataError

LABELS = np.repeat(np.arange(10), 60)


@given(st.sampled_from(sorted(PARTITIONS)), st.integers(1, 30), st.integers(0, 2**32))
def test_every_row_goes_to_exactly_one_client(how, clients, seed):
    parts = divide(LABELS, clients, Partition(how=how), np.random.default_rng(seed))
    assert len(parts) == clients
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(600))
    assert min(map(len, parts)) >= 1


def test_the_same_seed_divides_alike():
    first, second = (divide(LABELS, 7, Partition(), np.random.default_rng(3)) for _ in range(2))
    assert all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))


def test_shards_make_clients_that_know_few_labels():
    parts = divide(LABELS, 20, Partition(how="shards", shards=2), np.random.default_rng(0))
    assert max(len(np.unique(LABELS[rows])) for rows in parts) <= 4


def test_a_small_alpha_makes_clients_that_differ_more():
    def spread(alpha):
        parts = divide(
            LABELS, 10, Partition(how="dirichlet", alpha=alpha), np.random.default_rng(0)
        )
        counts = np.array([np.bincount(LABELS[rows], minlength=10) for rows in parts])
        return (counts / counts.sum(1, keepdims=True)).std(0).mean()

    assert spread(0.1) > 2 * spread(100.0)


def test_what_cannot_be_divided_is_refused():
    with pytest.raises(DataError, match="fewer clients"):
        divide(LABELS[:5], 6, Partition(), np.random.default_rng(0))
    with pytest.raises(DataError, match="raise alpha"):
        divide(
            LABELS,
            100,
            Partition(how="dirichlet", alpha=0.001, least=5),
            np.random.default_rng(0),
        )
    with pytest.raises(ConfigError, match="alpha"):
        Partition(alpha=0.0)
