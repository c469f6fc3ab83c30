"""Run notebooks without Jupyter, and turn them into pages.

    python docs/website/notebooks.py          runs examples/notebooks and writes their outputs down

Cells run as in Jupyter, in one namespace: what a cell prints, and the value of its last line, are
its outputs; a line that begins with ``!`` goes to a shell. Each runs in a folder of its own.
"""

import ast
import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "examples" / "notebooks"
Cell = dict[str, object]


def list_notebooks() -> list[Path]:
    """Return all notebooks."""
    return sorted(FOLDER.glob("*.ipynb"))


def read_cells(path: Path) -> list[Cell]:
    """Return the cells of a notebook."""
    return list(json.loads(path.read_text(encoding="utf-8"))["cells"])


def source_of(cell: Cell) -> str:
    """Return the text of a cell."""
    source = cell["source"]
    return "".join(source) if isinstance(source, list) else str(source)


def run(path: Path) -> list[list[Cell]]:
    """Run the code cells of a notebook here; return the outputs of each.

    Raises:
        Exception: whatever a cell raises.
    """
    space: dict[str, object] = {"__name__": "__main__", "_shell": _shell}
    before = Path.cwd()
    with tempfile.TemporaryDirectory(prefix="tacit-notebook-") as folder:
        os.chdir(folder)
        try:
            return [_run_cell(source_of(cell), space) for cell in _code(read_cells(path))]
        finally:
            os.chdir(before)


def write_outputs(path: Path, outputs: list[list[Cell]]) -> None:
    """Store outputs in a notebook, as Jupyter does."""
    book = json.loads(path.read_text(encoding="utf-8"))
    for number, (cell, found) in enumerate(zip(_code(book["cells"]), outputs, strict=True), 1):
        cell["execution_count"] = number
        cell["outputs"] = [
            one | ({"execution_count": number} if one["output_type"] == "execute_result" else {})
            for one in found
        ]
    path.write_text(json.dumps(book, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def to_markdown(path: Path) -> str:
    """Return a notebook as a page: its text, its code, and what the code printed."""
    parts = []
    for cell in read_cells(path):
        if cell["cell_type"] == "markdown":
            parts.append(source_of(cell))
            continue
        parts.append(f"```python\n{source_of(cell)}\n```")
        for one in cell.get("outputs", []):
            shown = one.get("text") or one.get("data", {}).get("text/plain", "")
            parts.append(f"```text\n{''.join(shown).rstrip()}\n```")
    return "\n\n".join(parts) + "\n"


def _code(cells: list[Cell]) -> list[Cell]:
    return [cell for cell in cells if cell["cell_type"] == "code"]


def _run_cell(source: str, space: dict[str, object]) -> list[Cell]:
    lines = [
        f"_shell({line[1:]!r})" if line.startswith("!") else line for line in source.split("\n")
    ]
    tree = ast.parse("\n".join(lines))
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed, value = io.StringIO(), None
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, "<cell>", "exec"), space)  # noqa: S102 - that is what a notebook is
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), "<cell>", "eval"), space)  # noqa: S307
    found: list[Cell] = []
    if printed.getvalue():
        text = printed.getvalue().splitlines(keepends=True)
        found.append({"output_type": "stream", "name": "stdout", "text": text})
    if value is not None:
        data = {"text/plain": repr(value).splitlines(keepends=True)}
        if hasattr(value, "_repr_html_"):
            data["text/html"] = str(value._repr_html_()).splitlines(keepends=True)
        found.append({"output_type": "execute_result", "metadata": {}, "data": data})
    return found


def _shell(command: str) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", command],  # noqa: S607
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
    )
    print(done.stdout, end="")
    if done.returncode:
        raise RuntimeError(f"{command}: exit code {done.returncode}\n{done.stderr}")


if __name__ == "__main__":
    for one in list_notebooks():
        print(one.name, flush=True)
        write_outputs(one, run(one))
