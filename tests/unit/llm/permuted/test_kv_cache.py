"""The cache of keys and values: only what was written can be read."""

import pytest
import torch

from tacit.errors import DataError, FrameError
from tacit.llm.permuted.geometry import Heads, KvCache
from tacit.llm.permuted.setup import KeptConversation


def cache():
    return KvCache(2, Heads(groups=1, size=2, dim=4))


def rows(n):
    return torch.arange(n * 4).view(n, 1, 4)


def test_rows_that_were_never_written_cannot_be_read():
    one = cache()
    one.put(0, 0, rows(3), rows(3))
    assert torch.equal(one.upto(0, 3)[0], rows(3))
    with pytest.raises(DataError, match="counts on 4 tokens in the cache, but 3 are there"):
        one.upto(0, 4)
    with pytest.raises(DataError, match="counts on 1"):
        one.upto(1, 1)


def test_rows_cannot_be_written_behind_a_gap():
    one = cache()
    with pytest.raises(DataError, match="counts on 40 tokens in the cache, but 0 are there"):
        one.put(0, 40, rows(1), rows(1))


def test_rows_behind_those_written_again_are_forgotten():
    one = cache()
    one.put(0, 0, rows(100), rows(100))
    one.put(0, 10, rows(1), -rows(1))
    assert torch.equal(one.upto(0, 11)[0], torch.cat([rows(10), rows(1)]))
    assert torch.equal(one.upto(0, 11)[1], torch.cat([rows(10), -rows(1)]))
    with pytest.raises(DataError, match="but 11 are there"):
        one.upto(0, 12)


def test_an_order_is_taken_once_and_only_by_the_last_who_opened_the_conversation():
    kept = KeptConversation(b"\0" * 16, cache())
    first = kept.take_over()
    kept.take_batch(0, holder=first, user="user")
    with pytest.raises(FrameError, match="twice"):
        kept.take_batch(0, holder=first, user="user")
    second = kept.take_over()
    with pytest.raises(FrameError, match="goes on there"):
        kept.take_batch(1, holder=first, user="user")
    kept.take_batch(1, holder=second, user="user")


def test_a_shelf_with_room_keeps_its_rows_where_they_are():
    one = cache()
    for layer in range(2):
        one.put(layer, 0, rows(3), rows(3))
    one.reserve(3, 200)
    version, (keys, _) = one.version, one.whole(1)
    keys[3] = rows(1)[0] + 7
    for place in range(4, 200):
        one.reserve(place, 200)
    assert one.version == version
    assert torch.equal(one.upto(1, 4)[0], torch.cat([rows(3), rows(1) + 7]))
    one.reserve(200, 200)
    assert one.version > version
    assert torch.equal(one.upto(1, 4)[0], torch.cat([rows(3), rows(1) + 7]))
