"""What the tests of nodes on Flower stand on."""

import pytest


@pytest.fixture
def as_a_server(monkeypatch, tmp_path):
    """Be the process that Flower would have started."""
    from support.flower import stand_in  # needs Flower, which is an extra

    stand_in(monkeypatch, tmp_path)
