"""Jobs of kind "fit": what is read, what is refused, what a party brings and is shown."""

import io

import numpy as np
import pytest

from support.jobs import JOBS, read_changed
from support.jobs import take_parts as run
from tacit.errors import ConfigError, DataError
from tacit.jobs import fit
from tacit.jobs.fit import forecast_fit
from tacit.jobs.kind import Asked
from tacit.jobs.kinds import load_job
from tacit.learners.rows import load_rows
from tacit.party import merge_costs, without_setup


def job(**changes):
    owner = {"set": "breast-cancer", "rows": [0, 40], "columns": [0, 3]}
    raw = {
        "job": {"name": "j", "kind": "fit"},
        "parties": {"bank": {}, "shop": {}, "dealer": {}},
        "data": {
            "split": "columns",
            "labels": "shop",
            "owners": {"bank": owner, "shop": owner | {"rows": [10, 50], "columns": [3, 5]}},
        },
        "learner": {"kind": "gaussian-bayes"},
        "protocol": {"kind": "sealed", "dealer": "dealer"},
        "reveal": {"score": ["shop"]},
    }
    return read_changed(raw, changes)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"learner__parameters": {"var_smothing": 1.0}}, "did you mean 'var_smoothing'"),
        ({"learner__parameters": {"var_smoothing": "x"}}, "valid number, got 'x'"),
        ({"learner": {"kind": "categorical-bayes"}}, "n_categories: missing"),
        ({"data__labels": None}, "wanted the owner of the labels"),
        ({"data__labels": "dealer"}, "wanted the owner of the labels"),
        ({"protocol__dealer": "bank"}, "must not own data"),
        ({"protocol__compute": ["bank", "dealer"]}, "wanted two of the owners"),
        ({"reveal__score": ["shp"]}, "did you mean 'shop'"),
        ({"learner": {"kind": "decision-tree"}, "reveal__coefficients": ["shop"]}, "has none"),
        ({"reveal__trees": ["shop"]}, "boosted trees alone"),
        ({"learner": {"kind": "ridge"}, "reveal__auc": ["shop"]}, "learns no classes"),
    ],
)
def test_a_wrong_key_is_named_with_what_was_wanted(changes, words):
    with pytest.raises(ConfigError, match=words):
        job(**changes)


def test_the_example_is_a_good_job_with_parameters_of_its_learner():
    one = load_job(JOBS / "fit-columns.toml")
    assert one.learner.make().get_params()["max_iter"] == 10
    assert one.owners == ("bank", "insurer")
    assert one.role("bank") == "data owner, computes"


@pytest.mark.parametrize("protocol", ["sealed", "permuted3"])
def test_the_plan_says_what_the_meter_counts_and_who_is_shown_what(tmp_path, protocol):
    one = job(
        protocol__kind=protocol,
        learner={"kind": "logistic-regression", "parameters": {"max_iter": 2}, "standardise": True},
        reveal={
            "score": ["shop"],
            **dict.fromkeys(("auc", "ks", "calibration"), ["bank"]),  # noqa: RUF024 - only read
            "answers": ["bank"],
            "coefficients": ["shop"],
        },
    )
    outlook = forecast_fit(one, Asked())
    parts = run(one, tmp_path)
    metered = without_setup(merge_costs({n: p.result.metered for n, p in parts.items()}))
    assert metered == outlook.forecast.cost == parts["dealer"].result.forecast.cost
    wanted = {(leak.to, leak.what) for leak in outlook.leaks if leak.kind == "output"}
    shown = {
        (leak.to, leak.what)
        for part in parts.values()
        for leak in part.result.leakage
        if leak.kind == "output"
    }
    assert shown == wanted
    bank, shop = parts["bank"], parts["shop"]
    assert set(bank.files) == {"predictions.csv"}
    assert set(shop.files) == {"coefficients.npz"}
    assert [sheet.title for sheet in shop.result.sheets] == ["logistic-regression: coef"]
    one = "#class 1"  # of classes 0 and 1
    assert shop.result.sheets[0].heads == ("", one, f"{one}, in units of the rows")
    assert [row[0] for row in shop.result.sheets[0].rows] == [
        *("bank 0", "bank 1", "bank 2", "shop 0", "shop 1", "intercept")
    ]
    lines = bank.files["predictions.csv"].splitlines()
    assert len(lines) == 1 + 6
    assert {int(line.split(",")[0]) for line in lines[1:]} <= set(range(10, 40))
    stages = [span.name for span in bank.result.parties[0].spans]
    ranked = ["auc", "ks", "calibration"]
    assert stages[-8:] == ["standardise", "fit", "score", *ranked, "answers", "coefficients"]
    assert {one.name for one in bank.result.utility} == {"AUC", "KS", "calibration error"}


