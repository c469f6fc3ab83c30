"""What every additively homomorphic cipher here can do: the seam that protocols are written on.

A ciphertext holds a matrix of whole numbers, rows by width. Whoever has the public key can add two
of them, add plain numbers, and multiply a plain matrix from the left (`weigh`). Whoever has the
secret key decrypts; `release` has to come before that where the plain matrix is a secret.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from tacit.errors import DataError, InputError, RangeError

Numbers = npt.NDArray[np.int64]
Randomness = Callable[[int], bytes]
"""Returns as many uniform bytes as it is asked for."""
Residues = npt.NDArray[np.uint64] | tuple[int, ...]
"""Plaintexts as the cipher has them, modulo its own modulus."""
Scheme = Literal["paillier", "bfv"]
Form = Literal["sum", "rows", "result", "released"]
KEY_ID_BYTES = 16


@dataclass(frozen=True, kw_only=True)
class CipherLayout:
    """The public facts of a ciphertext, on which both sides agree before it is sent.

    Attributes:
        rows: of the matrix.
        width: numbers in a row.
        bound: no number is larger in absolute value.
        room: no result may become larger in absolute value; guard bits are kept for it.
        form: ``sum`` is packed as tightly as can be and can only be added, ``rows`` can be
            weighed, ``result`` is what weighing gives, ``released`` what the key owner may see.
        terms: how many fresh ciphertexts were added up.
        by_owner: whether the key owner encrypted it, who sends less where the cipher allows it.
    """

    rows: int
    width: int = 1
    bound: int
    room: int
    form: Form = "rows"
    terms: int = 1
    by_owner: bool = False

    def __post_init__(self) -> None:
        if self.rows < 1 or self.width < 1 or self.terms < 1:
            raise InputError(
                f"wanted one row, one column and one term at least, got {self.rows}, "
                f"{self.width} and {self.terms}"
            )
        if not 1 <= self.bound <= self.room:
            raise RangeError(
                f"numbers up to {self.bound} do not fit room for {self.room}: give the ciphertext "
                "more room, or weigh and add less"
            )

    @property
    def size(self) -> int:
        """Return how many numbers there are."""
        return self.rows * self.width


@dataclass(frozen=True, kw_only=True, eq=False)
class Ciphertext:
    """Encrypted numbers. ``parts`` are the cipher's own; the key's name keeps keys apart."""

    layout: CipherLayout
    key_id: bytes
    parts: tuple[object, ...] = field(repr=False)


class PublicKey(ABC):
    """Encrypts and computes.

    Every operation refuses, by name, ciphertexts of another key or cipher, results that would not
    fit their room, and forms that it is not made for.
    """

    scheme: Scheme
    key_id: bytes

    @abstractmethod
    def encrypt(self, numbers: Numbers, layout: CipherLayout, randomness: Randomness) -> Ciphertext:
        """Encrypt a matrix."""

    @abstractmethod
    def weigh(self, matrix: Numbers, sealed: Ciphertext) -> Ciphertext:
        """Multiply a plain matrix (outputs, rows) from the left: a result (outputs, width)."""

    @abstractmethod
    def gather(self, places: Numbers, outputs: int, sealed: Ciphertext) -> Ciphertext:
        """Add rows up by the output that each is given, −1 for none: a result (outputs, width).

        What `weigh` does with a matrix of zeros and ones, in less time and memory.
        """

    @abstractmethod
    def scale(self, sealed: Ciphertext, factors: Numbers) -> Ciphertext:
        """Multiply every row by a plain number of its own."""

    @abstractmethod
    def take(self, sealed: Ciphertext, rows: Numbers) -> Ciphertext:
        """Return some of the rows."""

    @abstractmethod
    def release(self, sealed: Ciphertext, randomness: Randomness) -> Ciphertext:
        """Make a result fit to be shown to the key owner: it tells its numbers and nothing else."""

    @abstractmethod
    def mask(self, sealed: Ciphertext, randomness: Randomness) -> tuple[Ciphertext, Residues]:
        """Release a result under a uniform mask: the key owner decrypts it and learns nothing.

        Returns:
            What the key owner gets, and what `unmask` takes off what it sends back.
        """

    @abstractmethod
    def unmask(self, opened: bytes, mask: Residues, layout: CipherLayout) -> Numbers:
        """Take a mask off what the key owner decrypted, or refuse what it sent."""

    @abstractmethod
    def opened_bytes(self, layout: CipherLayout) -> int:
        """Return how many bytes a decrypted result under a mask has."""

    @abstractmethod
    def to_bytes(self) -> bytes:
        """Return the key as bytes that `load_public` reads."""

    @abstractmethod
    def part_bytes(self, layout: CipherLayout) -> tuple[int, ...]:
        """Return how long every part of a ciphertext is on the wire."""

    def add(self, first: Ciphertext, second: Ciphertext) -> Ciphertext:
        """Add two ciphertexts of one shape and form."""
        self._check(first, "sum", "rows", "result")
        self._check(second, first.layout.form)
        one, two = first.layout, second.layout
        if (one.rows, one.width, one.room) != (two.rows, two.width, two.room):
            raise DataError(
                f"cannot add {two.rows} × {two.width} with room for {two.room} to "
                f"{one.rows} × {one.width} with room for {one.room}"
            )
        layout = replace(
            one, bound=one.bound + two.bound, terms=one.terms + two.terms, by_owner=False
        )
        pairs = zip(first.parts, second.parts, strict=True)
        return self._made(layout, tuple(self._add_parts(*pair, layout) for pair in pairs))

    def add_plain(self, sealed: Ciphertext, numbers: Numbers, *, bound: int) -> Ciphertext:
        """Add plain numbers, none of which is larger than ``bound`` in absolute value."""
        self._check(sealed, "sum", "rows", "result")
        layout = replace(sealed.layout, bound=sealed.layout.bound + bound, by_owner=False)
        check_numbers(numbers, replace(layout, bound=bound))
        return self._made(layout, self._add_plain(sealed, numbers))

    def wire_bytes(self, layout: CipherLayout) -> int:
        """Return how many bytes a ciphertext takes on the wire; every one of a layout takes them.

        Cost: this is what `dump` gives, to the byte.
        """
        return KEY_ID_BYTES + sum(self.part_bytes(layout))

    def dump(self, sealed: Ciphertext) -> bytes:
        """Return a ciphertext as bytes."""
        self._check(sealed, "sum", "rows", "result", "released")
        sizes = self.part_bytes(sealed.layout)
        pairs = zip(sealed.parts, sizes, strict=True)
        parts = (self._dump_part(part, size, sealed.layout) for part, size in pairs)
        return self.key_id + b"".join(parts)

    def load(self, data: bytes, layout: CipherLayout) -> Ciphertext:
        """Read a ciphertext of the agreed layout.

        Raises:
            DataError: it has another length, is of another key, or is none.
        """
        if len(data) != self.wire_bytes(layout):
            raise DataError(
                f"wanted a {self.scheme} ciphertext of {self.wire_bytes(layout)} bytes, "
                f"got {len(data)} bytes"
            )
        if data[:KEY_ID_BYTES] != self.key_id:
            raise DataError(f"the ciphertext is of another key or cipher than this {self.scheme}")
        at, parts = KEY_ID_BYTES, []
        for size in self.part_bytes(layout):
            parts.append(self._load_part(data[at : at + size], layout))
            at += size
        return self._made(layout, tuple(parts))

    @abstractmethod
    def _add_parts(self, first: object, second: object, layout: CipherLayout) -> object:
        """Add two parts of one layout."""

    @abstractmethod
    def _add_plain(self, sealed: Ciphertext, numbers: Numbers) -> tuple[object, ...]:
        """Add plain numbers to all parts."""

    @abstractmethod
    def _dump_part(self, part: object, size: int, layout: CipherLayout) -> bytes:
        """Bring a part to ``size`` bytes."""

    @abstractmethod
    def _load_part(self, data: bytes, layout: CipherLayout) -> object:
        """Read a part, or refuse it."""

    def _check_opened(self, opened: bytes, layout: CipherLayout) -> None:
        if len(opened) != (wanted := self.opened_bytes(layout)):
            raise DataError(f"wanted {wanted} decrypted bytes, got {len(opened)}")

    def _made(self, layout: CipherLayout, parts: tuple[object, ...]) -> Ciphertext:
        return Ciphertext(layout=layout, key_id=self.key_id, parts=parts)

    def _check(self, sealed: Ciphertext, *forms: Form) -> None:
        if sealed.key_id != self.key_id:
            raise DataError(f"the ciphertext is of another key or cipher than this {self.scheme}")
        if sealed.layout.form not in forms:
            raise InputError(
                f"wanted a ciphertext of form {' or '.join(forms)}, got {sealed.layout.form!r}"
            )

    def _weighed(self, matrix: Numbers, sealed: Ciphertext) -> CipherLayout:
        """Check a plain matrix against what it multiplies, and return the result's layout."""
        self._check(sealed, "rows")
        layout = sealed.layout
        if matrix.dtype != np.int64 or matrix.ndim != 2 or matrix.shape[1] != layout.rows:
            raise DataError(
                f"wanted an int64 matrix of {layout.rows} columns to weigh {layout.rows} rows, "
                f"got {matrix.dtype} of shape {matrix.shape}"
            )
        if float(np.abs(matrix.astype(np.float64)).sum(axis=1).max()) >= 2.0**62:
            raise RangeError("the weights of one output add up to 2^62 or more")
        heaviest = max(1, int(np.abs(matrix).sum(axis=1).max()))
        return _result(layout, matrix.shape[0], heaviest)

    def _gathered(self, places: Numbers, outputs: int, sealed: Ciphertext) -> CipherLayout:
        """Check where rows go, and return the result's layout."""
        self._check(sealed, "rows")
        if places.dtype != np.int64 or places.shape != (sealed.layout.rows,):
            raise DataError(
                f"wanted {sealed.layout.rows} int64 places, got {places.dtype} of shape "
                f"{places.shape}"
            )
        if outputs < 1 or int(places.min()) < -1 or int(places.max()) >= outputs:
            raise DataError(f"wanted places from -1 to {outputs - 1}, got others")
        return _result(sealed.layout, outputs, sealed.layout.rows)


