import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.crypto import commit, verify
from tacit.errors import InputError


@given(st.binary(max_size=100), st.binary(max_size=20))
def test_a_commitment_opens_to_what_was_committed(message, context):
    commitment, randomiser = commit(message, context=context)
    assert len(commitment) == len(randomiser) == 32
    assert verify(commitment, message, randomiser=randomiser, context=context)


@given(st.binary(max_size=40), st.binary(max_size=40))
def test_it_opens_to_nothing_else(message, other):
    commitment, randomiser = commit(message, context=b"a")
    is_same = message == other
    assert verify(commitment, other, randomiser=randomiser, context=b"a") is is_same
    assert not verify(commitment, message, randomiser=randomiser, context=b"b")
    assert not verify(commitment, message, randomiser=bytes(32), context=b"a")


def test_bytes_cannot_move_between_context_and_message():
    commitment, randomiser = commit(b"bc", context=b"a")
    shifted = randomiser[1:] + b"b"
    assert not verify(commitment, b"c", randomiser=shifted, context=b"a" + randomiser[:1])


def test_equal_messages_give_unequal_commitments():
    assert len({commit(b"yes", context=b"")[0] for _ in range(100)}) == 100


def test_the_hash_is_the_one_that_is_documented():
    commitment, randomiser = commit(b"m", context=b"ctx")
    text = b"tacit commitment v1\x00" + bytes(7) + b"\x03" + b"ctx" + randomiser + b"m"
    assert commitment == hashlib.sha256(text).digest()


@pytest.mark.parametrize(("commitment", "randomiser"), [(31, 32), (32, 33), (0, 32)])
def test_parts_of_another_length_are_refused(commitment, randomiser):
    with pytest.raises(InputError, match=f"got {commitment} and {randomiser}"):
        verify(bytes(commitment), b"", randomiser=bytes(randomiser), context=b"")
