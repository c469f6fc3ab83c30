"""No check of what others send goes unnoticed when it is removed; see `guards.py`."""

import ast
import os
import re
import subprocess
import sys

import pytest

from support import guards

TABLE = guards.read_table()
TESTS = {guard: said for guard, said in TABLE.items() if said.startswith("tests/")}
REASONS = ("redundant: ", "refuses nobody: ", "open: ")
FOLDERS = sorted({test.split("::")[0].rpartition("/")[0] for test in TESTS.values()})


def test_every_guard_is_in_the_table_and_nothing_else_is():
    found = guards.find_guards()
    assert sorted(found) == sorted(TABLE), "add the test that fails without it to tests/guards.toml"


def test_whatever_has_no_test_has_a_reason():
    rest = [said for guard, said in TABLE.items() if guard not in TESTS]
    assert all(said.startswith(REASONS) and len(said) > 40 for said in rest)
    assert sum(said.startswith("open: ") for said in rest) <= 2


def test_every_named_test_is_there():
    defined = {}
    for said in set(TESTS.values()):
        file, _, test = said.partition("::")
        if file not in defined:
            tree = ast.parse((guards.ROOT / file).read_text())
            defined[file] = {one.name for one in tree.body if isinstance(one, ast.FunctionDef)}
        assert re.match(r"\w+", test)[0] in defined[file], said


@pytest.mark.slow
@pytest.mark.parametrize("folder", FOLDERS)
def test_without_its_guard_every_named_test_fails(folder):
    """In a process of its own, where the guards of all rooms can be switched off one by one."""
    named = {test for test in TESTS.values() if test.split("::")[0].rpartition("/")[0] == folder}
    files = sorted({test.split("::")[0] for test in named})
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "support.guards",
    ]
    command += ["--guards-removed", "tests/guards.toml", "--timeout", "60", "-m", "", *files]
    paths = [str(guards.ROOT / "src"), str(guards.ROOT / "tests"), os.environ.get("PYTHONPATH", "")]
    ended = subprocess.run(
        command,
        cwd=guards.ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        timeout=850,
    )
    assert ended.returncode == 0, ended.stdout[-3000:] + ended.stderr[-2000:]
    wanted = sum(test in named for test in TESTS.values())
    assert re.search(rf"\b{wanted} passed", ended.stdout), ended.stdout[-3000:]
