"""What a job states is done to columns: value by value, by name, and nothing else."""

from pathlib import Path

import numpy as np
import pytest

from tacit.data import ColumnTable, OwnerTable, Rows, Source, prepare_rows
from tacit.data.prepare import check_prepare, state_prepare
from tacit.data.source import Given
from tacit.errors import ConfigError, DataError
from tacit.federated import FederatedData
from tacit.federated.data import load_shards
from tacit.learners import FitData
from tacit.spec import RefusedError, read_record
from tacit.training import TrainData

CREDIT = Path(__file__).parents[4] / "shared/data/tabular/give_me_some_credit.parquet"
NAN = np.nan
TABLES = {
    "income": ColumnTable(impute=9.0, clip=(0.0, 99.0), log=True, divide=2.0),
    "age": ColumnTable(scale=(20.0, 60.0)),
    "late": ColumnTable(bins=(1.0, 3.0)),
    "region": ColumnTable(categories=(1.0, 2.0), others="feature"),
    "branch": ColumnTable(skip=True),
    "score": ColumnTable(mean=5.0, deviation=2.0),
}


def make(**columns):
    return Rows(features=np.stack([*columns.values()], axis=1), columns=tuple(columns))


def some():
    return make(
        income=np.array([NAN, -4.0, 1e9]),
        age=np.array([20.0, 40.0, 80.0]),
        late=np.array([0.0, 1.0, 3.0]),
        region=np.array([1.0, 2.0, 7.0]),
        branch=np.array([17.0, 18.0, NAN]),
        score=np.array([5.0, 9.0, 1.0]),
    )


def test_columns_go_through_what_is_stated_in_the_order_of_its_keys():
    found = prepare_rows(some(), TABLES, "data.prepare")
    assert found.scale == 1  # of the whole; of columns that are divided and no logarithm, theirs
    by_name = dict(zip(found.columns, found.features.T.tolist(), strict=True))
    assert by_name.pop("income") == pytest.approx([np.log(10) / 2, 0, np.log(100) / 2])
    assert by_name == {
        "age": [0, 0.5, 1.5],
        "late < 1": [1, 0, 0],
        "late >= 1 and < 3": [0, 1, 0],
        "late >= 3": [0, 0, 1],
        "region = 1": [1, 0, 0],
        "region = 2": [0, 1, 0],
        "region = other": [0, 0, 1],
        "score": [0, 2, -2],
    }


def test_a_row_becomes_the_same_whatever_rows_stand_beside_it():
    # So it costs no ε, and tells nothing: were anything taken from the rows, this would differ.
    whole = prepare_rows(some(), TABLES, "data.prepare").features
    for at in range(3):
        alone = prepare_rows(some().take([at]), TABLES, "data.prepare").features
        assert np.array_equal(alone[0], whole[at])


@pytest.mark.parametrize(
    ("tables", "words"),
    [
        ({"agee": ColumnTable()}, "have no column 'agee'; they have income, age"),
        ({"income": ColumnTable()}, "have 'age', 'late', 'region', 'branch', 'score' as well"),
        ({"*": ColumnTable()}, "row 1, column 'income': the value is missing"),
        ({**TABLES, "age": ColumnTable(categories=(20.0,))}, "row 2, column 'age': a value that"),
        ({**TABLES, "income": ColumnTable(impute=0.0, log=True)}, "row 2, column 'income': log"),
        ({"*": ColumnTable(skip=True)}, "no columns are left"),
    ],
)
def test_other_columns_and_values_are_refused_by_name_and_never_shown(tables, words):
    with pytest.raises(DataError, match=words) as caught:
        prepare_rows(some(), tables, "data.prepare")
    assert not {"1e+09", "1000000000", "40", "-4"} & set(str(caught.value).split())


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"mean": 1.0}, "both 'mean' and 'deviation'"),
        ({"divide": 2.0, "bins": [1.0]}, "got divide and bins"),
        ({"others": "feature"}, "goes with 'categories'"),
        ({"skip": True, "impute": 1.0}, "leave the other keys out"),
        ({"clip": [2.0, 1.0]}, "wanted rising numbers"),
        ({"scale": [1.0, 2.0, 3.0]}, "wanted two numbers, low < high"),
        ({"bins": []}, "wanted rising numbers"),
        ({"divide": 0.0}, "greater than 0"),
        ({"scales": [0, 1]}, "did you mean 'scale'"),
    ],
)
def test_what_cannot_be_done_to_a_column_is_refused_in_the_job(keys, words):
    with pytest.raises(ConfigError, match=words):
        read_record(keys, ColumnTable, source="job.toml")


