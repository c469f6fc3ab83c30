"""`tacit audit`: what is read, found and refused, and the exit code of a broken claim."""

import copy
import itertools
import linecache
import sys
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from rich.console import Console

from tacit import report
from tacit.audit.targets import load_sides, trainer_of
from tacit.cli.commands.audit import audit
from tacit.cli.commands.group import Edge
from tacit.cli.screen import OnConsole
from tacit.errors import ClaimError, ConfigError, DataError
from tacit.jobs import folder
from tacit.jobs.audit import AuditJob, audit_job, check_inputs, make_target, run
from tacit.jobs.federated import FederatedJob
from tacit.jobs.infer import InferJob
from tacit.jobs.split import SplitJob
from tacit.jobs.toml import read_toml
from tacit.jobs.train import TrainJob
from tacit.nn import OwnModel, parse_layers, to_safetensors
from tacit.ring import KEY_BYTES, Prg
from tacit.spec import read_record

pytestmark = pytest.mark.usefixtures("code_is_allowed")

JOBS = Path(__file__).parents[3] / "examples" / "jobs"
EXAMPLES = sorted(JOBS.glob("audit-*.toml"))
QUIET = Console(quiet=True)
SILENT = OnConsole(QUIET)
JIT = pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")


def raw_job(tmp_path, **tables):
    raw = {
        "job": {"name": "small", "kind": "audit", "out": str(tmp_path / "out")},
        "data": {"set": "digits", "rows": 120},
        "model": {"name": "linear"},
        "train": {"epochs": 3, "rate": 0.5},
        "audit": {"shadows": 4, "threats": ["scores", "shadows"]},
    }
    for name, table in tables.items():
        raw[name] = {**raw.get(name, {}), **table}
    return raw


def make_job(tmp_path, **tables):
    return read_record(raw_job(tmp_path, **tables), AuditJob, source="job.toml")


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_examples_are_valid_and_can_be_quickened(path):
    job = read_record(read_toml(path), AuditJob, source=str(path))
    check_inputs(job, ())
    quick = job.quickened()
    assert quick.audit.shadows <= 8
    assert quick.audit.rounds <= 1000
    assert quick.data.rows <= 1000


def test_a_job_is_attacked_and_its_result_can_be_repeated(tmp_path):
    first = run(make_job(tmp_path), SILENT, ()).result
    again = run(make_job(tmp_path), SILENT, ()).result  # shadow models come from the cache
    assert first.utility == again.utility
    assert first.sheets == again.sheets
    assert [sheet.title for sheet in first.sheets][:3] == [
        *("Threats", "Most exposed records", "Leakage by group"),
    ]
    assert first.claims[0].guarantee == "no guarantee"
    assert len(list((tmp_path / "out-shadows").glob("*.npz"))) == 4
    assert report.from_json(report.to_json(first), source="test") == first


def test_members_and_strangers_are_different_rows_in_the_wanted_numbers(tmp_path):
    members, others, classes = load_sides(make_job(tmp_path, data={"test_share": 0.25}), ())
    assert (len(members[1]), len(others[1]), classes) == (90, 30, 10)
    both = {row.numpy().tobytes() for row in members[0]} & {
        row.numpy().tobytes() for row in others[0]
    }
    assert not both


PRIVATE = {
    "privacy": {"steps": 2, "sample_rate": 1.0, "clip": 1.0, "multiplier": 1.0},
    "audit": {"threats": ["scores"], "canaries": 60, "rounds": 400},
}


class Shell(CliRunner):
    """Calls the command as `tacit audit` does."""

    def call(self, *arguments):
        edge = Edge(out=QUIET, err=QUIET)
        return self.invoke(audit, [str(one) for one in arguments], obj=edge)


def write_toml(path, raw):
    lines = []
    for table, keys in raw.items():
        lines.append(f"[{table}]")
        lines += [f"{key} = {value!r}".replace("'", '"') for key, value in keys.items()]
    path.write_text("\n".join(lines))
    return path


@pytest.mark.slow
def test_a_claim_that_is_too_good_ends_in_a_claim_error_after_the_report(tmp_path):
    lie = {**PRIVATE, "privacy": {**PRIVATE["privacy"], "multiplier": 0.3}}
    lie["privacy"]["claimed_epsilon"] = 0.5
    path = write_toml(tmp_path / "job.toml", raw_job(tmp_path, **lie))
    done = Shell().call(path, "--html", tmp_path / "page.html")
    assert isinstance(done.exception, ClaimError)
    assert done.exception.exit_code == 3
    assert "claimed ε ≤ 0.5" in str(done.exception)
    assert "contradicted" in (tmp_path / "page.html").read_text()
    assert (tmp_path / "out" / "result.json").exists()


