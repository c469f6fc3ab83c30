"""Protocols chosen for kinds of functions."""

import pytest
import torch

from support.mpc import ALICE, BOB, CAROL, ROLES, simulate
from tacit.errors import ConfigError
from tacit.mpc import find_protocol, make_plan
from tacit.mpc.registry import spell

VALUES = torch.linspace(-2.0, 2.0, 24, dtype=torch.float64).view(4, 6)


def every_kind(ops):
    x = ops.input("x", owner=ALICE, shape=(4, 6), bound=4.0)
    hidden = ops.layer_norm(ops.relu(x), eps=1e-5)
    return ops.open(ops.softmax(hidden, dim=-1), to=(ALICE,), what="y", why="test")


def plainly(x):
    return torch.softmax(torch.nn.functional.layer_norm(torch.relu(x), (6,)), -1)


MIXTURES = {
    "sealed; activations: permuted3": (CAROL, {"relu"}),
    "permuted3; softmax: sealed": (CAROL, {"relu", "layer_norm"}),
    "sealed; norms: permuted2": (BOB, {"layer_norm"}),
    "permuted3; norms: sealed; softmax: sealed": (CAROL, {"relu"}),
    "sealed; linear: sealed; softmax: permuted3 flips": (CAROL, {"softmax"}),
}


@pytest.mark.parametrize("name", MIXTURES)
def test_functions_of_the_chosen_kinds_are_shown_and_no_others(name):
    viewer, shown = MIXTURES[name]
    run = simulate(every_kind, protocol=name, inputs={ALICE: {"x": VALUES}})
    torch.testing.assert_close(run.values[ALICE], plainly(VALUES), atol=0.01, rtol=0.0)
    seen = [leak for leak in run.leaks[viewer] if leak.kind == "protocol"]
    words = {leak.what.split(":")[0].split(",")[0].removeprefix("the inputs of ") for leak in seen}
    assert {leak.to for leak in seen} == {viewer}
    assert words == shown


@pytest.mark.parametrize("name", MIXTURES)
def test_a_mixture_costs_what_it_says(name):
    run = simulate(every_kind, protocol=name, inputs={ALICE: {"x": VALUES}})
    assert run.metered == run.plan.cost


def test_a_score_that_was_left_to_its_receiver_is_never_shown_later():
    # A sealed sigmoid waits until its result is needed: by then permuted functions are in use.
    def program(ops):
        x = ops.input("x", owner=ALICE, shape=(8,), bound=4.0)
        with ops.family("softmax"):
            p = ops.sigmoid(x)
        return ops.open(ops.relu(ops.sub(p, x)), to=(ALICE,), what="y", why="test")

    x = torch.linspace(-3.0, 3.0, 8, dtype=torch.float64)
    run = simulate(program, protocol="permuted3; softmax: sealed", inputs={ALICE: {"x": x}})
    assert {leak.what for leak in run.leaks[CAROL]} == {"the inputs of relu, in random order"}
    torch.testing.assert_close(
        run.values[ALICE], torch.relu(torch.sigmoid(x) - x), atol=0.005, rtol=0.0
    )


def test_what_is_inside_a_softmax_belongs_to_the_softmax():
    def program(ops):
        ops.softmax(ops.input("x", owner=ALICE, shape=(4, 6), bound=4.0), dim=-1)

    mixed = find_protocol("permuted3; softmax: sealed")
    assert make_plan(program, mixed, ROLES, frac_bits=16).leaks == ()


def test_a_mixture_of_one_protocol_is_that_protocol():
    assert find_protocol("sealed; softmax: sealed") is find_protocol("sealed")
    assert find_protocol("permuted3; norms: permuted3").name == "permuted3"


def test_a_mixture_is_spelled_as_it_is_read():
    name = spell("permuted3", {"softmax": "sealed", "norms": "permuted2 flips"})
    assert find_protocol(name).name == name == "permuted3; norms: permuted2 flips; softmax: sealed"
    assert find_protocol(name).helper_is_online
    assert not find_protocol("sealed; activations: permuted2").helper_is_online


def test_a_mixture_shows_values_to_all_to_whom_one_of_its_protocols_does():
    shows = {"permuted2; norms: permuted3": 2, "sealed; norms: permuted2": 1, "sealed": 0}
    for name, count in shows.items():
        assert len(find_protocol(name).shows_to) == count


def test_the_claims_of_a_mixture_say_for_which_functions_there_is_no_guarantee():
    claims = find_protocol("sealed; activations: permuted3").claims
    without = [claim for claim in claims if claim.guarantee == "no guarantee"]
    assert len(without) == 1
    assert "activations" in without[0].subject
    assert "softmax" not in without[0].subject
    assert any("norms, softmax" in claim.subject for claim in claims)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("sealed; activation: permuted3", "activations, norms, softmax, linear"),
        ("sealed; softmax: sealed; softmax: permuted3", "each once"),
        ("sealed; softmax:", "each once"),
        ("sealed; softmax: open", "unknown protocol 'open'"),
        ("sealed; linear: permuted3", "sealed under every protocol"),
    ],
)
def test_a_mixture_that_cannot_be_is_refused(name, words):
    with pytest.raises(ConfigError, match=words):
        find_protocol(name)
