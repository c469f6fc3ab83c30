import pytest

pytest.importorskip("numba", reason="tacit[verify] is not installed")

from tacit.verify.jit import compiled, digest_sources


def test_machine_code_on_disk_is_tied_to_every_source_of_the_room():
    @compiled
    def double(x):
        return 2 * x

    assert double(3) == 6
    # If this fails, Numba keeps its stamp elsewhere and nothing is kept on disk any more.
    assert digest_sources() in double._cache._cache_file._source_stamp