@JIT
def test_a_federated_job_is_audited_as_it_is(tmp_path):
    raw = {
        "job": {"name": "fl", "kind": "federated", "out": str(tmp_path / "fl")},
        "data": {"set": "digits", "rows": 80},
        "federated": {"clients": 4, "rounds": 2, "aggregator": "plain", "server": "curious"},
        "train": {"steps": 3, "batch": 16, "rate": 0.5},
        "privacy": {"kind": "none", "clip": 2.0},
    }
    job = read_record(raw, FederatedJob, source="job.toml")
    result, verdicts = audit_job(job, SILENT, (), is_quick=True)
    assert verdicts == ()
    rows = result.sheets[0].rows
    # The strongest first; what a class looks like is about nobody's row, and last.
    assert rows[0][0] == "reconstruction from an update"
    assert rows[-1][0] == "class representatives"
    assert len(rows) == 6
    assert report.headline.state_headline(result).startswith("Strongest attack: ")
    assert result.claims[0].guarantee == "no guarantee"
    # The originals stand beside what the server makes of the updates.
    assert [one.caption for one in result.pictures[:2]] == ["original 1", "rebuilt 1"]
    assert result.pictures[0].pixels == result.pictures[1].pixels


def test_a_stack_is_refused_and_not_another_model_attacked_in_its_place():
    raw = {
        "job": {"name": "fl", "kind": "federated"},
        "data": {"set": "digits", "rows": 80},
        "federated": {"clients": 4, "rounds": 2},
        "model": {"stack": ["linear", "mlp"]},
    }
    with pytest.raises(ConfigError, match=r"a stack .* is not audited"):
        make_target(read_record(raw, FederatedJob, source="job.toml"), ())


@JIT
def test_a_masked_mean_with_noise_gives_no_row_away(tmp_path, monkeypatch):
    # Fresh noise rebuilds all eight rows by chance once in a few hundred times; this never does.
    keys = itertools.count()
    drawn = SimpleNamespace(from_os=lambda: Prg(next(keys).to_bytes(KEY_BYTES, "big")))
    monkeypatch.setattr("tacit.audit.privacy.federated.Prg", drawn)
    raw = {
        "job": {"name": "fl", "kind": "federated", "out": str(tmp_path / "fl")},
        "data": {"set": "digits", "rows": 120},
        "federated": {"clients": 8, "rounds": 2},
        "privacy": {"kind": "central", "epsilon": 2.0, "delta": 1e-2, "clip": 1.0},
    }
    job = read_record(raw, FederatedJob, source="job.toml")
    found = make_target(job, (), rows=60).findings
    assert found[0].threat.sees == "the mean over 8 clients, after their noise"
    assert not any(one.is_found for one in found)


def test_a_defence_is_swept_into_a_frontier(tmp_path):
    swept = {"audit": {"threats": ["scores"], "sweep": [1, 20], "sweep_setting": "epochs"}}
    result, _ = audit_job(make_job(tmp_path, **swept), SILENT, ())
    (curve,) = (one for one in result.curves if one.title == "Privacy against utility")
    assert len(curve.points) == 2
    (sheet,) = (one for one in result.sheets if one.title == "Defence sweep")
    assert [row[0] for row in sheet.rows] == ["epochs 1", "epochs 20"]
    with pytest.raises(ConfigError, match="multiplier"):
        make_job(tmp_path, audit={"sweep": [1.0], "sweep_setting": "multiplier"})


@pytest.mark.parametrize(
    ("tables", "text"),
    [
        ({"audit": {"shadows": 5}}, "even number"),
        ({"audit": {"threats": ["x"]}}, "wanted some of"),
        ({"data": {"test_share": 1.5}}, "between 0 and 1"),
        ({"parties": {"a": {}}}, "no parties"),
    ],
)
def test_wrong_settings_are_refused_by_name(tmp_path, tables, text):
    with pytest.raises(ConfigError, match=text):
        make_job(tmp_path, **tables)


def test_missing_files_and_devices_are_said_early(tmp_path):
    raw = raw_job(tmp_path, model={"file": "nowhere.npz"})
    raw["data"] = {"members": __file__, "strangers": __file__}
    with pytest.raises(DataError, match=r"model\.file: no such file"):
        check_inputs(read_record(raw, AuditJob, source="job.toml"), ())
    with pytest.raises(ConfigError, match=r"train\.device"):
        make_target(make_job(tmp_path, train={"device": "cuda:99"}), ())


def train_raw(tmp_path, **tables):
    raw = {
        "job": {"name": "t", "kind": "train", "out": str(tmp_path / "t")},
        "parties": {"a": {}, "b": {}, "d": {}},
        "data": {
            "owners": {
                "a": {"set": "digits", "rows": [0, 100]},
                "b": {"set": "digits", "rows": [100, 200]},
            }
        },
        "model": {"layers": ["dense 16", "relu", "dense 10"]},
        "training": {"epochs": 2, "batch": 16, "rate": 0.1},
        "protocol": {"kind": "permuted3", "dealer": "d", "give_to": ["a"]},
    }
    for name, table in tables.items():
        raw[name] = {**raw.get(name, {}), **table}
    return raw


