"""A fit that was killed at any step ends with the same model, and no mask is used twice."""

import io
from functools import partial

import numpy as np
import pytest
import torch

from support.crypto import short_key
from support.jobs import take_parts
from support.mpc import Wiretap
from tacit.errors import DisagreementError, InputError
from tacit.jobs import fit_resume
from tacit.jobs.folder import discard
from tacit.learners import rows, spec
from tacit.learners.cipher import fitting, regression
from tacit.party import merge_costs, without_setup
from tacit.training import StateFolder
from unit.cli.test_fit import by_cipher, job, of_names

SMALL = 1 << 40
"""Openings of one value under one mask differ by less, uniform words with probability 2^-23."""
LEARNERS = {
    "logistic-regression": ({"max_iter": 3}, {"coefficients": ["shop"], "score": ["bank"]}),
    "gradient-boosting": (
        {"n_estimators": 2, "max_depth": 2, "max_bins": 4},
        {"score": ["shop"], "answers": ["shop"]},
    ),
    "kmeans": ({"n_clusters": 2, "max_iter": 3}, {"coefficients": ["shop"]}),
}


class StoppedError(Exception):
    """Stands for a kill."""


def make(kind):
    parameters, reveal = LEARNERS[kind]
    changes = {"data__labels": None} if kind == "kmeans" else {}
    learner = {"kind": kind, "parameters": parameters, "standardise": kind != "gradient-boosting"}
    return job(learner=learner, reveal=reveal, **changes)


def run(one, folder, *, taps=None, is_fresh=False):
    def wrap(me, link):
        return Wiretap(link, *taps) if taps is not None and me == "shop" else link

    return take_parts(one, folder, wrap=wrap, is_fresh=is_fresh)


def kill(patch, victim, at, *, is_written):
    """Let a party die at a checkpoint, before or after it has written it; say how many it wrote."""
    save, written = StateFolder.save, []

    def dying(self, checkpoint):
        is_mine = self.path.name == f".out-{victim}.state"
        written.extend([checkpoint.step] * is_mine)
        dies = is_mine and len(written) == at
        if is_written or not dies:
            save(self, checkpoint)
        if dies:
            raise StoppedError

    patch.setattr(StateFolder, "save", dying)
    return written


@pytest.fixture(autouse=True)
def often(monkeypatch):
    monkeypatch.setattr(fit_resume, "LEAST_BYTES", 1)
    monkeypatch.setattr(fit_resume, "LEAST_RATIO", 0)


def outcome(parts):
    files = {**parts["shop"].files, **parts["bank"].files}
    sheets = [row for part in parts.values() for one in part.result.sheets for row in one.rows]
    numbers = [float(cell) for row in sheets for cell in row[1:] if cell != "–"]
    numbers += [metric.value for part in parts.values() for metric in part.result.utility]
    return numbers, files.get("predictions.csv")


TREE = {"max_depth": 2, "max_bins": 4}
SCORED = {"score": ["shop"]}
OTHERS = {
    "categorical-bayes": ({"n_categories": 3}, SCORED),
    "decision-tree": (TREE, SCORED),
    "extreme-learning": ({"n_features": 4}, SCORED),
    "gaussian-bayes": ({}, SCORED),
    "gradient-boosting-regression": ({"n_estimators": 2, **TREE}, SCORED),
    "k-neighbours": ({"n_neighbors": 3}, SCORED),
    "lasso": ({"max_iter": 4}, SCORED),
    "linear-regression": ({}, SCORED),
    "linear-svc": ({"max_iter": 3}, SCORED),
    "pca": ({"n_components": 1}, {"coefficients": ["shop"]}),
    "random-forest": ({"n_estimators": 2, "max_features": 1.0, **TREE}, SCORED),
    "ridge": ({}, SCORED),
}


def other_job(kind, parameters, reveal, folder):
    """Make a job of two owners of rows, with labels as the learner wants them."""
    coins = np.random.default_rng(0)
    x = coins.integers(0, 3, (40, 2)) if kind == "categorical-bayes" else coins.normal(size=(40, 2))
    y = (x[:, 0] > 0).astype(int)
    if kind in (
        "extreme-learning",
        "gradient-boosting-regression",
        "lasso",
        "linear-regression",
        "ridge",
    ):
        y = np.round(x[:, 0] / 2, 3)
    owners = {}
    for name, part in (("bank", slice(0, 20)), ("shop", slice(20, 40))):
        lines = ["u,v,y"] + [
            f"{u:.3f},{v:.3f},{label}" for (u, v), label in zip(x[part], y[part], strict=True)
        ]
        path = folder / f"{name}.csv"
        path.write_text("\n".join(lines) + "\n")
        owners[name] = {"file": str(path), "label": "y"}
    if kind == "pca":
        owners = {name: {"file": one["file"]} for name, one in owners.items()}
    return job(
        data={"split": "rows", "owners": owners},
        learner={"kind": kind, "parameters": parameters},
        reveal=reveal,
    )


