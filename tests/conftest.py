"""What holds for every test."""

import gc
import warnings
from itertools import count

import pytest
import torch
from hypothesis import HealthCheck, settings

# The suite shares its cores: how long an example takes says nothing about the code. Its examples
# are the same in every run; `pytest --hypothesis-profile=search` looks for others.
for name, is_fixed in (("tacit", True), ("search", False)):
    settings.register_profile(
        name,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
        derandomize=is_fixed,
        print_blob=True,
    )
settings.load_profile("tacit")

# Where tests run on several workers, those that need the same kernels run on one, and those that
# start processes one after another; every other file is dealt out by itself. Long ones come first.
TOGETHER = {
    "tests/unit/verify/": "compiled",
    "tests/contract/test_verifiers.py": "compiled",
    "tests/unit/cli/test_verify": "compiled",
    "tests/e2e/": "processes",
    "tests/unit/split/test_fit.py": "processes",
    "tests/unit/party/test_local.py": "processes",
}


def find_group(nodeid):
    """Name the tests that one runs with: its group's, or those of its file."""
    path = nodeid.split("::")[0]
    named = (group for start, group in TOGETHER.items() if path.startswith(start))
    return next(named, path)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Put the groups first, so that no worker is left alone with one in the end."""
    if config.getoption("dist", "no") != "no" or hasattr(config, "workerinput"):
        order = dict(zip(dict.fromkeys(TOGETHER.values()), count(), strict=False))
        items.sort(key=lambda item: order.get(find_group(item.nodeid), len(order)))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Deal tests out by group."""
    from xdist.scheduler import LoadScopeScheduling

    class ByGroup(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            return find_group(nodeid)

    return ByGroup(config, log)


@pytest.fixture(autouse=True)
def models_start_alike():
    """Make weights that a test does not seed the same in every run, whatever ran before."""
    torch.manual_seed(0)


@pytest.fixture
def code_is_allowed(monkeypatch):
    """Let jobs run any file of Python, as if whoever runs the tests had read it."""

    class _Everything(frozenset):
        def __contains__(self, digest):
            return True

    monkeypatch.setattr("tacit.nn.code._allowed", _Everything)


@pytest.fixture
def ray_tidied():
    """Let go of what a Ray of this process left open, before another test is blamed for it."""
    yield
    with warnings.catch_warnings():
        # Its frames keep /dev/null open in a cycle, which is found whenever memory is next tidied.
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
