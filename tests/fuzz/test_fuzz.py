"""The fuzzer's slice of every day, what it found before, and that it finds and cuts down faults."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from fuzz import estimators, jobs
from fuzz import program as programs
from fuzz.draw import Coverage, draw
from fuzz.estimators import Task, draw_task, judge_task, shrink_task
from fuzz.found import FOUND
from fuzz.jobs import draw_job, judge_job
from fuzz.judge import judge, shrink
from fuzz.modules import draw_module, judge_module, shrink_module
from tacit.mpc import PROTOCOLS
from tacit.nn import TorchOps

SLICE = range(24)
TESTS = Path(__file__).parents[1]


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("name", FOUND)
def test_what_was_wrong_once_is_right(protocol, name):
    verdict = judge(FOUND[name], protocol)
    assert verdict.outcome != "wrong", verdict.how


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_random_programs_are_right_or_refused_by_name(protocol):
    outcomes, coverage = [], Coverage()
    for seed in SLICE:
        program = draw(seed, protocol, coverage)
        verdict = judge(program, protocol)
        assert verdict.outcome != "wrong", f"{seed}: {verdict.how}\n{program}"
        outcomes.append(verdict.outcome)
    assert outcomes.count("right") > len(SLICE) / 2


def test_random_modules_are_torchs_or_refused_by_name():
    outcomes = []
    for seed in range(60):
        verdict = judge_module(draw_module(seed))
        assert verdict.outcome != "wrong", f"{seed}: {verdict.how}\n{draw_module(seed)}"
        outcomes.append(verdict.outcome)
    assert outcomes.count("right") > 40


def test_learners_and_trees_answer_as_scikit_learn_or_are_refused():
    for seed in range(6):
        verdict = judge_task(draw_task(seed))
        assert verdict.outcome != "wrong", f"{verdict.how}\n{draw_task(seed)}"


@pytest.mark.filterwarnings("ignore")
def test_random_jobs_are_refused_by_name_or_run_as_was_planned():
    outcomes = []
    for seed in range(24):
        verdict = judge_job(draw_job(seed))
        assert verdict.outcome != "wrong", f"{verdict.how}\n{draw_job(seed)}"
        outcomes.append(verdict.outcome)
    assert outcomes.count("right") > 3


@pytest.mark.filterwarnings("ignore")
def test_a_job_whose_ledger_says_too_little_is_found(monkeypatch):
    """The entries of one party are lost on their way into the result."""
    found = jobs.run_job

    def forgets(*args, **how):
        ran = found(*args, **how)
        mine = [one for one in ran["result"]["ledger"] if not one.startswith("lab")]
        return ran | {"result": ran["result"] | {"ledger": mine}}

    monkeypatch.setattr(jobs, "run_job", forgets)
    verdict = judge_job(jobs.DrawnJob("predict-permuted", ()))
    assert "the ledger is not the one foreseen" in verdict.how


def test_a_task_that_is_wrong_is_cut_down(monkeypatch):
    """Ridge is fitted with another penalty than it was asked for."""
    kind = estimators.LEARNERS["ridge"]
    other = replace(kind, ours=lambda alpha: kind.ours(alpha=40 * alpha))
    monkeypatch.setitem(estimators.LEARNERS, "ridge", other)
    smallest = shrink_task(Task("ridge", {"alpha": 1.0}, rows=24, columns=4))
    assert judge_task(smallest).outcome == "wrong"
    assert (smallest.rows, smallest.columns) == (6, 2)


def test_a_module_is_cut_down_to_the_line_that_has_a_fault(monkeypatch):
    """`silu` is imported as if it were `gelu`."""
    monkeypatch.setattr(TorchOps, "silu", TorchOps.gelu)
    wrong = next(s for s in range(500) if judge_module(draw_module(s)).outcome == "wrong")
    assert [line.call for line in shrink_module(draw_module(wrong)).lines] == ["silu"]


def test_the_same_seed_draws_the_same_program():
    assert draw(7, "sealed") == draw(7, "sealed") != draw(8, "sealed")


def test_what_was_drawn_least_comes_first():
    coverage = Coverage()
    for seed in range(120):
        draw(seed, "permuted3", coverage)
    assert min(coverage.by_verb("permuted3").values()) > 0


def test_a_fault_is_found_and_cut_down_to_the_verb_that_has_it(monkeypatch):
    """`clamp` is planted with a fault: its upper end is off by a thousandth."""
    verb, protocol = programs.VERBS["clamp"], "permuted3"

    def wrong(ops, x, low, high):
        return verb.private(ops, x, low, high + 1e-3)

    def is_wrong(program):
        return judge(program, protocol).outcome == "wrong"

    monkeypatch.setitem(programs.VERBS, "clamp", replace(verb, private=wrong))
    drawn = (draw(seed, protocol) for seed in range(5000))
    wanted = (one for one in drawn if any(s.verb == "clamp" for s in one.steps[:-1]))
    smallest = shrink(next(one for one in wanted if is_wrong(one)), is_wrong, protocol)
    assert [one.verb for one in smallest.steps] == ["clamp"]
    again = eval(repr(smallest), vars(programs))  # noqa: S307 - as it is printed for a test
    assert again == smallest
    assert is_wrong(again)


@pytest.mark.slow
def test_a_campaign_of_two_minutes_finds_nothing():
    done = _run("fuzz", "--minutes", "2", "--from", "1000")
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]


@pytest.mark.slow
def test_of_thirty_planted_faults_two_at_most_are_missed():
    done = _run("fuzz.faults")
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]


def _run(*command):
    return subprocess.run(
        [sys.executable, "-m", *command],
        cwd=TESTS,
        capture_output=True,
        text=True,
    )