def test_ids_of_files_are_matched_in_private_and_numbers_are_learned(tmp_path):
    coins = np.random.default_rng(0)
    x, ids = coins.normal(size=(60, 4)), np.arange(100, 160)
    y = x @ [1.0, -2.0, 0.5, 0.0] + 3
    bank, shop = coins.permutation(60)[:50], coins.permutation(60)[:50]
    np.savetxt(
        tmp_path / "bank.csv",
        np.column_stack([ids, x[:, :2]])[bank],
        "%.6f",
        delimiter=",",
        header="id,a,b",
        comments="",
    )
    np.savetxt(
        tmp_path / "shop.csv",
        np.column_stack([ids, x[:, 2:], y])[shop],
        "%.6f",
        delimiter=",",
        header="id,c,d,y",
        comments="",
    )
    owners = {
        "bank": {"file": str(tmp_path / "bank.csv"), "id": "id"},
        "shop": {"file": str(tmp_path / "shop.csv"), "id": "id", "label": "y"},
    }
    one = job(
        data__owners=owners,
        learner={"kind": "ridge", "parameters": {"alpha": 0.01}},
        reveal={"score": ["shop"], "coefficients": ["bank"]},
    )
    parts = run(one, tmp_path)
    (score,) = parts["shop"].result.utility
    assert score.name == "R²"
    assert score.value > 0.999
    sheet = parts["bank"].result.sheets[0]
    found = [float(row[1]) for row in sheet.rows]
    assert found == pytest.approx([1.0, -2.0, 0.5, 0.0, 3.0], abs=0.01)
    assert [row[0] for row in sheet.rows] == ["bank a", "bank b", "shop c", "shop d", "intercept"]
    whole = fit.complete(one, parts["shop"].result, tmp_path, ())
    assert whole.utility[0].reference == pytest.approx(score.value, abs=1e-3)


def test_clusters_of_rows_that_three_owners_have(tmp_path):
    owners = {
        name: {"set": "digits", "rows": [at * 20, at * 20 + 20], "columns": [20, 24]}
        for at, name in enumerate(("bank", "shop", "clinic"))
    }
    one = job(
        parties={name: {} for name in ("bank", "shop", "clinic", "dealer")},
        data={"owners": owners, "test_share": 0},
        learner={"kind": "kmeans", "parameters": {"n_clusters": 2, "max_iter": 2}},
        reveal={"score": ["clinic"]},
    )
    parts = run(one, tmp_path)
    (inertia,) = parts["clinic"].result.utility
    assert (inertia.name, inertia.samples) == ("inertia", 60)
    assert parts["bank"].result.utility == ()


def test_boosted_trees_are_a_file_for_whom_they_are_opened_to(tmp_path):
    learner = {"n_estimators": 1, "max_depth": 1, "max_bins": 4}
    one = job(
        learner={"kind": "gradient-boosting", "parameters": learner}, reveal={"trees": ["shop"]}
    )
    parts = run(one, tmp_path)
    assert set(parts["shop"].files) == {"trees.json"}
    assert parts["bank"].files == {}
    shown = {leak.to for leak in parts["bank"].result.leakage if "edges" in leak.what}
    assert shown <= {"shop"}
    assert any("edges" in leak.what for leak in parts["shop"].result.leakage)


