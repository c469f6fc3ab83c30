"""A fit from its spec, in Python: every key of a job file has its way in."""

from dataclasses import fields

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression, Ridge

from tacit.data import ColumnTable, OwnerTable
from tacit.errors import ConfigError, DataError
from tacit.jobs.fit import FitJob
from tacit.learners import BlockTable, FitData, FitProtection, FitSpec, LearnerTable, Reveal, fit
from tacit.learners.columns import Column, _from_words, _to_words

LEFT = {
    "job": "names the folder of a result: in Python it is returned",
    "parties": "where parties listen, and their keys: here they are threads",
    "network": "how long one waits for a link",
    "report": "what pages show; to_sklearn gives what a private score is put beside",
}
"""Keys of a job file that Python does not take, and why. Nor does it resume: without files it has
no folder to go on from."""


def test_python_takes_every_key_but_those_of_the_frame():
    assert {one.name for one in fields(FitJob)} - {one.name for one in fields(FitSpec)} == set(LEFT)


def spec(learner="ridge", *, protocol=None, reveal=None, standardise=False, **data):
    owners = {name: OwnerTable() for name in ("bank", "shop")}
    return FitSpec(
        data=FitData(**{"owners": owners, "split": "columns", "labels": "shop"} | data),
        learner=LearnerTable(kind=learner, standardise=standardise),
        protocol=protocol or FitProtection(kind="sealed", dealer="helper"),
        reveal=reveal or Reveal(score=("shop",), answers=("bank",), coefficients=("shop",)),
    )


@pytest.fixture
def rows():
    x = np.random.default_rng(0).normal(size=(60, 4))
    return x, x @ [1.0, -2.0, 0.5, 0.0] + 3


def test_a_fit_says_what_a_job_says_and_gives_what_is_shown(rows):
    x, y = rows
    found = fit(spec(), {"bank": x[:, :2], "shop": (x[:, 2:], y)})
    assert found.metrics[0].value > 0.99
    assert found.metrics[0].samples == len(found.answers) == len(found.names) == 12
    assert found.coefficients["coef"][:, 0] == pytest.approx([1.0, -2.0, 0.5, 0.0], abs=0.1)
    chosen = [int(name) for name in found.names]
    assert found.answers == pytest.approx(y[chosen], abs=0.3)
    assert {(leak.to, leak.what) for leak in found.ledger if leak.kind == "output"} >= {
        ("bank", "which of its ids all owners have")
    }
    assert {one.name for one in found.result.parties} == {"bank", "shop", "helper"}
    assert any("which of" in leak.what for leak in found.ledger)
    assert found.claims
    assert found.cost.online_rounds


def test_rows_are_matched_by_a_column_of_ids(rows):
    x, y = rows
    ids, mixed = np.arange(60), np.random.default_rng(1).permutation(60)
    owners = {"bank": OwnerTable(id="id"), "shop": OwnerTable(id="id", label="y")}
    bank = {"id": ids[10:], "a": x[10:, 0], "b": x[10:, 1]}
    shop = {"id": ids[mixed], "c": x[mixed, 2], "d": x[mixed, 3], "y": y[mixed]}
    found = fit(spec(owners=owners, test_share=0), {"bank": bank, "shop": shop})
    assert sorted(map(int, found.names)) == list(range(10, 60))
    assert found.metrics[0].value > 0.99


def in_words(*names):
    """Rows in units of their own, with names for columns."""
    x = np.random.default_rng(2).normal(size=(300, 3)) * [12, 900, 0.3] + [45, 4000, 0.5]
    odds = (x - [45, 4000, 0.5]) @ [0.08, -0.001, 3.0]
    y = (odds + np.random.default_rng(3).logistic(size=300) > 0).astype(int)
    table = {name: x[:, at] for at, name in enumerate(names)}
    return x, y, table


