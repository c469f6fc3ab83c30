"""The compiled loops: transforms modulo primes of 31 bits, bit matrices, half gates.

Products modulo a prime are Montgomery's: of two 32-bit numbers below 2^32·p the product over 2^32
is found without a division. Factors are kept times 2^32 for that.
"""

import numpy as np
import numpy.typing as npt

from tacit.jit import deferred

Residues = npt.NDArray[np.uint32]
Words = npt.NDArray[np.uint64]
Octets = npt.NDArray[np.uint8]
Small = npt.NDArray[np.int8]


compiled = deferred(
    "two parties without a dealer need Numba; install it with: pip install 'tacit-ml[he]'"
)


@compiled
def transform(polys: Residues, primes: Words, roots: Residues, quotients: Residues) -> None:
    """Bring polynomials (count, primes, degree) to their values at roots of X^n + 1, in place."""
    count, kinds, degree = polys.shape
    for one in range(count):
        for i in range(kinds):
            p = np.uint32(primes[i])
            x = polys[one, i]
            apart, groups = degree >> 1, 1
            while apart > 0:
                for j in range(groups):
                    w, q = roots[i, groups + j], quotients[i, groups + j]
                    low = x[2 * j * apart : (2 * j + 1) * apart]
                    high = x[(2 * j + 1) * apart : (2 * j + 2) * apart]
                    for at in range(apart):
                        v = high[at]
                        guess = np.uint32((np.uint64(q) * np.uint64(v)) >> np.uint64(32))
                        r = np.uint32(np.uint32(w * v) - np.uint32(guess * p))
                        r = min(r, np.uint32(r - p))
                        u = low[at]
                        total, rest = np.uint32(u + r), np.uint32(u - r)
                        low[at] = min(total, np.uint32(total - p))
                        high[at] = min(rest, np.uint32(rest + p))
                apart >>= 1
                groups <<= 1


@compiled
def restore(polys: Residues, primes: Words, roots: Residues, quotients: Residues) -> None:
    """Undo `transform`, given inverse roots; the first of them is that of the degree."""
    count, kinds, degree = polys.shape
    for one in range(count):
        for i in range(kinds):
            p = np.uint32(primes[i])
            x = polys[one, i]
            apart, groups = 1, degree >> 1
            while groups > 0:
                for j in range(groups):
                    w, q = roots[i, groups + j], quotients[i, groups + j]
                    low = x[2 * j * apart : (2 * j + 1) * apart]
                    high = x[(2 * j + 1) * apart : (2 * j + 2) * apart]
                    for at in range(apart):
                        u, v = low[at], high[at]
                        total, rest = np.uint32(u + v), np.uint32(u - v)
                        low[at] = min(total, np.uint32(total - p))
                        rest = min(rest, np.uint32(rest + p))
                        guess = np.uint32((np.uint64(q) * np.uint64(rest)) >> np.uint64(32))
                        r = np.uint32(np.uint32(w * rest) - np.uint32(guess * p))
                        high[at] = min(r, np.uint32(r - p))
                apart <<= 1
                groups >>= 1
            w, q = roots[i, 0], quotients[i, 0]
            for at in range(degree):
                guess = np.uint32((np.uint64(q) * np.uint64(x[at])) >> np.uint64(32))
                r = np.uint32(np.uint32(w * x[at]) - np.uint32(guess * p))
                x[at] = min(r, np.uint32(r - p))


@compiled
def reduce_words(words: Words, constants: Words, out: Residues) -> None:
    """Give signed words modulo each prime, times 2^32: (count, degree) to (count, primes, degree).

    ``constants`` are, for each prime: itself, minus its inverse modulo 2^32, and 2^64 and 2^96
    modulo it.
    """
    count, degree = words.shape
    mask = np.uint64(0xFFFFFFFF)
    for one in range(count):
        for i in range(constants.shape[0]):
            p, inverse = constants[i, 0], constants[i, 1]
            second, third = constants[i, 2], constants[i, 3]
            for at in range(degree):
                word = words[one, at]
                low = (word & mask) * second
                low = (low + ((low * inverse) & mask) * p) >> np.uint64(32)
                high = (word >> np.uint64(32)) * third
                high = (high + ((high * inverse) & mask) * p) >> np.uint64(32)
                total = low + high  # each below 2p
                if word >> np.uint64(63):
                    total += p - third  # the word stands for itself less 2^64
                total -= p * np.uint64(2) * np.uint64(total >= p * np.uint64(2))
                total -= p * np.uint64(2) * np.uint64(total >= p * np.uint64(2))
                total -= p * np.uint64(total >= p)
                out[one, i, at] = np.uint32(total)


