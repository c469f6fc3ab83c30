"""What a run would refuse is refused by `tacit plan`: all of it at once, before anything starts."""

import csv
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from support.jobs import take_parts
from support.split import run_job as run_split
from tacit.cli.commands.plan import plan_file
from tacit.errors import ConfigError, InputError
from tacit.jobs.folder import PREDICTIONS
from tacit.jobs.kind import Asked
from tacit.jobs.kinds import find_kind, kind_of, load_job
from tacit.jobs.toml import read_toml, write_toml
from tacit.spec import ListedError, read_record

JOBS = Path(__file__).parents[3] / "examples" / "jobs"
PARTIES = {"bank": {}, "shop": {}, "dealer": {}}


def read(raw):
    return read_record(raw, find_kind(raw, "job.toml").record, source="job.toml")


def table(path, ids):
    coins = np.random.default_rng(0)
    rows = np.column_stack([ids, coins.random((len(ids), 2)), coins.integers(0, 2, len(ids))])
    np.savetxt(path, rows, "%.9g", delimiter=",", header="id,a,b,y", comments="")
    return str(path)


def fit(bank, shop):
    owners = {"bank": {"file": bank, "id": "id"}, "shop": {"file": shop, "id": "id", "label": "y"}}
    return read(
        {
            "job": {"name": "j", "kind": "fit"},
            "parties": PARTIES,
            "data": {"split": "columns", "labels": "shop", "owners": owners},
            "learner": {"kind": "gaussian-bayes"},
            "protocol": {"kind": "sealed", "dealer": "dealer"},
            "reveal": {"score": ["shop"]},
        }
    )


def train(bank, shop):
    owners = {"bank": {"file": bank, "id": "id"}, "shop": {"file": shop, "id": "id", "label": "y"}}
    return read(
        {
            "job": {"name": "j", "kind": "train"},
            "parties": PARTIES,
            "data": {"split": "columns", "labels": "shop", "owners": owners},
            "model": {"layers": ["dense 2"]},
            "training": {"batch": 4},
            "protocol": {"kind": "sealed", "dealer": "dealer"},
        }
    )


def split(bank, shop):
    return read(
        {
            "job": {"name": "j", "kind": "split"},
            "parties": {"bank": {}, "shop": {}},
            "data": {
                **{"features": ["bank"], "labels": "shop", "match": "id", "label": "y"},
                **{"classes": 2, "files": {"bank": bank, "shop": shop}},
            },
            "model": {"kind": "mlp"},
        }
    )


@pytest.mark.parametrize("kind", [fit, train, split])
@pytest.mark.parametrize(
    ("bank", "shop", "words"),
    [
        (range(20), range(100, 120), ["have no id in common"]),
        ([1, 1, *range(4, 20)], [*range(18), 17], ["'bank': the id in row 2", "'shop': the id in"]),
        ([1.5, *range(2, 20)], range(20), ["line 2, column 'id': wanted a text or a whole"]),
    ],
    ids=["disjoint", "doubled", "fraction"],
)
def test_ids_that_no_run_can_match_are_refused_by_the_plan(tmp_path, kind, bank, shop, words):
    job = kind(table(tmp_path / "bank.csv", list(bank)), table(tmp_path / "shop.csv", list(shop)))
    with pytest.raises(InputError) as refused:
        kind_of(job).forecast(job, Asked())
    for one in words:
        assert one in str(refused.value)


