"""What is still to be checked: every word and bit that was exchanged since the last check.

Of words a party proves 42 sums over random halves of all that it has sent. One sum would not do:
an error of 2^63 is lost wherever it is taken an even number of times. A sum modulo 2^64 is known to
the other party already; what is above it is hidden by a dealt word. Of bits the tags themselves are
compared, through one hash.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

import torch
from torch import Tensor

from tacit import ring
from tacit.mpc.checked import wide
from tacit.mpc.checked.pending import SIDE, Pending, project, sides
from tacit.mpc.checked.tags import KEY, MINE, TAG, Keys
from tacit.ring import Prg

SUMS = 42
DIGEST_WORDS = 4
ANSWER_WORDS = SUMS + 2 * DIGEST_WORDS
_CHUNK = 1 << 15
_MANY, _WIDTH = 1 << 13, 64
_DIGIT, _DIGITS = 27, 4


@dataclass(frozen=True, eq=False)
class _Message:
    """Words that were sent, received or both: (limbs, components, count), and what came."""

    numbers: Tensor | Pending
    is_mine: bool
    theirs: Tensor | None

    def mine(self, prg: Prg) -> Tensor:
        """Return what I have sent, and its tags: (limbs, 2, count)."""
        return self._columns(prg, slice(MINE, KEY))

    def keys(self, prg: Prg) -> Tensor:
        """Return the keys to what has come: (limbs, count)."""
        return self._columns(prg, slice(KEY, KEY + 1))[:, 0]

    def came(self, prg: Prg) -> Tensor:
        """Return what has come: (limbs, count)."""
        assert self.theirs is not None  # noqa: S101 - one asks for what has come
        words = wide.split(self.theirs)
        if isinstance(self.numbers, Pending):
            return project(words, *_random_sides(prg, self.numbers.dense)).flatten(1)
        return _folded(words.reshape(wide.LIMBS, -1), prg)

    def _columns(self, prg: Prg, part: slice) -> Tensor:
        if isinstance(self.numbers, Pending):
            sides = _random_sides(prg, self.numbers.dense)
            return self.numbers.projected(*sides, part).flatten(2)
        some = self.numbers[:, part]
        return _folded(some.reshape(*some.shape[:2], -1), prg)


class Proofs:
    """Collects what a computing party has sent and received, and proves and checks it.

    Guarantee: if the other party has sent one wrong word or bit since the last check, `accepts`
    is true with a probability of at most 2^-41, whatever the error; see `docs/explanation/checked`.
    Whether it is true depends on no secret. What is proved shows nothing that was not sent.
    """

    def __init__(self, keys: Keys) -> None:
        self.keys = keys
        self._messages: list[_Message] = []
        self._sent, self._expected = hashlib.sha256(), hashlib.sha256()
        self._common = hashlib.sha256()

    def exchanged(self, numbers: Tensor | Pending, theirs: Tensor) -> None:
        """Note words that both have sent: mine, and what came instead of the other's."""
        self._note(numbers, is_mine=True, theirs=theirs)

    def sent(self, numbers: Tensor) -> None:
        """Note words that I alone have sent."""
        self._note(numbers, is_mine=True, theirs=None)

    def received(self, numbers: Tensor, theirs: Tensor) -> None:
        """Note words that the other party alone has sent."""
        self._note(numbers, is_mine=False, theirs=theirs)

    def _note(self, numbers: Tensor | Pending, *, is_mine: bool, theirs: Tensor | None) -> None:
        came = None if theirs is None else theirs.clone()
        self._messages.append(_Message(numbers, is_mine, came))

    def exchanged_bits(self, tags: Tensor, keys: Tensor, theirs: Tensor) -> None:
        """Note bits that both have sent: the tags of mine, and the other's as all ones or zero."""
        self._sent.update(ring.to_bytes(tags.contiguous().cpu()))
        self._expected.update(ring.to_bytes((keys ^ (theirs & self.keys.bits)).contiguous().cpu()))

    def heard(self, words: Tensor) -> None:
        """Note what a third party has told both of us."""
        self._common.update(ring.to_bytes(words.contiguous().cpu()))

    def answer(self, seed: bytes, mask: Tensor) -> Tensor:
        """Prove what I have sent, for sums that the other party's seed chooses.

        Args:
            seed: the other party's.
            mask: a dealt word for every sum, as wide numbers.
        """
        mine = [one for one in self._messages if one.is_mine]
        sent = [one.mine(prg) for one, prg in zip(mine, _generators(seed), strict=False)]
        sums, tag = _sums(seed, [one[:, MINE] for one in sent], [one[:, TAG] for one in sent])
        high = wide.high_words(sums) + wide.low_words(mask[:, MINE])
        digest = self._digest(high, wide.carry(tag + _lifted(mask[:, TAG])), self._sent)
        return torch.cat((high.cpu(), digest, _words(self._common.digest())))

    def accepts(self, seed: bytes, mask: Tensor, answer: Tensor) -> bool:
        """Tell whether the other party's answer to my seed proves what I have received."""
        theirs = [one for one in self._messages if one.theirs is not None]
        came = [one.came(prg) for one, prg in zip(theirs, _generators(seed), strict=False)]
        keys = [one.keys(prg) for one, prg in zip(theirs, _generators(seed), strict=False)]
        sums, key = _sums(seed, came, keys)
        low = wide.split(wide.low_words(sums))
        high = wide.lift_words(answer[:SUMS].to(low.device))
        claimed = wide.carry(low + high)
        tag = wide.multiply(claimed, low.new_tensor(self.keys.words)) + key
        wanted = self._digest(
            answer[:SUMS], wide.carry(tag + _lifted(mask[:, KEY])), self._expected
        )
        return torch.equal(answer[SUMS : SUMS + DIGEST_WORDS], wanted)

    def heard_the_same(self, answer: Tensor) -> bool:
        """Tell whether a third party has told the other one the same as me."""
        return torch.equal(answer[SUMS + DIGEST_WORDS :], _words(self._common.digest()))

    def clear(self) -> None:
        """Forget what has been checked."""
        self._messages.clear()

    def _digest(self, high: Tensor, tags: Tensor, bits: "hashlib._Hash") -> Tensor:
        whole = hashlib.sha256(ring.to_bytes(high.contiguous().cpu()))
        whole.update(ring.to_bytes(tags.contiguous().cpu()))
        whole.update(bits.digest())
        return _words(whole.digest())


