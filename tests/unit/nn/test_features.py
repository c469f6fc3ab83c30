"""Features by a public rule: each row from its own picture, of norm 1."""

import numpy as np
import pytest

from tacit.errors import DataError
from tacit.nn import HistogramsOfGradients


def test_rows_have_norm_one_and_depend_on_their_own_picture_alone():
    pictures = np.random.default_rng(0).random((5, 28, 28))
    rows = HistogramsOfGradients()(pictures)
    assert rows.shape == (5, 6 * 6 * 2 * 2 * 9)
    assert np.linalg.norm(rows, axis=1) == pytest.approx(np.ones(5))
    assert np.array_equal(HistogramsOfGradients()(pictures[2:3])[0], rows[2])


def test_an_edge_votes_for_its_direction_and_an_empty_picture_for_none():
    across = np.tile(np.arange(16.0), (16, 1))  # grey that grows to the right: 0 degrees
    down = across.T
    empty = np.zeros((16, 16))
    rows = HistogramsOfGradients(cell=4, bins=4, block=1)(np.stack([across, down, empty]))
    votes = rows.reshape(3, -1, 4).sum(axis=1)
    # Bins are centred at 22.5 degrees and so on: 0 lies between the last and the first.
    assert votes[0] == pytest.approx([votes[0, 0], 0, 0, votes[0, 0]])
    assert votes[1] == pytest.approx([0, votes[1, 1], votes[1, 1], 0])
    assert not votes[2].any()


def test_what_is_no_picture_is_refused():
    with pytest.raises(DataError, match="height, width"):
        HistogramsOfGradients()(np.zeros((3, 784)))