def test_no_learner_is_left_out():
    assert LEARNERS.keys() | OTHERS.keys() == spec.LEARNERS.keys()


@pytest.mark.slow
@pytest.mark.parametrize("kind", OTHERS)
def test_every_learner_that_was_killed_ends_with_the_same_model(kind, tmp_path, monkeypatch):
    """Some open their first value after two programs: they are killed where they can be."""
    parameters, reveal = OTHERS[kind]
    one = other_job(kind, parameters, reveal, tmp_path)
    unbroken, _ = outcome(run(one, tmp_path / "other"))
    with monkeypatch.context() as patch:
        steps = kill(patch, "bank", 1, is_written=True)
        try:
            run(one, tmp_path)
        except StoppedError:
            assert steps
        else:
            assert not steps
            assert kind == "k-neighbours"  # it has nothing to compute before it answers
    resumed, _ = outcome(run(one, tmp_path))
    assert resumed == pytest.approx(unbroken, abs=5e-3, rel=1e-3)


@pytest.mark.parametrize("kind", LEARNERS)
def test_a_fit_that_was_killed_twice_ends_with_the_same_model(kind, tmp_path, monkeypatch):
    one = make(kind)
    unbroken, answers = outcome(run(one, tmp_path / "other"))
    for victim, at, is_written in (("shop", 2, False), ("bank", 3, True)):
        with monkeypatch.context() as patch:
            steps = kill(patch, victim, at, is_written=is_written)
            with pytest.raises(StoppedError):
                run(one, tmp_path)
    assert steps[0] > 2  # the second start went on where the first was stopped
    parts = run(one, tmp_path)
    resumed, same = outcome(parts)
    # Rounding is drawn anew; a share that does not belong there would be off by 2^40.
    assert resumed == pytest.approx(unbroken, abs=2e-3, rel=1e-4)  # inertia is a sum over rows
    assert same == answers
    for part in parts.values():
        discard(part.checkpoints)
    assert not list(tmp_path.glob(".out-*.state"))


@pytest.mark.parametrize("kind", ["gradient-boosting", "logistic-regression"])
def test_a_fit_by_a_cipher_that_was_killed_twice_ends_with_the_same_model(
    kind, tmp_path, monkeypatch
):
    pytest.importorskip("tenseal")
    parameters = {"n_estimators": 3, "max_depth": 2, "max_bins": 4}
    if kind == "logistic-regression":
        parameters = {"max_iter": 3}
    one = by_cipher(
        learner={"kind": kind, "parameters": parameters, "standardise": kind[0] == "l"},
        reveal={"score": ["shop"], "answers": ["shop"]},
    )
    unbroken = outcome(run(one, tmp_path / "other"))
    for victim, at, is_written in (("shop", 2, False), ("bank", 1, True)):
        with monkeypatch.context() as patch:
            steps = kill(patch, victim, at, is_written=is_written)
            with pytest.raises(StoppedError):
                run(one, tmp_path)
    assert steps[0] == 2  # the second start went on after the first step
    parts = run(one, tmp_path)
    assert outcome(parts) == unbroken
    metered = merge_costs({name: part.result.metered for name, part in parts.items()})
    assert parts["shop"].result.forecast.cost == without_setup(metered)
    for part in parts.values():
        discard(part.checkpoints)
    assert not list(tmp_path.glob(".out-*.state"))


