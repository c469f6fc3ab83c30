"""Every experiment of the page of attacks runs in a small form, and finds what is planted."""

import re
import subprocess
import sys
from itertools import count
from pathlib import Path

import pytest

from evidence import bits, chats, orders
from evidence.table import TABLE
from support.llm import overhear_sealed
from tacit.llm.sealed.schedule import Slots
from tacit.party import Session

TESTS = Path(__file__).parents[1]
PAGE = TESTS.parent / "docs" / "explanation" / "attacks.md"


@pytest.mark.parametrize(
    "name",
    [one if TABLE[one].is_daily else pytest.param(one, marks=pytest.mark.slow) for one in TABLE],
)
def test_what_the_page_says_is_found_again(name):
    TABLE[name].tally(1, TABLE[name].small, lambda line: None)


def test_the_page_names_every_experiment_and_no_other():
    named = re.findall(r"`python -m evidence ([a-z][a-z-]+)`", PAGE.read_text())
    assert set(named) == set(TABLE)


def test_a_run_says_what_it_tried_and_what_it_found():
    command = [sys.executable, "-m", "evidence", "pass-words", "--seed", "3", "--count", "50"]
    done = subprocess.run(command, cwd=TESTS, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "pass-words, seed 3, count 50" in done.stdout
    assert re.search(r"\d+  refused", done.stdout)


# What is planted is found


def test_a_number_that_serves_two_passes_is_found(monkeypatch):
    begin = Session.begin_run
    monkeypatch.setattr(Session, "begin_run", lambda self: begin(self) // 2)
    with pytest.raises(AssertionError, match="drawn twice"):
        list(chats.sessions(0, 2))


def test_a_bit_that_never_changes_is_found(monkeypatch):
    numbers = count()

    def leaks(who, **how):
        run = overhear_sealed(who, **how)
        name, words = run.received[who][5]
        run.received[who][5] = name, words | (1 << 40)
        next(numbers)
        return run

    monkeypatch.setattr(bits, "overhear_sealed", leaks)
    with pytest.raises(AssertionError, match="off"):
        list(bits.transcripts(0, 1))
    assert next(numbers) == bits.FEWEST


def test_a_void_token_that_still_counts_is_found(monkeypatch):
    def follows(self, step):
        self._places += [-1] * step.pads + step.places().tolist()[step.pads :]

    monkeypatch.setattr(Slots, "follow", follows)
    with pytest.raises(AssertionError, match="held twice"):
        list(orders.slots(0, 300))
