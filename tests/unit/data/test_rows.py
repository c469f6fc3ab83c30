from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.data import Rows
from tacit.data import load_dataset as load
from tacit.data import split_dataset as split
from tacit.data.catalogue import power_of_two_at_least
from tacit.data.rows import divided
from tacit.errors import ConfigError, DataError


def make(labels, *, published_test_rows=0):
    rows = len(labels)
    return Rows(
        name="numbers",
        features=np.arange(rows, dtype=np.float64)[:, None],
        labels=np.array(labels, np.int64),
        columns=("row",),
        classes=("0", "1", "2"),
        published_test_rows=published_test_rows,
    )


def rows(dataset):
    return dataset.features[:, 0].astype(int).tolist()


@given(
    st.lists(st.integers(0, 2), min_size=20, max_size=80),
    st.floats(0.2, 0.8),
    st.integers(0, 2**32),
)
def test_the_parts_are_disjoint_complete_in_order_and_keep_their_labels(labels, share, seed):
    dataset = make(labels)
    train = split(dataset, part="train", test_share=share, seed=seed)
    test = split(dataset, part="test", test_share=share, seed=seed)
    assert sorted(rows(train) + rows(test)) == list(range(len(labels)))
    for part in (train, test):
        assert rows(part) == sorted(rows(part))
        assert part.labels.tolist() == [labels[row] for row in rows(part)]


@given(
    st.lists(st.integers(0, 2), min_size=20, max_size=80),
    st.floats(0.2, 0.8),
    st.integers(0, 2**32),
)
def test_every_class_is_divided_in_proportion(labels, share, seed):
    test = split(make(labels), part="test", test_share=share, seed=seed)
    for label in set(labels):
        wanted = share * labels.count(label)
        assert abs((test.labels == label).sum() - wanted) <= 0.5


def test_a_seed_fixes_the_rows_for_all_parties_and_versions():
    wine = load("wine", [])
    test = split(wine, part="test", seed=7)
    assert np.array_equal(test.features, split(wine, part="test", seed=7).features)
    assert not np.array_equal(test.features, split(wine, part="test", seed=8).features)
    assert test.features.shape == (53, 13)
    # A change here changes which rows every user's test figures rest on.
    assert test.unscaled().sum() == pytest.approx(45745.776)


def test_all_is_all():
    dataset = make([0, 1])
    assert split(dataset, part="all", seed=0) is dataset


def test_a_published_test_set_is_used_unless_a_share_is_given():
    dataset = make([0] * 10, published_test_rows=2)
    assert rows(split(dataset, part="test", seed=0)) == [8, 9]
    assert rows(split(dataset, part="train", seed=0)) == list(range(8))
    assert len(rows(split(dataset, part="test", test_share=0.5, seed=0))) == 5
    assert split(dataset, part="train", seed=0).published_test_rows == 0


def test_rows_without_labels_can_be_divided():
    dataset = replace(make([0] * 10), labels=None, classes=())
    test = split(dataset, part="test", seed=0)
    assert len(rows(test)) == 3
    assert test.labels is None


@pytest.mark.parametrize("share", [0.0, 1.0, -0.1, 1.5, float("nan")])
def test_shares_that_are_no_shares_are_refused(share):
    with pytest.raises(ConfigError, match="between 0 and 1"):
        split(make([0, 1]), part="train", test_share=share, seed=0)


def test_another_part_is_refused():
    with pytest.raises(ConfigError, match="'validation'"):
        split(make([0, 1]), part="validation", seed=0)


def test_a_part_without_rows_is_refused():
    with pytest.raises(DataError, match="1 rows, too few"):
        split(make([0]), part="train", seed=0)


def test_labels_and_divisors_that_do_not_fit_the_rows_are_refused():
    with pytest.raises(DataError, match="wanted one label per row, 2"):
        replace(make([0, 1]), labels=np.zeros(3, np.int64))
    for scale in (np.ones(2), np.ones(())):
        with pytest.raises(DataError, match="wanted one divisor per feature"):
            divided(make([0, 1]).features, scale)


def test_columns_left_out_take_their_divisors_along():
    wide = Rows(features=np.ones((2, 3)), columns=("a", "b", "c"), scale=(1.0, 2.0, 4.0))
    narrow = wide.without("b")
    assert (narrow.columns, narrow.scale) == (("a", "c"), (1.0, 4.0))
    assert narrow.unscaled().tolist() == [[1, 4], [1, 4]]
    assert wide.without("d") is wide


def test_rows_are_taken_with_labels_and_ids_in_the_order_given():
    some = replace(make([0, 1, 2]), ids=("a", "b", "c")).take([2, 0])
    assert (rows(some), some.labels.tolist(), some.ids) == ([2, 0], [2, 0], ("c", "a"))
    assert len(some.take(slice(0, 1))) == 1


def test_the_representation_shows_no_rows():
    assert repr(make([0, 1])) == "Rows('numbers', features of shape (2, 1), 3 classes)"


@given(st.floats(2.0**-40, 2.0**40) | st.integers(-40, 40).map(lambda at: 2.0**at))
def test_the_power_of_two_is_the_smallest_that_is_enough(bound):
    power = power_of_two_at_least(bound)
    assert power / 2 < bound <= power
    assert np.log2(power) == round(np.log2(power))
