import importlib
import pkgutil
import shutil
import signal
import time
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("numba", reason="tacit-ml[verify] is not installed")

import numba
from numba.core.errors import NumbaError

import tacit.verify
from tacit.verify.jit import (
    bare,
    compiled,
    digest_kernels,
    processor_time,
    tell_compiling,
    wall_time,
)

HERE = Path(tacit.verify.__file__).parent


def test_machine_code_is_kept_on_disk_by_what_it_is_made_of():
    @compiled
    def double(x):
        return 2 * x

    assert double(3) == 6
    # If this fails, Numba keeps kernels elsewhere, and nothing is kept on disk any more.
    assert digest_kernels(Path(__file__))[:20] in double._cache.cache_path
    assert list(Path(double._cache.cache_path).glob("*double*.nbi"))


def test_the_same_kernels_in_another_place_are_the_same_machine_code(tmp_path):
    copy = shutil.copytree(HERE, tmp_path / "verify")
    for name in ("rows", "deep", "search"):
        assert digest_kernels(copy / f"{name}.py") == digest_kernels(HERE / f"{name}.py")


@pytest.mark.parametrize(
    ("changed", "stale", "fresh"),
    [
        ("split", "rows", "deep"),  # kernels that are called, however far below
        ("accord", "deep", "rows"),  # the deep search changes nothing about the small one
        ("xgb", None, "rows"),  # a reader of models is no kernel
    ],
)
def test_a_kernel_is_compiled_anew_where_something_below_it_changed(
    tmp_path, changed, stale, fresh
):
    copy = shutil.copytree(HERE, tmp_path / "verify")
    with (copy / f"{changed}.py").open("a") as file:
        file.write("NEW = 1\n")
    assert digest_kernels(copy / f"{fresh}.py") == digest_kernels(HERE / f"{fresh}.py")
    if stale is not None:
        assert digest_kernels(copy / f"{stale}.py") != digest_kernels(HERE / f"{stale}.py")


def test_compiling_is_told_and_counts_for_no_budget():
    @numba.njit
    def triple(x):
        return 3 * x

    said, begun = [], (wall_time(), processor_time(), time.monotonic())
    with tell_compiling(said.append):
        assert triple(3) == 9
        assert triple(4.0) == 12
    assert said == ["the deep search"]
    spent = time.monotonic() - begun[2]
    # Compiling takes a tenth of a second at least; both clocks stood still for most of it.
    assert wall_time() - begun[0] < 0.5 * spent
    assert processor_time() - begun[1] < 0.5 * spent


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
    for found in pkgutil.iter_modules(tacit.verify.__path__, "tacit.verify."):
        for one in vars(importlib.import_module(found.name)).values():
            if getattr(one, "targetoptions", {}).get("_nrt") is False:
                yield one
