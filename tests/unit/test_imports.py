"""The import table of the architecture, held by reading every import in the package."""

import ast
import importlib
import re
from functools import cache
from pathlib import Path

import pytest

import tacit
from tacit.mpc.registry import NO_DEALER
from tacit.plugins import PLUGINS, load

PACKAGE = Path(tacit.__file__).parent
LEAVES = {
    "cluster",
    "disk",
    "errors",
    "exclusive",
    "extras",
    "failure",
    "files",
    "jit",
    "notebook",
    "plugins",
    "result",
    "spec",
    "vault",
}

BELOW = {
    *("ring", "crypto", "transport", "party", "mpc"),
    *("nn", "dp", "data", "matching"),
}
KINDS = {"inference", "training", "learners", "federated", "split", "text"}

MAY_IMPORT = {
    "cluster": set(),
    "disk": set(),
    "errors": set(),
    "extras": set(),
    "jit": set(),
    "result": set(),
    "spec": set(),
    "vault": set(),
    "ring": set(),
    "crypto": set(),
    "transport": set(),
    "party": {"ring", "crypto", "transport"},
    "mpc": {"ring", "crypto", "party"},
    "nn": set(),
    "llm": {"ring", "crypto", "transport", "party", "mpc", "nn"},
    "data": set(),
    "dp": {"ring"},
    "verify": {"data"},
    "matching": {"ring", "crypto", "party", "data"},
    "inference": {*BELOW, "verify"},
    "training": BELOW,
    "learners": BELOW,
    "federated": {"ring", "crypto", "party", "mpc", "dp", "nn", "data"},
    "split": {"ring", "crypto", "party", "dp", "nn", "data", "matching"},
    "text": {"ring", "dp", "nn", "data", "llm"},
    "audit": {*BELOW, "llm", "verify", *KINDS},
    "report": set(),
    "jobs": {*BELOW, "llm", "verify", *KINDS, "audit", "report"},
    "cli": {*BELOW, "llm", "verify", *KINDS, "audit", "report", "jobs"},
}

MUST_NOT_TOUCH = {
    "ring": {"socket", "ssl", "pickle"},
    "crypto": {"torch", "socket", "ssl", "pickle"},
    "transport": {"torch", "pickle"},
    "report": {"torch", "numpy", "socket"},
    "nn": {"secrets", "random"},
    "jobs": {"click", "rich"},
}

FILES = sorted(path for path in PACKAGE.rglob("*.py") if path.parent != PACKAGE)


@cache
def imported(path):
    """List (module, is inside a function) of every import in a file."""
    return list(_read_imports(path))


def _read_imports(path):
    tree = ast.parse(path.read_text())
    top = {id(node) for node in tree.body}
    for node in _typed_alone(tree):
        node.body.clear()  # never runs
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, id(node) not in top
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            for alias in node.names:
                submodule = f"{node.module}.{alias.name}"
                is_late = id(node) not in top
                yield submodule if _exists(submodule) else node.module, is_late
                if alias.name in (front := loaded_by_name(node.module)):
                    yield front[alias.name], is_late


def _typed_alone(tree):
    blocks = [node for node in ast.walk(tree) if isinstance(node, ast.If)]
    return [node for node in blocks if ast.unparse(node.test) == "TYPE_CHECKING"]


@cache
def loaded_by_name(module):
    """Map the names that a front loads when they are first used to where they stand."""
    path = PACKAGE.parent.joinpath(*module.split("."), "__init__.py")
    tree = ast.parse(path.read_text() if path.exists() else "")
    if not any(isinstance(one, ast.FunctionDef) and one.name == "__getattr__" for one in tree.body):
        return {}
    typed = [line for node in _typed_alone(tree) for line in node.body]
    return {alias.name: line.module for line in typed for alias in line.names}


def _exists(module):
    path = PACKAGE.parent.joinpath(*module.split("."))
    return path.is_dir() or path.with_suffix(".py").exists()


def room(path):
    return path.relative_to(PACKAGE).parts[0]


def test_a_file_imports_only_what_its_room_may():
    wrong = []
    for path in FILES:
        here = room(path)
        allowed = MAY_IMPORT[here] | LEAVES | {here}
        for module, _ in imported(path):
            parts = module.split(".")
            is_ours = parts[0] == "tacit" and len(parts) > 1
            if (is_ours and parts[1] not in allowed) or parts[0] in MUST_NOT_TOUCH.get(here, ()):
                wrong.append(f"{path.relative_to(PACKAGE)} imports {module}")
    assert wrong == []


def test_no_file_below_jobs_and_commands_imports_late():
    late = [
        f"{path.relative_to(PACKAGE)} imports {module}"
        for path in FILES
        for module, is_late in imported(path)
        if is_late and room(path) not in ("jobs", "cli") and module.startswith("tacit")
    ]
    assert late == []


