"""Faults to plant in the kernels and functions of `mpc`, one at a time, in a copy of the package.

A fault is one changed operator or number of the source. The fuzzer must find nearly all of them:
what it does not find it does not guard.
"""

import ast
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import tacit

ROOM = Path(tacit.__file__).parent
FILES = (
    "mpc/functions.py",
    "mpc/functions_curves.py",
    "mpc/functions_images.py",
    "mpc/functions_norms.py",
    "mpc/functions_ordering.py",
    "mpc/elementwise.py",
    "mpc/rescaling.py",
    "mpc/additive2/compare.py",
    "mpc/additive2/curves.py",
    "mpc/additive2/local.py",
    "mpc/additive2/piecewise.py",
    "mpc/additive2/product.py",
    "mpc/additive2/truncation.py",
    "mpc/permuted3/kernel.py",
)


@dataclass(frozen=True)
class Fault:
    """A place in a file, and what stands there instead."""

    file: str
    line: int
    column: int
    what: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column} {self.what}"

    def plant(self, folder: Path) -> None:
        """Copy the package to a folder with this fault in it."""
        shutil.copytree(ROOM, folder / ROOM.name, ignore=shutil.ignore_patterns("__pycache__"))
        path = folder / ROOM.name / self.file
        tree = ast.parse(path.read_text(encoding="utf-8"))
        node = next(n for n, what in _places(tree) if self._is_at(n) and what == self.what)
        _change(node)
        path.write_text(ast.unparse(tree), encoding="utf-8")

    def _is_at(self, node: ast.AST) -> bool:
        return (node.lineno, node.col_offset) == (self.line, self.column)  # type: ignore[attr-defined]


def find_faults() -> Iterator[Fault]:
    """List every fault of every file."""
    for name in FILES:
        tree = ast.parse((ROOM / name).read_text(encoding="utf-8"))
        for node, what in _places(tree):
            yield Fault(name, node.lineno, node.col_offset, what)  # type: ignore[attr-defined]


def _places(tree: ast.AST) -> Iterator[tuple[ast.AST, str]]:
    """Find what can be changed: sums, products by shift, comparisons, signs, small numbers."""
    for node in ast.walk(tree):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
            yield node, "sum"
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.LShift | ast.RShift):
            yield node, "shift"
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            yield node, "sign"
        elif isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Lt | ast.LtE):
            yield node, "comparison"


def _change(node: ast.AST) -> None:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
        node.op = ast.Sub() if isinstance(node.op, ast.Add) else ast.Add()
    elif isinstance(node, ast.BinOp):
        node.right = ast.BinOp(node.right, ast.Add(), ast.Constant(1))
    elif isinstance(node, ast.UnaryOp):
        node.op = ast.UAdd()
    elif isinstance(node, ast.Compare):
        node.ops[0] = ast.LtE() if isinstance(node.ops[0], ast.Lt) else ast.Lt()
