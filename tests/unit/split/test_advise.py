"""Advice fits the budget, tries what it names, and prefers fewer bytes at equal accuracy."""

import pytest
import torch

from support.split import CLASSES, WIDTH, make_bottom, make_task, make_top, rows
from tacit.errors import ConfigError
from tacit.split import (
    Candidate,
    Compression,
    CompressionTrial,
    Halves,
    fit_locally,
    fitting,
    make_codec,
    recommend,
    training_bytes,
    try_candidates,
)


def make_halves(task):
    return Halves(
        bottom=make_bottom(), top=make_top(), codec=make_codec(task.split.compress, WIDTH)
    )


def test_every_candidate_fits_and_the_next_milder_does_not():
    task = make_task()
    budget = 12_000
    found = fitting(task, rows=60, width=WIDTH, budget_bytes=budget)
    assert {one.compression.kind for one in found} >= {"shrink", "topk", "randtopk-coded"}
    assert all(one.training_bytes <= budget for one in found)
    top = next(one.compression for one in found if one.compression.kind == "topk")
    milder = make_codec(Compression(kind="topk", k=top.k + 1), WIDTH)
    assert training_bytes(milder, 60, task.train) > budget


def test_a_budget_that_nothing_fits_is_refused_with_the_least_that_would():
    with pytest.raises(ConfigError, match=r"within 10 bytes; the smallest takes [\d,]+"):
        fitting(make_task(), rows=60, width=WIDTH, budget_bytes=10)


def test_trials_train_and_are_measured_on_rows_that_were_held_out():
    x, y = rows(200)
    task = make_task(epochs=10)
    candidates = [
        Candidate(compression=Compression(kind="randtopk", k=3), training_bytes=1),
        Candidate(compression=Compression(kind="quantise", bits=4), training_bytes=2),
    ]
    trials = list(try_candidates(task, candidates, make_halves, x, y))
    assert [trial.samples for trial in trials] == [40, 40]
    assert all(trial.accuracy > 0.8 for trial in trials)


def test_fewer_bytes_win_among_equals():
    def trial(size, accuracy):
        candidate = Candidate(compression=Compression(), training_bytes=size)
        return CompressionTrial(candidate=candidate, accuracy=accuracy, samples=100)

    assert recommend([trial(9, 0.905), trial(5, 0.9), trial(1, 0.8)]).candidate.training_bytes == 5


def test_training_here_is_repeatable_and_learns():
    x, y = rows(60)
    task = make_task(compression=Compression(kind="randtopk", k=3), epochs=10)
    losses = []
    for _ in range(2):
        halves = make_halves(task)
        losses.append(fit_locally(task, halves, x, y, seed=4))
    assert losses[0] == losses[1]
    assert losses[0][-1] < losses[0][0] / 2
    assert halves.logits(x).shape == (60, CLASSES)
    assert bool(torch.isfinite(halves.logits(x)).all())
