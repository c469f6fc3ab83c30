"""Ring-LWE: products are exact modulo 2^64, and the key owner learns nothing but them."""

from math import prod

import numpy as np
import pytest
import torch

from support.crypto import complaints
from tacit.crypto.joint import lattice
from tacit.crypto.joint.lattice import DEGREE, KEPT, PRIMES
from tacit.errors import DataError
from tacit.ring import Prg

PLACES = np.arange(3, DEGREE, 31)


@pytest.fixture(scope="module")
def key():
    return lattice.LatticeKey(Prg(b"k" * 16).bytes)


def draw(label, *shape):
    return Prg(b"w" * 16).fork(label).words(shape).numpy().view(np.uint64)


def product_at(a, b, place):
    """Multiply polynomials modulo X^n + 1 and 2^64, at one coefficient."""
    turned = np.concatenate((b[place::-1], np.uint64(0) - b[:place:-1]))
    return np.multiply(a, turned).sum(dtype=np.uint64)


def multiplied(key, a, b, masks=None, label="noise"):
    sealed = lattice.Sealed.load(*key.encrypt(a, Prg(b"e" * 16).bytes))
    products = lattice.Products(key.public, key.public_seed)
    total = products.empty(1)
    for at, factor in enumerate(lattice.prepare(b)):
        products.add(total, 0, sealed, at, factor)
    masks = np.zeros((1, len(PLACES)), np.uint64) if masks is None else masks
    return products.released(total, PLACES, masks, Prg(b"r" * 16).fork(label).bytes)


def test_a_sum_of_products_of_uniform_words_is_exact_modulo_2_64(key):
    a, b, masks = draw("a", 2, DEGREE), draw("b", 2, DEGREE), draw("m", 1, len(PLACES))
    found = key.decrypt(*multiplied(key, a, b, masks), PLACES) - masks
    terms = [[product_at(*pair, place) for place in PLACES] for pair in zip(a, b, strict=True)]
    assert np.array_equal(found[0], np.array(terms, np.uint64).sum(axis=0))


def test_ciphertexts_look_uniform_to_whoever_has_no_key(key):
    ones = np.ones((1, DEGREE), np.uint64)
    fresh, _ = key.encrypt(ones, Prg(b"f" * 16).bytes)
    second, first = multiplied(key, ones, ones)
    for part in (fresh, second, first):
        low = torch.from_numpy(part.reshape(-1, 1).astype(np.int64) & 0xFFFF)
        octets = torch.cat((low & 255, low >> 8)).to(torch.uint8)
        assert complaints(octets) == []


