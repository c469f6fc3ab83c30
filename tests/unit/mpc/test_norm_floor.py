"""Which rows are too short for a norm: a plan names the length below which they come out wrong."""

import pytest
import torch
from torch import nn
from torch.nn import functional

import tacit
from support.mpc import ALICE, simulate

EPS = 1e-5
WIDTH = 20


def rms_norm(x):
    return functional.rms_norm(x, (WIDTH,), eps=EPS)


def layer_norm(x):
    return functional.layer_norm(x, (WIDTH,), eps=EPS)


def rows(ops, x, bound, *, centred):
    return ops.norm_rows(x, eps=EPS, length=bound * WIDTH**0.5, centred=centred)


KINDS = {
    "layer_norm": (lambda ops, x, bound: ops.layer_norm(x, eps=EPS), layer_norm),
    "rms_norm": (lambda ops, x, bound: ops.rms_norm(x, eps=EPS), rms_norm),
    "rows, centred": (lambda ops, x, bound: rows(ops, x, bound, centred=True), layer_norm),
    "rows": (lambda ops, x, bound: rows(ops, x, bound, centred=False), rms_norm),
}


def run(private, x, bound, protocol="sealed"):
    def program(ops):
        secret = ops.input("x", owner=ALICE, shape=tuple(x.shape), bound=bound)
        return ops.open(private(ops, secret, bound), to=(ALICE,), what="f(x)", why="test")

    found = simulate(program, protocol=protocol, inputs={ALICE: {"x": x}})
    return found.values[ALICE], found.plan


@pytest.mark.parametrize("protocol", ["sealed", "checked"])
@pytest.mark.parametrize("bound", [16.0, 128.0, 1000.0])
@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_wrong_below_what_the_plan_names_and_right_from_there_on(kind, bound, protocol):
    private, plain = KINDS[kind]
    x = torch.randn((30, WIDTH), generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    x = x - x.mean(-1, keepdim=True)
    x = x / x.square().mean(-1, keepdim=True).sqrt()
    _, plan = run(private, 0 * x, bound, protocol)
    least = plan.least_mean_square**0.5
    assert f"less than {least:.2g}" in plan.notes()[0]
    assert plan.forecast().notes == plan.notes()
    for factor, is_right in ((0.7, False), (1.05, True), (3.0, True)):
        given = (x * least * factor * 2**16).round() / 2**16
        got, _ = run(private, given, bound, protocol)
        off = float((got - plain(given)).abs().max())
        assert off < 0.015 if is_right else off > 0.2


def test_where_eps_is_larger_or_a_party_sees_rows_nothing_is_too_short():
    private, _ = KINDS["layer_norm"]
    x = torch.zeros((2, WIDTH), dtype=torch.float64)
    assert run(private, x, 1.0)[1].notes() == ()
    assert run(private, x, 1000.0, "permuted3")[1].notes() == ()


def test_a_model_with_norms_says_in_forecast_and_answer_which_rows_are_too_short():
    module = nn.Sequential(nn.Linear(4, 6), nn.LayerNorm(6)).eval()
    private = tacit.secure(module, protocol="sealed", bound=64.0)
    (note,) = private.forecast((3, 4)).notes
    assert "too small, unnoticed" in note
    assert note in private(torch.ones(3, 4)).result.notes


@pytest.mark.parametrize("kind", ["layer_norm", "rms_norm"])
@pytest.mark.parametrize("bound", [2.0**-6, 2.0**-3, 1.0])
def test_short_rows_in_range_are_right_without_an_eps_that_hides_them(kind, bound):
    """The sum of their squares was cut to zero first: a value was 733 where 5 was stated."""
    norm = {"layer_norm": lambda ops, x: ops.layer_norm(x, eps=1e-12)}
    norm["rms_norm"] = lambda ops, x: ops.rms_norm(x, eps=1e-12)
    signs = torch.tensor([1.0, -1.0], dtype=torch.float64).repeat(WIDTH // 2)
    sizes = bound * 2.0 ** -torch.arange(5, dtype=torch.float64)
    got, plan = run(lambda ops, x, bound: norm[kind](ops, x), sizes[:, None] * signs, bound)
    assert plan.least_mean_square < float(sizes[-1]) ** 2
    assert float((got - signs).abs().max()) < 0.015
