"""Split jobs: their file, their parts in threads, and what the result says."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tacit.cli.kind import Place
from tacit.cli.split import complete, models_folder, take_part
from tacit.cli.split_command import parse_bytes
from tacit.cli.split_data import check_inputs, load_part, load_whole
from tacit.cli.split_job import SplitJob
from tacit.cli.toml import read_record, read_toml
from tacit.errors import ConfigError, DataError
from tacit.party import Meeting, Usage, run_threads
from tacit.party.progress import Progress
from tacit.transport import Patience

JOBS = Path(__file__).parents[3] / "examples" / "jobs"
PATIENCE = Patience(connect_s=10, silence_s=20, heartbeat_s=1, stall_s=40)


def make(tmp_path, **changes):
    raw = {
        "job": {"name": "test", "kind": "split", "out": str(tmp_path / "out")},
        "parties": {"lab": {}, "clinic": {}},
        "data": {"set": "iris", "features": ["clinic"], "labels": "lab"},
        "model": {"kind": "mlp", "width": 8},
        "train": {"epochs": 6, "batch_rows": 15, "learning_rate": 0.01},
    }
    for key, table in changes.items():
        raw[key] = {**raw.get(key, {}), **table}
    return read_record(raw, SplitJob, source="test")


def run(job):
    def party(session):
        usage, progress = Usage(), Progress()
        place = Place(
            search=(),
            launched="threads",
            report=lambda: usage.report(
                name=session.me, role=job.role(session.me), progress=progress
            ),
            out=job.out,
        )
        return take_part(session, job, place)

    meeting = Meeting(parties=tuple(job.parties), job_digest=b"j" * 32, patience=PATIENCE)
    return run_threads(dict.fromkeys(job.parties, party), meeting)


def test_a_split_job_trains_serves_and_attacks_itself(tmp_path):
    job = make(
        tmp_path,
        split={
            "compress": {"kind": "randtopk", "k": 3},
            "defend": {"kind": "potential-energy", "weight": 0.5},
        },
        audit={"sweep": [0.5]},
        train={"epochs": 20},
    )
    parts = run(job)
    lab, clinic = parts["lab"].result, parts["clinic"]
    names = [metric.name for metric in lab.utility]
    assert names[0] == "accuracy"
    assert lab.utility[0].value > 0.7
    assert names[1].startswith("fine-tuning on what was sent")
    assert {curve.title for curve in lab.curves} == {
        "Accuracy against bytes",
        "Loss",
        "The cut layer, PCA",
    }
    lines = clinic.files["predictions.csv"].splitlines()
    assert lines[0] == "row,prediction"
    assert len(lines) == 1 + 45
    assert not (tmp_path / "out-state").exists()
    assert sorted(path.name for path in models_folder(job.out).iterdir()) == [
        "clinic.npz",
        "lab.npz",
    ]
    whole = complete(job, lab, tmp_path, ())
    found = {metric.name: metric for metric in whole.utility}
    assert found["k-means"].reference == found["k-means on the inputs"].value
    assert found["input reconstruction"].reference is not None
    assert [c.name for c in whole.curves if c.title.startswith("Attack success")] == [
        "potential-energy, weight swept",
        "from scratch: perfect protection below",
    ]


def test_two_owners_of_columns_and_a_binary_label_measure_the_gradient_norm(tmp_path):
    job = make(
        tmp_path,
        parties={"bank": {}},
        data={"set": "breast-cancer", "features": ["clinic", "bank"]},
        train={"epochs": 3, "batch_rows": 64},
    )
    parts = run(job)
    names = [metric.name for metric in parts["lab"].result.utility]
    assert "gradient norm at bank, last epoch" in names
    assert "predictions.csv" not in parts["bank"].files


def test_parties_bring_their_own_files(tmp_path):
    generator = np.random.default_rng(0)
    labels = np.arange(60) % 2
    rows = generator.normal(size=(60, 3)) + 3 * labels[:, None]
    header = "a,b,c\n" + "\n".join(",".join(map(str, row)) for row in rows.tolist())
    (tmp_path / "x.csv").write_text(header + "\n")
    (tmp_path / "y.csv").write_text(
        "id,sick\n" + "\n".join(f"{i},{y}" for i, y in enumerate(labels))
    )
    data = {
        "features": ["clinic"],
        "labels": "lab",
        "files": {"clinic": str(tmp_path / "x.csv"), "lab": str(tmp_path / "y.csv")},
        "label": "sick",
        "classes": 2,
    }
    raw = {
        "job": {"name": "test", "kind": "split", "out": str(tmp_path / "out")},
        "parties": {"lab": {}, "clinic": {}},
        "data": data,
        "model": {"kind": "mlp", "width": 8},
        "train": {"epochs": 10, "batch_rows": 10, "learning_rate": 0.01},
    }
    job = read_record(raw, SplitJob, source="test")
    check_inputs(job, ["clinic", "lab"])
    x, y = (load_part(job, party, ()) for party in ("clinic", "lab"))
    assert (len(x.train), len(x.test)) == (len(y.train), len(y.test)) == (42, 18)
    assert run(job)["lab"].result.utility[0].value > 0.8
    with pytest.raises(ConfigError, match="not in one place"):
        load_whole(job, ())
    gone = replace(job, data=replace(job.data, files={"clinic": tmp_path / "none.csv"}))
    with pytest.raises(DataError, match="no such file"):
        check_inputs(gone, ["clinic"])
    with pytest.raises(ConfigError, match=r"data\.files\.lab: missing"):
        check_inputs(gone, ["lab"])


def test_a_cut_inside_the_model_works_with_a_known_set(tmp_path):
    job = make(tmp_path, model={"cut": "first"}, train={"epochs": 8})
    assert run(job)["lab"].result.utility[0].value > 0.7


@pytest.mark.parametrize("name", ["split", "split-defended"])
def test_the_examples_are_whole(name):
    job = read_record(read_toml(JOBS / f"{name}.toml"), SplitJob, source=name)
    assert job.task(10).label_owner == "lab"
    assert job.role("clinic") == "feature owner"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"split": {"compress": {"kind": "topk"}}}, "needs k"),
        ({"split": {"defend": {"kind": "potential-energy"}}}, "needs weight"),
        ({"data": {"features": ["clinic", "lab"]}}, "owns labels and features"),
        ({"data": {"labels": "nobody"}}, "data.labels: wanted one of the parties"),
        ({"model": {"kind": "mpl"}}, "did you mean 'mlp'"),
        ({"audit": {"sweep": [1.0]}}, "audit.sweep: wanted split.defend"),
        ({"train": {"epochs": 0}}, "epochs: wanted at least 1"),
        ({"data": {"files": {"lab": "x.csv"}}}, "either 'set' or 'files'"),
        (
            {
                "parties": {"bank": {}},
                "data": {"features": ["clinic", "bank"]},
                "model": {"cut": "first"},
            },
            "several feature owners",
        ),
    ],
)
def test_a_file_that_makes_no_sense_is_refused_by_key(tmp_path, changes, message):
    with pytest.raises(ConfigError, match=message):
        make(tmp_path, **changes)


@pytest.mark.parametrize(
    ("text", "count"), [("2MB", 2_000_000), ("500kB", 500_000), ("1.5 MiB", 1_572_864), ("9", 9)]
)
def test_amounts_of_bytes_are_read(text, count):
    assert parse_bytes(text) == count


@pytest.mark.parametrize("text", ["", "much", "2TBs", "-1MB", "0"])
def test_amounts_that_are_none_are_refused(text):
    with pytest.raises(ConfigError, match="an amount of bytes"):
        parse_bytes(text)
