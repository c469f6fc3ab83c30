"""Random orders of rows and of the values in them."""

from collections import Counter

import pytest
import torch

from tacit.mpc.permuted.view import RowLayout, invert, take
from tacit.ring import Prg

KEY = bytes(range(16))


def test_rows_stay_together_and_nothing_is_lost():
    layout = RowLayout(5, 7)
    order = layout.draw(Prg(KEY)).view(5, 7).long()
    assert order.flatten().sort().values.tolist() == list(range(35))
    assert all(len(set((row // 7).tolist())) == 1 for row in order)


def test_every_order_of_two_rows_of_two_is_equally_likely():
    prg = Prg(KEY)
    counts = Counter(tuple(RowLayout(2, 2).draw(prg).tolist()) for _ in range(8000))
    # 2 orders of rows, 2 within each of 2 rows. Chance of a false alarm: chi-square 7 > 40, 1e-6.
    assert len(counts) == 8
    assert sum((count - 1000) ** 2 / 1000 for count in counts.values()) < 40


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (9, 1), (1, 9), (4, 6), (0, 3)])
def test_the_way_back_undoes_the_order(rows, columns):
    layout = RowLayout(rows, columns)
    order = layout.draw(Prg(KEY))
    words = torch.arange(layout.elements) * 3
    back = layout.way_back(order, columns=columns, follows=True)
    assert torch.equal(take(take(words, order), back), words)


def test_a_result_per_row_finds_its_row():
    layout = RowLayout(6, 4)
    order = layout.draw(Prg(KEY))
    words = torch.arange(24)
    sums = take(words, order).view(6, 4).sum(1)
    back = layout.way_back(order, columns=1, follows=False)
    assert torch.equal(take(sums, back), words.view(6, 4).sum(1))


def test_results_that_belong_to_a_row_alone_keep_their_places_in_it():
    layout = RowLayout(5, 4)
    order = layout.draw(Prg(KEY))
    words = torch.arange(20)
    ranked = take(words, order).view(5, 4).sort(-1, descending=True).values
    back = layout.way_back(order, columns=4, follows=False)
    assert torch.equal(take(ranked.view(-1), back), words.view(5, 4).flip(-1).reshape(-1))


def test_an_inverse_is_an_inverse():
    order = torch.tensor([2, 0, 3, 1], dtype=torch.int32)
    assert invert(order)[order.long()].tolist() == [0, 1, 2, 3]
