"""What a function takes and returns has a type where a user's words come in: no `Any` there."""

import ast
import re
from pathlib import Path

import pytest

import tacit

PACKAGE = Path(tacit.__file__).parent


def annotations_of(tree):
    """Yield every annotation of a signature, with its line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            spec = node.args
            named = [*spec.posonlyargs, *spec.args, *spec.kwonlyargs, spec.vararg, spec.kwarg]
            given = [one.annotation for one in named if one is not None]
            for annotation in (*given, node.returns):
                if annotation is not None:
                    yield node.lineno, ast.unparse(annotation)


def is_any(annotation):
    """Tell whether it says `Any`, in quotes or not, alone or within."""
    return re.search(r"\bAny\b", annotation) is not None


def test_any_is_found_wherever_it_stands():
    source = "def f(a: int, *b: Any, c: 'dict[str, Any]' = 1) -> list[Any]: ..."
    assert [is_any(one) for _, one in annotations_of(ast.parse(source))] == [
        False,
        True,
        True,
        True,
    ]


@pytest.mark.parametrize("room", ["cli", "verify"])
def test_no_signature_says_any(room):
    found = [
        f"{path.relative_to(PACKAGE)}:{line}: {annotation}"
        for path in sorted((PACKAGE / room).rglob("*.py"))
        for line, annotation in annotations_of(ast.parse(path.read_text()))
        if is_any(annotation)
    ]
    assert found == []