def columns_raw(tmp_path):
    owners = {
        "a": {"set": "breast-cancer", "columns": [0, 15], "rows": [0, 150]},
        "b": {"set": "breast-cancer", "columns": [15, 30], "rows": [20, 160]},
    }
    return train_raw(
        tmp_path,
        data={"split": "columns", "labels": "b", "owners": owners},
        model={"layers": ["dense 1"]},
        training={"loss": "logistic"},
        protocol={"give_to": []},
    )


def test_a_private_training_is_audited_as_the_job_trains(tmp_path):
    job = read_record(train_raw(tmp_path), TrainJob, source="job.toml")
    result, verdicts = audit_job(job, SILENT, (), is_quick=True)
    assert verdicts == ()
    assert {row[0] for row in result.sheets[0].rows} == {
        *("membership, probabilities", "membership, classes only"),
        *("membership, shadow models", "membership, weights", "class representatives"),
    }
    assert any("half of all rows" in note for note in result.notes)
    assert result.claims[-1].guarantee == "no guarantee"
    assert report.from_json(report.to_json(result), source="test") == result


def test_columns_of_several_owners_are_joined_and_shared_weights_are_not_attacked(tmp_path):
    job = read_record(columns_raw(tmp_path), TrainJob, source="job.toml")
    target = make_target(job, ())
    assert target.members[0].shape == (65, 30)  # 130 rows are common
    assert target.classes == 2
    assert "gradients" not in target.threats
    assert target.model.log_probs(target.members[0]).shape == (65, 2)


def test_the_trainer_of_a_job_takes_the_steps_of_the_job(tmp_path):
    """Against plain torch: the same start, batches and momentum give the same weights."""
    how = {"epochs": 2, "batch": 16, "rate": 0.1, "optimiser": "momentum"}
    job = read_record(train_raw(tmp_path, training=how), TrainJob, source="job.toml")
    target = make_target(job, ())
    x, y = target.members
    found = target.trainer(x, y, seed=3).module
    expected = parse_layers(job.model.layers, (64,), seed=0).double()
    optimiser = torch.optim.SGD(expected.parameters(), 0.1, momentum=0.9)
    generator = torch.Generator().manual_seed(3)
    for _ in range(2):
        order = torch.empty(len(x)).uniform_(generator=generator).argsort()
        for rows in torch.split(order, 16)[: len(x) // 16]:
            optimiser.zero_grad()
            torch.nn.functional.cross_entropy(expected(x[rows].double()), y[rows]).backward()
            optimiser.step()
    for one, other in zip(found.parameters(), expected.parameters(), strict=True):
        assert torch.allclose(one.double(), other, atol=1e-5)


def test_a_model_that_the_job_gave_out_is_attacked_itself(tmp_path):
    job = read_record(train_raw(tmp_path), TrainJob, source="job.toml")
    module = parse_layers(job.model.layers, (64,), seed=9)
    job.out.mkdir()
    np.savez(
        job.out / "model.npz",
        **{name.replace(".", "/"): value.numpy() for name, value in module.state_dict().items()},
    )
    target = make_target(job, ())
    assert torch.equal(target.model.module[0].weight, module[0].weight)
    assert (len(target.members[1]), len(target.non_members[1])) == (180, 20)
    np.savez(job.out / "model.npz", wrong=np.zeros(3))
    with pytest.raises(DataError, match="does not hold the weights of this model"):
        make_target(job, ())
    (job.out / folder.MODEL).write_bytes(to_safetensors(module.state_dict(), {}))
    assert torch.equal(make_target(job, ()).model.module[0].weight, module[0].weight)


def split_raw(tmp_path, **tables):
    raw = {
        "job": {"name": "s", "kind": "split", "out": str(tmp_path / "s")},
        "parties": {"lab": {}, "clinic": {}},
        "data": {"set": "digits", "features": ["clinic"], "labels": "lab", "rows": 150},
        "model": {"kind": "mlp", "width": 16},
        "split": {"compress": {"kind": "randtopk", "k": 3, "alpha": 0.1}},
        "train": {"epochs": 2, "batch": 32},
    }
    for name, table in tables.items():
        raw[name] = {**raw.get(name, {}), **table}
    return raw


def test_a_split_job_is_audited_at_the_cut_and_as_a_whole(tmp_path):
    job = read_record(split_raw(tmp_path), SplitJob, source="job.toml")
    result, _ = audit_job(job, SILENT, (), is_quick=True)
    assert {row[0] for row in result.sheets[0].rows} == {
        *("membership, probabilities", "membership, classes only", "membership, shadow models"),
        *("labels, gradients", "labels, bottom model", "inputs, cut layer"),
        "class representatives",
    }
    assert any(one.title.startswith("Labels of training rows") for one in result.curves)


def test_files_of_a_split_job_are_matched_by_their_ids(tmp_path):
    rng = np.random.default_rng(0)
    clinic = np.column_stack([np.arange(60), rng.normal(size=(60, 4))])
    lab = np.column_stack([np.arange(10, 70), rng.integers(0, 2, 60)])
    for name, rows, heads in (("clinic", clinic, "id,a,b,c,d"), ("lab", lab, "id,y")):
        np.savetxt(tmp_path / f"{name}.csv", rows, header=heads, comments="", delimiter=",")
    raw = split_raw(tmp_path)
    raw["data"] = {
        **{"features": ["clinic"], "labels": "lab", "match": "id", "label": "y", "classes": 2},
        "files": {"clinic": str(tmp_path / "clinic.csv"), "lab": str(tmp_path / "lab.csv")},
    }
    target = make_target(read_record(raw, SplitJob, source="job.toml"), ())
    assert target.members[0].shape == (25, 4)
    assert target.classes == 2


OWN_TORCH = """
from torch import nn
def make():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.Tanh(), nn.Linear(8, 10))
"""
OWN_FOREST = """
from sklearn.tree import DecisionTreeClassifier
def make():
    return DecisionTreeClassifier()
"""


@pytest.mark.parametrize("code", [OWN_TORCH, OWN_FOREST], ids=["torch", "scikit-learn"])
def test_a_model_of_ones_own_is_audited_from_its_file(tmp_path, code):
    path = tmp_path / "mine.py"
    path.write_text(code)
    result, _ = audit_job(make_job(tmp_path, model={"code": str(path)}), SILENT, ())
    names = [row[0] for row in result.sheets[0].rows]
    assert set(names[:2]) == {"membership, probabilities", "membership, shadow models"}
    assert names[2:] == ["class representatives"]


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("x = 1", "make"),
        ("def make(:", "make"),
        ("import nowhere_to_be_found", "nowhere_to_be_found"),
        ("def make():\n    return 3", "got int"),
        ("def make_model():\n    return 3", "got int"),
    ],
)
def test_a_file_that_makes_no_model_is_refused(tmp_path, code, text):
    path = tmp_path / "mine.py"
    path.write_text(code)
    with pytest.raises(ConfigError, match=text):
        make_target(make_job(tmp_path, model={"code": str(path)}), ())


