"""Every check of what others send, and a way to run a test with one of them removed.

A guard is a `raise` by which a party refuses what came from somebody else: an authentication, an
agreement, a quota, a double. `guards.toml` names for each the test that notices when it is gone,
or says why nothing can. As a plugin of pytest (`-p support.guards`) this file puts a switch before
each guard: with `--guards-removed TABLE` every named test is run once for each of its guards with
that guard off, and must fail; with `--guards-seen FILE` it writes which guards spoke in which test,
which is how a test to name is found.
"""

import ast
import copy
import importlib.abc
import importlib.machinery
import json
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "tacit"
ROOMS = ("transport", "party", "crypto", "federated", "inference/service", "llm/backend")
LEAVES = ("disk.py", "vault.py")
NO_GUARDS = {
    # What one's own user asked for, what is malformed whoever sent it, and silence.
    *("ConfigError", "ClickException", "DataError", "RangeError", "FrameError", "BadHeadError"),
    *("LinkClosed", "LinkTimeout", "TimeoutError", "NotImplementedError", "TypeError"),
    *("ValueError", "KeyError", "AssertionError", "StopIteration", "RuntimeError", "EOFError"),
    *("BrokenPipeError", "ConnectionAbortedError", "ConnectionResetError", "OSError"),
    "AttributeError",
}


def guard_of(node: ast.AST) -> str | None:
    """Return the class that a statement raises, if it is a guard."""
    if not isinstance(node, ast.Raise) or not isinstance(node.exc, ast.Call):
        return None
    made = node.exc.func
    name = made.id if isinstance(made, ast.Name) else getattr(made, "attr", "")
    return name if name[:1].isupper() and name not in NO_GUARDS else None


def number(tree: ast.AST, file: str) -> Iterator[tuple[ast.Raise, str]]:
    """Give every guard of a file a name that outlives changes elsewhere in it."""
    seen: dict[str, int] = {}

    def walk(node: ast.AST, inside: str) -> Iterator[tuple[ast.Raise, str]]:
        for child in ast.iter_child_nodes(node):
            if (name := guard_of(child)) is not None:
                key = f"{file} {inside} {name}"
                seen[key] = seen.get(key, 0) + 1
                yield child, key if seen[key] == 1 else f"{key} {seen[key]}"
            is_named = isinstance(child, ast.FunctionDef | ast.ClassDef)
            below = f"{inside}.{child.name}".lstrip(".") if is_named else inside
            yield from walk(child, below)

    yield from walk(tree, "")


def find_guards() -> list[str]:
    """List the guards of all rooms."""
    paths = [path for room in ROOMS for path in sorted(SOURCE.glob(f"{room}/**/*.py"))]
    paths += [SOURCE / name for name in LEAVES]
    return [name for path in paths for _, name in number(ast.parse(path.read_text()), _short(path))]


def read_table(path: Path = ROOT / "tests" / "guards.toml") -> dict[str, str]:
    """Return what a table says of every guard: a test, or a reason."""
    raw = tomllib.loads(path.read_text())
    return {f"{file} {place}": said for file, told in raw.items() for place, said in told.items()}


def _short(path: Path) -> str:
    return path.relative_to(SOURCE).as_posix()


# As a plugin

_OFF: set[str] = set()
_SPOKEN: dict[str, set[str]] = {}
_NOW = [""]


def _speaks(guard: str) -> bool:
    """Note that a guard is about to refuse, and say whether it may."""
    _SPOKEN.setdefault(guard, set()).add(_NOW[0])
    return guard not in _OFF


class _Switched(ast.NodeTransformer):
    def __init__(self, names: dict[int, str]) -> None:
        self._names = names

    def visit_Raise(self, node: ast.Raise) -> ast.AST:
        name = self._names.get(id(node))
        if name is None:
            return node
        test = ast.parse(
            f"__import__({__name__!r}, fromlist=['_speaks'])._speaks({name!r})", mode="eval"
        ).body
        return ast.copy_location(ast.If(test=test, body=[node], orelse=[]), node)


class _Loader(importlib.machinery.SourceFileLoader):
    def source_to_code(self, data, path, *, _optimize=-1):  # type: ignore[no-untyped-def]
        tree = ast.parse(data)
        names = {id(node): name for node, name in number(tree, _short(Path(path)))}
        tree = ast.fix_missing_locations(_Switched(names).visit(tree))
        return compile(tree, path, "exec", dont_inherit=True, optimize=_optimize)

    def get_data(self, path: str) -> bytes:
        if path.endswith(".pyc"):  # neither read nor write what others compiled
            raise OSError
        return super().get_data(path)

    def set_data(self, path: str, data: bytes, *, _mode: int = 0o666) -> None:
        pass


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, fullname, path=None, target=None):  # type: ignore[no-untyped-def]
        if not fullname.startswith("tacit."):
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        rooms = (*(f"{SOURCE / name}" for name in LEAVES), *(f"{SOURCE / room}/" for room in ROOMS))
        if spec is not None and (spec.origin or "").startswith(rooms):
            spec.loader = _Loader(fullname, spec.origin)
        return spec


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--guards-removed", type=Path, metavar="TABLE")
    parser.addoption("--guards-seen", type=Path, metavar="FILE")
    assert "tacit" not in sys.modules
    sys.meta_path.insert(0, _Finder())


_WITHOUT = pytest.StashKey[str]()
_NOTICED = pytest.StashKey[bool]()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Have each named test once for every guard that it is named for."""
    table = config.getoption("--guards-removed")
    if table is None:
        return
    known, wanted = {item.nodeid: item for item in items}, []
    for guard, test in read_table(table).items():
        if test in known:
            one = copy.copy(known[test])
            one._nodeid = f"{test} without [{guard}]"
            one.stash = pytest.Stash()
            one.stash[_WITHOUT] = guard
            one._initrequest()  # type: ignore[attr-defined]
            if hasattr(one.module, "END_S"):  # type: ignore[attr-defined]
                one.module.END_S = 5  # type: ignore[attr-defined] # it will wait in vain
            wanted.append(one)
    items[:] = wanted


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    _NOW[0] = item.nodeid
    _OFF.add(item.stash.get(_WITHOUT, ""))
    try:
        return (yield)
    finally:
        _OFF.clear()
        _NOW[0] = ""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Turn the ending of a test without a guard round: it must fail."""
    report = yield
    guard = item.stash.get(_WITHOUT, "")
    if guard:
        has_noticed = item.stash.get(_NOTICED, False) or report.failed
        item.stash[_NOTICED] = has_noticed
        if report.failed:
            report.outcome, report.longrepr = "passed", None
        if report.when == "teardown" and not has_noticed:
            report.outcome, report.longrepr = "failed", f"nobody missed {guard}"
    return report


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    if config.getoption("--guards-seen"):
        seen = {guard: sorted(tests - {""}) for guard, tests in _SPOKEN.items()}
        config.getoption("--guards-seen").write_text(json.dumps(seen, indent=1))
