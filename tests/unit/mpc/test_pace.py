"""The estimate of computing: it follows what a plan counts, and stays beside the forecast."""

from dataclasses import replace

from support.mpc import ROLES
from tacit.mpc import find_protocol, make_plan
from tacit.mpc.pace import Pace, _seconds, add_computing, measure_pace


def plan(rows, inner=64, outer=32):
    def program(ops):
        x = ops.input("x", owner=ROLES.first, shape=(rows, inner), bound=1.0)
        w = ops.input("w", owner=ROLES.second, shape=(inner, outer), bound=1.0)
        ops.open(ops.matmul(x, w), to=(ROLES.first,), what="y", why="test")

    return make_plan(program, find_protocol("sealed"), ROLES, frac_bits=12)


def test_products_are_counted_as_multiplications_that_each_party_does_twice():
    alone = Pace(product_s=1.0, word_s=0.0, step_s=0.0)
    assert _seconds(plan(rows=8), alone) == 2 * 8 * 64 * 32


def test_steps_and_words_are_counted_as_they_are_written_in_the_plan():
    found = plan(rows=8)
    assert _seconds(found, Pace(0.0, 0.0, 1.0)) == len(found.steps)
    small, large = (_seconds(plan(rows=rows), Pace(0.0, 1.0, 0.0)) for rows in (8, 16))
    assert small < large < 2 * small  # the weights are the same words


def test_runs_add_up_and_forecasts_with_other_estimates_are_equal():
    found = plan(rows=8)
    forecast = found.forecast()
    once, often = (add_computing(forecast, [(found, times)]) for times in (1, 1000))
    assert forecast.computing_seconds is None
    assert often.computing_seconds > 999 * once.computing_seconds > 0
    assert once == often == forecast  # parties on different machines report one plan
    assert replace(once, plan_hash="x") != once


def test_the_calibration_is_made_once():
    assert measure_pace() is measure_pace()
    assert min(measure_pace().product_s, measure_pace().step_s) > 0
