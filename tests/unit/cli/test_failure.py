"""Which of several failures is the cause, and what a user is told."""

import errno
import tomllib
from pathlib import Path

import click
import pytest

import tacit
from tacit.cli.failure import ChildBugError, End, Failure, describe, find_cause
from tacit.cli.journal import _ending
from tacit.errors import (
    ClaimError,
    ConfigError,
    DisagreementError,
    InputError,
    LinkClosed,
    PartyError,
    TacitError,
)
from tacit.extras import EXTRAS

ROOT = Path(tacit.__file__).parents[2]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigError("x"), 2),
        (ClaimError("x"), 3),
        (PartyError("lab", "x"), 4),
        (LinkClosed("lab", "x"), 4),
        (click.UsageError("x"), 2),
        (click.FileError("x"), 2),
        (OSError(errno.ENOSPC, "No space left on device"), 2),
        (OSError(errno.ECONNRESET, "reset"), 1),
        (TacitError("x"), 1),
        (RuntimeError("x"), 1),
    ],
)
def test_every_error_has_its_exit_code(error, code):
    assert describe(error).exit_code == code


def test_a_missing_extra_is_one_sentence_with_one_command():
    failure = describe(ModuleNotFoundError("No module named 'x'", name="tokenizers.models"))
    assert failure.exit_code == InputError.exit_code
    assert failure.message.endswith("run: pip install 'tacit-ml[llm]'")
    assert describe(ModuleNotFoundError("x", name="tacit.nowhere")).exit_code == 1


def test_every_extra_of_the_distribution_has_its_modules_listed():
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = set(declared["optional-dependencies"]) - {"all"}
    assert {extra.name for extra in EXTRAS} == names


def test_a_bug_carries_a_traceback_and_input_does_not():
    try:
        raise RuntimeError("odd")
    except RuntimeError as error:
        bug = describe(error)
    assert bug.message == "internal error: RuntimeError: odd"
    assert "Traceback" in bug.details
    assert describe(InputError("x")).details == ""


def ended(party, error=None, *, code=None, was_ended=False):
    failure = None if error is None else describe(error)
    if code is None:
        code = 0 if failure is None else failure.exit_code
    return End(party=party, exit_code=code, failure=failure, was_ended=was_ended)


def blaming(me, party, reason="went away"):
    return ended(me, LinkClosed(party, reason))


def test_no_failure_has_no_cause():
    assert find_cause([ended("a"), ended("b")]) is None


@pytest.mark.parametrize("order", [slice(None), slice(None, None, -1)])
def test_a_party_with_its_own_fault_beats_those_that_report_it(order):
    ends = [blaming("lab", "hospital"), ended("hospital", ConfigError("no rows")), ended("x")]
    cause = find_cause(ends[order])
    assert type(cause) is InputError
    assert str(cause) == "party 'hospital': no rows"


def test_a_killed_party_is_named_with_its_signal():
    cause = find_cause([blaming("hospital", "lab"), ended("lab", code=-9)])
    assert isinstance(cause, PartyError)
    assert str(cause) == "party 'lab' failed: killed by signal 9 (SIGKILL)"


def test_of_two_killed_parties_the_blamed_one_is_the_cause():
    cause = find_cause([ended("a", code=-15), ended("b", code=-9), blaming("c", "b")])
    assert str(cause) == "party 'b' failed: killed by signal 9 (SIGKILL)"


def test_a_killed_party_beats_those_that_were_ended_after_it():
    cause = find_cause([ended("a", code=143), ended("b", code=-9), ended("c", code=4)])
    assert "party 'b'" in str(cause)


def test_a_party_that_we_ended_did_not_die_of_that():
    hung = ended("lab", code=-9, was_ended=True)
    cause = find_cause([blaming("hospital", "lab", "was silent for 20 s"), hung])
    assert str(cause) == "party 'lab' failed: was silent for 20 s"


def test_a_party_that_we_ended_is_not_the_cause_while_another_failed_by_itself():
    cause = find_cause([ended("a", code=-15, was_ended=True), ended("b", code=4)])
    assert str(cause) == "party 'b' failed: ended with exit code 4 and without a word"


def test_a_party_that_does_not_end_is_the_cause_if_nothing_else_is_wrong():
    cause = find_cause([ended("a"), ended("b", code=-9, was_ended=True)])
    assert str(cause) == "party 'b' failed: did not end by itself and was ended"


def test_the_party_that_most_others_blame_is_the_cause():
    cause = find_cause([blaming("a", "c"), blaming("b", "c", "hung up"), blaming("c", "a")])
    assert str(cause) == "party 'c' failed: went away"


def test_a_disagreement_exits_with_four():
    cause = find_cause([ended("a", DisagreementError("b", "has another job"))])
    assert (cause.exit_code, str(cause)) == (4, "party 'b' failed: has another job")


def test_a_bug_in_a_party_keeps_its_traceback():
    failure = Failure(exit_code=1, message="internal error: X", details="Traceback …")
    cause = find_cause([End(party="lab", exit_code=1, failure=failure), blaming("a", "lab")])
    assert isinstance(cause, ChildBugError)
    assert cause.exit_code == 1
    assert cause.details == "Traceback …"


def test_a_contradicted_claim_in_a_party_exits_with_three():
    assert find_cause([ended("a", ClaimError("less than said"))]).exit_code == 3


def test_an_end_without_a_word_is_named():
    cause = find_cause([ended("a"), ended("b", code=4)])
    assert str(cause) == "party 'b' failed: ended with exit code 4 and without a word"


def test_a_journal_names_whom_it_saw_fail_and_leaves_hearsay_to_the_message():
    seen = _ending(PartyError("dealer", "went away"))
    assert seen["party"] == "dealer"
    heard = _ending(PartyError("dealer", "cheated", said_by="mallory"))
    assert heard == {
        "code": 4,
        "message": "party 'dealer' failed, says 'mallory': cheated",
        "party": None,
    }
