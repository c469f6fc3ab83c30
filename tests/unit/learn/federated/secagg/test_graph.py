"""The graph of a masked round: its size against simulated failures, and its shape."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import hypergeom

from tacit.errors import ConfigError
from tacit.learn.federated.secagg import plan_neighbourhood
from tacit.learn.federated.secagg.graph import holders


@pytest.mark.parametrize("clients", [60, 100, 1000, 10000])
def test_a_planned_graph_fails_as_rarely_as_asked(clients):
    near = plan_neighbourhood(clients, drop_rate=0.1, colluding_share=0.1)
    k, t = near.neighbours, near.threshold
    marked = clients // 10
    colluding = 2 * t - (k + 1) - 1
    too_many = clients * hypergeom.sf(colluding, clients - 1, marked, k)
    too_few = clients * hypergeom.sf(k - t, clients - 1, marked, k)
    in_parts = clients**2 * 0.2**k if k < clients - 1 else 0.0
    assert too_many + too_few + in_parts <= 2.0**-40 * (1 + 1e-6)


def test_few_clients_get_the_complete_graph():
    near = plan_neighbourhood(10, drop_rate=0.1, colluding_share=0.1)
    assert (near.neighbours, near.threshold) == (9, 6)


def test_a_graph_grows_slowly():
    small = plan_neighbourhood(1000, drop_rate=0.1, colluding_share=0.1)
    large = plan_neighbourhood(100_000, drop_rate=0.1, colluding_share=0.1)
    assert large.neighbours < 2 * small.neighbours


def test_what_no_graph_withstands_is_refused():
    with pytest.raises(ConfigError, match="lower drop_rate or colluding_share"):
        plan_neighbourhood(10, drop_rate=0.4, colluding_share=0.4)
    with pytest.raises(ConfigError, match="drop_rate"):
        plan_neighbourhood(10, drop_rate=math.nan, colluding_share=0.1)


@given(st.integers(2, 40), st.integers(1, 39))
def test_neighbours_are_mutual(count, neighbours):
    neighbours = min(neighbours - neighbours % 2 or 1, count - 1)
    around = [set(holders(place, count, neighbours)) for place in range(count)]
    assert all((j in around[i]) == (i in around[j]) for i in range(count) for j in range(count))
    assert {len(one) for one in around} == {len(holders(0, count, neighbours))}
    assert np.all([place in around[place] for place in range(count)])
