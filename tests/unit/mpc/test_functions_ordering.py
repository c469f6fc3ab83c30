"""The sorting network sorts: by the zero-one principle it is enough to try bits."""

from itertools import product

import pytest

from tacit.mpc.functions.ordering import network, pruned


def run(stages, values):
    values = list(values)
    for stage in stages:
        for i, j in stage:
            values[i], values[j] = max(values[i], values[j]), min(values[i], values[j])
    return values


@pytest.mark.parametrize("length", range(1, 11))
def test_every_sequence_of_bits_is_sorted(length):
    for bits in product((0, 1), repeat=length):
        assert run(network(length), bits) == sorted(bits, reverse=True)


@pytest.mark.parametrize(("length", "count"), [(9, 1), (9, 3), (8, 2)])
def test_a_pruned_network_finds_the_largest_with_fewer_comparisons(length, count):
    for bits in product((0, 1), repeat=length):
        wanted = sorted(bits, reverse=True)[:count]
        assert run(pruned(length, count), bits)[:count] == wanted
    whole = sum(len(stage) for stage in network(length))
    assert sum(len(stage) for stage in pruned(length, count)) < whole


def test_the_largest_alone_takes_as_many_comparisons_as_a_tournament():
    assert sum(len(stage) for stage in pruned(16, 1)) == 15