FRONTS = ("tacit.llm",)  # their names are loaded when they are first used


def test_below_jobs_and_commands_nothing_is_loaded_by_name_but_plug_ins_and_fronts():
    named = [
        f"{path.relative_to(PACKAGE)} loads {ast.unparse(node)}"
        for path in FILES
        if room(path) not in ("jobs", "cli")
        if f"tacit.{path.parent.relative_to(PACKAGE)}" not in FRONTS
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func).endswith("import_module")
        and ("tacit" in ast.unparse(node) or "__name__" in ast.unparse(node))
    ]
    assert named == []
    assert all(_exists(module) for module in PLUGINS.values())


@pytest.mark.parametrize("front", FRONTS)
def test_a_front_loads_every_name_from_where_it_is_typed(front):
    module = importlib.import_module(front)
    assert set(loaded_by_name(front)) == set(module.__all__)
    for name, place in loaded_by_name(front).items():
        assert getattr(module, name) is getattr(importlib.import_module(place), name)


# Whoever imports a package reaches nothing of these rooms, unless it loads a plug-in.
REACHES_NOT = {
    "tacit.federated": {"mpc", "inference", "training", "learners", "llm"},
    "tacit.split": {"mpc", "inference", "training", "learners", "llm"},
    "tacit.text": {"mpc", "inference", "training", "learners", "federated", "llm.backend"},
    "tacit.audit.membership": {"mpc", "inference", "training", "learners", "federated", "llm"},
}


@pytest.mark.parametrize("package", REACHES_NOT)
def test_a_package_reaches_no_room_that_its_users_do_not_need(package):
    parts = [module.split(".")[1:] for module in reached(package)]
    rooms = {".".join(one[:deep]) for one in parts for deep in (1, 2)}
    assert rooms & REACHES_NOT[package] == set()


def reached(package):
    """List every module of ours that is imported with a package."""
    found, todo = set(), [package]
    while todo:
        module = todo.pop()
        parts = module.split(".")
        parents = [".".join(parts[:count]) for count in range(2, len(parts) + 1)]
        for name in (name for name in parents if name not in found):
            found.add(name)
            folder = PACKAGE.parent.joinpath(*name.split("."))
            path = folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")
            todo += [one for one, _ in imported(path) if one.startswith("tacit.")]
    return found


def test_every_room_is_in_the_table():
    rooms = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()}
    assert rooms <= set(MAY_IMPORT)


def test_contributing_has_a_row_for_every_room():
    text = (PACKAGE.parents[1] / "CONTRIBUTING.md").read_text(encoding="utf-8")
    rows = set(re.findall(r"^\| `(\w+)` \|", text, re.M))
    rooms = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").is_file()}
    assert rows == rooms


def test_modules_do_not_import_each_other_in_a_circle():
    graph = {}
    for path in FILES:
        relative = path.relative_to(PACKAGE.parent).with_suffix("")
        name = ".".join(relative.parts).removesuffix(".__init__")
        graph[name] = {module for module, is_late in imported(path) if not is_late}
    done, stack = set(), []

    def visit(name):
        assert name not in stack, " → ".join([*stack, name])
        if name in done or name not in graph:
            return
        stack.append(name)
        for module in graph[name]:
            visit(module)
        stack.pop()
        done.add(name)

    for name in graph:
        visit(name)


PROTOCOLS = PACKAGE / "mpc" / "protocols"
WRAPS = {"checked": {"sealed"}}
"""Which protocols a protocol may import: `checked` runs the comparisons of `sealed`, with tags."""


def named_protocols(path):
    """List the protocols whose folders a file imports from."""
    parts = (module.split(".") for module, _ in imported(path))
    return {part[3] for part in parts if part[:3] == ["tacit", "mpc", "protocols"] and part[3:]}


def test_the_core_of_mpc_imports_no_protocol():
    core = [path for path in FILES if room(path) == "mpc" and PROTOCOLS not in path.parents]
    assert [path for path in core if named_protocols(path)] == []


def test_protocols_do_not_import_each_other_but_for_what_wraps_another():
    for path in PROTOCOLS.rglob("*.py"):
        name = path.relative_to(PROTOCOLS).parts[0].removesuffix(".py")
        assert named_protocols(path) <= {name} | WRAPS.get(name, set()), path


def test_every_folder_or_file_of_a_protocol_is_a_plug_in_that_has_one():
    places = (path.relative_to(PROTOCOLS).parts[0] for path in PROTOCOLS.rglob("*.py"))
    names = {place.removesuffix(".py") for place in places} - {"__init__"}
    assert names == {name.removeprefix("mpc.") for name in PLUGINS if name.startswith("mpc.")}
    for name in names:
        assert load(f"mpc.{name}").PROTOCOL.name in (name, NO_DEALER)
