"""What holds for every test."""

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
