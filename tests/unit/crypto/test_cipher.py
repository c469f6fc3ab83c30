"""What the contract of ciphers does not see: masks that hide, shares that decrypt, numbers."""

import math
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from tacit.crypto.cipher import (
    CipherLayout,
    Ciphertext,
    combine,
    make_key,
    numbers,
    paillier,
    saved,
    seal,
    share_key,
)
from tacit.crypto.cipher.bfv import _WEIGHED, places_of
from tacit.crypto.cipher.numbers import FixedBase, multiply_powers
from tacit.crypto.cipher.paillier import PaillierPublicKey, load_paillier
from tacit.errors import DataError, InputError
from tacit.ring import Prg

pytest.importorskip("gmpy2")
pytest.importorskip("tenseal")

DRAW = Prg(bytes(range(1, 17)))


@cache
def key_of(scheme):
    return make_key(scheme, DRAW.fork(scheme).bytes, bits=2048)


def weighed(key):
    layout = CipherLayout(rows=40, bound=100, room=1 << 20, by_owner=True)
    values = np.arange(40, dtype=np.int64)[:, None]
    sealed = key.encrypt(values, layout, DRAW.bytes)
    return key.public.weigh(np.eye(3, 40, dtype=np.int64), sealed)


def noise_budget(key, sealed):
    keys = key._weighed
    return keys._decryptor.invariant_noise_budget(sealed.parts[0])


def all_coefficients(key, sealed):
    return key._weighed.decrypt(sealed.parts[0], np.arange(_WEIGHED.degree))


def test_noise_of_a_released_result_is_flooded(monkeypatch):
    """What is left of the noise of a released result is the flood's: 2^9 after the last rounding.

    Without the flood about 2^6 would be left, and the bits above 2^9 of the difference are noticed.
    """
    key = key_of("bfv")
    assert noise_budget(key, key.public.release(weighed(key), DRAW.bytes)) <= 2
    monkeypatch.setattr(seal, "flood", lambda ring, *_: np.zeros((2, ring.degree), np.uint64))
    assert noise_budget(key, key.public.release(weighed(key), DRAW.bytes)) >= 3


def test_the_flood_is_uniform_over_its_range():
    drawn = seal.flood(_WEIGHED, seal.FLOOD_BITS, 2, DRAW.bytes)
    first, second = _WEIGHED.moduli[:2]
    lift = pow(second, -1, first)
    whole = [(int(b) + second * ((int(a) - int(b)) * lift % first)) for a, b in drawn.T.tolist()]
    whole = [one if 2 * one < first * second else one - first * second for one in whole]
    assert all(-(2**69) <= one < 2**69 for one in whole)
    scaled = np.sort(np.array([one / 2**70 + 0.5 for one in whole]))
    gap = np.abs(scaled - (np.arange(len(scaled)) + 0.5) / len(scaled)).max()
    assert gap < 2.3 / math.sqrt(len(scaled))  # Kolmogorov: beyond it once in 20,000


def test_coefficients_without_a_number_are_masked(monkeypatch):
    """A product has inner products of shifted rows in all other coefficients."""
    key = key_of("bfv")
    unused = np.setdiff1d(np.arange(8192), places_of(weighed(key).layout)[0])
    first = all_coefficients(key, key.public.release(weighed(key), DRAW.bytes))[unused]
    assert np.abs(first).max() > 2**46
    assert np.unique(first).size > 8000
    keys = key.public._weighed_keys
    monkeypatch.setattr(keys, "draw_plain", lambda _: np.zeros(8192, np.uint64))
    bare = all_coefficients(key, key.public.release(weighed(key), DRAW.bytes))[unused]
    assert np.abs(bare).max() < 100  # the test would have noticed


def test_paillier_hides_every_released_result(monkeypatch):
    key = key_of("paillier")
    found = weighed(key)
    packed = key.public._joined(found.parts, 22)
    assert key.public.release(found, DRAW.bytes).parts[0] != packed
    monkeypatch.setattr(key.public, "_hide_from_owner", lambda _: 1)
    assert key.public.release(found, DRAW.bytes).parts[0] == packed


def test_a_key_owner_whose_second_number_hides_nothing_still_sees_a_fresh_result():
    """Powers of −1 are 1 and −1: a result hidden by them would be the product that it knows."""
    key = key_of("paillier")
    bad = PaillierPublicKey(int(key.public.n), int(key.public.square) - 1, key.public._roots)
    sealed = replace(weighed(key), key_id=bad.key_id)
    known = bad._joined(sealed.parts, 22)
    assert bad.hide(DRAW.bytes) in (1, bad.square - 1)
    released = bad.release(sealed, DRAW.bytes).parts[0]
    assert released not in (known, bad.square - known)
    # All n-th powers can come out: the factor is one, and not always of one small order.
    factors = {int(bad._hide_from_owner(DRAW.bytes)) for _ in range(4)}
    assert len(factors) == 4
    assert all(pow(one, key.order, int(bad.square)) == 1 for one in factors)