@pytest.mark.parametrize("kind", ["logistic-regression", "ridge"])
@pytest.mark.parametrize("scaling", [(), ("shop",)])
def test_coefficients_have_names_and_are_those_of_scikit_learn_in_the_units_of_rows(kind, scaling):
    x, y, table = in_words("age", "income", "use")
    given = {"parameters": {"C": 1e6}} if kind == "logistic-regression" else {}
    large = {"income": ColumnTable(divide=4096.0), "use": ColumnTable()}
    owners = {
        "bank": OwnerTable(id="id", prepare={"age": ColumnTable(divide=64.0)}),
        "shop": OwnerTable(id="id", label="y", prepare=large),
    }
    asked = FitSpec(
        data=FitData(owners=owners, split="columns", labels="shop", test_share=0),
        learner=LearnerTable(kind=kind, standardise=True, **given),
        protocol=FitProtection(kind="sealed", dealer="helper"),
        reveal=Reveal(coefficients=("shop",), scaling=scaling),
    )
    ids = np.arange(len(x))
    shop = {"id": ids, "income": table["income"], "use": table["use"], "y": y}
    found = fit(asked, {"bank": {"id": ids, "age": table["age"]}, "shop": shop})
    names = found.coefficients["columns"].tolist()
    assert names == ["bank age", "shop income", "shop use", "intercept"]
    units = found.coefficients["coef_in_units"].reshape(-1)
    if kind == "ridge":
        units = np.r_[units, found.coefficients["intercept_in_units"]]
    centre, spread = x.mean(0), x.std(0)
    plain = LogisticRegression(C=1e6, tol=1e-9) if kind != "ridge" else Ridge()
    plain.fit((x - centre) / spread, y)
    slopes = plain.coef_.reshape(-1) / spread
    wanted = np.r_[slopes, plain.intercept_ - slopes @ centre]
    is_known = [True] * 4 if scaling else [False, True, True, False]
    assert np.isnan(units).tolist() == [not one for one in is_known]
    assert units[is_known] == pytest.approx(wanted[is_known], rel=5e-3)
    means = found.coefficients["column_means"]
    assert means[is_known[:3]] == pytest.approx(centre[is_known[:3]], rel=1e-3)
    (sheet,) = found.result.sheets
    assert [line[0] for line in sheet.rows] == names
    told = [one for one in found.ledger if "names of the columns" in one.what]
    assert [(one.to, one.elements) for one in told] == [("shop", 1)]
    shown = {one.what.split("/")[-1] for one in found.ledger if one.kind != "size"}
    assert ({"mean", "scale"} <= shown) == bool(scaling)


def test_owners_of_rows_know_names_and_a_dealer_is_told_them():
    _, y, table = in_words("age", "income", "use")
    owners = {one: OwnerTable(label="y") for one in ("bank", "shop")}
    prepare = {"income": ColumnTable(divide=4096.0), "*": ColumnTable(divide=64.0)}
    asked = FitSpec(
        data=FitData(owners=owners, prepare=prepare, test_share=0),
        learner=LearnerTable(kind="kmeans", parameters={"n_clusters": 2, "max_iter": 2}),
        protocol=FitProtection(kind="sealed", dealer="helper"),
        reveal=Reveal(coefficients=("shop", "helper")),
    )
    rows = {"bank": slice(0, 150), "shop": slice(150, 300)}
    table |= {"y": y}
    found = fit(asked, {one: {n: v[at] for n, v in table.items()} for one, at in rows.items()})
    assert found.coefficients["columns"].tolist() == ["age", "income", "use"]
    told = [one for one in found.ledger if "names of the columns" in one.what]
    assert [(one.to, one.elements) for one in told] == [("helper", 3)]


def test_a_name_that_a_peer_tells_is_shown_without_what_a_terminal_would_obey():
    words = _to_words(Column(owner="bank", name="age\x1b[2J" + "é" * 60, divisor=np.inf))
    found = _from_words("bank", 3, words)
    assert found.name == "age[2J" + "é" * 28
    assert np.isnan(found.divisor)
    assert _from_words("bank", 3, [0] * 9).name == "3"


def test_scaling_is_for_who_reads_coefficients():
    with pytest.raises(ConfigError, match=r"reveal\.scaling.*standardise"):
        spec(reveal=Reveal(coefficients=("bank",), scaling=("bank",)))
    with pytest.raises(ConfigError, match=r"name shop in reveal\.coefficients"):
        spec(standardise=True, reveal=Reveal(coefficients=("bank",), scaling=("shop",)))


def test_blocks_and_rows_of_several_owners_are_taken(rows):
    x, y = rows
    by_rows = {"bank": (x[:30], y[:30]), "shop": (x[30:], y[30:])}
    assert fit(spec(split="rows", labels=None, test_share=0), by_rows).metrics[0].samples == 60
    blocks = {
        "old": BlockTable(columns={"bank": (0, 4)}, labels="bank"),
        "new": BlockTable(columns={"shop": (0, 4)}, labels="shop"),
    }
    divided = fit(spec(split="both", labels=None, blocks=blocks, test_share=0), by_rows)
    assert divided.metrics[0].samples == 60


def test_a_fit_by_a_cipher_takes_the_same_spec(rows):
    pytest.importorskip("tenseal")
    x, y = rows
    way = FitProtection(kind="cipher")
    shown = Reveal(score=("shop",), coefficients=("bank",))
    asked = spec("logistic-regression", protocol=way, reveal=shown, standardise=True)
    found = fit(asked, {"bank": x[:, :2], "shop": (x[:, 2:], (y > 3).astype(int))})
    assert found.result.protocol == "cipher (bfv)"
    assert found.metrics[0].value > 0.6
    assert found.coefficients["coef"].shape == (2,)


def test_what_does_not_go_together_is_refused_by_its_key(rows):
    with pytest.raises(ConfigError, match=r"reveal\.auc: ridge learns no classes"):
        spec(reveal=Reveal(auc=("shop",)))
    with pytest.raises(ConfigError, match="test_share"):
        fit(spec(test_share=2.0), {})
    with pytest.raises((ConfigError, DataError), match=r"data\.owners\.bank"):
        fit(spec(), {})
