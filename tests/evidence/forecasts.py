"""Programs that post, begin, send one way and wait: what is sent is what their plans declare."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import torch

from evidence.experiment import Tried, coins
from support.mpc import ALICE, BOB, CAROL, simulate
from tacit.result import Cost

ULP = 2.0**-16


def programs(seed: int, count: int) -> Iterator[Tried]:
    """A plan declares every byte and message, never a round too few and two too many at most."""
    for at in range(count):
        rng = coins("programs", seed, at)
        steps = [rng.choice(STEPS) for _ in range(rng.randint(2, 9))]
        said = rng.getrandbits(31)
        x, y = (_numbers(rng) for _ in range(2))

        def work(ops: Any, steps: Any = steps, said: int = said) -> Any:
            drawn = random.Random(said)  # noqa: S311 - the same for the plan and both parties
            return _run(ops, steps, drawn)

        run = simulate(work, inputs={ALICE: {"x": x}, BOB: {"y": y}})
        declared, metered = run.plan.cost, run.metered
        what = f"program {at}: {' '.join(steps)}"
        assert _sent(declared) == _sent(metered), f"{what}: sends other than it declares"
        more = declared.online_rounds - metered.online_rounds
        assert 0 <= more <= 2, f"{what}: declares {more} rounds too many"
        got, wanted = run.values[ALICE], _plainly(steps, random.Random(said), x, y)  # noqa: S311
        assert float((got - wanted).abs().max()) < 5e-3, f"{what}: {(got - wanted).abs().max()} off"
        yield Tried(what, f"{more} rounds too many" if more else "as declared")


def _numbers(rng: random.Random) -> torch.Tensor:
    drawn = [round(rng.uniform(-2, 2) / ULP) * ULP for _ in range(6)]
    return torch.tensor(drawn, dtype=torch.float64)


def _sent(cost: Cost) -> list[Any]:
    return sorted(
        (one.sender, one.receiver, one.messages, one.payload_bytes) for one in cost.traffic
    )


STEPS = ("post", "begin", "one way", "wait", "mul", "relu")


def _run(ops: Any, steps: list[str], drawn: random.Random) -> Any:
    """Take the steps; what was begun and is still waited for comes last, in any order."""
    x = ops.input("x", owner=ALICE, shape=(6,), bound=2.0)
    y = ops.input("y", owner=BOB, shape=(6,), bound=2.0)
    total, waits = ops.mul(x, y), []
    for at, step in enumerate(steps):
        match step:
            case "post":
                product = ops.mul(x, ops.scale(y, 1 / (1 << drawn.randrange(3))))
                waits.append(_posted(ops, product))
            case "begin":
                inner = ops.scale(ops.mul(x, y), 1 / (4 << drawn.randrange(3)))
                waits.append(ops.begin_rescaling("sigmoid", inner))
            case "one way":
                to = drawn.choice((ALICE, BOB, CAROL))
                ops.open(ops.shift(x, float(at)), to=(to,), what=f"x{at}", why="test")
            case "wait" if waits:
                total = ops.add(total, waits.pop(drawn.randrange(len(waits)))())
            case "mul":
                total = ops.add(total, ops.mul(y, y))
            case "relu":
                total = ops.add(total, ops.relu(x))
    while waits:
        total = ops.add(total, waits.pop(drawn.randrange(len(waits)))())
    return ops.open(total, to=(ALICE,), what="y", why="test")


def _posted(ops: Any, product: Any) -> Any:
    wait = ops.post(product, is_exact=True)

    def waited() -> Any:
        wait()
        return ops.rescaled(product)

    return waited


def _plainly(steps: list[str], drawn: random.Random, x: Any, y: Any) -> Any:
    total, waits = x * y, []
    for step in steps:
        match step:
            case "post":
                waits.append(x * y / (1 << drawn.randrange(3)))
            case "begin":
                waits.append(torch.sigmoid(x * y / (4 << drawn.randrange(3))))
            case "one way":
                drawn.choice((ALICE, BOB, CAROL))
            case "wait" if waits:
                total = total + waits.pop(drawn.randrange(len(waits)))
            case "mul":
                total = total + y * y
            case "relu":
                total = total + x.relu()
    return total + sum(waits)