def noise_bits(key, second, first):
    """Return how large the noise is that the key owner can measure, in bits."""
    known = lattice.tables()
    full = np.zeros((1, PRIMES, DEGREE), np.uint32)
    full[:, :KEPT] = second
    lattice._transformed(full)
    total = np.zeros_like(full)
    lattice.loops.multiply_add(total[0], full[0], key._secret, known.constants)
    lattice.loops.restore(total, known.moduli, known.back, known.back_quotients)
    phase = (total[0, :KEPT, PLACES].T.astype(np.uint64) + first[0]) % known.moduli[:KEPT, None]
    primes = known.primes[:KEPT]
    q = prod(primes)
    sizes = []
    for column in phase.T.tolist():
        terms = zip(column, primes, strict=True)
        whole = sum(x * (q // p) * pow(q // p, -1, p) for x, p in terms) % q
        near = (whole << 64) // q
        rest = min((whole - one * q // 2**64 for one in (near, near + 1)), key=abs)
        sizes.append(abs(rest))
    return np.log2(np.mean(sizes))


def test_the_noise_that_the_key_owner_sees_is_as_large_as_the_claim_says(key):
    a, b = draw("a", 1, DEGREE), draw("b", 1, DEGREE)
    divided = lattice.FLOOD_BITS - 31 * (PRIMES - KEPT)
    assert abs(noise_bits(key, *multiplied(key, a, b)) - (divided - 1)) < 0.3


def test_flooding_that_is_left_out_is_noticed(key, monkeypatch):
    monkeypatch.setattr(lattice, "_flood", lambda polys, _: None)
    a, b = draw("a", 1, DEGREE), draw("b", 1, DEGREE)
    with pytest.raises(AssertionError):
        test_the_noise_that_the_key_owner_sees_is_as_large_as_the_claim_says(key)
    assert noise_bits(key, *multiplied(key, a, b)) < 10


def released_for(key, words, masks):
    """What comes back for a product that is known, with the same draws every time."""
    whole = np.zeros((1, DEGREE), np.uint64)
    whole[:, PLACES] = words
    total = lattice.Products.empty(1)
    total[0][:] = lattice._transformed(lattice.encode(whole, PRIMES))
    products = lattice.Products(key.public, key.public_seed)
    return products.released(total, PLACES, masks, Prg(b"s" * 16).bytes)


def test_what_comes_back_depends_on_the_masked_word_and_not_on_how_it_is_made_up(key):
    """Roundings of product and mask, added up after the division, shifted it: 2^-20 of the flood.

    Where masks were encoded modulo the three primes left, a third of the words differed by one.
    """
    shown, words = draw("shown", 1, len(PLACES)), draw("words", 1, len(PLACES))
    whole = released_for(key, np.zeros_like(shown), shown)
    parts = released_for(key, words, shown - words)
    assert all(np.array_equal(*pair) for pair in zip(whole, parts, strict=True))
    assert np.array_equal(key.decrypt(*parts, PLACES), shown)


def guess_is_right(key, b, second):
    """The key owner's attack: its own known half times a guess, divided down, is what comes back.

    Without a fresh encryption of zero the second half is just that.
    """
    sealed = lattice.Sealed.load(*key.encrypt(np.zeros((1, DEGREE), np.uint64), lambda n: bytes(n)))
    total = lattice.Products.empty(1)
    lattice.Products.add(total, 0, sealed, 0, lattice.prepare(b)[0])
    known = lattice.tables()
    lattice.loops.restore(total[1], known.moduli, known.back, known.back_quotients)
    lattice.loops.drop_primes(total[1], KEPT, known.constants, known.inverses)
    return bool(np.abs(total[1][:, :KEPT].astype(np.int64) - second).max() <= 2)


@pytest.mark.parametrize("is_blinded", [True, False])
def test_a_guess_of_the_factor_cannot_be_checked_unless_blinding_is_left_out(
    key, monkeypatch, is_blinded
):
    b = draw("b", 1, DEGREE)
    if not is_blinded:
        zeros = np.zeros((1, PRIMES, DEGREE), np.uint32)
        monkeypatch.setattr(lattice, "_ternary", lambda _: zeros.copy())
    sealed = lattice.Sealed.load(*key.encrypt(np.zeros((1, DEGREE), np.uint64), lambda n: bytes(n)))
    products, total = lattice.Products(key.public, key.public_seed), lattice.Products.empty(1)
    products.add(total, 0, sealed, 0, lattice.prepare(b)[0])
    masks = np.zeros((1, len(PLACES)), np.uint64)
    second, _ = products.released(total, PLACES, masks, Prg(b"z" * 16).bytes)
    assert guess_is_right(key, b, second) is not is_blinded


def test_residues_beyond_their_primes_are_refused(key):
    fresh, seed = key.encrypt(np.zeros((1, DEGREE), np.uint64), Prg(b"f" * 16).bytes)
    fresh[0, 3, 77] = 0x7FFFFFFF
    with pytest.raises(DataError, match="malformed"):
        lattice.Sealed.load(fresh, seed)
    with pytest.raises(DataError, match="malformed"):
        lattice.Products(fresh, seed)


def test_parameters_are_those_of_the_standard_for_128_bits():
    primes = lattice.tables().primes
    assert prod(primes).bit_length() <= 218
    assert len(set(primes)) == PRIMES
    assert all(p % (2 * DEGREE) == 1 for p in primes)
