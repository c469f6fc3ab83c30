"""The notebooks are valid, readable without running them, and run."""

import json
import re
import subprocess
import sys

import notebooks
import pytest

from docs.follow import ROOT

BOOKS = notebooks.list_notebooks()
# Those that start processes, compile kernels or train many models take longer than the rest.
LONG = {"federated", "train", "verify-and-audit"}
HERE = ROOT / "docs" / "website"


def test_there_are_six():
    assert len(BOOKS) == 6


@pytest.mark.parametrize("path", BOOKS, ids=lambda path: path.stem)
def test_a_notebook_has_the_form_that_jupyter_wants(path):
    book = json.loads(path.read_text())
    assert (book["nbformat"], book["nbformat_minor"]) == (4, 5)
    assert book["metadata"]["kernelspec"]["language"] == "python"
    cells = book["cells"]
    assert len({cell["id"] for cell in cells}) == len(cells)
    assert cells[0]["cell_type"] == "markdown"
    assert notebooks.source_of(cells[0]).startswith("# ")
    for cell in cells:
        assert cell["cell_type"] in ("markdown", "code")
        assert set(cell) >= {"id", "metadata", "source"}
        assert re.fullmatch(r"[\w-]{1,64}", cell["id"])
        if cell["cell_type"] == "code":
            assert isinstance(cell["outputs"], list)
            for one in cell["outputs"]:
                assert one["output_type"] in ("stream", "execute_result")
    assert any(cell.get("outputs") for cell in cells), "say: python docs/website/notebooks.py"


def run(names):
    """Run notebooks in a process of their own: one for all, as torch takes a while to import."""
    program = "import sys, notebooks\nfor name in sys.argv[1:]:\n  " + (
        "found = notebooks.run(notebooks.FOLDER / f'{name}.ipynb'); print(name, len(found))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *names], cwd=HERE, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return [line.split()[0] for line in done.stdout.splitlines()]


@pytest.mark.slow
def test_short_notebooks_run():
    names = [path.stem for path in BOOKS if path.stem not in LONG]
    assert run(names) == names


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(LONG))
def test_a_long_notebook_runs(name):
    assert run([name]) == [name]


def test_a_cell_that_fails_and_a_command_that_fails_are_noticed(tmp_path):
    cells = [{"cell_type": "code", "source": "!false", "outputs": []}]
    path = tmp_path / "bad.ipynb"
    path.write_text(json.dumps({"cells": cells}))
    with pytest.raises(RuntimeError, match="exit code 1"):
        notebooks.run(path)
    cells[0]["source"] = ["a = 2\n", "print(a)\n", "a + 1"]
    path.write_text(json.dumps({"cells": cells}))
    (outputs,) = notebooks.run(path)
    assert [one["output_type"] for one in outputs] == ["stream", "execute_result"]
    notebooks.write_outputs(path, [outputs])
    assert "```text\n3\n```" in notebooks.to_markdown(path)