@compiled
def add_words(polys: Residues, words: Words, factors: Words, constants: Words) -> None:
    """Add unsigned words (terms, count, n), each times its factor, to (count, primes, n).

    ``factors`` are (terms, primes), below their primes.
    """
    mask = np.uint64(0xFFFFFFFF)
    count, kinds, size = polys.shape
    for term in range(words.shape[0]):
        for one in range(count):
            for i in range(kinds):
                p, inverse = constants[i, 0], constants[i, 1]
                second, third = constants[i, 2], constants[i, 3]
                factor = factors[term, i]
                for at in range(size):
                    word = words[term, one, at]
                    low = (word & mask) * second
                    low = (low + ((low * inverse) & mask) * p) >> np.uint64(32)
                    high = (word >> np.uint64(32)) * third
                    high = (high + ((high * inverse) & mask) * p) >> np.uint64(32)
                    total = low + high  # the word times 2^32, below 4p
                    total -= p * np.uint64(2) * np.uint64(total >= p * np.uint64(2))
                    product = total * factor
                    product = (product + ((product * inverse) & mask) * p) >> np.uint64(32)
                    product -= p * np.uint64(product >= p)
                    product += np.uint64(polys[one, i, at])
                    product -= p * np.uint64(product >= p)
                    polys[one, i, at] = np.uint32(product)


@compiled
def add_small(polys: Residues, small: Small, primes: Words) -> None:
    """Add small signed numbers (count, degree) to polynomials (count, primes, degree)."""
    count, kinds, degree = polys.shape
    for one in range(count):
        for i in range(kinds):
            p = np.int64(primes[i])
            for at in range(degree):
                total = np.int64(polys[one, i, at]) + np.int64(small[one, at])
                total += p * np.int64(total < 0)
                total -= p * np.int64(total >= p)
                polys[one, i, at] = np.uint32(total)


@compiled
def multiply_add(total: Residues, left: Residues, factor: Residues, constants: Words) -> None:
    """Add left · factor to total, pointwise; the factor is given times 2^32."""
    mask = np.uint64(0xFFFFFFFF)
    for i in range(total.shape[0]):
        p, inverse = constants[i, 0], constants[i, 1]
        for at in range(total.shape[1]):
            product = np.uint64(left[i, at]) * np.uint64(factor[i, at])
            product = (product + ((product * inverse) & mask) * p) >> np.uint64(32)
            product -= p * np.uint64(product >= p)
            product += np.uint64(total[i, at])
            product -= p * np.uint64(product >= p)
            total[i, at] = np.uint32(product)


@compiled
def drop_primes(polys: Residues, kept: int, constants: Words, inverses: Words) -> None:
    """Divide by all primes from the last one down to ``kept``, rounding down, in place.

    ``inverses[k, i]`` is that of prime k modulo prime i, times 2^32.
    """
    mask = np.uint64(0xFFFFFFFF)
    count, kinds, degree = polys.shape
    for one in range(count):
        for k in range(kinds - 1, kept - 1, -1):
            for i in range(k):
                p, inverse, factor = constants[i, 0], constants[i, 1], inverses[k, i]
                for at in range(degree):
                    last = np.uint64(polys[one, k, at])
                    last -= p * np.uint64(last >= p)  # the primes are close to each other
                    rest = np.uint64(polys[one, i, at]) + p - last
                    product = rest * factor
                    product = (product + ((product * inverse) & mask) * p) >> np.uint64(32)
                    product -= p * np.uint64(product >= p)
                    polys[one, i, at] = np.uint32(product)


