import importlib
import pkgutil

import numpy as np
import pytest

pytest.importorskip("numba", reason="tacit-ml[verify] is not installed")

from numba.core.errors import NumbaError

import tacit.verify
from tacit.verify.jit import bare, compiled, digest_sources


def test_machine_code_on_disk_is_tied_to_every_source_of_the_room():
    @compiled
    def double(x):
        return 2 * x

    assert double(3) == 6
    # If this fails, Numba keeps its stamp elsewhere and nothing is kept on disk any more.
    assert digest_sources() in double._cache._cache_file._source_stamp


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
