"""Secret keys and shares as bytes: they come back as they were, or are refused by name."""

import numpy as np
import pytest

from support.crypto import short_key
from tacit.crypto.cipher import (
    CipherLayout,
    combine,
    dump_secret,
    dump_share,
    load_secret,
    load_share,
    share_key,
)
from tacit.crypto.cipher.contract import check_fresh
from tacit.crypto.cipher.paillier import make_paillier
from tacit.errors import DataError, InputError
from tacit.ring import Prg

pytest.importorskip("gmpy2")
pytest.importorskip("tenseal")

DRAW = Prg.from_os().bytes
NUMBERS = np.arange(-5, 5).reshape(-1, 1)
LAYOUT = CipherLayout(rows=10, bound=10, room=100, form="sum", by_owner=True)


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


@pytest.mark.parametrize("changed", [{"rows": 0}, {"width": 0}, {"terms": 0}])
def test_a_ciphertext_of_nothing_is_no_ciphertext(changed):
    with pytest.raises(InputError, match="one row, one column and one term"):
        CipherLayout(**({"rows": 1, "bound": 1, "room": 1} | changed))


@pytest.mark.parametrize(
    "changed", [{"form": "result"}, {"terms": 2}, {"room": 1 << 62}], ids=["form", "terms", "room"]
)
def test_only_what_can_be_fresh_is_encrypted(changed):
    layout = CipherLayout(**({"rows": 1, "bound": 1, "room": 1} | changed))
    with pytest.raises(InputError, match="a fresh ciphertext has"):
        check_fresh(np.ones((1, 1), np.int64), layout, is_owner=False)


@pytest.mark.parametrize("bits", [1024, 3080 + 1])
def test_a_key_that_is_too_short_is_not_made(bits):
    with pytest.raises(InputError, match="wanted a key of"):
        make_paillier(DRAW, bits)


@pytest.mark.parametrize(("threshold", "holders"), [(1, 3), (4, 3), (2, 10_000)])
def test_a_key_is_shared_among_as_many_as_can_hold_it(threshold, holders):
    with pytest.raises(InputError, match="wanted 2 <= threshold <= holders"):
        share_key(
            short_key("paillier", DRAW),
            threshold=threshold,
            holders=holders,
            randomness=DRAW,
        )
