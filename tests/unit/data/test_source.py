"""Rows and models given in Python: in place of a file, never of what all have agreed on."""

import pytest
import torch

from tacit.data import Given, Source
from tacit.errors import ConfigError

ROWS = Given(x=[[1.0, 2.0], [3.0, 4.0]], y=[0, 1])


def test_rows_take_the_place_of_a_file(tmp_path):
    found = Source(file=tmp_path / "none.csv").whole(given=ROWS)
    assert found.features.tolist() == [[1, 2], [3, 4]]
    assert found.labels.tolist() == [0, 1]


def test_rows_do_not_take_the_place_of_a_set_that_all_have_agreed_on():
    with pytest.raises(ConfigError, match=r"data\.set: all parties have agreed .* 'iris'"):
        Source(set="iris").whole(given=ROWS)


def test_what_a_party_does_not_own_is_refused_and_not_left_out():
    with pytest.raises(ConfigError, match="'lab' owns no rows"):
        ROWS.check("lab", rows=False, model=True)
    with pytest.raises(ConfigError, match="'lab' owns no model"):
        Given(weights={"bias": torch.ones(1)}).check("lab", rows=True, model=False)


def test_a_job_without_rows_says_what_is_missing():
    with pytest.raises(ConfigError, match="data: wanted 'set' or 'file', or rows given in Python"):
        Source().whole()
