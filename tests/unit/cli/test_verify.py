import json

import numpy as np
import pytest
from rich.console import Console

from tacit.cli.commands import Edge
from tacit.cli.main import run_command

xgboost = pytest.importorskip("xgboost", reason="xgboost is not installed")
pytest.importorskip("numba", reason="tacit[verify] is not installed")


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
    out, err = Console(record=True, width=100), Console(stderr=True, record=True, width=100)
    code = run_command(["verify", *map(str, arguments)], Edge(out=out, err=err))
    return code, out.export_text() + err.export_text()


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


def test_nothing_moves_a_class_by_nothing(files):
    out = files / "still.json"
    code, _ = run(
        files / "model.json", files / "rows.csv", "--label", "y", "--eps", 0, "--out", out
    )
    assert code == 0
    assert json.loads(out.read_text())["groups"][0]["robust"] == 40


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