def test_a_plan_without_data_says_what_it_assumes():
    one = job(data__owners={"bank": {"file": "no.csv"}, "shop": {"file": "no.csv"}})
    with pytest.raises(ConfigError, match="--rows and --features"):
        forecast_fit(one, Asked())
    outlook = forecast_fit(one, Asked(rows=30, features=5))
    assert any("Assumed" in line for line in outlook.lines)
    assert outlook.forecast.cost.online_rounds > 0


def test_rows_that_cannot_be_learned_from_are_refused(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("a,y\n1,0.5\n2,0.7\n")
    one = job(data__owners__shop={"file": str(path), "label": "z"}, learner={"kind": "ridge"})
    with pytest.raises(DataError, match="column of numbers to learn"):
        load_rows(one, "shop", ())
    one = job(data__owners__shop={"file": str(path)})
    with pytest.raises(DataError, match="has no labels"):
        load_rows(one, "shop", ())


def by_cipher(**changes):
    return job(
        **{
            "parties": {"bank": {}, "shop": {}},
            "learner": {"kind": "gradient-boosting", "parameters": {"n_estimators": 1}},
            "protocol": {"kind": "cipher"},
        }
        | changes
    )


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"protocol__dealer": "bank"}, "a cipher needs none"),
        ({"learner": {"kind": "kmeans"}, "data__labels": None}, "by a cipher there are"),
        ({"learner__parameters": {"max_bins": 8, "categorical": [1]}}, "not by a cipher"),
        ({"reveal__score": ["bank"]}, "shop alone gets it"),
        ({"data__split": "rows", "data__labels": None}, "by a cipher columns are split"),
        ({"data__matching": "helper"}, "name protocol.helper"),
        ({"data__matching": "fuzzy"}, "wanted a column of names"),
        ({"data__matching": "hidden"}, "boosting must know"),
        ({"data__matching": "hidden"}, "scores would tell"),
    ],
)
def test_what_a_cipher_cannot_do_is_refused(changes, words):
    with pytest.raises(ConfigError, match=words):
        by_cipher(**changes)


def test_shares_want_a_dealer_and_no_helper():
    with pytest.raises(ConfigError, match="learning on shares takes one"):
        job(protocol__dealer=None)
    with pytest.raises(ConfigError, match="the dealer helps"):
        job(protocol__helper="dealer")


@pytest.mark.parametrize("kind", ["gradient-boosting", "logistic-regression"])
def test_a_job_by_a_cipher_shows_what_its_plan_said(tmp_path, kind):
    pytest.importorskip("tenseal")
    parameters = {"n_estimators": 2, "max_depth": 2, "max_bins": 8}
    if kind == "logistic-regression":
        parameters = {"max_iter": 3}
    one = by_cipher(
        learner={"kind": kind, "parameters": parameters, "standardise": kind[0] == "l"},
        reveal={"score": ["shop"], "auc": ["shop"], "answers": ["shop"]},
        data__test_share=0.3,
    )
    ends = run(one, tmp_path)
    measured = {metric.name: metric.value for metric in ends["shop"].result.utility}
    assert set(measured) == {"accuracy", "most frequent class", "AUC"}
    assert measured["accuracy"] > 0.6
    assert not ends["bank"].result.utility
    assert "predictions.csv" in ends["shop"].files
    assert ends["bank"].values is None
    outlook = forecast_fit(one, Asked())
    planned = {(leak.to, leak.what): leak.elements for leak in outlook.leaks}
    for end in ends.values():
        for leak in end.result.leakage:
            if leak.kind != "size":
                assert leak.elements <= planned[leak.to, leak.what]
    assert any(claim.guarantee == "no guarantee" for claim in outlook.claims) or kind[0] == "l"
    metered = without_setup(merge_costs({name: end.result.metered for name, end in ends.items()}))
    assert outlook.forecast.cost == metered
    assert ends["bank"].result.forecast == ends["shop"].result.forecast == outlook.forecast