@compiled
def transpose_bits(rows: Words, out: Words) -> None:
    """Turn 128 rows of packed bits, in words, into one 128-bit block for each column."""
    block = np.empty(64, np.uint64)
    for word in range(rows.shape[1]):
        for half in range(2):
            for k in range(64):
                block[k] = rows[64 * half + k, word]
            # A 64 × 64 matrix of bits: halves are swapped, then quarters, and so on.
            apart, mask = 32, np.uint64(0xFFFFFFFF)
            while apart > 0:
                shift = np.uint64(apart)
                for start in range(0, 64, 2 * apart):
                    for k in range(start, start + apart):
                        swap = ((block[k] >> shift) ^ block[k + apart]) & mask
                        block[k + apart] ^= swap
                        block[k] ^= swap << shift
                apart >>= 1
                mask ^= mask << np.uint64(apart)
            for k in range(min(64, out.shape[0] - 64 * word)):
                out[64 * word + k, half] = block[k]


@compiled
def choose_labels(zeros: Words, numbers: Words, delta: Words, out: Words) -> None:
    """Choose the labels (bits, n, 2) of the lowest bits of numbers, given those of zero."""
    for bit in range(zeros.shape[0]):
        for at in range(zeros.shape[1]):
            turn = np.uint64(0) - ((numbers[at] >> np.uint64(bit)) & np.uint64(1))
            out[bit, at, 0] = zeros[bit, at, 0] ^ (turn & delta[0])
            out[bit, at, 1] = zeros[bit, at, 1] ^ (turn & delta[1])


@compiled
def tweak(blocks: Words, offset: Words, first: int, out: Words) -> None:
    """Lay out σ(block ⊕ offset) ⊕ number for hashing; blocks are numbered on."""
    for at in range(blocks.shape[0]):
        low, high = blocks[at, 0] ^ offset[0], blocks[at, 1] ^ offset[1]
        out[at, 0] = high ^ np.uint64(first + at)
        out[at, 1] = low ^ high


@compiled
def garble_gates(
    a: Words, b: Words, delta: Words, inputs: Words, hashes: Words, table: Words, out: Words
) -> None:
    """Finish half gates (Zahur et al. 2015): tables (n, 2, 2) and the labels of zero.

    ``inputs`` and ``hashes`` (4, n, 2) are what went into the cipher and what came out, for a, a ⊕
    Δ, b and b ⊕ Δ.
    """
    for at in range(a.shape[0]):
        turn_a = np.uint64(0) - (a[at, 0] & np.uint64(1))
        turn_b = np.uint64(0) - (b[at, 0] & np.uint64(1))
        for k in range(2):
            a0 = hashes[0, at, k] ^ inputs[0, at, k]
            a1 = hashes[1, at, k] ^ inputs[1, at, k]
            b0 = hashes[2, at, k] ^ inputs[2, at, k]
            b1 = hashes[3, at, k] ^ inputs[3, at, k]
            first = a0 ^ a1 ^ (turn_b & delta[k])
            second = b0 ^ b1 ^ a[at, k]
            table[at, 0, k] = first
            table[at, 1, k] = second
            out[at, k] = a0 ^ (turn_a & first) ^ b0 ^ (turn_b & (second ^ a[at, k]))


@compiled
def evaluate_gates(
    a: Words, b: Words, inputs: Words, hashes: Words, table: Words, out: Words
) -> None:
    """Find the label of a gate's output from those of its inputs and its table."""
    for at in range(a.shape[0]):
        turn_a = np.uint64(0) - (a[at, 0] & np.uint64(1))
        turn_b = np.uint64(0) - (b[at, 0] & np.uint64(1))
        for k in range(2):
            left = hashes[0, at, k] ^ inputs[0, at, k]
            right = hashes[1, at, k] ^ inputs[1, at, k]
            left ^= turn_a & table[at, 0, k]
            out[at, k] = left ^ right ^ (turn_b & (table[at, 1, k] ^ a[at, k]))
