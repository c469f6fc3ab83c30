import socket
import sys

import pytest

from support.machine import FakeRay, RayError
from tacit.cluster import open_cluster
from tacit.errors import ConfigError, DataError, RangeError


@pytest.fixture
def ray(monkeypatch):
    found = FakeRay()
    monkeypatch.setitem(sys.modules, "ray", found)
    return found


def raises(error):
    raise error


def test_calls_answer_like_those_of_any_executor_and_the_cluster_is_left(ray):
    with open_cluster("local") as cluster:
        shared = cluster.share(3)
        assert [cluster.submit(max, shared, one).result() for one in (1, 5)] == [3, 5]
        assert list(cluster.map(abs, [-2, 2])) == [2, 2]
        assert (cluster.cores, ray.is_up) == (1, True)
    assert (ray.addresses, ray.is_up) == (["local"], False)


def test_a_cluster_that_the_caller_joined_is_used_and_not_left(monkeypatch):
    ray = FakeRay(is_up=True)
    monkeypatch.setitem(sys.modules, "ray", ray)
    with open_cluster("local") as cluster:
        assert cluster.submit(abs, -1).result() == 1
    assert (ray.addresses, ray.is_up) == ([], True)


def test_an_error_of_a_task_is_ours_or_becomes_one(ray):
    with pytest.raises(RangeError, match=r"^row 3$"), open_cluster("local") as cluster:
        cluster.submit(raises, RangeError("row 3")).result()
    with pytest.raises(DataError, match="'local' failed: full"), open_cluster("local") as cluster:
        cluster.submit(raises, MemoryError("full")).result()
    with pytest.raises(DataError, match="'local' failed: a node died"), open_cluster("local"):
        raise RayError("a node died")
    assert not ray.is_up


def test_a_missing_ray_is_said_with_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigError, match=r"pip install 'tacit-ml\[fl\]'"), open_cluster("local"):
        pass


@pytest.mark.parametrize("address", ["ray://127.0.0.1:{port}", "127.0.0.1:{port}", "head:ray"])
def test_an_address_where_nobody_answers_is_refused_before_ray_is_asked(ray, address):
    with socket.socket() as taken:  # bound, but not listening
        taken.bind(("127.0.0.1", 0))
        address = address.format(port=taken.getsockname()[1])
        with pytest.raises(ConfigError, match=f"no Ray cluster at '{address}'"):
            open_cluster(address).__enter__()
    assert ray.addresses == []


def test_a_cluster_that_ray_does_not_find_is_refused(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", FakeRay(is_there=False))
    with pytest.raises(ConfigError, match="no Ray cluster at 'auto': nobody answers; start one"):
        open_cluster("auto").__enter__()
