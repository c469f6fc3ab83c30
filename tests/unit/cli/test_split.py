"""Split jobs: their file, their parts in threads, and what the result says."""

import io
import tomllib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from support.machine import Disk
from support.split import run_job
from tacit.cli.commands.advise import advise_job, show_trials
from tacit.cli.commands.split import parse_bytes
from tacit.errors import ConfigError, DataError
from tacit.jobs import split
from tacit.jobs.split import SplitJob, attack, check_inputs, models_folder
from tacit.party import Progress
from tacit.spec import read_record
from tacit.split.rows import load_part, load_whole
from tacit.split.top import TopTrainer
from tacit.transport.memory import MemoryLane

RATE = {"label_rate": 0.06}
JOBS = Path(__file__).parents[3] / "examples" / "jobs"


def make(tmp_path, **changes):
    raw = {
        "job": {"name": "test", "kind": "split", "out": str(tmp_path / "out")},
        "parties": {"lab": {}, "clinic": {}},
        "data": {"set": "iris", "features": ["clinic"], "labels": "lab"},
        "model": {"kind": "mlp", "width": 8},
        "train": {"epochs": 6, "batch": 15, "rate": 0.01},
    }
    for key, table in changes.items():
        raw[key] = {**raw.get(key, {}), **table}
    return read_record(raw, SplitJob, source="test")


def test_a_split_job_trains_serves_and_attacks_itself(tmp_path):
    job = make(
        tmp_path,
        split={
            "compress": {"kind": "randtopk", "k": 3},
            "defend": {"kind": "potential-energy", "weight": 0.5},
        },
        audit={"sweep": [0.5], "before": "bottom.first"},
        train={"epochs": 20},
    )
    parts = run_job(job)
    lab, clinic = parts["lab"].result, parts["clinic"]
    names = [metric.name for metric in lab.utility]
    assert names[0] == "accuracy"
    assert lab.utility[0].value > 0.7
    at = names.index("calibration error")
    assert {"F1", "AUC"} < set(names[:at])
    assert names[at + 1].startswith("fine-tuning on what was sent")
    assert {curve.title for curve in lab.curves} == {
        "Accuracy against bytes",
        "Labels of training rows, read off gradients",
        "Loss",
        "The cut layer, PCA",
    }
    lines = clinic.files["predictions.csv"].splitlines()
    assert lines[0] == "row,prediction"
    assert len(lines) == 1 + 45
    assert {one.checkpoints for one in parts.values()} == {
        (path,) for path in tmp_path.glob(".out-*.state/*")
    }
    assert sorted(path.name for path in models_folder(job.out).iterdir()) == [
        "clinic.npz",
        "lab.npz",
    ]
    said = []
    progress = Progress(lambda stage, done, total: said.append((stage, done, total)))
    whole = attack(job, lab, (), progress)
    assert said[0][0] == "attacking labels at the cut"
    assert said[-1] == ("sweeping the defence potential-energy", 1, 1)
    found = {metric.name: metric for metric in whole.utility}
    assert "fine-tuning, 1 label per class, before the cut at bottom.first" in found
    assert found["k-means"].reference == found["k-means on the inputs"].value
    assert found["input reconstruction"].reference is not None
    assert [c.name for c in whole.curves if c.title.startswith("Attack success")] == [
        "the bottom model, potential-energy, weight swept",
        "training labels by gradients, potential-energy, weight swept",
        "from scratch: perfect protection below",
    ]