def test_hidden_matches_are_drawn_once_however_often_a_fit_is_killed(tmp_path, monkeypatch):
    """An owner who saw two matchings would know: rows that are there both times match."""
    pytest.importorskip("gmpy2")
    monkeypatch.setattr(regression, "make_key", short_key)
    declared = partial(fitting.declare_regression, bits=2048)
    monkeypatch.setattr(fitting, "declare_regression", declared)
    align, matchings = rows.align_by_helper, []

    def counted(session, *arguments, **options):
        matchings.append(session.me)
        return align(session, *arguments, **options)

    monkeypatch.setattr(rows, "align_by_helper", counted)
    one = of_names(tmp_path, "hidden", more=6, max_iter=3)
    unbroken = coefficients(run(one, tmp_path / "other"))
    matchings.clear()
    # The first checkpoint is the matching; the judge dies before it writes its third.
    for victim, at, is_written in (("judge", 3, False), ("bank", 1, True)):
        with monkeypatch.context() as patch:
            steps = kill(patch, victim, at, is_written=is_written)
            with pytest.raises(StoppedError):
                run(one, tmp_path)
    assert steps[0] == 3  # the second start went on after the first step of the regression
    parts = run(one, tmp_path)
    assert sorted(matchings) == ["bank", "judge", "shop"]
    np.testing.assert_allclose(coefficients(parts), unbroken, atol=1e-6)
    metered = merge_costs({name: part.result.metered for name, part in parts.items()})
    assert parts["shop"].result.forecast.cost == without_setup(metered)
    for name, words in (("bank", "left over"), ("judge", "how many rows match")):
        assert any(words in leak.what for leak in parts[name].result.leakage)
    for part in parts.values():
        discard(part.checkpoints)
    assert not list(tmp_path.glob(".out-*.state"))


def test_hidden_matches_that_not_everyone_has_kept_are_not_drawn_again(tmp_path, monkeypatch):
    pytest.importorskip("gmpy2")
    monkeypatch.setattr(regression, "make_key", short_key)
    one = of_names(tmp_path, "hidden", more=6, max_iter=1)
    with monkeypatch.context() as patch:
        kill(patch, "judge", 1, is_written=False)
        with pytest.raises(StoppedError):
            run(one, tmp_path)
    with pytest.raises(InputError, match="fill up with other rows"):
        run(one, tmp_path)
    run(one, tmp_path, is_fresh=True)


def coefficients(parts):
    return np.load(io.BytesIO(parts["bank"].files["coefficients.npz"]))["coef"]


def openings(taps):
    """Put together what both computing parties sent each other under one name."""
    received, sent = taps
    theirs = {tag.split(" from ")[0]: words for tag, words in received if "bank" in tag}
    mine = {tag.split(" to ")[0]: words for tag, words in sent if "bank" in tag}
    pairs = [(mine[tag], theirs[tag]) for tag in mine.keys() & theirs.keys()]
    alike = [(a, b) for a, b in pairs if a.shape == b.shape and a.dtype == torch.int64]
    return [a + b for a, b in alike if a.numel() >= 8]


def heard(taps):
    """Give what the other computing party sent alone, such as an owner's codes under a mask."""
    words = [words for tag, words in taps[0] if "bank" in tag]
    return [one for one in words if one.dtype == torch.int64 and one.numel() >= 8]


@pytest.mark.parametrize("kind", ["logistic-regression", "gradient-boosting"])
def test_steps_that_are_done_again_open_nothing_under_an_old_mask(kind, tmp_path, monkeypatch):
    one = make(kind)
    with monkeypatch.context() as patch:
        kill(patch, "bank", 4, is_written=False)
        with pytest.raises(StoppedError):
            run(one, tmp_path, taps=(first := ([], [])))
    run(one, tmp_path, taps=(second := ([], [])))
    for find in (openings, heard):
        pairs = [(a, b) for a in find(first) for b in find(second) if a.shape == b.shape]
        assert len(pairs) > 10
        assert not [1 for a, b in pairs if int((a - b).abs().max()) < SMALL]


def test_checkpoints_of_another_fit_are_not_taken_up(tmp_path, monkeypatch):
    one = make("kmeans")
    with monkeypatch.context() as patch:
        kill(patch, "shop", 2, is_written=True)
        with pytest.raises(StoppedError):
            run(one, tmp_path)
    other = job(
        data__labels=None,
        learner={"kind": "kmeans", "parameters": {"n_clusters": 3, "max_iter": 2}},
        reveal={"coefficients": ["shop"]},
    )
    with pytest.raises(InputError, match="--fresh"):
        run(other, tmp_path)
    StateFolder(tmp_path / ".out-bank.state", "").remove()
    with pytest.raises(DisagreementError, match="has no checkpoints"):
        run(one, tmp_path)
    run(one, tmp_path, is_fresh=True)
