import os

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import given
from hypothesis import strategies as st

from tacit.crypto import aead as aead_module
from tacit.crypto import seal, unseal
from tacit.crypto.aead import OVERHEAD_BYTES
from tacit.errors import InputError

KEY = bytes(range(32))


@given(st.binary(max_size=200), st.binary(max_size=50))
def test_what_is_sealed_opens_again_and_costs_what_it_says(plaintext, associated):
    sealed = seal(KEY, plaintext, associated=associated)
    assert len(sealed) == len(plaintext) + OVERHEAD_BYTES == len(plaintext) + 28
    assert unseal(KEY, sealed, associated=associated) == plaintext


@given(st.binary(max_size=64), st.data())
def test_any_changed_bit_is_noticed(plaintext, data):
    sealed = bytearray(seal(KEY, plaintext, associated=b"a"))
    position = data.draw(st.integers(0, 8 * len(sealed) - 1))
    sealed[position // 8] ^= 1 << position % 8
    with pytest.raises(InputError, match="does not open"):
        unseal(KEY, bytes(sealed), associated=b"a")


def test_another_key_and_other_associated_data_do_not_open():
    sealed = seal(KEY, b"secret", associated=b"to bob")
    with pytest.raises(InputError, match="another key or other associated data"):
        unseal(bytes(32), sealed, associated=b"to bob")
    with pytest.raises(InputError, match="does not open"):
        unseal(KEY, sealed, associated=b"to eve")


def test_a_nonce_is_used_once():
    assert len({seal(KEY, b"", associated=b"")[:12] for _ in range(1000)}) == 1000


def test_the_layout_is_nonce_then_standard_aes_gcm():
    nonce = os.urandom(12)
    sealed = nonce + AESGCM(KEY).encrypt(nonce, b"hello", b"a")
    assert unseal(KEY, sealed, associated=b"a") == b"hello"


@pytest.mark.parametrize("length", [0, 16, 31, 33])
def test_a_key_of_another_length_is_refused_and_not_shown(length):
    key = b"k" * length
    for attempt in (seal, unseal):
        with pytest.raises(InputError, match=f"32 bytes, got {length}") as caught:
            attempt(key, bytes(40), associated=b"")
        assert length == 0 or key.decode() not in str(caught.value)


def test_a_message_shorter_than_its_overhead_is_refused():
    with pytest.raises(InputError, match="at least 28 bytes, got 27"):
        unseal(KEY, bytes(27), associated=b"")


def test_more_than_the_library_takes_in_one_call_is_refused(monkeypatch):
    monkeypatch.setattr(aead_module, "LONGEST_BYTES", 8)
    with pytest.raises(InputError, match="wanted at most 8 bytes"):
        seal(KEY, bytes(9), associated=b"")