def names_file(tmp_path, name, lines):
    (tmp_path / f"{name}.csv").write_text("\n".join(lines) + "\n")
    path = tmp_path / f"{name}.toml"
    path.write_text(f'file = "{name}.csv"\n')
    return str(path)


def of_names(tmp_path, matching, *, more=0, max_iter=2):
    """Names that two owners spell otherwise; the bank has more, of people whom the shop has not."""
    people = [f"person {chr(97 + at % 26) * 3}{at} 19{at:02}" for at in range(30)]
    others = [f"{chr(97 + at) * 9} 18{at:02}" for at in range(more)]
    x = np.linspace(-1, 1, 30 + more)
    first = [f"{name},{value:.3f}" for name, value in zip(people + others, x, strict=True)]
    second = [
        f"{name.upper()},{value**2:.3f},{int(value > 0.1)}"
        for name, value in zip(people[::-1], x[:30][::-1], strict=True)
    ]
    return by_cipher(
        parties={"bank": {}, "shop": {}, "judge": {}},
        data={
            "split": "columns",
            "labels": "shop",
            "matching": matching,
            "test_share": 0.0,
            "owners": {
                "bank": {"file": names_file(tmp_path, "a", ["person,u", *first]), "id": "person"},
                "shop": {
                    "file": names_file(tmp_path, "b", ["person,v,y", *second]),
                    "id": "person",
                    "label": "y",
                },
            },
        },
        learner={"kind": "logistic-regression", "parameters": {"max_iter": max_iter}},
        protocol={"kind": "cipher", "cipher": "paillier", "helper": "judge"},
        reveal={"coefficients": ["bank"]} if matching == "hidden" else {"score": ["shop"]},
    )


@pytest.mark.parametrize("matching", ["fuzzy", pytest.param("hidden", marks=pytest.mark.slow)])
def test_names_that_are_spelt_alike_are_matched_and_learned_from(tmp_path, matching):
    pytest.importorskip("gmpy2")
    one = of_names(tmp_path, matching)
    ends = run(one, tmp_path)
    if matching == "hidden":  # a score of every row would tell who matches
        weights = np.load(io.BytesIO(ends["bank"].files["coefficients.npz"]))["coef"]
        assert weights[0] > 0.05
        assert not ends["shop"].result.utility
        assert not any("score" in leak.what for leak in ends["shop"].result.leakage)
    else:
        assert ends["shop"].result.utility[0].value > 0.7
    metered = merge_costs({name: end.result.metered for name, end in ends.items()})
    assert ends["shop"].result.forecast.cost == without_setup(metered)
    told = {leak.what for leak in ends["judge"].result.leakage}
    assert any("Bloom filter" in what for what in told)
    assert any("gradient" in what for what in told) == (matching == "hidden")


def test_the_dealer_matches_by_tags_where_it_is_asked_to(tmp_path):
    one = job(data__matching="helper")
    ends = run(one, tmp_path)
    shown = {leak.what for leak in ends["dealer"].result.leakage if leak.kind == "protocol"}
    assert shown == {"how many rows match, and which of those it was sent"}
    planned = forecast_fit(one, Asked()).forecast
    metered = merge_costs({name: end.result.metered for name, end in ends.items()})
    assert planned.cost == without_setup(metered)


def test_files_with_columns_in_another_order_are_refused_by_plan_and_run(tmp_path):
    for name, head in (("bank", "age,dose,sick"), ("shop", "dose,age,sick")):
        rows = "\n".join(f"{at % 7},{at % 3}.5,{at % 2}" for at in range(12))
        (tmp_path / f"{name}.csv").write_text(f"{head}\n{rows}\n")
    owners = {
        name: {"file": str(tmp_path / f"{name}.csv"), "label": "sick"} for name in ("bank", "shop")
    }
    one = job(data__split="rows", data__labels=None, data__owners=owners)
    with pytest.raises(DataError, match=r"'shop'.*another order"):
        run(one, tmp_path)
    with pytest.raises(DataError, match=r"'shop'.*another order"):
        forecast_fit(one, Asked())