OWN_CLASS = """
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(64, 10)
    def forward(self, x):
        return self.layer(x.flatten(1)) * {scale}
def make():
    return Net()
"""


DP_SGD = {"steps": 2, "sample_rate": 0.5, "clip": 1.0, "multiplier": 1.0}


@pytest.mark.parametrize("tables", [{}, {"privacy": DP_SGD}], ids=["plain", "dp-sgd"])
def test_shadow_models_of_a_changed_file_are_not_taken_from_the_cache(tmp_path, tables):
    path = tmp_path / "mine.py"
    recipes = []
    for scale in (1, 2, 1):
        path.write_text(OWN_CLASS.format(scale=scale))
        job = make_job(tmp_path, model={"code": str(path)}, **tables)
        linecache.clearcache()  # an audit is a process of its own
        recipes.append(trainer_of(job, (64,), 10).recipe)
    assert recipes[0] == recipes[2] != recipes[1]


OWN_TREE = """
from sklearn.tree import DecisionTreeClassifier
class Mine(DecisionTreeClassifier):
    pass
def make():
    return Mine()
"""


def test_a_classifier_whose_class_is_ones_own_can_be_sent_to_a_process(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(OWN_TREE)
    trainer = trainer_of(make_job(tmp_path, model={"code": str(path)}), (64,), 10)
    packed = ForkingPickler.dumps(trainer)
    path.unlink()
    del sys.modules["tacit_model_mine"]  # as in a process that has not run the file
    sent = ForkingPickler.loads(packed)
    x, y = torch.eye(64)[:20], torch.arange(20) % 10
    assert sent(x, y, seed=0).log_probs(x).argmax(1).tolist() == y.tolist()


def test_a_model_of_ones_own_is_made_where_its_file_is_not(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(OWN_CLASS.format(scale=1))
    sent = copy.deepcopy(OwnModel.read(path))
    path.unlink()
    assert sent()(torch.zeros(2, 64)).shape == (2, 10)


def test_a_job_that_trains_nothing_is_refused():
    path = JOBS / "predict-breast-cancer.toml"
    job = read_record(read_toml(path), InferJob, source=str(path))
    with pytest.raises(ConfigError, match="wanted a job that trains something"):
        make_target(job, ())
