"""Trainings with joint noise and with rows that the two computing parties draw, as a whole."""

from collections import defaultdict
from threading import current_thread

import numpy as np
import pytest
import torch
from scipy.stats import binom

from support.training import NAMES, KilledError, digits_of, folders_in, killed, make_task, run
from tacit.dp import Book, epsilon, ledger_from_record
from tacit.dp.book import as_drawn
from tacit.errors import ConfigError, DataError, DisagreementError
from tacit.mpc import sum_forecasts
from tacit.party import merge_costs, without_setup
from tacit.ring import Prg
from tacit.training import Privacy, plan_training, schedule
from tacit.training.checkpoint import ORDER
from tacit.training.loop import walk_plain
from tacit.training.noise import (
    OVERFLOW,
    coarse_of,
    draw_coins,
    draw_noise,
    draw_rows,
    rate_of,
    room_for,
)

STEPS = 4
JOINT = Privacy(epsilon=8.0, delta=1e-3, noise="joint", sampling="hidden", looks="noisy")


@pytest.fixture(scope="module")
def digits():
    return digits_of(600)


@pytest.fixture
def noted(monkeypatch):
    """Note every word of noise, every coin and every row that anybody draws: by party."""
    found = defaultdict(list)

    def noting(name, draw):
        def noted(*given):
            drawn = draw(*given)
            found[current_thread().name.rsplit("_")[-1], name].append(drawn)
            return drawn

        monkeypatch.setattr(schedule, name, noted)

    for name, draw in (
        ("draw_noise", draw_noise),
        ("draw_coins", draw_coins),
        ("draw_rows", draw_rows),
    ):
        noting(name, draw)
    return found


def task_of(**changes):
    given = {"privacy": JOINT, "rows": 40, "test_rows": 20, "batch": 25, "epochs": 1, **changes}
    return make_task(**given)


def noise_of(noted, count, step):
    """Put the noise of every step together from what both parties drew."""
    parts = [one for (_, name), one in noted.items() if name == "draw_noise"]
    coins = [one for (_, name), one in noted.items() if name == "draw_coins"]
    assert len(parts) == len(coins) == 2
    large = [
        sum(fine) + coarse_of(sum(both), step=step).double() * 2.0**-16
        for fine, both in zip(zip(*parts, strict=True), zip(*coins, strict=True), strict=True)
    ]
    return [one for one in large if one.numel() > 1][:count]


def test_weights_are_those_of_the_same_rows_and_noise_in_the_clear(digits, noted):
    task = task_of()
    ends, costs, ledgers = run(task, digits, rows=40)
    chosen = [one for (_, what), one in noted.items() if what == "draw_rows"]
    first, second = chosen  # the two that compute, and nobody else
    assert all(np.array_equal(*pair) for pair in zip(first, second, strict=True))
    assert len(first) == STEPS
    assert len({one.tobytes() for one in first}) == STEPS
    noise = noise_of(noted, STEPS, ends["bank"].privacy.steps.step)
    plain, _ = walk_plain(
        task, digits[0][:120], digits[1][:120], noise=iter(noise), drawn=iter(first)
    )
    for name, value in plain.items():
        assert (ends["bank"].weights[name] - value).abs().max() <= 2.0**-8 * value.abs().max()
    metered = without_setup(merge_costs(costs))
    assert sum_forecasts(plan_training(task).walker.runs).cost.traffic == metered.traffic
    shown = {leak.what for leak in ledgers["clinic"] if leak.kind == "output"}
    assert not [what for what in shown if "rows that were drawn" in what]


def test_the_claim_says_towards_whom_and_the_book_counts_the_larger_one(tmp_path):
    privacy = plan_training(task_of(epochs=3)).privacy
    outside, inside = privacy.claim, privacy.inner
    assert "every single party but bank and shop" in outside.subject
    assert "towards bank and towards shop" in inside.subject
    assert outside.epsilon <= 8
    assert inside.epsilon is None or inside.epsilon > outside.epsilon
    events = [entry.event for entry in ledger_from_record(privacy.events).entries]
    assert epsilon(events, delta=1e-3).epsilon == pytest.approx(outside.epsilon)
    assert "ε = 8" in privacy.sentence() or "ε = 7.9" in privacy.sentence()
    book = Book(tmp_path / "book.json", 8.5)
    with pytest.raises(ConfigError, match=r"no guarantee|come to ε"):
        book.enter("key", as_drawn(privacy.events), JOINT.delta, kind="train")


def test_drawn_rows_are_those_of_the_stated_coin_and_there_is_room_for_them():
    for batch, rows in ((5, 40), (128, 1797), (1000, 60_000)):
        room = room_for(batch, rows)
        assert binom.sf(room, rows, rate_of(batch, rows)) <= OVERFLOW
        assert room < 1.2 * batch + 9 * batch**0.5 + 10
    prg = Prg.from_os()
    counts = np.zeros(200)
    for _ in range(500):
        counts[draw_rows(prg, 40, 200)] += 1
    # Of 500 coins a row has 100 heads; 6 standard deviations are 54.
    assert abs(counts.mean() - 100) < 3
    assert abs(counts - 100).max() < 60


@pytest.mark.parametrize(("what", "after", "start"), [("step", 3, 2), ("look", 2, 4)])
def test_killed_and_resumed_the_rows_and_the_noise_are_those_they_were(
    digits, noted, tmp_path, what, after, start
):
    task, folders = task_of(), folders_in(tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        killed(patch, after, what)
        with pytest.raises(KilledError):
            run(task, digits, folders=folders, rows=40)
    first = {key: list(values) for key, values in noted.items()}
    noted.clear()
    ends, _, _ = run(task, digits, folders=folders, rows=40)
    assert ends["bank"].resumed_at == start
    for (thread, name), values in noted.items():
        before = first[thread, name]
        if name == "draw_rows":
            assert all(np.array_equal(*pair) for pair in zip(before[start:], values, strict=False))
        else:
            large = [[one for one in list_ if one.numel() > 1] for list_ in (before, values)]
            assert all(torch.equal(*pair) for pair in zip(large[0][start:], large[1], strict=False))


def test_a_party_that_brings_another_key_for_the_rows_is_refused(digits, tmp_path):
    """P1 restarts with rows of its choice: steps done again would tell more than was promised."""
    task, folders = task_of(), folders_in(tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        killed(patch, 3, "step")
        with pytest.raises(KilledError):
            run(task, digits, folders=folders, rows=40)
    (folders["shop"].path / ORDER).write_bytes(bytes(16))
    with pytest.raises(DisagreementError, match="draws other rows"):
        run(task, digits, folders=folders, rows=40)
    (folders["shop"].path / ORDER).unlink()
    with pytest.raises(DataError, match=r"order\.key"):
        run(task, digits, folders=folders, rows=40)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"batch": 100}, "sampling='hidden'"),  # all rows
        ({"privacy": Privacy(epsilon=8.0, delta=1e-3, looks="noisy")}, "got a batch of 25"),
    ],
)
def test_batches_and_sampling_belong_together(changes, words):
    with pytest.raises(ConfigError, match=words):
        task_of(**changes)
    assert set(NAMES) == {"bank", "shop", "clinic", "dealer"}
