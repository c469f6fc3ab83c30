"""The check of every word and bit that was exchanged since the last one, before anything is shown.

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
from tacit.errors import CheatingError
from tacit.mpc.boundary import WORD_BYTES
from tacit.mpc.contract import Channel, Declaration, Roles
from tacit.mpc.material.randomness import OpeningMask, Parts
from tacit.mpc.protocols.checked import wide
from tacit.mpc.protocols.checked.pending import SIDE, Pending, project_words, sides
from tacit.mpc.protocols.checked.tags import KEY, MINE, TAG, PartPair, Tagged, TagKeys
from tacit.mpc.share import AnyShare, AnySpec
from tacit.party.cost import exchange
from tacit.party.session import CHEATED, OR_OWNER
from tacit.ring import KEY_BYTES, Prg

SUMS = 42
"""Over random halves: each misses a wrong word with chance 1/2, so that all do with 2^-42."""
DIGEST_WORDS = 4
ANSWER_WORDS = SUMS + 2 * DIGEST_WORDS
# Longer messages are matrices of rows of 64 words or more, 1024 rows at most. Of these 42 random
# sums are as good as the rows, again but for 2^-42, and tags of so few are cheap to add up.
_MANY, _WIDTH, _HEIGHT = 1 << 12, 64, 1 << 10


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
        """Return what has come: (count,) words."""
        assert self.theirs is not None  # noqa: S101 - one asks for what has come
        if isinstance(self.numbers, Pending):
            sides = _random_sides(prg, self.numbers.dense)
            return project_words(self.theirs, *sides).flatten()
        laid = _laid_out(self.theirs.reshape(-1))
        return laid if laid.dim() == 1 else ring.matmul(_random_rows(prg, laid), laid).flatten()

    def _columns(self, prg: Prg, part: slice) -> Tensor:
        if isinstance(self.numbers, Pending):
            sides = _random_sides(prg, self.numbers.dense)
            return self.numbers.projected(*sides, part).flatten(2)
        some = self.numbers[:, part]
        laid = _laid_out(some.reshape(*some.shape[:2], -1))
        return laid if laid.dim() == 3 else wide.add_rows(_random_rows(prg, laid), laid).flatten(2)


class Proofs:
    """Collects what a computing party has sent and received, and proves and checks it.

    Guarantee: if the other party has sent one wrong word or bit since the last check, `accepts`
    is true with a probability of at most 2^-40, whatever the error: 2^-42 each for the projections
    P and Q and for the sums, 2^-44 for a guessed Δ (see `docs/explanation/checked`).
    Whether it is true depends on no secret. What is proved shows nothing that was not sent.
    """

    def __init__(self, keys: TagKeys) -> None:
        self.keys = keys
        self._messages: list[_Message] = []
        self._sent, self._expected = hashlib.sha256(), hashlib.sha256()
        self._common = hashlib.sha256()
        self.to_tell: dict[int, Tensor] = {}
        """What receivers who do not compute are told once it is checked, by the step opening it."""

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
        numbers = torch.cat(sent, -1) if sent else mask.new_zeros((wide.LIMBS, 2, 0))
        sums, tag = _sums(seed, numbers).unbind(1)
        # The sum modulo 2^64 is one of words that were sent, and known. The 44 bits above count
        # carries of shares that were not, so a dealt word hides them; they come before the hash,
        # as whoever checks needs the whole sum to multiply it by Δ. 2^64 times the dealt word, and
        # times its tag, are added modulo 2^108: 44 bits of it count.
        high = wide.high_words(sums) + wide.low_words(mask[:, MINE])
        digest = self._digest(high, wide.carry(tag + _lifted(mask[:, TAG])), self._sent)
        return torch.cat((high.cpu(), digest, _words(self._common.digest())))

    def accepts(self, seed: bytes, mask: Tensor, answer: Tensor) -> bool:
        """Tell whether the other party's answer to my seed proves what I have received."""
        theirs = [one for one in self._messages if one.theirs is not None]
        came = [one.came(prg) for one, prg in zip(theirs, _generators(seed), strict=False)]
        keys = [one.keys(prg) for one, prg in zip(theirs, _generators(seed), strict=False)]
        key = _sums(seed, torch.cat(keys, -1) if keys else mask.new_zeros((wide.LIMBS, 0)))
        words = torch.cat(came) if came else mask.new_zeros(0)
        low = wide.split(ring.matmul(words, _chosen(seed, len(words), words.device)))
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


def proofs_of(channel: Channel) -> Proofs:
    """Return what is still to be checked in a run."""
    assert isinstance(channel.state, Proofs)  # noqa: S101 - `Authenticated.begin` has made it
    return channel.state


