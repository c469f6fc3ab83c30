"""No record moves the sum by more than the event says, whatever its row, error and weights."""

import pytest
import torch
from torch import nn

from support.mpc import ALICE, ROLES, simulate
from support.training import train_plan
from tacit.data import Holding
from tacit.errors import InputError
from tacit.mpc.ops import ProtocolOps
from tacit.nn import make_model, make_token_model
from tacit.nn.records import RecordOps
from tacit.training import Privacy
from tacit.training.gradients import (
    clip_factors,
    plan_noise,
    record_gradients,
    scale_records,
    shorten_rows,
    square_norms,
)

FRAC_BITS = 16
UNIT = 2.0**-FRAC_BITS
CLASSES = 10
LARGEST = 2.02


def grid(x):
    return (x * 2**FRAC_BITS).round() / 2**FRAC_BITS


def errors(count):
    """Draw errors of a softmax, errors of any size, and those around which clipping begins."""
    coins = torch.Generator().manual_seed(3)
    draw = torch.randn(4, count // 4, CLASSES, generator=coins, dtype=torch.float64)
    p, y = torch.softmax(6 * draw[0], dim=1), torch.eye(CLASSES)[torch.arange(count // 4) % CLASSES]
    sized = draw[1:] / draw[1:].norm(dim=-1, keepdim=True)
    any_size = sized[0] * 2.0 ** (torch.linspace(-14, 2, count // 4)[:, None])
    at_clip = sized[1] * (1 + torch.linspace(-60, 60, count // 4)[:, None] * UNIT)
    alone = torch.zeros_like(draw[3])
    alone[:, 0] = torch.linspace(-LARGEST, LARGEST, count // 4)
    all_ = torch.cat([p - y, any_size, at_clip, alone])
    largest = LARGEST * torch.ones(1, CLASSES, dtype=torch.float64)
    return grid(torch.cat([all_, largest, -largest]).clamp(-LARGEST, LARGEST - UNIT))


def factors_of(e, clip, rows, protocol="sealed", bound=LARGEST):
    """Give the factors of records with one dense layer: rows of norm 1 at most, and errors."""

    def program(ops):
        tape = RecordOps(ops)
        x = tape.leaf(ops.input("x", owner=ALICE, shape=tuple(rows.shape), bound=1.0))
        n = ops.input("n", owner=ALICE, shape=(len(rows), 1), bound=1.0)
        secret = ops.input("e", owner=ALICE, shape=tuple(e.shape), bound=bound)
        shape = (rows.shape[1], e.shape[1])
        w = tape.weight("w", ops.input("w", owner=ALICE, shape=shape, bound=1.0))
        uses = tape.uses(tape.matmul(x, w), ["w"])
        found = clip_factors(ops, uses, [secret], clip=clip, known={x.number: n})
        both = found, scale_records(ops, secret, found)
        return [ops.open(one, to=(ALICE,), what="f", why="test") for one in both]

    norms = square_norms(rows, frac_bits=FRAC_BITS)
    given = {"x": rows, "n": norms, "e": e, "w": torch.zeros(rows.shape[1], e.shape[1])}
    return simulate(program, protocol=protocol, inputs={ALICE: given}).values[ALICE]


def unit_rows(count):
    return grid(torch.ones(count, 1, dtype=torch.float64))


def check(e, clip, protocol="sealed"):
    factors, kept = factors_of(e, clip, unit_rows(len(e)), protocol)
    assert (factors[:, 0] * e.norm(dim=1)).max() <= clip
    assert factors.max() <= 1.0
    assert kept.norm(dim=1).max() <= clip + CLASSES**0.5 * UNIT
    return kept


@pytest.mark.parametrize(
    ("clip", "protocol"), [(1.0, "sealed"), (0.3, "sealed"), (0.3, "permuted3")]
)
def test_no_clipped_row_is_longer_than_the_event_says(clip, protocol):
    e = errors(10_000)
    kept = check(e, clip, protocol)
    wanted = e * (clip / e.norm(dim=1, keepdim=True).clamp(min=clip))
    # From below, and no more than the margin of the inverse root.
    assert (kept - wanted).norm(dim=1).max() <= 0.006 * clip + 2.0**-10 * 7


def test_factors_are_never_above_and_without_the_margin_some_are(monkeypatch):
    monkeypatch.setattr(ProtocolOps, "rsqrt_below", ProtocolOps.rsqrt)
    with pytest.raises(AssertionError):
        check(errors(10_000), 1.0)


def test_long_gradients_take_a_root_of_a_wider_range_and_stay_below():
    """Up to 2^10 clips; of a record beyond, which no root reaches, nothing is left."""
    coins = torch.Generator().manual_seed(6)
    way = torch.randn(4000, CLASSES, generator=coins, dtype=torch.float64)
    e = grid(way / way.norm(dim=1, keepdim=True) * 2.0 ** torch.linspace(-3, 12, 4000)[:, None])
    factors, _ = factors_of(e, 1.0, unit_rows(4000), bound=2.0**12)
    assert (factors[:, 0] * e.norm(dim=1)).max() <= 1.0
    large, beyond = e.norm(dim=1) > 1, e.norm(dim=1) > 2.0**10
    assert (factors[large & ~beyond, 0] * e[large & ~beyond].norm(dim=1)).min() > 0.85
    assert factors[beyond].abs().max() == 0


def test_rows_are_shortened_in_whole_numbers_and_their_norms_never_too_small():
    coins = torch.Generator().manual_seed(4)
    sizes = 10.0 ** torch.linspace(-6, 9, 10_000, dtype=torch.float64)
    x = torch.randn(10_000, 12, generator=coins, dtype=torch.float64) * sizes[:, None]
    x[0] = 0.0
    rows = shorten_rows(x, frac_bits=FRAC_BITS)
    words = rows * 2**FRAC_BITS
    assert torch.equal(words, words.round())
    exact = (words.long() ** 2).sum(dim=1)
    assert int(exact.max()) <= 2 ** (2 * FRAC_BITS)
    norms = (square_norms(rows, frac_bits=FRAC_BITS) * 2**FRAC_BITS).long()[:, 0]
    assert bool((norms * 2**FRAC_BITS >= exact).all())
    long = x.norm(dim=1) > 1
    assert words[long].norm(dim=1).min() >= (1 - 12 * UNIT) * 2**FRAC_BITS


MODELS = {
    "softmax regression": (lambda: nn.Linear(12, 4), (12,), None),
    "hidden layers": (
        lambda: nn.Sequential(
            nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 6), nn.GELU(), nn.Linear(6, 4)
        ),
        (12,),
        4.0,
    ),
    "convolution": (
        lambda: nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8, 4)),
        (1, 4, 4),
        4.0,
    ),
    "attention over tokens": (
        lambda: nn.Sequential(
            nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True), nn.Linear(4, 4)
        ),
        (3, 4),
        4.0,
    ),
}
RECORDS = 12


def private_task(build, inputs, cap, *, clip):
    with torch.random.fork_rng():
        torch.manual_seed(2)
        module = build()
    make = make_token_model if len(inputs) == 2 else make_model
    return train_plan(
        roles=ROLES,
        protocol="sealed",
        model=make(module, inputs, cap=cap),
        holdings=(Holding(ROLES.first, RECORDS, inputs, "classes"),),
        split="rows",
        test_rows=0,
        batch=RECORDS,
        weight_bound=2.0,
        cap=cap,
        privacy=Privacy(epsilon=8.0, delta=1e-3, clip=clip),
    )


@pytest.mark.parametrize("name", MODELS)
def test_no_record_moves_the_sum_by_more_than_the_event_says(name):
    """Each record left out in turn, weights and rows as large as may be; all roundings counted."""
    build, inputs, cap = MODELS[name]
    task = private_task(build, inputs, cap, clip=0.25)
    stated = plan_noise(task).steps.l2_sensitivity
    coins = torch.Generator().manual_seed(5)
    shape = (RECORDS, *inputs)
    rows = shorten_rows(9 * torch.randn(shape, generator=coins).double(), frac_bits=FRAC_BITS)
    labels = nn.functional.one_hot(torch.arange(RECORDS * 3) % 4, 4).double()
    labels = labels.reshape(RECORDS, 3, 4) if task.model.tokens else labels[:RECORDS]
    weights = {
        key: grid(2.0 * torch.randn(value.shape, generator=coins).double().clamp(-1, 1))
        for key, value in task.model.initial.items()
    }
    without = torch.ones(RECORDS + 1, RECORDS, 1, dtype=torch.float64)
    without[torch.arange(RECORDS), torch.arange(RECORDS)] = 0.0

    def program(ops):
        def given(key, value, bound):
            return ops.input(key, owner=ALICE, shape=tuple(value.shape), bound=bound)

        held = {key: given(key, value, 2.0) for key, value in weights.items()}
        x, y, n = given("x", rows, 1.0), given("y", labels, 1.0), given("n", norms, 1.0)
        node, uses, gradients = record_gradients(ops, task, held, x, y)
        factors = clip_factors(ops, uses, gradients, clip=0.25, known={node.number: n})
        found = []
        for mask in without:
            chosen = ops.weigh(factors, mask)
            sums = [
                use.add_up(scale_records(ops, one, chosen))
                for use, one in zip(uses, gradients, strict=True)
            ]
            flat = [ops.reshape(ops.normalise_scale(one), (-1,)) for one in sums]
            found.append(
                ops.open(ops.concatenate(flat, dim=0), to=(ALICE,), what="sum", why="test")
            )
        return found

    norms = square_norms(rows, frac_bits=FRAC_BITS)
    inputs = {**weights, "x": rows, "y": labels, "n": norms}
    *left_out, whole = simulate(program, inputs={ALICE: inputs}).values[ALICE]
    moved = [float((whole - one).norm()) for one in left_out]
    assert max(moved) <= stated
    if name in ("softmax regression", "hidden layers"):  # where the bound is the norm itself
        assert max(moved) >= 0.97 * 0.25


class Twice(nn.Module):
    """Uses one matrix twice."""

    def __init__(self):
        super().__init__()
        self.inner, self.last = nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, x):
        return self.last(torch.relu(self.inner(torch.relu(self.inner(x)))))


class Meeting(nn.Module):
    """Subtracts the mean of the batch."""

    def __init__(self):
        super().__init__()
        self.last = nn.Linear(6, 3)

    def forward(self, x):
        return self.last(x - x.mean(dim=0))


class Scaled(nn.Module):
    """Uses a parameter where no product per record is: its square."""

    def __init__(self):
        super().__init__()
        self.gain, self.last = nn.Parameter(torch.ones(6)), nn.Linear(6, 3)

    def forward(self, x):
        return self.last(x * (self.gain * self.gain))


@pytest.mark.parametrize(
    ("build", "words"),
    [(Twice, "inner.*2 times"), (Meeting, "meet"), (Scaled, "'gain' is used")],
)
def test_models_whose_gradients_per_record_are_not_bounded_are_refused_by_name(build, words):
    with pytest.raises(InputError, match=words):
        plan_noise(private_task(build, (6,), 4.0, clip=1.0))
