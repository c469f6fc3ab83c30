import importlib
import pkgutil
import re
import shutil
import signal
import time
from pathlib import Path

import numba
import numpy as np
import pytest
from numba.core.errors import NumbaError

import tacit.verify.kernels
from tacit.jit import bare, compiled, digest_kernels
from tacit.verify.kernels.clock import processor_time, tell_compiling, wall_time

HERE = Path(tacit.verify.kernels.__file__).parent


def test_machine_code_is_kept_on_disk_by_what_it_is_made_of():
    @compiled
    def double(x):
        return 2 * x

    assert double(3) == 6
    # If this fails, Numba keeps kernels elsewhere, and nothing is kept on disk any more.
    assert digest_kernels(Path(__file__))[:20] in double._cache.cache_path
    assert list(Path(double._cache.cache_path).glob("*double*.nbi"))


def test_the_same_kernels_in_another_place_are_the_same_machine_code(tmp_path):
    copy = shutil.copytree(HERE, tmp_path / "kernels")
    for name in ("presolve/presolve", "search/branch"):
        assert digest_kernels(copy / f"{name}.py") == digest_kernels(HERE / f"{name}.py")


@pytest.mark.parametrize(
    ("changed", "stale", "fresh"),
    [
        (
            "presolve/bisect",
            "presolve/presolve",
            "search/branch",
        ),  # what is called, however far below
        ("search/mplp", "search/branch", "presolve/presolve"),  # the small search stays as it is
    ],
)
def test_a_kernel_is_compiled_anew_where_something_below_it_changed(
    tmp_path, changed, stale, fresh
):
    copy = shutil.copytree(HERE, tmp_path / "kernels")
    with (copy / f"{changed}.py").open("a") as file:
        file.write("NEW = 1\n")
    assert digest_kernels(copy / f"{fresh}.py") == digest_kernels(HERE / f"{fresh}.py")
    assert digest_kernels(copy / f"{stale}.py") != digest_kernels(HERE / f"{stale}.py")


def test_kernels_import_no_other_part_of_the_room_and_lie_nowhere_else():
    # Otherwise a change elsewhere could change machine code that is kept.
    room = HERE.parent
    for path in room.rglob("*.py"):
        text = path.read_text()
        if HERE in path.parents:
            names = re.findall(r"(?:from|import) (tacit\.verify\S*)", text)
            assert all(name.startswith("tacit.verify.kernels") for name in names), path
        else:
            assert not re.search(r"^@(compiled|bare)", text, re.M), path


def test_compiling_is_told_and_counts_for_no_budget():
    @numba.njit
    def triple(x):
        return 3 * x

    said, begun = [], (time.monotonic(), wall_time(), processor_time())
    with tell_compiling(said.append):
        assert triple(3) == 9
        assert triple(4.0) == 12
    assert said == ["the deep search"]
    wall, processor = wall_time() - begun[1], processor_time() - begun[2]
    spent = time.monotonic() - begun[0]
    # Compiling takes a tenth of a second at least; both clocks stood still for most of it.
    assert wall < 0.5 * spent
    assert processor < 0.5 * spent


def test_an_interrupt_while_a_kernel_is_compiled_is_not_lost():
    @numba.njit
    def inner(x):
        return 3 * x

    @numba.njit
    def outer(x):
        return inner(x) + 1

    def interrupt(purpose):
        signal.raise_signal(signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), tell_compiling(interrupt):
        outer(3)
    assert signal.getsignal(signal.SIGINT) is before
    assert outer(3) == 10


def test_a_kernel_that_counts_no_references_must_not_allocate():
    @bare
    def make(n):
        return np.zeros(n)[0]

    with pytest.raises(NumbaError, match="zeros"):
        make(3)


def test_kernels_that_count_no_references_return_no_arrays():
    for kernel in _bare_kernels():
        for signature in kernel.nopython_signatures:
            assert "array" not in str(signature.return_type), kernel


def _bare_kernels():
    for found in pkgutil.walk_packages(tacit.verify.kernels.__path__, "tacit.verify.kernels."):
        for one in vars(importlib.import_module(found.name)).values():
            if getattr(one, "targetoptions", {}).get("_nrt") is False:
                yield one
