"""Private matching of ids."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.crypto import Matcher, matching
from tacit.crypto.matching import (
    hash_to_point,
    make_filters,
    make_tags,
    match_filters,
    split_points,
)
from tacit.errors import DataError, InputError

names = st.lists(st.text(min_size=1, max_size=4), min_size=1, max_size=12, unique=True)


def match(first, second):
    a, b = Matcher(first), Matcher(second)
    blind_a, blind_b = a.blind(), b.blind()
    done_a, done_b = b.raise_points(blind_a), a.raise_points(blind_b)
    return a.match(done_a, [done_b]), b.match(done_b, [done_a])


@given(names, names)
def test_both_find_the_common_ids_in_one_order(first, second):
    mine, theirs = match(first, second)
    assert [first[at] for at in mine] == [second[at] for at in theirs]
    assert {first[at] for at in mine} == set(first) & set(second)


def test_points_of_one_owner_mean_nothing_to_the_other():
    ids = [f"patient {number}" for number in range(20)]
    a, b = Matcher(ids), Matcher(ids)
    seen = set(split_points(a.blind()))
    own = set(split_points(b.blind()))
    hashed = {hash_to_point(name.encode()) for name in ids}
    assert not seen & own
    assert not seen & hashed
    assert not set(split_points(Matcher(ids).blind())) & seen


def test_the_order_of_points_is_not_that_of_rows():
    ids = [f"{number:03}" for number in range(50)]
    points = split_points(Matcher(ids).blind())
    assert points == sorted(points)


@pytest.mark.parametrize(
    ("ids", "words"),
    [([], "at least one"), (["a", ""], "row 2 has an empty"), (["a", "b", "a"], "row 3 occurs")],
)
def test_ids_that_cannot_be_matched_are_refused(ids, words):
    with pytest.raises(DataError, match=words):
        Matcher(ids)


@pytest.mark.parametrize(
    "points", [b"x" * 31, b"\xff" * 32, bytes(32), (2**255 - 19).to_bytes(32, "little")]
)
def test_what_is_no_point_is_refused(points):
    with pytest.raises(DataError):
        Matcher(["a"]).raise_points(points)


def test_every_hashed_id_lies_on_the_curve_itself(monkeypatch):
    """On the twisted curve a point would show one bit of the id's hash, however often raised."""
    ids = [f"id {number}".encode() for number in range(40)]
    found = [hash_to_point(name) for name in ids]
    for point in (*found, *split_points(Matcher(["a", "b", "c"]).blind())):
        u = int.from_bytes(point, "little")
        assert pow(u**3 + 486662 * u**2 + u, (2**255 - 20) // 2, 2**255 - 19) == 1
    monkeypatch.setattr(matching, "gmpy2", None)
    assert [hash_to_point(name) for name in ids] == found


def test_missing_or_doubled_points_are_noticed():
    a, b = Matcher(["a", "b"]), Matcher(["b", "c"])
    done = b.raise_points(a.blind())
    with pytest.raises(DataError, match="wanted 2"):
        a.match(done[:32], [done])
    with pytest.raises(DataError, match="twice"):
        a.match(done, [done[:32] * 2])


@pytest.mark.parametrize("size", [0, 15, 65])
def test_tags_are_made_with_a_key_of_some_length(size):
    for make in (make_tags, make_filters):
        with pytest.raises(InputError, match="wanted a key of 16 to 64 bytes"):
            make(["a"], bytes(size))


@pytest.mark.parametrize("least", [0.49, 1.01])
def test_likeness_below_a_half_is_no_likeness(least):
    filters = make_filters(["a"], bytes(16))
    with pytest.raises(InputError, match="wanted a least likeness"):
        match_filters(filters, filters, least=least)
