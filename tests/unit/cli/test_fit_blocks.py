"""Jobs of kind "fit" with rows and columns both divided between owners."""

import io

import numpy as np
import pytest

from support.jobs import take_parts as run
from tacit.errors import ConfigError, DataError
from tacit.jobs import fit, fit_resume
from tacit.jobs.fit import forecast_fit
from tacit.jobs.kind import Asked
from tacit.party import merge_costs, without_setup
from unit.cli.test_fit import job
from unit.cli.test_fit_resume import StoppedError, kill, outcome

NAMES = ("bank", "clinic", "lab", "shop")


def owner(rows, columns):
    return {"set": "breast-cancer", "rows": rows, "columns": columns}


def both(**changes):
    """Two blocks whose columns lie otherwise: the shop's come before the bank's."""
    blocks = {
        "south": {"columns": {"clinic": [0, 1], "lab": [1, 5]}, "labels": "lab"},
        "north": {"columns": {"bank": [3, 5], "shop": [0, 3]}, "labels": "bank"},
    }
    options = {
        "parties": {name: {} for name in (*NAMES, "dealer")},
        "data": {
            "split": "both",
            "owners": {
                "bank": owner([0, 30], [3, 5]),
                "shop": owner([5, 40], [0, 3]),
                "clinic": owner([40, 70], [0, 1]),
                "lab": owner([45, 75], [1, 5]),
            },
            "blocks": blocks,
        },
        "learner": {"kind": "gaussian-bayes"},
        "reveal": {"score": ["shop"]},
    }
    return job(**(options | changes))


def test_blocks_are_learned_as_the_same_rows_of_two_owners(tmp_path):
    reveal = {"score": ["shop"], "answers": ["shop"], "coefficients": ["lab"]}
    one = both(
        data__classes=2,
        learner={"kind": "logistic-regression", "parameters": {"max_iter": 2}, "standardise": True},
        reveal=reveal,
    )
    outlook = forecast_fit(one, Asked())
    parts = run(one, tmp_path)
    metered = without_setup(merge_costs({n: p.result.metered for n, p in parts.items()}))
    assert metered == outlook.forecast.cost == parts["dealer"].result.forecast.cost
    wanted = {(leak.to, leak.what) for leak in outlook.leaks if leak.kind == "output"}
    entries = [leak for part in parts.values() for leak in part.result.leakage]
    assert {(leak.to, leak.what) for leak in entries if leak.kind == "output"} == wanted
    whole = fit.complete(one, parts["shop"].result, tmp_path, ())
    assert whole.utility[0].samples == 10
    assert whole.utility[0].reference is not None

    # Matched rows 5 to 30 and 45 to 70, their columns in the order of the whole table.
    rows = {"bank": owner([5, 30], [0, 5]), "shop": owner([45, 70], [0, 5])}
    same = job(
        data={"split": "rows", "owners": rows, "classes": 2, "test_share": 0},
        learner={"kind": "gaussian-bayes"},
        reveal={"coefficients": ["shop"]},
    )
    blocks = both(reveal={"coefficients": ["shop"]}, data__test_share=0)
    found, expected = (
        np.load(io.BytesIO(run(each, tmp_path)["shop"].files["coefficients.npz"]))
        for each in (blocks, same)
    )
    assert set(found) == set(expected)
    # Blocks name the owner of each column; of rows everybody has them all.
    assert len(found["columns"]) == len(expected["columns"]) == 5
    for name in sorted(set(found) - {"columns"}):
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-3, atol=1e-3)

    names = [line.split(",")[0] for line in parts["shop"].files["predictions.csv"].splitlines()]
    assert len(names) == 11
    assert {int(name) for name in names[1:6]} <= set(range(5, 30))  # the shop knows these ids
    assert all(name.startswith("south ") for name in names[6:])


def test_a_plan_of_blocks_takes_sizes_where_data_is_not_here():
    outlook = forecast_fit(both(), Asked(rows=50, features=5))
    assert outlook.forecast.cost.online_rounds > 0
    with pytest.raises(ConfigError, match="have 5 columns, got 6"):
        forecast_fit(both(), Asked(rows=50, features=6))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"data__blocks__north__columns": {"bank": [2, 5], "shop": [0, 3]}}, "both have column 2"),
        ({"data__blocks__north__columns": {"bank": [3, 5], "shop": [0, 1]}}, "columns 1 to 2"),
        ({"data__blocks__north__columns": {"bank": [3, 4], "shop": [0, 3]}}, "another block has"),
        ({"data__blocks__north__columns": {"bank": [0, 5]}}, "'shop' is in no block"),
        ({"data__blocks__north__labels": "lab"}, "'lab' is in south and north"),
        ({"data__blocks__north__labels": "dealer"}, "none of data.owners"),
        ({"data__blocks__north__labels": None}, "north.labels: missing"),
        ({"data__blocks": {}}, "two blocks of rows or more, got 0"),
        ({"data__labels": "bank"}, "every block names"),
        ({"data__split": "rows"}, 'split = "both"'),
        ({"data__matching": "helper"}, "where columns are split"),
        ({"learner": {"kind": "kmeans"}}, "learns without"),
    ],
)
def test_blocks_that_overlap_or_leave_holes_are_refused(changes, words):
    with pytest.raises(ConfigError, match=words):
        both(**changes)


def test_an_owner_who_brings_other_columns_than_the_job_says_is_named(tmp_path):
    one = both(data__owners__bank=owner([0, 30], [3, 6]))
    with pytest.raises(DataError, match="'bank' has 2 columns by"):
        run(one, tmp_path)


def test_a_fit_of_blocks_that_was_killed_ends_with_the_same_model(tmp_path, monkeypatch):
    one = both(reveal={"coefficients": ["shop"]})
    monkeypatch.setattr(fit_resume, "LEAST_BYTES", 1)
    monkeypatch.setattr(fit_resume, "LEAST_RATIO", 0)
    unbroken, _ = outcome(run(one, tmp_path / "other"))
    with monkeypatch.context() as patch:
        kill(patch, "bank", 2, is_written=True)
        with pytest.raises(StoppedError):
            run(one, tmp_path)
    resumed, _ = outcome(run(one, tmp_path))
    assert resumed == pytest.approx(unbroken, abs=2e-3, rel=1e-3)
