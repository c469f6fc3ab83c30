"""Flipped signs and dummies."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tacit.errors import ConfigError
from tacit.mpc.functions.curves import ELEMENTWISE
from tacit.mpc.permuted.hiding import (
    SYMMETRIES,
    FlipsAndDummies,
    flip,
    read_flips_and_dummies,
    unflip,
)
from tacit.mpc.permuted.view import ROWWISE, EachValue
from tacit.mpc.share import Spec
from tacit.ring import Prg

KEY = bytes(16)
X = Spec.of(shape=(500,), frac_bits=16, bound=8.0)


@pytest.mark.parametrize("name", SYMMETRIES)
def test_a_symmetry_is_one(name):
    symmetry, x = SYMMETRIES[name], torch.linspace(-9, 8, 1000, dtype=torch.float64)
    f = (
        ELEMENTWISE[name].plain
        if name in ELEMENTWISE
        else lambda row: ROWWISE[name].plain(row, 1e-5)
    )
    undone = symmetry.scale * f(-x) + symmetry.slope * x + symmetry.constant
    assert torch.allclose(undone, f(x), atol=1e-12)


@pytest.mark.parametrize("name", SYMMETRIES)
@given(data=st.data())
def test_shares_of_a_flipped_result_add_up_to_the_result(name, data):
    word = st.integers(-(2**40), 2**40)
    x0, x1, y0, y1, sign = (
        torch.tensor([data.draw(part)])
        for part in (word, word, word, word, st.sampled_from((0, -1)))
    )
    symmetry, one = SYMMETRIES[name], 1 << 16
    left = unflip(y0, x0, sign, symmetry=symmetry, one=one)
    right = unflip(y1, x1, sign, symmetry=symmetry, one=0)
    wanted = y0 + y1
    if sign:
        wanted = symmetry.scale * wanted + symmetry.slope * (x0 + x1) + symmetry.constant * one
    assert torch.equal(left + right, wanted)
    assert torch.equal(flip(x0, sign) + flip(x1, sign), -(x0 + x1) if sign else x0 + x1)


@pytest.mark.parametrize(("name", "sign"), [("exp", -1), ("log", 1), ("rsqrt", 1)])
def test_dummies_have_the_sign_that_arguments_have(name, sign):
    drawn = FlipsAndDummies(dummies=200).draw_dummies(Prg(KEY), EachValue(name, 16), X)
    assert bool((drawn * sign >= 0).all())


def test_dummies_stay_within_the_bound_of_the_values():
    drawn = FlipsAndDummies(dummies=5000, reach=1e9).draw_dummies(
        Prg(KEY), EachValue("tanh", 16), X
    )
    assert int(drawn.abs().max()) <= X.largest
    assert int(drawn.abs().max()) > X.largest // 4


def test_without_options_nothing_is_drawn_and_nothing_said():
    plain, view = FlipsAndDummies(), EachValue("tanh", 16)
    assert len(plain.draw_signs(Prg(KEY), view, X)) == 0
    assert len(plain.draw_dummies(Prg(KEY), view, X)) == 0
    assert plain.label(view, X) == view.label
    assert plain.spelling() == plain.assumptions() == ()


@pytest.mark.parametrize(
    "hiding",
    [
        FlipsAndDummies(),
        FlipsAndDummies(flips=True),
        FlipsAndDummies(dummies=3, reach=0.5),
        FlipsAndDummies(flips=True, dummies=9),
    ],
)
def test_what_is_spelled_is_read_again(hiding):
    assert read_flips_and_dummies(hiding.spelling()) == hiding


@pytest.mark.parametrize("reach", [0.0, -1.0, float("inf"), float("nan")])
def test_a_reach_that_is_no_size_is_refused(reach):
    with pytest.raises(ConfigError, match="reach"):
        FlipsAndDummies(dummies=1, reach=reach)
