"""What holds for every test."""

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


@pytest.fixture(autouse=True)
def models_start_alike():
    """Make weights that a test does not seed the same in every run, whatever ran before."""
    torch.manual_seed(0)