def named(path, people, *, label=True):
    """Write rows of people whose ids are text in two columns, in an order of the owner's own."""
    order = np.random.default_rng(len(str(path))).permutation(len(people))
    lines = [
        f'"{people[at][0]}",{people[at][1]},{at % 7 / 8},{at % 5 / 8},{at % 2}' for at in order
    ]
    heads = "city,number,a,b,y" if label else "city,number,a,b,c"
    path.write_text("\n".join([heads, *lines]) + "\n", encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("kind", [fit, train, split])
def test_ids_of_text_in_several_columns_are_matched_by_every_kind(tmp_path, kind):
    both = [("Köln, Süd", f"11010119900307{at:04}") for at in range(12)]
    both += [("Bonn|A", f"0{at}") for at in range(12)]
    others = [("Bonn", f"A|0{at}") for at in range(9)] + [("Köln, Süd", f"{at}") for at in range(9)]
    wide = [(city.replace("K", "\uff2b"), f" {number} ") for city, number in both]
    bank = named(tmp_path / "bank.csv", both + others, label=False)
    shop = named(tmp_path / "shop.csv", wide + [("Bonn\\", f"A|0{at}") for at in range(9)])
    job = kind(bank, shop)
    by = ("city", "number")
    if kind is split:
        job = replace(job, data=replace(job.data, match=by))
    else:
        owners = {name: replace(one, id=by) for name, one in job.data.owners.items()}
        job = replace(job, data=replace(job.data, owners=owners))
        if kind is fit:
            job = replace(job, reveal=replace(job.reveal, answers=("shop",)))
    outlook = kind_of(job).forecast(job, Asked())
    told = {leak.to: leak.elements for leak in outlook.leaks if "all owners have" in leak.what}
    assert told == {"bank": len(both), "shop": len(both)}
    parts = (run_split(job) if kind is split else take_parts(job, tmp_path)).values()
    shown = {leak for part in parts for leak in part.result.leakage if "have" in leak.what}
    assert {leak.elements for leak in shown if "all owners" in leak.what} == {len(both)}
    tables = [part.files[PREDICTIONS] for part in parts if PREDICTIONS in part.files]
    known = {f"{city}|{number}".replace("Bonn|A", "Bonn\\|A") for city, number in both}
    for text in tables:
        _, *rows = csv.reader(text.splitlines())
        assert {row[0] for row in rows} <= known
        assert all(float(row[1]) in (0, 1) for row in rows)
    assert bool(tables) == (kind is not train)


def test_doubled_names_are_refused_by_the_plan_of_a_fuzzy_matching(tmp_path):
    job = fit(table(tmp_path / "bank.csv", [1, 1, 2]), table(tmp_path / "shop.csv", [1, 2, 3]))
    job = replace(job, data=replace(job.data, matching="fuzzy"))
    with pytest.raises(InputError, match="'bank': the id in row 2 occurs before"):
        kind_of(job).forecast(job, Asked())


def test_what_goes_against_privacy_is_refused_all_at_once_when_the_job_is_read():
    raw = read_toml(JOBS / "train-private.toml")
    raw["protocol"] |= {"show_to": ["north"], "score_to": ["north"]}
    raw["privacy"]["looks"] = "none"
    raw["ring"] = {"frac_bits": 12}
    raw["training"]["accumulate"] = 2
    raw["data"] |= {"split": "columns", "labels": "north"}
    del raw["data"]["features"]
    with pytest.raises(ListedError) as refused:
        read(raw)
    keys = {problem.key for problem in refused.value.problems}
    assert keys == {
        *("protocol.show_to", "protocol.score_to", "ring.frac_bits", "training.accumulate"),
        "data.split",
    }


MISSING = {
    "fit-cipher": ("tenseal", "zstandard"),
    "infer-encrypted": ("tenseal",),
    "infer-alone": ("numba",),
    "audit-private": ("opacus",),
}


@pytest.mark.parametrize("name", MISSING)
def test_a_missing_extra_is_named_by_plan_and_before_a_run_starts(name, monkeypatch):
    for module in MISSING[name]:
        monkeypatch.setitem(sys.modules, module, None)
    job = load_job(JOBS / f"{name}.toml")
    with pytest.raises(ConfigError, match=" and ".join(MISSING[name])) as refused:
        plan_file(JOBS / f"{name}.toml", Asked(), model=None, network=None)
    assert "pip install 'tacit-ml[" in str(refused.value)
    with pytest.raises(ConfigError, match="not installed here"):
        kind_of(job).check_inputs(job, tuple(job.parties))


def test_a_plan_is_refused_with_everything_at_once(tmp_path, monkeypatch):
    raw = read_toml(JOBS / "fit-cipher.toml")
    for at, owner in enumerate(raw["data"]["owners"].values()):
        for key in ("set", "rows", "columns"):
            owner.pop(key, None)
        owner |= {"file": table(tmp_path / f"{at}.csv", range(40 * at, 40 * at + 20)), "id": "id"}
    raw["data"]["owners"][raw["data"]["labels"]]["label"] = "y"
    path = tmp_path / "job.toml"
    path.write_text(write_toml(raw))
    monkeypatch.setitem(sys.modules, "tenseal", None)
    with pytest.raises(ListedError) as refused:
        plan_file(path, Asked(), model=None, network=None)
    said = [problem.text for problem in refused.value.problems]
    assert len(said) == 2
    assert "tenseal" in " ".join(said)
    assert "no id in common" in " ".join(said)


WITHOUT = """
import sys
from importlib.abc import MetaPathFinder
from pathlib import Path

class Nothing(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("numba", "z3"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Nothing())
from tacit.jobs.kinds import KINDS, kind_of, load_job
from tacit.jobs.kind import Asked
from tacit.errors import ConfigError

for name, entry in KINDS.items():
    try:
        entry()
    except ConfigError as error:
        print(name, "wants", error)
for path in sys.argv[1:]:
    job = load_job(Path(path))
    kind_of(job).forecast(job, Asked())
    print(job.job.name, "is planned")
"""


@pytest.mark.slow
def test_jobs_of_no_other_kind_than_verify_want_a_compiler():
    jobs = [JOBS / "fl-hospitals.toml", JOBS / "audit-digits.toml"]
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, *map(str, jobs)],
        capture_output=True,
        text=True,
        check=True,
    )
    lines = done.stdout.splitlines()
    assert lines == [
        "verify wants tacit.verify needs Numba; install it with: pip install 'tacit-ml[verify]'",
        "fl-hospitals is planned",
        "audit-digits is planned",
    ]
