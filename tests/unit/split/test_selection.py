"""The draws of randomised Top-k follow eq. 3-19, and get out where Top-k sticks."""

from collections import Counter
from itertools import permutations

import pytest
import torch

from tacit.split.selection import (
    Above,
    Draws,
    First,
    RandomisedTopK,
    TopK,
    as_mask,
)

H = torch.tensor([0.1, -5.0, 3.0, 0.2, 4.0])


def mask(choose, h, generator=None):
    return as_mask(choose.keep(h, generator), h.shape[1])


def draw(k, alpha, rows, seed=0, h=H):
    generator = torch.Generator().manual_seed(seed)
    return mask(RandomisedTopK(k, alpha), h.expand(rows, -1), generator)


def exact(h, k, alpha):
    """Return the probability of every subset, by following the k draws one by one."""
    order = h.abs().argsort(descending=True).tolist()
    top, others = set(order[:k]), set(order[k:])
    found = Counter()
    for path in permutations(range(len(h)), k):
        p, left, right = 1.0, set(top), set(others)
        for pick in path:
            chance = alpha if right else 0.0
            p *= (1 - chance) / len(left) if pick in left else chance / max(len(right), 1)
            left.discard(pick)
            right.discard(pick)
        found[frozenset(path)] += p
    return found


def draw_as_on_a_device(k, alpha, rows):
    choose, h = RandomisedTopK(k, alpha), H.expand(rows, -1)
    draws = choose.draw_there(h.shape, torch.Generator().manual_seed(0), h.device)
    return as_mask(choose.pick(h, draws), len(H))


@pytest.mark.parametrize("make", [draw, draw_as_on_a_device])
@pytest.mark.parametrize(
    ("k", "alpha"), [(2, 0.1), (2, 0.5), (3, 0.3), (3, 0.9), (1, 0.2), (5, 0.5)]
)
def test_subsets_appear_as_often_as_drawing_one_by_one_makes_them(k, alpha, make):
    rows = 40_000
    columns = make(k, alpha, rows).nonzero()[:, 1].view(rows, k).tolist()
    seen, wanted = Counter(map(frozenset, columns)), exact(H, k, alpha)
    assert sum(wanted.values()) == pytest.approx(1)
    chi2 = sum((seen[s] - rows * p) ** 2 / (rows * p) for s, p in wanted.items() if p > 0)
    # At most ten subsets: 40 is passed with a probability below 1e-5, and the seed is fixed.
    assert chi2 < 40
    assert set(seen) <= {s for s, p in wanted.items() if p > 0}


@pytest.mark.parametrize(("k", "alpha"), [(1, 0.1), (3, 0.5), (5, 1.0), (3, 0.0)])
def test_what_is_drawn_ahead_is_what_is_drawn_at_once(k, alpha):
    h = torch.randn(60, 5, generator=torch.Generator().manual_seed(3))
    early, late = (torch.Generator().manual_seed(4) for _ in range(2))
    choose = RandomisedTopK(k, alpha)
    draws = choose.draw(h.shape, early, h.device)
    assert torch.equal(as_mask(choose.pick(h, draws), 5), mask(choose, h, late))
    assert torch.equal(early.get_state(), late.get_state())


def test_draws_for_all_rows_change_those_that_keep_others_and_no_more():
    """On a device all rows are drawn for; what is drawn for places that stay changes nothing."""
    h = torch.randn(60, 8, generator=torch.Generator().manual_seed(5))
    choose = RandomisedTopK(3, 0.3)
    draws = choose.draw(h.shape, torch.Generator().manual_seed(6), h.device)
    places = torch.zeros((60, 3), dtype=torch.bool)
    places[draws.rows, draws.places] = True
    ranks = torch.randint(0, 5, (60, 3), generator=torch.Generator().manual_seed(7))
    ranks[draws.rows, draws.places] = draws.ranks
    picked, top = choose.pick(h, draws), TopK(3).columns(h)
    assert torch.equal(choose.pick(h, Draws(None, places, ranks)), picked)
    assert torch.equal((picked == top).all(1), ~places.any(1))
    assert 0 < int(places.any(1).sum()) < 60


def test_columns_ascend_whatever_was_drawn():
    h = torch.randn(500, 9, generator=torch.Generator().manual_seed(8))
    for k in range(1, 10):
        choose = RandomisedTopK(k, 0.5)
        columns = choose.pick(h, choose.draw(h.shape, torch.Generator().manual_seed(9), h.device))
        assert (columns[:, 1:] > columns[:, :-1]).all()
        assert 0 <= int(columns.min()) <= int(columns.max()) < 9


def test_without_randomness_it_is_top_k():
    h = torch.randn(50, 20, generator=torch.Generator().manual_seed(2))
    drawn = mask(RandomisedTopK(4, 0.0), h, torch.Generator())
    assert torch.equal(drawn, mask(TopK(4), h))


def test_with_nothing_but_randomness_no_top_value_is_kept_before_the_others_are_used_up():
    assert not draw(2, 1.0, 500)[:, [1, 4]].any()
    crowded = draw(3, 1.0, 500)  # two others, three to keep: both others, and one of the top
    assert crowded[:, [0, 3]].all()
    assert crowded[:, [1, 2, 4]].sum(1).eq(1).all()


def test_the_first_and_the_large_are_what_they_say():
    h = H[None]
    assert mask(First(2), h).tolist() == [[True, True, False, False, False]]
    assert mask(Above(3.5), h).tolist() == [[False, True, False, False, True]]


def train_counter_example(choose, steps=4000):
    """Train the model of eq. 3-17 on two samples of eq. 3-16 with one value kept.

    The first sample is printed as (−1, 0) in eq. 3-18, with the label +1; eq. 3-16 gives that
    label to (1, 0), and only so does Top-k come to rest near w_1 = 0.4 as the text says.
    """
    x, y = torch.tensor([[1.0, 0.0], [0.5, 1.0]]), torch.tensor([1.0, -1.0])
    w = torch.tensor([1.0, -0.1], requires_grad=True)
    generator = torch.Generator().manual_seed(5)
    for _ in range(steps):
        h = x * w
        kept = mask(choose, h.detach(), generator)
        loss = ((torch.tanh((h * kept).sum(1)) - y) ** 2).mean()
        (gradient,) = torch.autograd.grad(loss, w)
        w = (w - 0.05 * gradient).detach().requires_grad_()
    h = (x * w).detach()
    return w.detach(), torch.sign((h * mask(TopK(1), h)).sum(1))


def test_top_k_sticks_in_the_two_dimensional_example():
    w, classes = train_counter_example(TopK(1))
    assert float(w[1]) == pytest.approx(-0.1)  # never chosen, never trained
    assert float(w[0]) == pytest.approx(0.4, abs=0.1)
    assert classes.tolist() == [1.0, 1.0]


def test_randomised_top_k_escapes_from_it():
    w, classes = train_counter_example(RandomisedTopK(1, 0.1))
    assert w[0] > 0.8
    assert w[1] < -1
    assert classes.tolist() == [1.0, -1.0]
