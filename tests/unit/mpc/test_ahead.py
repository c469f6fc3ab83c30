"""Drawing ahead of the steps."""

import pytest
import torch

from support.mpc import ALICE, BOB, simulate
from tacit.mpc.material import supply
from tacit.mpc.protocols.permuted3 import SeenByHelper


def chain(ops):
    x = ops.input("x", owner=ALICE, shape=(30,), bound=4.0)
    y = ops.input("y", owner=BOB, shape=(30,), bound=4.0)
    for _ in range(6):
        x = ops.tanh(ops.mul(x, y))
    return ops.open(x, to=(ALICE,), what="z", why="test")


@pytest.mark.parametrize("protocol", ["sealed", "permuted2", "permuted3"])
@pytest.mark.parametrize("kept", [1, 2000, 1 << 28])
def test_the_result_does_not_depend_on_how_much_is_drawn_ahead(monkeypatch, protocol, kept):
    monkeypatch.setattr(supply, "KEPT_BYTES", kept)
    x, y = torch.linspace(-3, 3, 30, dtype=torch.float64), torch.full((30,), 1.5).double()
    run = simulate(chain, protocol=protocol, inputs={ALICE: {"x": x}, BOB: {"y": y}})
    wanted = x
    for _ in range(6):
        wanted = torch.tanh(wanted * y)
    assert (run.values[ALICE] - wanted).abs().max() < 2e-2
    assert run.metered == run.plan.cost


def test_a_failure_while_drawing_ahead_is_not_lost(monkeypatch):
    monkeypatch.setattr(supply, "KEPT_BYTES", 1)
    prepare, calls = SeenByHelper.prepare, []

    def failing(self, channel, *operands):
        calls.append(channel.me)
        if calls.count(channel.me) > 2:
            raise RuntimeError("no more entropy")
        return prepare(self, channel, *operands)

    monkeypatch.setattr(SeenByHelper, "prepare", failing)
    inputs = {ALICE: {"x": torch.ones(30)}, BOB: {"y": torch.ones(30)}}
    with pytest.raises(RuntimeError, match="entropy"):
        simulate(chain, protocol="permuted3", inputs=inputs)
