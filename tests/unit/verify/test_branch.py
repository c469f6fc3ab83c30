"""The search that comes at once where features have many ranks, at the closest thresholds."""

from dataclasses import replace

import numpy as np
import pytest

from tacit.verify import Counterexample, Domain, Robust, verify
from tacit.verify.box import ball, box_intervals
from tacit.verify.kernels.layout.reach import reach
from tacit.verify.kernels.search.branch import _is_wide

AREA = Domain(-3.0, 3.0)


def draw(brute, rng):
    """Make a model of three features with two dozen thresholds each, and an input."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(brute, "MENU", tuple(rng.uniform(-2.5, 2.5, 40)))
        while True:
            model = brute.random_ensemble(rng, most=80, values=brute.reals)
            if model.n_features == 3 and model.roots.size > 40:
                return model, rng.uniform(-1.0, 1.0, 3)


def test_the_least_score_is_found_to_the_last_bit_among_many_ranks(brute):
    rng, n_wide, n_searched = np.random.default_rng(3), 0, 0
    for _ in range(30):
        model, x = draw(brute, rng)
        box = ball(model, x, 2.5, AREA)
        scores = model.scores(brute.all_points(model, box))[:, 0]
        least, here = scores.min(), model.scores(x[None])[0, 0]
        n_wide += _is_wide(reach(model.index.trees, *box_intervals(model, box)))
        held = verify(replace(model, cutoff=float(least)), x, 2.5, domain=AREA)
        assert isinstance(held, Robust)
        n_searched += held.nodes > 1
        above = float(np.nextafter(least, np.inf))
        if here >= above:
            fallen = verify(replace(model, cutoff=above), x, 2.5, domain=AREA)
            assert isinstance(fallen, Counterexample)
    assert n_wide > 15
    assert n_searched > 5