def prime(bits, *, above=2):
    """Draw a prime of so many bits that is 1 modulo another number."""
    while True:
        drawn = int.from_bytes(DRAW.bytes(bits // 8), "big") | 3 << (bits - 2)
        found = drawn // above * above + 1
        if numbers.library().is_prime(found):
            return found


def filled(*factors, bits=2048):
    """Add the prime with which a modulus has so many bits."""
    rest = numbers.library().next_prime((3 << (bits - 2)) // math.prod(factors))
    return (*factors, int(rest))


@cache
def bad_factors(kind):
    if kind == "a square":
        p = prime(768)
        return filled(p, p)
    if kind in ("one prime below another", "primes below another"):
        small = (65537, 65539, 65543, 65551)[: 1 if kind.startswith("one") else 4]
        return filled(*small, prime(960, above=2 * math.prod(small)))
    if kind == "a prime":
        return filled()
    bits = {"too short": 2032, "of an odd length": 2049}.get(kind, 2048)
    return filled(65521 if kind == "a small prime" else prime(1000), bits=bits)


def best_proof(factors):
    """Return n, and a root of every challenge that has one: whoever made n finds them."""
    n = math.prod(factors)
    order = math.prod(one - 1 for one in factors) * n // math.prod(set(factors))
    while (shared := math.gcd(n, order)) > 1:
        order //= shared
    power, powmod = pow(n, -1, order), numbers.library().powmod
    return n, tuple(int(powmod(one, power, n)) for one in numbers._challenges(n))


@pytest.mark.parametrize(
    ("kind", "has_roots"),
    [
        ("a square", False),
        ("primes below another", False),
        ("one prime below another", False),
        ("a small prime", True),
        ("a prime", True),
        ("too short", True),
        ("of an odd length", True),
    ],
)
def test_a_modulus_that_no_honest_owner_would_send_is_refused(kind, has_roots):
    """With the best proof that its maker can give."""
    n, roots = best_proof(bad_factors(kind))
    asked = numbers._challenges(n)
    powers = [numbers.library().powmod(one, n, n) for one in roots]
    assert has_roots == (powers == asked)
    with pytest.raises(DataError, match="Paillier"):
        PaillierPublicKey(n, 4, roots)


def test_a_key_comes_with_a_proof_of_its_own():
    public, other = key_of("paillier").public, make_key("paillier", DRAW.bytes, bits=2048).public
    data, n = public.to_bytes(), int(public.n)
    assert len(data) == 11 * 256
    assert load_paillier(data).key_id == public.key_id
    roots = public._roots
    for wrong in (other._roots, roots[:-1], (*roots[1:], roots[0]), (roots[0] + n, *roots[1:])):
        with pytest.raises(DataError, match="proof"):
            PaillierPublicKey(n, 4, wrong)


def test_challenges_that_share_a_factor_with_the_modulus_prove_nothing(monkeypatch):
    """Units are counted in the theorem: where primes are small other numbers are not that rare."""
    n, p = int(key_of("paillier").public.n), int(key_of("paillier")._p)
    monkeypatch.setattr(numbers, "_challenges", lambda _: [p] * numbers.ROOTS)
    _, roots = best_proof((p, n // p))
    assert pow(roots[0], n, n) == p
    assert not numbers.is_permutation(n, roots)


def test_without_the_proof_a_square_in_the_modulus_reads_a_masked_result(monkeypatch):
    """Modulo p⁴ no mask and no hider reaches the part of order p: a whole row is read off it."""
    p, _, q = bad_factors("a square")
    n, roots = best_proof((p, p, q))
    monkeypatch.setattr(paillier, "is_permutation", lambda *_: True)
    public = PaillierPublicKey(n, 4, roots)
    layout = CipherLayout(rows=30, bound=1, room=1 << 40, by_owner=True)
    parts = tuple(pow(1 + p, 1 << 20 * at, n * n) for at in range(30))
    sealed = Ciphertext(layout=layout, key_id=public.key_id, parts=parts)
    row = DRAW.words((1, 30)).numpy() % (1 << 19)
    sent, _ = public.mask(public.weigh(np.abs(row), sealed), DRAW.bytes)
    seen = (pow(int(sent.parts[0]), p * p * (p - 1), p**4) - 1) // p**3 * -1 % p
    assert [seen >> 20 * at & 0xFFFFF for at in range(30)] == np.abs(row[0]).tolist()


def test_the_key_owner_draws_from_all_residues():
    """Both bases generate: of order p − 1 and q − 1 among the residues."""
    key = key_of("paillier")
    for prime, powers in ((key._p, key._powers_p), (key._q, key._powers_q)):
        base = powers.power(1)
        assert pow(base, int(prime - 1), int(prime**2)) == 1
        assert pow(base, int(prime - 1) // 2, int(prime**2)) != 1


def test_shares_of_a_key_decrypt_together_and_not_alone():
    key = key_of("paillier")
    shares = share_key(key, threshold=3, holders=5, randomness=DRAW.bytes)
    layout = CipherLayout(rows=90, bound=1 << 24, room=1 << 31, form="sum")
    values = DRAW.words((90, 1)).numpy() >> 40
    sealed = key.public.encrypt(values, layout, DRAW.bytes)
    parts = {one.point: one.decrypt_part(sealed) for one in shares}
    for chosen in ((1, 2, 3), (5, 1, 4), (2, 3, 4, 5)):
        given = {point: parts[point] for point in chosen}
        found = combine(key.public, sealed, given, threshold=3, holders=5)
        assert np.array_equal(found, values)
    two = {point: parts[point] for point in (1, 2)}
    with pytest.raises(DataError, match="3 of 5"):
        combine(key.public, sealed, two, threshold=3, holders=5)
    with pytest.raises(DataError, match="fit together"):
        combine(key.public, sealed, {**two, 3: parts[4]}, threshold=3, holders=5)
    with pytest.raises(DataError, match="another key"):
        combine(key.public, sealed, {**two, 3: b"no"}, threshold=3, holders=5)


def test_keys_of_bfv_cannot_be_shared():
    with pytest.raises(InputError, match="bfv"):
        share_key(key_of("bfv"), threshold=2, holders=3, randomness=DRAW.bytes)


def test_two_shares_of_three_hide_the_key():
    """The next higher coefficient is longer than the secret by 128 bits: no digit shows."""
    key = key_of("paillier")
    shares = share_key(key, threshold=2, holders=3, randomness=DRAW.bytes)
    secret = math.factorial(3) * key.order * key.public.n
    assert all(one.exponent.bit_length() > secret.bit_length() + 100 for one in shares)


@pytest.mark.parametrize("bits", [1, 7, 16, 40])
def test_products_of_powers_are_those_of_python(bits):
    modulus = (1 << 127) - 1
    bases = [int.from_bytes(DRAW.bytes(15), "big") for _ in range(200)]
    exponents = DRAW.words(200).numpy() >> (63 - bits)
    wanted = 1
    for base, power in zip(bases, exponents.tolist(), strict=True):
        wanted = wanted * pow(base, power, modulus) % modulus
    assert multiply_powers(bases, exponents, modulus) == wanted


def test_powers_of_one_base_are_those_of_python():
    modulus, exponent = (1 << 127) - 1, int.from_bytes(DRAW.bytes(20), "big")
    assert FixedBase(5, modulus, 160, 6).power(exponent) == pow(5, exponent, modulus)


def test_ciphertexts_that_weights_undo_are_refused_by_name():
    key, layout = key_of("bfv"), CipherLayout(rows=512, bound=9, room=1 << 20, by_owner=True)
    sealed = key.encrypt(np.ones((512, 1), np.int64), layout, DRAW.bytes)
    matrix = np.zeros((1, 512), np.int64)
    matrix[0, [0, 256]] = 1, -1
    assert key.decrypt(key.public.weigh(matrix, sealed)).item() == 0
    with pytest.raises(DataError, match="undoes"):
        key.public.weigh(matrix, replace(sealed, parts=sealed.parts[:1] * 2))


@pytest.mark.parametrize("is_seeded", [True, False])
def test_of_what_a_peer_sends_seal_reads_numbers_below_their_moduli_and_seeds(is_seeded):
    """All else of a file is written here, so that nothing grows, and no length or header lies."""
    form = _WEIGHED.form(0, is_seeded=is_seeded)
    size = _WEIGHED.wire_bytes(0, is_seeded=is_seeded)
    first, file = _WEIGHED.moduli[0], saved.unpack(form, bytes(size))
    head = sum(len(one) for one in form[:4])  # up to the first number
    for word, seed in ((first - 1, b"\xff"), (0, b"\0"), (1, b"\x5a")):
        end = (seed if is_seeded else b"\0") * 64
        data = word.to_bytes(8, "little").ljust(size - 64, b"\0") + end
        found = saved.unpack(form, data)
        assert saved.pack(form, found) == data
        changed = np.flatnonzero(np.frombuffer(found, "u1") != np.frombuffer(file, "u1"))
        assert all(head <= at < head + 8 or at >= len(file) - 64 for at in changed)
    for wrong in (first.to_bytes(8, "little").ljust(size, b"\0"), data + b"\0", data[:-1], b""):
        with pytest.raises(DataError):
            saved.unpack(form, wrong)