def test_two_owners_of_columns_and_a_binary_label_measure_the_gradient_norm(tmp_path):
    job = make(
        tmp_path,
        parties={"bank": {}},
        data={"set": "breast-cancer", "features": ["clinic", "bank"]},
        train={"epochs": 3, "batch": 64, "class_weights": [1.0, 2.0]},
    )
    parts = run_job(job)
    names = [metric.name for metric in parts["lab"].result.utility]
    assert "gradient norm at bank, last epoch" in names
    found = {metric.name: metric for metric in parts["lab"].result.utility}
    for owner in ("clinic", "bank"):
        assert found[f"gradient clusters, no label, at {owner}"].value > 0.95
        assert f"gradient clusters, 1 label per class, at {owner}" in found
    told, unprotected = parts["lab"].result.notes
    assert told.startswith("Gradients gave away")
    assert "not these labels" in unprotected
    assert parts["lab"].result.claims[0].subject.startswith("labels of the rows trained on")
    assert parts["lab"].result.claims[0].guarantee == "no guarantee"
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
        "train": {"epochs": 10, "batch": 10, "rate": 0.01},
    }
    job = read_record(raw, SplitJob, source="test")
    check_inputs(job, ["clinic", "lab"])
    x, y = (load_part(job, party, ()) for party in ("clinic", "lab"))
    assert x.counts == y.counts == (42, 18)
    assert run_job(job)["lab"].result.utility[0].value > 0.8
    with pytest.raises(ConfigError, match="not in one place"):
        load_whole(job, ())
    gone = replace(job, data=replace(job.data, files={"clinic": tmp_path / "none.csv"}))
    with pytest.raises(DataError, match="no such file"):
        check_inputs(gone, ["clinic"])
    with pytest.raises(ConfigError, match=r"data\.files\.lab: missing"):
        check_inputs(gone, ["lab"])


def test_a_cut_inside_the_model_works_with_a_known_set(tmp_path):
    job = make(tmp_path, model={"cut": "first"}, train={"epochs": 8})
    assert run_job(job)["lab"].result.utility[0].value > 0.7


@pytest.mark.parametrize("owners", [["clinic"], ["clinic", "bank"]])
def test_the_label_owners_part_may_have_a_hidden_layer(tmp_path, owners):
    parties = {name: {} for name in owners}
    job = make(
        tmp_path,
        parties=parties,
        data={"set": "iris", "features": owners},
        model={"hidden": 16},
        train={"epochs": 12},
    )
    assert run_job(job)["lab"].result.utility[0].value > 0.7
    with np.load(models_folder(job.out) / "lab.npz") as arrays:
        shapes = sorted(arrays[name].shape for name in arrays.files)
    assert shapes[-2:] == [(16,), (16, 8 * len(owners))]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"split": {"compress": {"kind": "topk"}}}, "needs k"),
        ({"split": {"defend": {"kind": "potential-energy"}}}, "needs weight"),
        ({"data": {"features": ["lab"]}}, "owns labels and features: it can train alone"),
        ({"data": {"labels": "nobody"}}, "data.labels: wanted one of the parties"),
        ({"model": {"kind": "mpl"}}, "did you mean 'mlp'"),
        ({"model": {"hidden": -1}}, "hidden: wanted a whole number of at least 0"),
        ({"audit": {"sweep": [1.0]}}, "audit.sweep: wanted split.defend"),
        ({"audit": {"ray": "local"}}, r"audit.ray: wanted audit\.sweep"),
        ({"train": {"class_weights": [1.0, -1.0]}}, "class_weights: wanted above 0"),
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
        ({"train": {"label_rate": -1.0}}, "label_rate: wanted above 0, got -1"),
    ],
)
def test_a_file_that_makes_no_sense_is_refused_by_key(tmp_path, changes, message):
    with pytest.raises(ConfigError, match=message):
        make(tmp_path, **changes)


def test_the_label_owner_may_learn_at_a_rate_of_its_own(tmp_path):
    paces = [make(tmp_path, train=extra).train for extra in ({}, RATE)]
    assert [(pace.rate, pace.top_rate) for pace in paces] == [(0.01, 0.01), (0.01, 0.06)]


@pytest.mark.parametrize(
    ("text", "count"), [("2MB", 2_000_000), ("500kB", 500_000), ("1.5 MiB", 1_572_864), ("9", 9)]
)
def test_amounts_of_bytes_are_read(text, count):
    assert parse_bytes(text) == count


@pytest.mark.parametrize("text", ["", "much", "2TBs", "-1MB", "0"])
def test_amounts_that_are_none_are_refused(text):
    with pytest.raises(ConfigError, match="an amount of bytes"):
        parse_bytes(text)


def test_defences_are_combined_and_t_sne_is_drawn(tmp_path):
    job = make(
        tmp_path,
        split={
            "defend": {"kind": "potential-energy", "weight": 1, "warmup": 5},
            "also_defend": [
                {"kind": "distance-correlation", "weight": 0.5},
                {"kind": "label-dp", "epsilon": 6.0},
                {"kind": "gradient-noise", "scale": 0.1},
            ],
        },
        audit={"tsne": True},
    )
    assert [one.kind for one in job.defences] == [
        "potential-energy",
        "distance-correlation",
        "label-dp",
        "gradient-noise",
    ]
    lab = run_job(job)["lab"].result
    titles = {curve.title for curve in lab.curves}
    assert {"The cut layer, PCA", "The cut layer, t-SNE"} <= titles
    assert lab.claims[0].epsilon == 6.0


