"""A fit from its spec, in Python: every key of a job file has its way in."""

from dataclasses import fields

import numpy as np
import pytest

from tacit.data import OwnerTable
from tacit.errors import ConfigError, DataError
from tacit.jobs.fit import FitJob
from tacit.learners import BlockTable, FitData, FitProtection, FitSpec, LearnerTable, Reveal, fit

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
