"""Local training: pictures are changed as they should be, and only pictures."""

import numpy as np
import pytest
import torch

from tacit.errors import ConfigError
from tacit.learn.federated import Learner, Recipe, build_model
from tacit.learn.federated.training import augment
from tacit.ring import Prg


@pytest.mark.parametrize("shape", [(3, 2, 8, 6), (3, 2, 3, 8, 6)])
def test_a_flip_mirrors_some_rows_and_leaves_the_others(shape):
    x = torch.arange(float(np.prod(shape))).view(shape)
    found = augment(x, "flip", Prg(b"\0" * 16))
    pairs = list(zip(found.flatten(0, 1), x.flatten(0, 1), strict=True))
    flipped = [torch.equal(new, old.flip(-1)) for new, old in pairs]
    same = [torch.equal(new, old) for new, old in pairs]
    assert all(a != b for a, b in zip(flipped, same, strict=True))
    assert any(flipped)
    assert any(same)


@pytest.mark.parametrize("shape", [(20, 5, 9, 7), (20, 5, 3, 9, 7)])
def test_a_shift_moves_a_pixel_by_two_at_most_and_each_row_by_itself(shape):
    x = torch.zeros(shape)
    x[..., 4, 3] = 1.0
    found = augment(x, "shift", Prg(b"\0" * 16)).flatten(0, 1)
    assert (found.flatten(1).sum(1) == x.flatten(0, 1).flatten(1).sum(1)).all()
    places = {tuple(row.nonzero()[0, -2:].tolist()) for row in found}
    assert places == {(y, z) for y in range(2, 7) for z in range(1, 6)}


def test_only_pictures_can_be_augmented():
    model = build_model("linear", (4,), 2, seed=0)
    with pytest.raises(ConfigError, match="wants pictures, got rows of 4 numbers"):
        Learner(
            model,
            torch.zeros(3, 4),
            torch.zeros(3, dtype=torch.int64),
            [np.arange(3)],
            recipe=Recipe(augment="shift"),
        )