def _generators(seed: bytes) -> Iterator[Prg]:
    """Give a generator for every message, alike to whoever proves and to whoever checks."""
    prg = Prg(seed)
    return (prg.fork(f"message {at}") for at in count())


def _random_sides(prg: Prg, dense: Tensor) -> tuple[Tensor | None, Tensor | None]:
    """Draw the bits P and Q by which a matrix is projected, (42, rows) and (columns, 42)."""
    height, width = dense.shape[-2:]
    is_long, is_wide = sides(tuple(dense.shape))
    rows = prg.fork("rows").bits((SIDE, height)).to(dense.device, torch.int64)
    columns = prg.fork("columns").bits((width, SIDE)).to(dense.device, torch.int64)
    return rows if is_long else None, columns if is_wide else None


def _laid_out(numbers: Tensor) -> Tensor:
    """Lay many numbers out as a matrix, of whose rows random sums are enough."""
    size = numbers.shape[-1]
    if size < _MANY:
        return numbers
    width = max(_WIDTH, size // _HEIGHT)
    padded = torch.nn.functional.pad(numbers, (0, -size % width))
    return padded.view(*numbers.shape[:-1], -1, width)


def _random_rows(prg: Prg, matrix: Tensor) -> Tensor:
    return prg.bits((SIDE, matrix.shape[-2])).to(matrix.device, torch.int64)


def _words(digest: bytes) -> Tensor:
    return torch.frombuffer(bytearray(digest), dtype=torch.int64)


def _lifted(limbs: Tensor) -> Tensor:
    """Multiply by 2^64."""
    half = limbs.new_tensor(1 << 32)
    return wide.multiply(wide.multiply(limbs, half), half)


def _chosen(seed: bytes, count: int, device: torch.device) -> Tensor:
    """Choose a random half of the numbers for every sum: (count, sums) bits."""
    return Prg(seed).bits((count, SUMS)).to(device, torch.int64)


def _sums(seed: bytes, numbers: Tensor) -> Tensor:
    """Add up random halves: (limbs, …, count) gives (limbs, …, sums)."""
    if not numbers.shape[-1]:
        return numbers.new_zeros((*numbers.shape[:-1], SUMS))
    return wide.add_all(numbers, _chosen(seed, numbers.shape[-1], numbers.device))


_MASK = Tagged(OpeningMask(0, (SUMS,), None), (PartPair(0, 0, (SUMS,)),))


@dataclass(frozen=True)
class MutualCheck:
    """Prove what I have sent since the last check, and check what I have received.

    Guarantee: a party that goes on has received nothing wrong, but with a probability of at most
    2^-40. Nothing is shown, and whether a party goes on depends on no secret.
    Cost: 2 rounds; 16 and 400 bytes each way, however much is checked.
    """

    def declare(self, roles: Roles, *_: AnySpec) -> Declaration:
        """Say what is sent."""
        return Declaration(
            out=None,
            needs=(_MASK,),
            rounds=(
                exchange(*roles.computing, KEY_BYTES),
                exchange(*roles.computing, WORD_BYTES * ANSWER_WORDS),
            ),
        )

    def run(self, channel: Channel, material: tuple[Parts, ...], *operands: AnyShare) -> None:
        """Exchange seeds, then answers.

        Raises:
            CheatingError: the other party has sent something that it cannot prove.
        """
        _, (tags,) = _MASK.read(material[0], is_first=channel.is_first)
        mask, proofs, other = tags.wide(), proofs_of(channel), channel.other
        # Fresh, and known to nobody before: all messages that the sums are to test were fixed when
        # the other party sees it, as this step comes when the last of them has come.
        seed = Prg.from_os().bytes(KEY_BYTES)
        channel.send(other, torch.frombuffer(bytearray(seed), dtype=torch.uint8))
        came = channel.recv(other, (KEY_BYTES,), dtype=torch.uint8)
        channel.send(other, proofs.answer(bytes(came.tolist()), mask))
        answer = channel.recv(other, (ANSWER_WORDS,)).cpu()
        # First: two who were told different inputs do not fit each other, and neither cheats.
        if not proofs.heard_the_same(answer):
            raise CheatingError(
                f"{other}{OR_OWNER}",
                f"{CHEATED}the two computing parties were told different inputs; nothing was "
                "revealed after that",
            )
        if not proofs.accepts(seed, mask, answer):
            raise CheatingError(
                other,
                f"{CHEATED}its messages up to step {channel.step} are not what the dealer's tags "
                "prove; nothing was revealed after that",
            )
        proofs.clear()
