"""Numbers beyond a stated bound are noticed: weights when a service starts, rows at the client."""

import numpy as np
import pytest
import torch

from support.mpc import MEETING, PARTIES, ROLES, by_size
from tacit import ring
from tacit.errors import ConfigError, DataError, RangeError
from tacit.inference.service import (
    PredictionClient,
    PredictionServer,
    answer_once,
    deal_predictions,
    load_share,
)
from tacit.party import run_threads

SMALL = 2.0**-4
"""A bound that the weights of these models do not keep."""


def ask_once(task, shares, rows):
    """Answer the rows of alice, who computes, from a shared model."""

    def party(session):
        mine = {"share": shares.get(session.me), "x": rows if session.me == ROLES.first else None}
        return answer_once(session, task, client=ROLES.first, **mine)

    return run_threads(dict.fromkeys(PARTIES, party), MEETING)[ROLES.first]


@pytest.mark.parametrize("protocol", ["sealed", "permuted3"])
def test_a_service_with_weights_beyond_its_bound_does_not_open(
    make_service_task, serving, protocol
):
    task = make_service_task(protocol=protocol, weight_bound=SMALL)
    with pytest.raises(RangeError, match="beyond the bound"), serving(task):
        pass


@pytest.mark.parametrize("protocol", ["sealed", "permuted3"])
def test_a_shared_model_with_weights_beyond_its_bound_does_not_answer(
    make_service_task, shares_of, rows, protocol
):
    task = make_service_task(protocol=protocol, weight_bound=SMALL)
    with pytest.raises(RangeError, match="beyond the bound"):
        ask_once(task, shares_of(task.model.initial, task.spec.frac_bits), rows)


@pytest.mark.parametrize("off", [0, 1])
def test_a_weight_may_be_as_large_as_its_bound_and_not_by_one_unit_larger(
    make_service_task, shares_of, rows, monkeypatch, off
):
    monkeypatch.setattr("tacit.inference.service.task._AT_ONCE", 5)  # 14 weights take three turns
    task = make_service_task(layers=("dense 2",), weight_bound=0.5)
    weights = {name: torch.zeros_like(value).double() for name, value in task.model.initial.items()}
    weights["0/weight"][1, 3] = -0.5 - off * 2.0**-task.spec.frac_bits
    shares = shares_of(weights, task.spec.frac_bits)
    if off:
        with pytest.raises(RangeError, match="beyond the bound"):
            ask_once(task, shares, rows[:2])
    else:
        answer = ask_once(task, shares, rows[:2])
        seen = {(leak.to, leak.what) for leak in answer.result.leakage}
        assert (ROLES.first, "whether any weight is beyond its bound") in seen


def test_a_share_that_was_trained_with_a_larger_bound_is_refused_before_anyone_connects(tmp_path):
    path = tmp_path / "share.npz"
    np.savez(path, w=np.zeros(3, dtype=np.int64), frac_bits=np.array(16), bound=np.array(4.0))
    assert set(load_share(path, frac_bits=16, bound=4.0)) == {"w"}
    with pytest.raises(DataError, match=r"set model\.bound to that of the training"):
        load_share(path, frac_bits=16, bound=2.0)


def ask_words(service, words):
    """Ask with words of a client's choice, past all checks of the client."""
    client = service.client("client-0")
    mask = ring.Prg(b"m" * 16).words(tuple(words.shape))
    replies = client._exchange((mask, words - mask))
    return ring.decode(replies[0] + replies[1], frac_bits=service.task.spec.frac_bits)


def crafted():
    """Rows that no client could send by mistake: one feature each, with a bit high up."""
    words = torch.zeros((4, 6), dtype=torch.int64)
    words[0, 0], words[1, 1], words[2, 2], words[3, 3] = 1 << 40, -(1 << 50), -(1 << 63), 1 << 62
    return words


def test_a_client_that_cheats_reads_wrapped_products_of_a_service_that_does_not_clip(
    make_service_task, serving
):
    # Where we say that rows beyond the bound are answered with nonsense: nonsense is information.
    task = make_service_task(layers=("dense 4",), reveal="score")
    with serving(task) as service:
        scores = ask_words(service, crafted())
    assert float(scores.abs().max()) > 2.0**20


@pytest.mark.parametrize("protocol", ["sealed", "permuted3"])
def test_clipped_rows_are_answered_like_rows_within_the_bound(
    make_service_task, serving, rows, protocol
):
    task = make_service_task(protocol=protocol, layers=("dense 4",), reveal="score", clip=True)
    with serving(task) as service:
        honest = service.client("client-1").ask(rows)
        scores = ask_words(service, crafted())
        dealt = service.servers[ROLES.first].tally.walk.guard
    torch.testing.assert_close(honest, service.plain(rows), atol=2e-3, rtol=0.0)
    first = torch.zeros(1, 6, dtype=torch.float64)
    first[0, 0] = 1.0
    torch.testing.assert_close(scores[:1], service.plain(first), atol=2e-3, rtol=0.0)
    # Of more than 46 bits some row within the bound is made, whichever.
    weights = service.weights
    most = weights["0/weight"].abs().sum(1) + weights["0/bias"].abs()
    assert bool((scores.abs() <= most + 1e-2).all())
    assert set(by_size(dealt)) == {0, 8, 32}


@pytest.mark.parametrize("protocol", ["permuted2", "sealed; activations: permuted2 flips"])
def test_a_service_whose_second_server_would_see_values_is_refused_by_everyone(
    make_service_task, protocol
):
    task = make_service_task(protocol=protocol)
    with pytest.raises(ConfigError, match="use sealed or permuted3"):
        PredictionClient("client-0", task, {})
    for role in (
        lambda one: PredictionServer(one, task, {}),
        lambda one: deal_predictions(one, task),
    ):
        with pytest.raises(ConfigError, match="use sealed or permuted3"):
            role(None)


def test_a_second_party_may_see_values_of_its_own_rows_and_of_no_others(make_service_task):
    task = make_service_task(protocol="permuted2")
    task.refuse_view(ROLES.second)
    for other in (ROLES.first, "clinic", None):
        with pytest.raises(ConfigError, match="the owner of the rows"):
            task.refuse_view(other)