def test_the_word_of_older_jobs_is_refused_with_the_one_that_took_its_place():
    raw = {"owners": {"a": {"file": "a.csv", "scale": [2.0]}}}
    for record in (TrainData, FitData):
        with pytest.raises(ConfigError, match=r"owners\.a\.scale: .* 'prepare' has taken"):
            read_record(raw, record, source="job.toml")
    with pytest.raises(ConfigError, match="scale: unknown key; 'prepare' has taken its place"):
        read_record({"file": "a.csv", "scale": [2.0]}, FederatedData, source="job.toml")


def test_owners_of_rows_prepare_alike_and_owners_of_columns_their_own():
    tables = {"age": ColumnTable(divide=90.0)}
    for record in (TrainData, FitData):
        with pytest.raises(RefusedError, match=r"owners\.a\.prepare: all owners of rows"):
            record(owners={"a": OwnerTable(prepare=tables)})
        with pytest.raises(RefusedError, match="columns of their own"):
            record(owners={"a": OwnerTable()}, split="columns", labels="a", prepare=tables)


def test_ids_and_labels_are_no_columns_and_what_is_missing_may_be_imputed(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("id,age,ill\n7,45,1\n9,,0\n")
    with pytest.raises(DataError, match=r"'age': wanted a"):
        Source(file=path, label="ill", id="id").load()
    tables = {"age": ColumnTable(impute=90.0, divide=90.0)}
    found = Source(file=path, label="ill", id="id", prepare=tables).load()
    assert (found.columns, found.ids) == (("age",), ("7", "9"))
    assert found.features.tolist() == [[0.5], [1.0]]
    frame = {"id": ["C7", "C9"], "age": [45.0, None]}
    given = Source(prepare=tables, id="id").load((), Given(x=frame, y=[1, 0]))
    assert (given.features.tolist(), given.ids) == ([[0.5], [1.0]], ("C7", "C9"))


def test_a_known_set_is_prepared_in_its_own_units():
    raw = Source(set="digits").load()
    assert raw.features.max() == 1
    found = Source(set="digits", prepare={"*": ColumnTable(divide=8.0)}).load()
    assert (found.features.max(), found.scale) == (2, 8)
    assert np.array_equal(found.features, raw.features * 2)
    with pytest.raises(DataError, match='wanted "\\*" alone'):
        prepare_rows(Rows(features=np.ones((2, 3, 3))), {"*": ColumnTable(bins=(1.0,))}, "p")


def test_a_model_is_not_asked_about_rows_that_were_prepared_otherwise():
    trained = state_prepare({"age": ColumnTable(divide=90.0), "sex": ColumnTable()})
    assert trained == {"age": {"divide": 90.0}, "sex": {}}
    check_prepare(trained, trained, "data.prepare")
    for stated in ({}, {"age": {"divide": 9.0}, "sex": {}}, {**trained, "b": {}}):
        with pytest.raises(ConfigError, match="prepared otherwise: wanted"):
            check_prepare(stated, trained, "data.prepare")


@pytest.mark.skipif(not CREDIT.exists(), reason="shared data is not here")
def test_columns_of_money_are_ready_to_train_on_and_the_same_at_every_client():
    named = {
        "MonthlyIncome": ColumnTable(impute=5400.0, log=True, mean=8.5, deviation=1.2),
        "DebtRatio": ColumnTable(clip=(0.0, 5000.0), log=True, divide=4.0),
        "NumberOfDependents": ColumnTable(impute=0.0, clip=(0.0, 5.0), divide=5.0),
        "age": ColumnTable(clip=(18.0, 100.0), scale=(18.0, 100.0)),
        "*": ColumnTable(clip=(0.0, 5.0)),
    }
    found = FederatedData(file=CREDIT, label="SeriousDlqin2yrs", prepare=named)
    shards = load_shards(found, 5, ())
    assert len(shards.columns) == 10
    assert not shards.state_far()
    # Rows are kept to test on by what the file holds: preparation changes no row's side.
    bare = {"*": ColumnTable(impute=0.0)}
    raw = load_shards(FederatedData(file=CREDIT, label=found.label, prepare=bare), 5, ())
    assert raw.test_labels.equal(shards.test_labels)
    assert "MonthlyIncome" in raw.state_far()
