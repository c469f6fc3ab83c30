"""What holds for every test."""

import pytest
import torch
from hypothesis import HealthCheck, settings

# The suite shares its cores: how long an example takes says nothing about the code.
settings.register_profile(
    "tacit",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=False,
    print_blob=True,
)
settings.load_profile("tacit")


@pytest.fixture(autouse=True)
def models_start_alike():
    """Make weights that a test does not seed the same in every run, whatever ran before."""
    torch.manual_seed(0)
