import math

import pytest

from tacit.errors import ConfigError
from tacit.transport import LinkLimits, Patience


@pytest.mark.parametrize("name", ["connect_s", "silence_s", "heartbeat_s", "stall_s"])
@pytest.mark.parametrize("value", [0, -1, math.nan, math.inf])
def test_a_wait_is_a_positive_number_of_seconds(name, value):
    with pytest.raises(ConfigError, match=name):
        Patience(**{name: value})


def test_one_late_heartbeat_must_be_forgiven():
    with pytest.raises(ConfigError, match="twice heartbeat_s"):
        Patience(silence_s=3, heartbeat_s=2)


@pytest.mark.parametrize("name", ["max_frame_bytes", "queue_bytes", "prefetch_bytes"])
def test_a_limit_is_positive(name):
    with pytest.raises(ConfigError, match=name):
        LinkLimits(**{name: 0})


def test_the_stash_holds_at_least_what_is_prefetched():
    with pytest.raises(ConfigError, match="stash_bytes"):
        LinkLimits(prefetch_bytes=10, stash_bytes=9)
