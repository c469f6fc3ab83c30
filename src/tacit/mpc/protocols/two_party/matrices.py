"""Products of two matrices, one of each party, in shares: coefficients of ciphertexts (Huang 2022).

A block of rows (n, k) and one of columns (k, m) are polynomials whose product holds all n·m sums
at coefficients that nothing else reaches, if n·k·m is at most the degree: entry (i, l) of the rows
stands at i·k·m + k - 1 - l, entry (l, j) of the columns at j·k + l, and their sum over l at
i·k·m + j·k + k - 1.
"""

from dataclasses import dataclass
from functools import cache
from itertools import product as pairs

import numpy as np

from tacit.crypto.joint import lattice
from tacit.crypto.joint.lattice import DEGREE, KEPT, Sealed
from tacit.crypto.joint.loops import Words
from tacit.mpc.contract import Roles
from tacit.mpc.protocols.two_party.pair import Pair
from tacit.mpc.share import Party
from tacit.party.cost import CostedMessage, Round

_ENCRYPTED_US, _PREPARED_US, _ADDED_US, _RETURNED_US = 800, 200, 25, 1500
"""What a polynomial takes to be encrypted, prepared as a plain factor, multiplied, or sent back."""
_BYTES_PER_US = 100


@dataclass(frozen=True)
class Matrices:
    """Sizes of a batch of products, and which matrices of the key owner take part.

    Its left one is multiplied with the other party's right one (``left``), and the other's left
    one with its right one (``right``). P1 is the ``owner`` of the key, unless it is P0.
    """

    batch: int
    n: int
    k: int
    m: int
    left: bool
    right: bool
    owner: Party = "second"

    @property
    def block(self) -> tuple[int, int, int]:
        """Return how many rows, terms and columns share a ciphertext."""
        return _best_block(self.n, self.k, self.m, self.left, self.right)

    @property
    def blocks(self) -> tuple[int, int, int]:
        """Return how many blocks of rows, terms and columns there are."""
        n, k, m = self.block
        return -(-self.n // n), -(-self.k // k), -(-self.m // m)

    @property
    def places(self) -> Words:
        """Return at which coefficients the sums are."""
        n, k, m = self.block
        rows, columns = np.arange(n)[:, None] * (k * m), np.arange(m) * k + k - 1
        return (rows + columns).reshape(-1).astype(np.int64)

    def rounds(self, roles: Roles) -> tuple[Round, ...]:
        """Declare what `encrypt` and `multiply` send."""
        n, k, m = self.blocks
        fresh = self.batch * (self.left * n * k + self.right * k * m)
        seeds = lattice.SEED_BYTES * (self.left + self.right)
        made = self.batch * n * m * 4 * KEPT * (DEGREE + len(self.places))
        other, owner = roles.computing if self.owner == "second" else roles.computing[::-1]
        return (
            (CostedMessage(owner, other, fresh * lattice.FRESH_BYTES + seeds),),
            (CostedMessage(other, owner, made),),
        )

    @property
    def cost(self) -> int:
        """Return about how many microseconds this takes."""
        return self.batch * _cost((self.n, self.k, self.m), self.block, self.left, self.right)

    def rows(self, matrix: Words) -> Words:
        """Lay left matrices (batch, n, k) out as polynomials (batch · blocks, degree)."""
        (n, k, m), (rows, terms, _) = self.block, self.blocks
        padded = np.zeros((self.batch, rows * n, terms * k), np.uint64)
        padded[:, : self.n, : self.k] = matrix
        cut = padded.reshape(self.batch, rows, n, terms, k).transpose(0, 1, 3, 2, 4)
        out = np.zeros((self.batch * rows * terms, DEGREE), np.uint64)
        spread = out[:, : n * k * m].reshape(-1, n, m * k)
        spread[:, :, :k] = cut.reshape(-1, n, k)[:, :, ::-1]
        return out

    def columns(self, matrix: Words) -> Words:
        """Lay right matrices (batch, k, m) out as polynomials (batch · blocks, degree)."""
        (_, k, m), (_, terms, columns) = self.block, self.blocks
        padded = np.zeros((self.batch, terms * k, columns * m), np.uint64)
        padded[:, : self.k, : self.m] = matrix
        cut = padded.reshape(self.batch, terms, k, columns, m).transpose(0, 1, 3, 4, 2)
        out = np.zeros((self.batch * terms * columns, DEGREE), np.uint64)
        out[:, : k * m] = cut.reshape(-1, m * k)
        return out

    def sums(self, found: Words) -> Words:
        """Read the sums (batch · blocks, places) back as matrices (batch, n, m)."""
        (n, _, m), (rows, _, columns) = self.block, self.blocks
        cut = found.reshape(self.batch, rows, columns, n, m).transpose(0, 1, 3, 2, 4)
        return cut.reshape(self.batch, rows * n, columns * m)[:, : self.n, : self.m]

    def masks(self, wanted: Words) -> Words:
        """Lay matrices out as `sums` reads them."""
        (n, _, m), (rows, _, columns) = self.block, self.blocks
        padded = np.zeros((self.batch, rows * n, columns * m), np.uint64)
        padded[:, : self.n, : self.m] = wanted
        cut = padded.reshape(self.batch, rows, n, columns, m).transpose(0, 1, 3, 2, 4)
        return cut.reshape(-1, n * m)

    def encrypt(self, pair: Pair, left: Words | None, right: Words | None) -> Words:
        """Encrypt my matrices, and decrypt what comes back: the products plus masks."""
        parts: list[np.ndarray | bytes] = []
        for is_sent, polys in (
            (self.left, None if left is None else self.rows(left)),
            (self.right, None if right is None else self.columns(right)),
        ):
            if is_sent:
                assert polys is not None  # noqa: S101 - whoever declares has it
                parts += pair.key.encrypt(polys, pair.noise)
        pair.send_octets(*parts)
        (n, _, m), places = self.blocks, self.places
        count = self.batch * n * m
        found = pair.recv_octets(count * 4 * KEPT * (DEGREE + len(places))).view(np.uint32)
        halves = found[: count * KEPT * DEGREE].reshape(count, KEPT, DEGREE)
        seen = found[count * KEPT * DEGREE :].reshape(count, KEPT, len(places))
        for half in (halves, seen):
            lattice.check_residues(half, KEPT)
        return self.sums(pair.key.decrypt(halves, seen, places))

    def multiply(self, pair: Pair, left: Words | None, right: Words | None, masks: Words) -> None:
        """Multiply the key owner's matrices by mine, and send the products plus masks."""
        rows, terms, columns = self.blocks
        theirs_left, theirs_right = self._receive(pair)
        mine_left = None if left is None else lattice.prepare(self.rows(left))
        mine_right = None if right is None else self.columns(right)
        size = (self.batch, rows, columns)
        total = lattice.Products.empty(self.batch * rows * columns)
        for b, j, k in pairs(range(self.batch), range(columns), range(terms)):
            at = (b * terms + k) * columns + j
            if theirs_left is not None and mine_right is not None:
                factor = lattice.prepare(mine_right[at : at + 1])[0]
                for i in range(rows):
                    out = int(np.ravel_multi_index((b, i, j), size))
                    which = (b * rows + i) * terms + k
                    lattice.Products.add(total, out, theirs_left, which, factor)
            if theirs_right is not None and mine_left is not None:
                for i in range(rows):
                    out = int(np.ravel_multi_index((b, i, j), size))
                    factor = mine_left[(b * rows + i) * terms + k]
                    lattice.Products.add(total, out, theirs_right, at, factor)
        halves, seen = pair.products.released(total, self.places, self.masks(masks), pair.noise)
        pair.send_octets(halves, seen)

    def _receive(self, pair: Pair) -> tuple[Sealed | None, Sealed | None]:
        n, k, m = self.blocks
        sizes = (self.batch * self.left * n * k, self.batch * self.right * k * m)
        seeds = lattice.SEED_BYTES
        data = pair.recv_octets(
            sum(size * lattice.FRESH_BYTES + bool(size) * seeds for size in sizes)
        )
        found: list[Sealed | None] = []
        for size in sizes:
            if not size:
                found.append(None)
                continue
            end = size * lattice.FRESH_BYTES
            # A copy, as what follows a seed of 16 bytes is aligned, but a message may not be.
            shape = (size, lattice.PRIMES, DEGREE)
            polys = data[:end].view(np.uint32).reshape(shape)
            found.append(Sealed.load(polys, data[end : end + seeds].tobytes()))
            data = data[end + seeds :]
        return found[0], found[1]


def _cost(sizes: tuple[int, int, int], block: tuple[int, int, int], left: bool, right: bool) -> int:
    rows, terms, columns = (-(-whole // part) for whole, part in zip(sizes, block, strict=True))
    fresh = left * rows * terms + right * terms * columns
    plain = left * terms * columns + right * rows * terms
    sent = fresh * lattice.FRESH_BYTES
    sent += rows * columns * 4 * KEPT * (DEGREE + block[0] * block[2])
    work = fresh * _ENCRYPTED_US + plain * _PREPARED_US + rows * columns * _RETURNED_US
    return work + rows * terms * columns * (left + right) * _ADDED_US + sent // _BYTES_PER_US


@cache
def _best_block(n: int, k: int, m: int, left: bool, right: bool) -> tuple[int, int, int]:
    """Choose block sizes, powers of two or the whole, for the least time."""

    def options(whole: int) -> list[int]:
        powers = [1 << at for at in range(DEGREE.bit_length()) if 1 << at < whole]
        return [*powers, whole] if whole <= DEGREE else powers

    fitting = (
        one
        for one in pairs(options(n), options(k), options(m))
        if one[0] * one[1] * one[2] <= DEGREE
    )
    return min(fitting, key=lambda block: _cost((n, k, m), block, left, right))
