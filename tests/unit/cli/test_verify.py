import json
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from support.jobs import tacit_says
from tacit.cli.commands.group import Edge
from tacit.cli.main import run_command
from tacit.jobs import verify
from tacit.verify import load_ensemble, save_ensemble

xgboost = pytest.importorskip("xgboost", reason="xgboost is not installed")
pytest.importorskip("numba", reason="tacit-ml[verify] is not installed")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A small model, and rows that it gets right."""
    folder = tmp_path_factory.mktemp("verify")
    generator = np.random.default_rng(3)
    x = generator.uniform(size=(300, 3)).astype(np.float32)
    y = (x[:, 0] + 0.2 * x[:, 1] > 0.6).astype(int)
    model = xgboost.XGBClassifier(n_estimators=8, max_depth=3).fit(x, y)
    model.save_model(folder / "model.json")
    rows = [*map(str, ["a", "b", "c", "y"])], *np.column_stack([x[:40], y[:40]]).tolist()
    table = "\n".join(",".join(str(cell) for cell in row) for row in rows)
    (folder / "rows.csv").write_text(table + "\n")
    return folder


def run(*arguments):
    code, out, err = tacit_says("verify", *arguments)
    return code, out + err


def test_rows_are_proved_robust_or_shown_fragile(files):
    out = files / "found.json"
    code, text = run(
        files / "model.json", files / "rows.csv", "--label", "y", "--eps", 0.02, "--out", out
    )
    assert code == 0, text
    assert "verified" in text
    found = json.loads(out.read_text())
    every = found["groups"][0]
    assert every["rows"] == 40
    assert every["robust"] + every["fragile"] + every["unknown"] == 40
    assert every["unknown"] == 0
    assert len(found["shifts"]) == every["fragile"]
    assert {group["name"] for group in found["groups"]} == {"all", "class 0", "class 1"}


def test_empty_cells_are_missing_values_to_a_model_that_knows_them(files):
    lines, out = (files / "rows.csv").read_text().splitlines(), files / "holed.json"
    holed = [lines[0], *(f",nan,{line.split(',', 2)[2]}" for line in lines[1:4]), *lines[4:]]
    (files / "holed.csv").write_text("\n".join(holed) + "\n")
    about = files / "holed.csv", "--label", "y", "--eps", 0.3, "--out", out
    code, text = run(files / "model.json", *about, "--html", files / "holed.html")
    assert code == 0, text
    assert "missing values and categories stay" in text
    assert "missing values and categories stay" in (files / "holed.html").read_text()
    shifts = json.loads(out.read_text(), parse_constant=pytest.fail)["shifts"]
    assert shifts
    assert all((row[0] is None) == (int(number) < 3) for number, row in shifts.items())
    save_ensemble(replace(load_ensemble(files / "model.json"), takes_missing=False), files / "m")
    code, text = run(files / "m", *about)
    assert code != 0
    assert "6 values are missing" in text
    (files / "holed.csv").write_text("a,b,c,y\n1,2,inf,0\n")
    code, text = run(files / "model.json", *about)
    assert "wanted a finite number" in text
    (files / "holed.csv").write_text("a,b,c,y\n1,2,3,\n")
    code, text = run(files / "model.json", *about)
    assert "wanted a label" in text


def test_outputs_of_a_regression_are_neither_right_nor_wrong(files):
    rng, out = np.random.default_rng(4), files / "outputs.json"
    x = rng.uniform(size=(100, 3)).astype(np.float32)
    xgboost.XGBRegressor(n_estimators=4, max_depth=2).fit(x, x[:, 0]).save_model(
        files / "regression.json"
    )
    about = files / "regression.json", files / "rows.csv", "--label", "y", "--eps", 0.02
    code, text = run(*about, "--rho", 0.1, "--out", out)
    assert code == 0, text
    every = json.loads(out.read_text())["groups"][0]
    assert every["right"] is None
    assert every["verified"] is None
    assert every["robust"] + every["fragile"] == 40
    assert run(*about, "--rho", 0.1, "--claim", 0.5)[0] == 2


def test_nothing_moves_a_class_by_nothing(files):
    out = files / "still.json"
    code, _ = run(
        files / "model.json", files / "rows.csv", "--label", "y", "--eps", 0, "--out", out
    )
    assert code == 0
    assert json.loads(out.read_text())["groups"][0]["robust"] == 40


@pytest.mark.parametrize("is_terminal", [True, False])
def test_compiling_is_said_once_and_on_a_terminal_only(files, monkeypatch, is_terminal):
    @contextmanager
    def compile_something(tell):
        tell("the deep search")
        yield

    monkeypatch.setattr(verify, "tell_compiling", compile_something)
    out = Console(record=True, width=100)
    err = Console(stderr=True, record=True, width=100, force_terminal=is_terminal)
    arguments = ["verify", str(files / "model.json"), str(files / "rows.csv"), "--eps", "0"]
    assert run_command([*arguments, "--label", "y"], Edge(out=out, err=err)) == 0
    # What was said last also stands in the line that moves, with its seconds.
    said = "compiling the deep search, once; it is kept for the next time\n"
    assert err.export_text().count(said) == int(is_terminal)


def test_a_contradicted_claim_exits_with_three(files):
    code, text = run(
        files / "model.json", files / "rows.csv", "--label", "y", "--eps", 0.5, "--claim", 0.99
    )
    assert code == 3
    assert "claimed" in text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["missing.json", "rows.csv", "--eps", 0.1], "missing.json"),
        (["model.json", "missing.csv", "--eps", 0.1], "missing.csv"),
        (["model.json", "rows.csv", "--eps", -1], "--eps"),
        (["rows.csv", "rows.csv", "--eps", 0.1], "neither an XGBoost"),
        (["model.json", "rows.csv", "--label", "y", "--eps", "nan"], "--eps"),
    ],
)
def test_bad_input_is_refused_with_exit_code_two(files, arguments, words):
    where = [files / one if str(one).endswith((".json", ".csv")) else one for one in arguments]
    code, text = run(*where)
    assert code == 2, text
    assert words in text.replace("\n", "")


def test_two_workers_find_what_one_finds(files):
    told = []
    for workers in (1, 2):
        out = files / f"workers{workers}.json"
        code, text = run(
            *(files / "model.json", files / "rows.csv", "--label", "y", "--eps", 0.02),
            *("--workers", workers, "--out", out),
        )
        assert code == 0, text
        told.append(json.loads(out.read_text()))
    assert told[0]["groups"] == told[1]["groups"]
    assert told[0]["shifts"] == told[1]["shifts"]


def test_a_scikit_learn_forest_is_verified_from_its_stored_form(files):
    from sklearn.ensemble import RandomForestClassifier

    from tacit.verify import from_sklearn, save_ensemble

    table = np.loadtxt(files / "rows.csv", delimiter=",", skiprows=1)
    forest = RandomForestClassifier(5, max_depth=3, random_state=0).fit(table[:, :3], table[:, 3])
    save_ensemble(from_sklearn(forest), files / "forest.npz")
    out = files / "forest.json"
    code, text = run(
        files / "forest.npz", files / "rows.csv", "--label", "y", "--eps", 0, "--out", out
    )
    assert code == 0, text
    every = json.loads(out.read_text())["groups"][0]
    assert every["right"] == (forest.predict(table[:, :3]) == table[:, 3]).sum()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_ray_cluster_finds_what_this_machine_finds(files):
    pytest.importorskip("ray", reason="ray is not installed")
    told = []
    for where in ([], ["--ray", "local"]):
        out = files / "ray.json"
        code, text = run(
            *(files / "model.json", files / "rows.csv", "--label", "y", "--eps", 0.02),
            *("--out", out, *where),
        )
        assert code == 0, text
        told.append(json.loads(out.read_text())["groups"])
    assert told[0] == told[1]


def write_job(files, *, claim, name="proof"):
    text = f"""
    [job]
    name = "{name}"
    kind = "verify"
    out = "{files / name}"
    [model]
    file = "{files / "model.json"}"
    [data]
    file = "{files / "rows.csv"}"
    label = "y"
    [verify]
    eps = 0.02
    claim = {claim}
    """
    path = files / f"{name}.toml"
    path.write_text(text)
    return path


def run_job(path):
    code, out, err = tacit_says("run", path)
    return code, out + err


def test_a_job_verifies_and_writes_its_report(files):
    code, text = run_job(write_job(files, claim=0.1))
    assert code == 0, text
    assert any(path.suffix == ".html" for path in (files / "proof").iterdir())


def test_a_job_whose_claim_is_contradicted_exits_with_three(files):
    code, text = run_job(write_job(files, claim=1.0, name="bold"))
    assert code == 3, text
    assert "claimed" in text


def test_a_job_with_a_senseless_radius_is_refused(files):
    path = write_job(files, claim=0.5, name="odd")
    path.write_text(path.read_text().replace("eps = 0.02", "eps = -1.0"))
    code, text = run_job(path)
    assert code == 2, text
    assert "eps" in text