def advise(job, budget, tmp_path):
    path = tmp_path / "job.toml"
    path.write_text(job)
    return advise_job(path, budget, seeds=1, console=Console(file=io.StringIO()))


IRIS = """
[job]
name = "iris"
kind = "split"
[parties.lab]
[parties.clinic]
[data]
set = "iris"
features = ["clinic"]
labels = "lab"
[model]
width = 16
[train]
epochs = 3
batch = 15
"""


def test_advice_keeps_the_budget_and_is_a_line_of_the_job_file(tmp_path):
    trials, advice = advise(IRIS, 12_000, tmp_path)
    assert {one.candidate.compression.kind for one in trials} >= {"topk", "randtopk", "shrink"}
    assert all(one.candidate.training_bytes <= 12_000 for one in trials)
    assert advice.trial in trials
    chosen = tomllib.loads(f"[split]\n{advice.line}")["split"]["compress"]
    assert make(tmp_path, split={"compress": chosen}).split.compress.kind == chosen["kind"]
    assert show_trials(trials, advice).row_count == len(trials)


def test_advice_is_refused_where_it_cannot_be_given(tmp_path):
    with pytest.raises(ConfigError, match="within 10 bytes; the smallest takes"):
        advise(IRIS, 10, tmp_path)
    several = IRIS.replace('["clinic"]', '["clinic", "bank"]') + "[parties.bank]\n"
    with pytest.raises(ConfigError, match="one feature owner"):
        advise(several, 12_000, tmp_path)
    with pytest.raises(ConfigError, match='kind "split"'):
        advise(IRIS.replace('"split"', '"predict"'), 12_000, tmp_path)


class KilledError(Exception):
    """Stands for a kill."""


@pytest.mark.parametrize("at", ["the very end", "the last pass"])
def test_a_job_that_goes_on_has_measured_all_that_was_sent(tmp_path, monkeypatch, at):
    """On 0.2 one that went on from its very end said "not measured" for 100 %."""
    compress = {"compress": {"kind": "randtopk", "k": 3}}
    # 105 rows, 7 batches a pass: the fourth of six passes ends at step 28.
    pace = {"epochs": 6, "checkpoint_every": 4}
    unbroken = run_job(make(tmp_path / "whole", split=compress, train=pace))["lab"].result
    job, save = make(tmp_path, split=compress, train=pace), split.save_weights
    step = TopTrainer._take

    def dying(path, module):
        if path.name == "lab.npz":
            raise KilledError
        save(path, module)

    def dying_late(self, one, targets):
        if one.number == 41:
            raise KilledError
        step(self, one, targets)

    with monkeypatch.context() as patch:
        if at == "the very end":
            patch.setattr(split, "save_weights", dying)
        else:
            patch.setattr(TopTrainer, "_take", dying_late)
        with pytest.raises(KilledError):
            run_job(job)
    again = run_job(job)["lab"].result
    told = [
        [(one.name, one.value) for one in found.utility if "gradient" in one.name]
        for found in (unbroken, again)
    ]
    assert told[0]
    if at == "the very end":
        assert told[0] == told[1]
        assert unbroken.notes == again.notes
    assert not any("not measured" in note for note in again.notes)


def test_labels_are_randomised_by_a_key_that_a_power_cut_does_not_lose(tmp_path, monkeypatch):
    """A second draw, after the first was lost, would tell more of the labels."""
    hidden = {"defend": {"kind": "label-dp", "epsilon": 2.0}}
    job = make(tmp_path, split=hidden, train={"epochs": 1, "checkpoint_every": 4})
    disk, put, early = Disk(monkeypatch, tmp_path), MemoryLane.put, []

    def leaving(self, packet, *, check):
        if disk.loose:
            early.append((packet.head.tag, sorted(disk.loose)))
        put(self, packet, check=check)

    monkeypatch.setattr(MemoryLane, "put", leaving)
    run_job(job)
    assert early == []
    written = [name for act, name in disk.acts if act == "rename"]
    assert written.index("labels.npz") < min(
        at for at, name in enumerate(written) if name.startswith("step-")
    )
