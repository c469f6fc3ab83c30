import numpy as np
import pytest

from tacit.errors import ConfigError
from tacit.verify import Limits, Sum, quantile_radii
from tacit.verify.constrained import are_kept


def test_relations_are_checked_without_rounding():
    x = np.array([0.1, 0.2])
    # In floats 0.1 + 0.2 > 0.3; as the reals that the floats stand for it is so too.
    assert not are_kept(Limits(sums=(Sum({0: 1.0, 1: 1.0}, high=0.3),)), x, x)
    assert are_kept(Limits(sums=(Sum({0: 1.0, 1: 1.0}, high=0.30000000000000004),)), x, x)


@pytest.mark.parametrize(
    ("limits", "is_kept"),
    [
        (Limits(order=((0, 1),)), True),
        (Limits(order=((1, 0),)), False),
        (Limits(one_hot=((0, 1),)), True),
        (Limits(one_hot=((0,),)), False),
        (Limits(l0=2), True),
        (Limits(l0=1), False),
        (Limits(l1=1.5), True),
        (Limits(l1=1.25), False),
    ],
)
def test_each_limit_is_about_what_it_says(limits, is_kept):
    assert are_kept(limits, np.array([0.5, 0.0]), np.array([0.0, 1.0])) == is_kept


def test_radii_pass_the_share_of_rows_that_was_asked_for():
    rows = np.arange(100.0)[:, None]
    assert quantile_radii(rows, [50.0], 0.1).tolist() == [[10.0], [10.0]]
    assert quantile_radii(rows, [95.0], 0.1).tolist() == [[10.0], [4.0]]
    assert quantile_radii(rows, [50.0], 0.0).tolist() == [[0.0], [0.0]]


def test_radii_are_small_where_the_data_is_dense():
    rows = np.concatenate([np.linspace(0, 1, 90), np.linspace(1, 100, 10)])[:, None]
    below, above = quantile_radii(rows, [0.5], 0.2)
    assert below < 0.3
    assert above < 0.3
    assert quantile_radii(rows, [50.0], 0.05)[0] > 10


def test_radii_refuse_what_has_no_meaning():
    with pytest.raises(ConfigError, match="share"):
        quantile_radii([[0.0]], [0.0], 2.0)
    with pytest.raises(ConfigError, match="shapes"):
        quantile_radii([[0.0, 1.0]], [0.0], 0.1)
