"""Prediction by columns: owners of different columns ask a model that none of them has."""

import numpy as np
import pytest
import torch

from support.jobs import join_parts, read_changed, write_shares
from support.jobs import take_parts as run
from tacit.errors import ConfigError, DisagreementError
from tacit.jobs import folder, infer
from tacit.nn import parse_layers
from tacit.party import without_setup

COLUMNS = 5
PEOPLE = np.random.default_rng(4).normal(size=(30, COLUMNS))
SICK = (PEOPLE.sum(axis=1) > 0).astype(int)


def write_table(path, ids, columns, *, label):
    heads = ["client", *(f"c{at}" for at in columns), *(["sick"] if label else [])]
    lines = [
        ",".join(
            [str(one), *(repr(8 * x) for x in PEOPLE[one, columns].tolist())]
            + [str(SICK[one])] * label
        )
        for one in ids
    ]
    path.write_text("\n".join([",".join(heads), *lines]) + "\n")
    return {"file": str(path), "id": "client", "prepare": {"*": {"divide": 8.0}}}


@pytest.fixture
def make_job(tmp_path):
    module = parse_layers(["dense 1"], (COLUMNS,), seed=3)
    shares = write_shares(module.state_dict(), tmp_path, ("bank", "insurer"))
    bank = write_table(tmp_path / "bank.csv", range(0, 24), [0, 1], label=False)
    insurer = write_table(tmp_path / "insurer.csv", range(29, 5, -1), [2, 3, 4], label=True)
    insurer["label"] = "sick"

    def make(**changes):
        raw = {
            "job": {"name": "j", "kind": "infer"},
            "parties": {"bank": {}, "insurer": {}, "dealer": {}},
            "data": {
                "owner": "insurer",
                "owners": {"bank": bank, "insurer": insurer},
                "bound": 8.0,
            },
            "model": {"layers": ["dense 1"], "inputs": [COLUMNS], "shares": shares},
            "protocol": {"kind": "sealed", "dealer": "dealer", "compute": ["bank", "insurer"]},
        }
        return read_changed(raw, changes)

    return make


@pytest.mark.parametrize(
    ("protocol", "reveal"), [("sealed", "output"), ("permuted3", "class"), ("sealed", "class")]
)
def test_common_rows_are_answered_to_one_owner_as_in_the_clear(
    make_job, tmp_path, protocol, reveal
):
    job = make_job(protocol__kind=protocol, protocol__reveal=reveal)
    infer.check_inputs(job, list(job.parties))
    parts = run(job, tmp_path)
    assert [name for name, part in parts.items() if part.files] == ["insurer"]
    (tmp_path / folder.PREDICTIONS).write_text(parts["insurer"].files[folder.PREDICTIONS])
    lines = (tmp_path / folder.PREDICTIONS).read_text().splitlines()
    assert lines[0].startswith("id,class")
    assert {int(line.split(",")[0]) for line in lines[1:]} == set(range(6, 24))
    merged = join_parts(job, parts)
    whole = infer.complete(job, merged, tmp_path, ())
    found = {metric.name: metric for metric in whole.utility}
    assert found["answers equal to plaintext"].value == 1.0
    assert found["accuracy"].value == found["accuracy"].reference
    assert ("AUC" in found) == (reveal == "output")
    for metered, forecast in zip(
        sorted(without_setup(whole.metered).traffic, key=str),
        sorted(whole.forecast.cost.traffic, key=str),
        strict=True,
    ):
        assert metered == forecast
    assert whole.metered.online_rounds == whole.forecast.cost.online_rounds
    (open_,) = (one for one in whole.claims if "columns of the other owners" in one.subject)
    assert open_.guarantee == "no guarantee"
    assert any(one.subject.startswith("ids that not all") for one in whole.claims)


def test_scores_give_the_receiver_the_columns_of_the_other(make_job, tmp_path):
    # The attack behind "no guarantee": whoever knows the model, and whoever may ask often enough
    # can imitate it, solves for what the other owner adds to each row.
    lines = run(make_job(protocol__reveal="output"), tmp_path)["insurer"].files[folder.PREDICTIONS]
    (weights,) = parse_layers(["dense 1"], (COLUMNS,), seed=3).state_dict()["0.weight"].numpy()
    bias = float(parse_layers(["dense 1"], (COLUMNS,), seed=3).state_dict()["0.bias"])
    for line in lines.splitlines()[1:]:
        one, _, score, _ = line.split(",")
        own = float(weights[2:] @ PEOPLE[int(one), 2:])
        assert float(score) - bias - own == pytest.approx(
            float(weights[:2] @ PEOPLE[int(one), :2]), abs=2.0**-8
        )


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"protocol__kind": "permuted2"}, "rows of all owners; use sealed or permuted3"),
        ({"data__owner": "dealer"}, "wanted one of the owners bank, insurer"),
        ({"model__owner": "bank"}, "leave model.owner out"),
        ({"model__inputs": [1, 5]}, "columns make flat rows"),
        ({"data__owners": {"insurer": {"set": "digits"}}}, "two owners of columns or more"),
    ],
)
def test_a_wrong_job_by_columns_is_refused(make_job, changes, words):
    with pytest.raises(ConfigError, match=words):
        make_job(**changes)


def test_columns_that_the_model_does_not_take_are_refused(make_job, tmp_path):
    owners = {
        "bank": write_table(tmp_path / "narrow.csv", range(20), [0], label=False),
        "insurer": write_table(tmp_path / "other.csv", range(20), [2, 3, 4], label=False),
    }
    with pytest.raises(DisagreementError, match="4 columns in all, the model wants 5"):
        run(make_job(data__owners=owners), tmp_path)


def test_the_model_is_the_one_of_the_shares(make_job, tmp_path):
    lines = run(make_job(protocol__reveal="output"), tmp_path)["insurer"].files[folder.PREDICTIONS]
    module = parse_layers(["dense 1"], (COLUMNS,), seed=3).double()
    for line in lines.splitlines()[1:]:
        one, _, score, label = line.split(",")
        with torch.no_grad():
            plain = float(module(torch.from_numpy(PEOPLE[int(one)])[None]))
        assert float(score) == pytest.approx(plain, abs=2.0**-8)
        assert int(label) == SICK[int(one)]


def test_a_book_of_trainings_is_refused_by_name(make_job):
    owners = {name: {"set": "breast-cancer"} for name in ("bank", "insurer")}
    owners["bank"] |= {"book": "spent.json", "most_epsilon": 2.0}
    with pytest.raises(ConfigError, match=r"data\.owners\.bank\.book: .* spend nothing"):
        make_job(data__owners=owners)