def _result(layout: CipherLayout, outputs: int, heaviest: int) -> CipherLayout:
    bound = layout.bound * heaviest
    return replace(layout, rows=outputs, bound=bound, form="result", terms=1, by_owner=False)


class SecretKey(ABC):
    """Decrypts, and encrypts faster than others can."""

    public: PublicKey

    @abstractmethod
    def encrypt(self, numbers: Numbers, layout: CipherLayout, randomness: Randomness) -> Ciphertext:
        """Encrypt a matrix, as `PublicKey.encrypt` and faster."""

    @abstractmethod
    def decrypt(self, sealed: Ciphertext) -> Numbers:
        """Return the matrix (rows, width)."""

    @abstractmethod
    def open_masked(self, sealed: Ciphertext) -> bytes:
        """Decrypt a result that another has masked; what comes out is uniform to me."""


def check_numbers(numbers: Numbers, layout: CipherLayout) -> None:
    """Refuse a matrix of another shape or with numbers beyond its bound."""
    if numbers.dtype != np.int64 or numbers.shape != (layout.rows, layout.width):
        raise DataError(
            f"wanted an int64 matrix of {layout.rows} × {layout.width}, got {numbers.dtype} of "
            f"shape {numbers.shape}"
        )
    if numbers.size and max(int(numbers.max()), -int(numbers.min())) > layout.bound:
        raise RangeError(f"a number to encrypt is larger than the agreed bound {layout.bound}")


def check_fresh(numbers: Numbers, layout: CipherLayout, *, is_owner: bool) -> None:
    """Refuse what cannot be encrypted as asked."""
    check_numbers(numbers, layout)
    if layout.form not in ("sum", "rows") or layout.terms != 1 or layout.room >= 1 << 62:
        raise InputError(
            f"a fresh ciphertext has form sum or rows, one term and room below 2^62, got "
            f"{layout.form!r}, {layout.terms} and {layout.room}"
        )
    if layout.by_owner != is_owner:
        who = "the key owner alone" if layout.by_owner else "others than the key owner"
        raise InputError(f"a ciphertext of this layout is encrypted by {who}")
