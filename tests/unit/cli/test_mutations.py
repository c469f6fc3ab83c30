"""Job files that were spoilt in any way are refused in words, never by a traceback."""

import copy
import random
import warnings
from pathlib import Path

import pytest

from tacit.errors import ConfigError
from tacit.jobs.kinds import read_job
from tacit.jobs.toml import read_toml

JOBS = sorted((Path(__file__).parents[3] / "examples" / "jobs").rglob("*.toml"))
VALUES = [float("nan"), float("inf"), -1, 0, 2**64, -(2**70), True, "", "x" * 10_000, "\0"]
VALUES += ["аdditive", "/dev/zero", [], {}, [[[]]], {"a": {}}, 1e308, "1", [True], [{"a": 1}], None]
TIMES = 40


def places(table):
    items = table.items() if isinstance(table, dict) else enumerate(table)
    for key, value in list(items):
        yield table, key
        if isinstance(value, dict | list):
            yield from places(value)


def refusal(raw):
    """Return why a job is refused, or nothing if it is not; other errors pass."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        try:
            read_job(raw, source="job.toml")
        except ConfigError as error:
            return str(error)
    return ""


@pytest.mark.parametrize("path", JOBS, ids=lambda path: path.name)
def test_a_spoilt_job_is_refused_in_words(path):
    coins = random.Random(0)  # noqa: S311 - which key is spoilt
    whole = read_toml(path)
    for _ in range(TIMES):
        raw = copy.deepcopy(whole)
        table, key = coins.choice(list(places(raw)))
        if coins.random() < 0.2 and isinstance(table, dict):
            table[f"{key}\u200b"] = table.pop(key)
        else:
            table[key] = coins.choice(VALUES)
        said = refusal(raw)
        assert max(map(len, said.splitlines()), default=0) < 700


@pytest.mark.parametrize("kind", [[], {}, 3, True, None, "ｉnfer"])
def test_a_kind_that_is_no_kind_is_refused(kind):
    with pytest.raises(ConfigError, match="kind"):
        read_job({"job": {"name": "a", "kind": kind}}, source="job.toml")


def test_a_path_that_no_system_takes_is_refused():
    with pytest.raises(ConfigError, match="no path of a file"):
        read_toml(Path("a\0b"))
