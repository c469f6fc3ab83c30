import gzip
import json

import numpy as np
import pytest

from tacit.errors import DataError
from tacit.verify import load_ensemble
from tacit.verify.models import load
from tacit.verify.models.load import store_ensemble
from tacit.verify.models.xgboost import read_ubjson


def test_a_file_of_another_kind_is_refused(tmp_path):
    (tmp_path / "model.bin").write_bytes(b"\x00\x01\x02")
    with pytest.raises(DataError, match="neither an XGBoost model"):
        load_ensemble(tmp_path / "model.bin")


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(DataError, match="cannot read"):
        load_ensemble(tmp_path / "none.json")


def test_ubjson_values_are_read():
    assert read_ubjson(b"{i\x01aI\x01\x00i\x01b[$d#i\x02\x3f\x80\x00\x00\x40\x00\x00\x00}")[
        "b"
    ].tolist() == [1.0, 2.0]
    assert read_ubjson(b"[Ti\x05SU\x02hiZ]") == [True, 5, "hi", None]


@pytest.mark.parametrize(
    "data",
    [
        b"{",
        b"[$d#L\x7f\xff\xff\xff\xff\xff\xff\xff",
        b"{i\x01a?}",
        b"[" * 500,
        b"[#l\x7f\xff\xff\xff",
    ],
)
def test_broken_ubjson_is_refused(data):
    with pytest.raises(DataError):
        read_ubjson(data)


def test_a_small_file_that_unpacks_to_more_than_a_model_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(load, "LARGEST_FILE", 1 << 16)
    (tmp_path / "bomb.json.gz").write_bytes(gzip.compress(b"{" + b" " * (1 << 17)))
    with pytest.raises(DataError, match="larger than"):
        load_ensemble(tmp_path / "bomb.json.gz")


def test_a_broken_gzip_and_a_model_nested_too_deeply_are_refused(tmp_path):
    packed = gzip.compress(b"{}" * 100)
    torn = (packed[:10] + b"\xff" + packed[11:], packed[:15])
    for data in (*torn, b"[" * 100_000, b'{"a":' * 100_000):
        (tmp_path / "model").write_bytes(data)
        with pytest.raises(DataError, match=r"cannot read|not a valid"):
            load_ensemble(tmp_path / "model")


ODD = (
    None,
    True,
    -1,
    0,
    2**40,
    10**400,
    1e308,
    float("nan"),
    "",
    "x",
    "-1",
    [],
    [[1]],
    {},
    {"a": 1},
)


def changed(tree, rng):
    """Replace one value somewhere in a decoded file by one of another type or size."""
    at = tree
    while True:
        keys = list(at) if isinstance(at, dict) else list(range(len(at)))
        key = keys[int(rng.integers(len(keys)))]
        inner = at[key]
        if not (isinstance(inner, dict | list) and inner) or rng.random() < 0.1:
            at[key] = ODD[int(rng.integers(len(ODD)))]
            return tree
        at = inner


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # numbers beyond a type: refused or harmless
@pytest.mark.parametrize("kind", ["xgboost", "lightgbm", "stored"])
def test_no_changed_model_file_ends_in_an_error_that_is_not_about_the_file(brute, tmp_path, kind):
    rng = np.random.default_rng(0)
    x, targets = brute.training_set()
    path, refused, tries = tmp_path / "model", 0, 400
    if kind == "xgboost":
        library = pytest.importorskip("xgboost")
        model = library.XGBClassifier(n_estimators=2, max_depth=2, n_jobs=1)
        data = model.fit(x, targets["several"]).get_booster().save_raw("json")
        changes = (json.dumps(changed(json.loads(data), rng)).encode() for _ in range(tries))
    elif kind == "lightgbm":
        library = pytest.importorskip("lightgbm")
        model = library.LGBMClassifier(n_estimators=2, num_leaves=4, n_jobs=1, verbose=-1)
        lines = model.fit(x, targets["several"]).booster_.model_to_string().splitlines()
        values = [i for i, line in enumerate(lines) if "=" in line]

        def change():
            i = int(rng.choice(values))
            name = lines[i].split("=")[0]
            odd = str(ODD[int(rng.integers(len(ODD)))])
            return "\n".join([*lines[:i], f"{name}={odd}", *lines[i + 1 :]]).encode()

        changes = (change() for _ in range(tries))
    else:
        data = store_ensemble(brute.random_ensemble(rng, scores=2, values=brute.reals))

        def damage():
            broken = bytearray(data)
            broken[int(rng.integers(len(broken)))] ^= int(rng.integers(1, 256))
            return bytes(broken)

        changes = (damage() for _ in range(tries))
    for one in changes:
        path.write_bytes(one)
        try:
            load_ensemble(path)
        except DataError:
            refused += 1
    assert refused > tries // 8


def test_json_of_another_library_is_refused_by_what_it_is_not(tmp_path):
    (path := tmp_path / "model.json").write_text('{"oblivious_trees": []}')
    with pytest.raises(DataError, match=r"no model of XGBoost's.*save_ensemble"):
        load_ensemble(path)
