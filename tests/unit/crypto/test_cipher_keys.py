"""Secret keys and shares as bytes: they come back as they were, or are refused by name."""

import numpy as np
import pytest

from short_keys import short_key
from tacit.crypto.cipher import (
    Layout,
    combine,
    dump_secret,
    dump_share,
    load_secret,
    load_share,
    share_key,
)
from tacit.errors import DataError
from tacit.ring import Prg

pytest.importorskip("gmpy2")
pytest.importorskip("tenseal")

DRAW = Prg.from_os().bytes
NUMBERS = np.arange(-5, 5).reshape(-1, 1)
LAYOUT = Layout(rows=10, bound=10, room=100, form="sum", by_owner=True)


@pytest.mark.parametrize("scheme", ["paillier", "bfv"])
def test_a_key_from_bytes_is_the_same_key(scheme):
    key = short_key(scheme, DRAW)
    again = load_secret(scheme, dump_secret(key))
    assert again.public.key_id == key.public.key_id
    sent = again.public.dump(again.encrypt(NUMBERS, LAYOUT, DRAW))
    assert (key.decrypt(key.public.load(sent, LAYOUT)) == NUMBERS).all()
    other = "bfv" if scheme == "paillier" else "paillier"
    for data in (b"", b"\0" * 40, dump_secret(key)[:-1], dump_secret(key) + b"\0"):
        with pytest.raises(DataError):
            load_secret(scheme, data)
    with pytest.raises(DataError):
        load_secret(other, dump_secret(key))


def test_shares_from_bytes_decrypt_together():
    key = short_key("paillier", DRAW)
    made = [dump_share(one) for one in share_key(key, threshold=2, holders=3, randomness=DRAW)]
    shares = [load_share(one) for one in made]
    sealed = key.encrypt(NUMBERS, LAYOUT, DRAW)
    parts = {one.point: one.decrypt_part(sealed) for one in shares[1:]}
    found = combine(key.public, sealed, parts, threshold=2, holders=3)
    assert (found == NUMBERS).all()
    with pytest.raises(DataError, match="do not go together"):
        load_share(made[0].replace(b"\x06\0\0\0\x01\0\x02\0", b"\x06\0\0\0\x09\0\x02\0", 1))


def test_primes_that_are_not_those_of_the_public_key_are_refused():
    key, other = short_key("paillier", DRAW), short_key("paillier", DRAW)
    mixed = (key.fields()[0], *other.fields()[1:])
    with pytest.raises(DataError, match="no secret key of paillier"):
        load_secret("paillier", b"".join(len(f).to_bytes(4, "little") + f for f in mixed))
