"""Bytes of others: a slice for every day, what failed before, and that a fault is found."""

import io
import random
import subprocess
import sys
import tomllib
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from fuzz.foreign import Search, judge
from fuzz.readers import JOBS, READERS, write_gguf

TESTS = Path(__file__).parents[1]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", READERS)
def test_changed_inputs_are_read_or_refused_by_name(name):
    search, coins = Search(name), random.Random(5)  # noqa: S311 - no secrets
    for _ in range(40):
        search.take(coins.randbytes(coins.randrange(2, 60)))
    assert not search.found


def settings(**changes):
    """Write GGUF with other settings of the tokenizer."""
    tree = READERS["gguf"].seeds()[1 if "merges" in changes else 0]
    more = {f"tokenizer.ggml.{name}": value for name, value in changes.items()}
    return write_gguf(tree | {"settings": tree["settings"] | more})


def folder(file, **changes):
    """Give the files of a tokenizer, one of them with other values."""
    tree = READERS["tokenizer"].seeds()[0]
    return tree | {file: tree[file] | changes}


def packed(flag=0, method=0):
    """Write an npz whose first array has a flag or a method that Python cannot unpack."""
    file = io.BytesIO()
    np.savez(file, features=np.ones((3, 2)), y=np.arange(3))
    data = bytearray(file.getvalue())
    for mark, at in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        place = data.index(mark) + at
        data[place] |= flag
        data[place + 2] |= method
    return bytes(data)


def locked():
    """Write an ensemble whose arrays are said to be encrypted."""
    data = bytearray(READERS["trees"].seeds()[-1])
    for mark, at in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        data[data.index(mark) + at] |= 1
    return bytes(data)


def renamed():
    """Write a table with a column whose name is no text."""
    return READERS["parquet"].seeds()[0].replace(b"\x01a", b"\x01\xf1")


def beside():
    """Write an npz with a member that is no array."""
    file = io.BytesIO()
    np.savez(file, features=np.ones((3, 2)), y=np.arange(3))
    return file.getvalue().replace(b"features.npy", b"features.npz")


def squeezed():
    """Write an npz whose packed bytes are not what they were."""
    file = io.BytesIO()
    np.savez_compressed(file, features=np.arange(4000.0).reshape(-1, 2), y=np.arange(2000))
    data = bytearray(file.getvalue())
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        assert archive.namelist()
    data[120:140] = b"\xff" * 20
    return bytes(data)


def rebuilt():
    """Write a .pt whose pickle hands a table to what rebuilds a tensor."""
    file = io.BytesIO()
    torch.save({"0.weight": torch.ones(3, 2)}, file)
    return file.getvalue().replace(b"FloatStorage", b"FloatStoragf")


def job(name, table, **changes):
    """Give the tables of an example, one of them with other values."""
    tree = tomllib.loads((JOBS / f"{name}.toml").read_text())
    return tree | {table: tree[table] | changes}


FOUND = {
    "a share beyond all numbers": (
        "job",
        lambda: job("fl-shuffle", "federated", colluding_share=-1e308),
    ),
    "scores are fewer than tokens": ("gguf-bytes", lambda: settings(scores=[1.0])),
    "types are a number": ("gguf-bytes", lambda: settings(token_type=7)),
    "merges are a number": ("gguf-bytes", lambda: settings(merges=7)),
    "an id is a list": ("gguf-bytes", lambda: settings(bos_token_id=[1])),
    "an id is a fraction": ("gguf-bytes", lambda: settings(eos_token_id=1.5)),
    "a token is half a character": (
        "tokenizer",
        lambda: folder("tokenizer_config.json", eos_token="\ud800"),  # noqa: S106 - a token
    ),
    "a packed array is damaged": ("npz", squeezed),
    "packed in a way that Python lacks": ("npz-rows", lambda: packed(method=77)),
    "an encrypted array": ("npz-rows", lambda: packed(flag=1)),
    "an encrypted ensemble": ("trees", locked),
    "a column whose name is no text": ("parquet", renamed),
    "a member that is no array": ("npz-rows", beside),
    "a vocabulary of nothing": (
        "tokenizer",
        lambda: folder("tokenizer.json", model={"type": "BPE", "vocab": {}, "merges": []}),
    ),
    "a pickle of another kind": ("pt", rebuilt),
    "a step beyond all numbers": (
        "proof",
        lambda: (
            b'{"center": [0], "low": [0], "high": [0], "prediction": 1, "rho": null,'
            b' "sides": [[Infinity, 0, []]]}'
        ),
    ),
}


@pytest.mark.parametrize("name", FOUND)
def test_what_failed_once_is_refused_by_name(name):
    reader, make = FOUND[name]
    assert judge(READERS[reader], make()) is None


def test_a_fault_is_found_by_few_inputs(monkeypatch):
    """Who reads proofs takes one key for granted."""
    told = READERS["request"]

    def careless(tree):
        told.read(tree)
        return tree["messages"][1]["content"]

    monkeypatch.setitem(READERS, "request", replace(told, read=careless))
    search, coins = Search("request"), random.Random(0)  # noqa: S311 - no secrets
    for _ in range(300):
        search.take(coins.randbytes(20))
    assert any("KeyError" in one or "IndexError" in one for one in search.found)


@pytest.mark.slow
def test_five_minutes_of_foreign_bytes_fail_nowhere():
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "fuzz.foreign", "--minutes", "5", "--from", "77"],
        cwd=TESTS,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