def _generators(seed: bytes) -> Iterator[Prg]:
    """Give a generator for every message, alike to whoever proves and to whoever checks."""
    prg = Prg(seed)
    return (prg.fork(f"message {at}") for at in count())


def _random_sides(prg: Prg, dense: Tensor) -> tuple[Tensor | None, Tensor | None]:
    """Draw the bits P and Q by which a matrix is projected, (42, rows) and (columns, 42)."""
    height, width = dense.shape[-2:]
    is_long, is_wide = sides(tuple(dense.shape))
    rows = prg.fork("rows").bits((SIDE, height)).to(dense.device, torch.float64)
    columns = prg.fork("columns").bits((width, SIDE)).to(dense.device, torch.float64)
    return rows if is_long else None, columns if is_wide else None


def _folded(numbers: Tensor, prg: Prg) -> Tensor:
    """Lay many numbers out as a matrix, and leave random sums of its rows."""
    size = numbers.shape[-1]
    if size < _MANY:
        return numbers
    padded = torch.nn.functional.pad(numbers, (0, -size % _WIDTH))
    matrix = padded.view(*numbers.shape[:-1], -1, _WIDTH)
    rows = prg.bits((SIDE, matrix.shape[-2])).to(matrix.device, torch.float64)
    return project(matrix, rows, None).flatten(-2)


def _words(digest: bytes) -> Tensor:
    return torch.frombuffer(bytearray(digest), dtype=torch.int64)


def _lifted(limbs: Tensor) -> Tensor:
    """Multiply by 2^64."""
    half = limbs.new_tensor(1 << 32)
    return wide.multiply(wide.multiply(limbs, half), half)


def _sums(seed: bytes, *columns: list[Tensor]) -> list[Tensor]:
    """Add up random halves of numbers: each (limbs, count) in a list gives (limbs, sums).

    Every list holds the same counts, and the same elements are taken from each.
    """
    prg = Prg(seed)
    device = columns[0][0].device if columns[0] else torch.device("cpu")
    total = torch.zeros((SUMS, len(columns) * _DIGITS), dtype=torch.int64, device=device)
    for parts in zip(*columns, strict=True):
        for start in range(0, parts[0].shape[1], _CHUNK):
            stretch = slice(start, start + _CHUNK)
            piece = torch.cat([wide.digits(one[:, stretch], _DIGIT) for one in parts])
            chosen = prg.bits((piece.shape[1], SUMS)).to(device, torch.float64)
            # Exact: 2^15 numbers below 2^27 stay below 2^53.
            total += (chosen.T @ piece.T.to(torch.float64)).to(torch.int64)
    columns_of = total.T.reshape(len(columns), _DIGITS, SUMS)
    return [wide.joined(one.contiguous(), _DIGIT) for one in columns_of]
