"""The graph of a masked round: its thresholds against chosen failures, and its shape."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import hypergeom

from support.federated import Cast, make_spec
from tacit.errors import ConfigError
from tacit.federated import Privacy, round_config
from tacit.federated.secagg import (
    Neighbourhood,
    plan_neighbourhood,
    plan_secagg,
    secrecy_bits,
)
from tacit.federated.secagg.graph import holders, share_of
from tacit.federated.secagg.messages import read_roster
from tacit.federated.secagg.sides import plan_from
from tacit.federated.summary import claims_about_updates

RATES = {"drop_rate": 0.1, "colluding_share": 0.1}


def plan(clients, *, server="curious", **changes):
    settings = {"minimum": max(2, int(0.6 * clients)), **RATES, **changes}
    return plan_neighbourhood(clients, server=server, **settings)


@pytest.mark.parametrize("server", ["curious", "malicious"])
def test_up_to_a_hundred_clients_the_graph_is_complete_and_two_lists_have_no_majority(server):
    for clients in range(2, 101):
        near = plan(clients, server=server)
        assert near.neighbours == clients - 1
        assert 2 * near.threshold > clients + share_of(clients, 0.1)


@pytest.mark.parametrize("clients", [101, 1000, 10_000])
def test_a_server_that_may_do_anything_gets_the_complete_graph_at_any_size(clients):
    near = plan(clients, server="malicious")
    assert near.neighbours == clients - 1
    assert math.isinf(secrecy_bits(near, clients, minimum=clients // 2, colluding_share=0.1))


@pytest.mark.parametrize(("clients", "colluding"), [(150, 0.1), (400, 0.05), (1000, 0.1)])
def test_a_ring_holds_for_the_worst_list_as_often_as_it_says(clients, colluding):
    minimum = int(0.6 * clients)
    near = plan(clients, colluding_share=colluding)
    k, t = near.neighbours, near.threshold
    # Nobody is recovered without an honest client on either side, if no side has more colluders:
    most = t - k // 2 - 2
    marked = share_of(clients, colluding)
    failure = clients * hypergeom.sf(most, minimum, marked, k // 2)
    bits = secrecy_bits(near, clients, minimum=minimum, colluding_share=colluding)
    assert failure <= 2.0**-80 * (1 + 1e-6)
    assert failure == pytest.approx(2.0**-bits, rel=1e-6)
    lost = clients * hypergeom.sf(k + 1 - t, clients - 1, clients // 10, k)
    assert lost <= 2.0**-40 * (1 + 1e-6)


def test_the_bits_of_a_ring_planned_for_the_full_list_are_few_for_the_shortest():
    """The neighbourhood of 0.1: 2^-40 was printed, and one list in about 2^16 showed a client."""
    old = Neighbourhood(neighbours=134, threshold=90)
    assert secrecy_bits(old, 1000, minimum=600, colluding_share=0.1) < 20
    assert secrecy_bits(old, 1000, minimum=1000, colluding_share=0.1) < 40


@pytest.mark.parametrize(("clients", "minimum"), [(150, 2), (400, 10), (1000, 50)])
def test_a_ring_counts_all_who_collude_where_fewer_than_they_are_may_be_listed(clients, minimum):
    """As many as the least list has were counted: no failure was claimed, and it was certain."""
    near, marked = plan(clients, minimum=minimum), share_of(clients, 0.1)
    k, most = near.neighbours, near.threshold - near.neighbours // 2 - 2
    shortest = max(minimum, k + 2)  # of a list that is a ring
    assert clients * hypergeom.sf(most, shortest, marked, k // 2) <= 2.0**-80
    # 15 of 38 listed may collude, and more than 2 do on some side of nearly every list.
    old = Neighbourhood(neighbours=36, threshold=22)
    assert secrecy_bits(old, 150, minimum=2, colluding_share=0.1) == 0


def test_a_claim_prints_the_bits_of_its_own_graph():
    wish = Privacy(clip=1.0)
    ring, complete = (
        claims_about_updates(make_spec(clients=n, rounds=1, privacy=wish))[0].assumptions
        for n in (1000, 100)
    )
    near = plan(1000)
    bits = secrecy_bits(near, 1000, minimum=600, colluding_share=0.1)
    assert any(f"2^-{math.floor(bits)}" in one for one in ring)
    assert not any("2^-" in one for one in complete)


def test_a_round_has_the_graph_of_its_own_spec():
    """Of its server, and of the least list that it may have."""
    keys = frozenset(at.to_bytes(32, "big") for at in range(400))
    known = {"keys": keys, "rounds": 1, "privacy": Privacy(clip=1.0)}
    for server, minimum in (("malicious", 240), ("curious", 240), ("curious", 350)):
        spec = make_spec(clients=400, server=server, minimum=minimum, **known)
        near = plan_from(round_config(spec, 1)).neighbourhood
        assert near == plan(400, server=server, minimum=minimum)
    assert plan(400, minimum=240) != plan(400, minimum=350)


def test_the_order_on_the_ring_comes_from_the_keys_of_all():
    """Not from what the server alone chooses."""
    near = Neighbourhood(neighbours=4, threshold=4)
    sum_ = plan_secagg(20, 1, bound=1.0, neighbourhood=near, minimum=5)
    rings = set()
    for _ in range(3):
        cast = Cast(sum_, np.ones((20, sum_.length), sum_.dtype))
        body = b"".join(one.advertise()[9:] for one in cast.clients)
        rings.add(read_roster(sum_, body).ring)
    assert len(rings) == 3


def test_a_graph_grows_slowly():
    assert plan(100_000).neighbours < 2 * plan(1000).neighbours


def test_what_no_graph_withstands_is_refused():
    with pytest.raises(ConfigError, match="lower drop_rate or colluding_share"):
        plan(10, drop_rate=0.4, colluding_share=0.4)
    with pytest.raises(ConfigError, match="drop_rate"):
        plan(10, drop_rate=math.nan)


@given(st.integers(2, 40), st.integers(1, 39))
def test_neighbours_are_mutual(count, neighbours):
    neighbours = min(neighbours - neighbours % 2 or 1, count - 1)
    around = [set(holders(place, count, neighbours)) for place in range(count)]
    assert all((j in around[i]) == (i in around[j]) for i in range(count) for j in range(count))
    assert {len(one) for one in around} == {len(holders(0, count, neighbours))}
    assert np.all([place in around[place] for place in range(count)])
