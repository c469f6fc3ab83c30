"""Updates as whole numbers: unbiased, bounded, and a sum that cannot wrap."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.errors import ConfigError, DataError, RangeError
from tacit.federated.secagg import Neighbourhood, dequantise, plan_secagg, quantise
from tacit.federated.secagg.plan import from_wire, to_wire
from tacit.ring import Prg

NEAR = Neighbourhood(neighbours=4, threshold=3)


def make(clients=5, dimension=4, **options):
    return plan_secagg(clients, dimension, bound=2.0, neighbourhood=NEAR, minimum=2, **options)


@given(
    st.integers(2, 300),
    st.sampled_from([2, 3, 4, 6, 8]),
    st.sampled_from([-2.0, 2.0]),
    st.integers(0, 2**24 - 1),
)
def test_the_sum_of_extreme_updates_does_not_wrap(clients, word_bytes, value, weight):
    plan = make(clients, word_bytes=word_bytes)
    words = quantise(plan, np.full(4, value), weight=weight, prg=Prg(bytes(16)))
    total = np.zeros_like(words)
    for _ in range(clients):
        total += words
    values, weights = dequantise(plan, total)
    assert np.allclose(values, clients * value, atol=clients / plan.scale)
    assert weights == clients * weight


def test_rounding_has_no_bias():
    plan = make(clients=3, dimension=40000, word_bytes=2)
    x = np.full(40000, 0.3 / plan.scale)
    values, _ = dequantise(plan, quantise(plan, x, prg=Prg(bytes(16))))
    # 0.3 of the values round up; five standard deviations of the share: 1e-6 false alarms.
    assert abs((values * plan.scale).mean() - 0.3) < 5 * (0.21 / 40000) ** 0.5


def test_an_update_that_is_not_finite_is_refused():
    with pytest.raises(DataError, match="1 values that are no finite numbers"):
        quantise(make(), np.array([0.0, np.nan, 1.0, 0.0]), prg=Prg.from_os())


def test_an_update_above_its_bound_is_refused():
    with pytest.raises(RangeError, match="beyond its bound 2 in 1 places"):
        quantise(make(), np.array([0.0, 2.1, 1.0, 0.0]), prg=Prg.from_os())


def test_an_update_of_another_length_is_refused():
    with pytest.raises(DataError, match="4 numbers"):
        quantise(make(), np.zeros(5), prg=Prg.from_os())


def test_words_too_narrow_for_the_clients_are_refused():
    with pytest.raises(ConfigError, match="use wider words"):
        make(clients=5000, word_bytes=2)


@pytest.mark.parametrize("word_bytes", [2, 3, 4, 7, 8])
def test_words_survive_the_wire(word_bytes):
    plan = make(word_bytes=word_bytes)
    words = quantise(plan, np.array([0.5, -0.5, 2.0, -2.0]), weight=7, prg=Prg(bytes(16)))
    low = plan.dtype.type(2 ** (8 * word_bytes) - 1)
    wire = to_wire(plan, words)
    assert len(wire) == plan.upload_bytes == word_bytes * plan.length
    assert np.array_equal(from_wire(plan, wire) & low, words & low)


def test_a_million_parameters_cost_at_most_4_2_bytes_each():
    assert make(clients=1000, dimension=10**6).upload_bytes <= 4.2e6
