"""Products given to a worker that is not trusted, and checked (Freivalds 1977, Slalom 2019).

A worker is an accelerator, a process or another host. It may lie, be late, die or send an old
answer again; whatever it sends is checked before it is used.

Guarantee: a wrong product is used with a probability of at most 2^-40 (each; the probabilities of
several products add up), whatever is wrong with it: the vectors of the check are drawn after the
answer has come or, of an operand that comes again, once and kept from the worker; and
both the operands of the check and the answer that is used are copies out of
the worker's reach. That holds for a worker behind a device or a link; code that runs inside this
process could change anything, and is trusted not to. Nothing is promised about privacy towards the
worker beyond this: it sees what its party sees, one party's shares and masked openings, and counts
as that party. A worker that pools with the other computing party, or with the dealer, is as if its
party did. At the end of a link, a worker that does not answer is given up
when the session loses patience (`stall_s`); a device that hangs is waited for.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from itertools import count
from typing import Literal, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

from tacit import ring
from tacit.errors import PartyError, TacitError
from tacit.party import Session
from tacit.ring import Prg

MOST_PRODUCTS = 1 << 62
MOST_BYTES = 1 << 34
"""What a party may make its worker hold, if nothing else is said."""
_WORD_BYTES = 8
_SIDES = (256, 512, 1024, 2048)
_STOP = (0, 0, 0, 0, 0)
THIN_ROWS = 160
"""Checking a product with fewer rows costs as much as computing it, unless it is prepared."""
_MOST_KEPT = 256
_SPREAD = 0x1E3779B97F4A7C15  # odd, so that small numbers fill the word


class Worker(Protocol):
    """Whoever multiplies for a party."""

    @property
    def name(self) -> str:
        """Return by what name it is blamed."""
        ...

    def multiply(self, left: Tensor, right: Tensor, kept: int = 0) -> Tensor:
        """Return what should be left · right modulo 2^64; whatever it raises is its failure.

        A right operand that will come again has a number, ``kept``, and need not travel twice.
        """
        ...

    def forget(self, kept: int) -> None:
        """Let go of a right operand that does not come again."""
        ...


@dataclass(frozen=True)
class DeviceWorker:
    """An accelerator of this host, whose answers are not believed."""

    device: str
    name: str = "accelerator"
    _kept: dict[int, Tensor] = field(default_factory=dict, init=False, repr=False)

    def multiply(self, left: Tensor, right: Tensor, kept: int = 0) -> Tensor:
        """Multiply there and bring the result back."""
        there = torch.device(self.device)
        try:
            matrix = self._kept.get(kept)
            if matrix is None:
                # A copy even where it is here already: what is kept must stay what it was.
                matrix = right.to(there, copy=True)
            if kept:
                self._kept[kept] = matrix
            return ring.matmul(left.to(there), matrix).to(left.device)
        except RuntimeError as error:  # out of memory, a lost device
            raise PartyError(self.name, f"could not multiply: {type(error).__name__}") from error

    def forget(self, kept: int) -> None:
        """Free its memory."""
        self._kept.pop(kept, None)


@dataclass
class RemoteWorker:
    """A worker on the other end of a session: a process of this host, or another host."""

    session: Session
    peer: str
    name: str = ""
    _count: int = field(default=0, init=False)
    _sent: set[int] = field(default_factory=set, init=False)

    def __post_init__(self) -> None:
        self.name = self.name or self.peer

    def multiply(self, left: Tensor, right: Tensor, kept: int = 0) -> Tensor:
        """Send what the worker does not have, and wait for the product."""
        tag = self._announce((*left.shape, *right.shape, kept))
        self.session.send(self.peer, f"{tag}.operand", left.contiguous())
        if kept not in self._sent:
            self.session.send(self.peer, f"{tag}.operand", right.contiguous())
        if kept:
            self._sent.add(kept)
        shape = (left.shape[0], right.shape[1])
        return self.session.recv(self.peer, f"{tag}.answer", shape)

    def forget(self, kept: int) -> None:
        """Tell the worker to let go."""
        if kept in self._sent:
            self._sent.remove(kept)
            self._announce((0, 0, 0, 0, kept))

    def release(self) -> None:
        """Tell the worker that no more products come."""
        self._announce(_STOP)

    def _announce(self, numbers: tuple[int, ...]) -> str:
        self._count += 1
        tag = f"product/{self._count}"
        self.session.send(self.peer, f"{tag}.shape", torch.tensor(numbers))
        return tag


def serve_products(
    session: Session,
    party: str,
    *,
    multiply: Callable[[Tensor, Tensor], Tensor] = ring.matmul,
    memory_bytes: int = MOST_BYTES,
) -> int:
    """Be the worker of a party until it releases me; return how many products I made.

    Raises:
        PartyError: the party announced what is no product, or one that with the matrices that are
            kept for it takes more than ``memory_bytes``; or it cannot be made here.
    """
    made, matrices = 0, dict[int, Tensor]()
    for number in count(1):
        tag = f"product/{number}"
        *shape, kept = map(int, session.recv(party, f"{tag}.shape", (5,)))
        if not any(shape):
            if not kept:
                break
            matrices.pop(kept, None)
            continue
        right = matrices.get(kept)
        sizes = f"{shape[0]} × {shape[1]} by {shape[2]} × {shape[3]}"
        is_product = min(shape) >= 0 and shape[1] == shape[2]
        if not is_product or (right is not None and tuple(right.shape) != tuple(shape[2:])):
            raise PartyError(party, f"announced a product of {sizes}, which is none")
        needed = _WORD_BYTES * (shape[0] * (shape[1] + shape[3]) + shape[2] * shape[3])
        needed += _WORD_BYTES * sum(
            one.numel() for number, one in matrices.items() if number != kept
        )
        if needed > memory_bytes or len(matrices) > _MOST_KEPT:
            raise PartyError(
                party,
                f"announced a product of {sizes}, which with {len(matrices)} matrices kept takes "
                f"{needed} bytes; wanted at most {memory_bytes} bytes and {_MOST_KEPT} matrices",
            )
        left = session.recv(party, f"{tag}.operand", (shape[0], shape[1]))
        if right is None:
            right = session.recv(party, f"{tag}.operand", (shape[2], shape[3]))
        if kept:
            matrices[kept] = right
        try:
            answer = multiply(left, right).contiguous()
        except (RuntimeError, MemoryError) as error:  # a device that is full, or lost
            reason = f"could not multiply {sizes}: {type(error).__name__}"
            raise PartyError(session.me, reason) from error
        session.send(party, f"{tag}.answer", answer)
        made += 1
    return made


@dataclass
class _Seen:
    """A right operand that has come before: its memory, and the check that is prepared for it."""

    storage: StorageWeakRef
    number: int
    check: ring.FixedCheck | None = None


@dataclass
class Outsourcing:
    """How a party's large products are given away.

    A right operand that comes a second time, such as weights that were opened once, stays with the
    worker and its check is prepared (Slalom): then thin products can be given away as well.

    Attributes:
        worker: who multiplies.
        prg: of the party alone; draws the vectors of the checks.
        least_terms: products of fewer multiplications stay here; see `break_even`.
        on_failure: end with the worker's name, or go on without it.
        thin_rows: products of fewer rows are given away once their right operand comes again;
            convolutions with fewer filters never.
        failure: what the worker did, once it was caught; it is not asked again.
        given: products that were given away and found right.
    """

    worker: Worker
    prg: Prg
    least_terms: int
    on_failure: Literal["stop", "local"] = "stop"
    thin_rows: int = THIN_ROWS
    failure: str = ""
    given: int = 0
    _seen: dict[tuple[object, ...], _Seen] = field(default_factory=dict, init=False, repr=False)
    _numbers: Iterator[int] = field(default_factory=lambda: count(1), init=False, repr=False)

    def matmul(self, left: Tensor, right: Tensor) -> Tensor:
        """Multiply two matrices, here or there.

        Raises:
            PartyError: the worker was caught, and the party wants to end then.
        """
        if left.dim() > 2 and right.dim() == 2:  # a batch of rows is a taller matrix
            flat = self.matmul(left.reshape(-1, left.shape[-1]), right)
            return flat.reshape(*left.shape[:-1], right.shape[1])
        if not self._fits(left, right):
            return ring.matmul(left, right)
        if right.dim() > 2:  # different matrices, one after another
            batch = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
            pairs = zip(
                left.expand(*batch, *left.shape[-2:]).flatten(0, -3),
                right.expand(*batch, *right.shape[-2:]).flatten(0, -3),
                strict=True,
            )
            found = torch.stack([self.matmul(a, b) for a, b in pairs])
            return found.view(*batch, *found.shape[-2:])
        seen = self._find(right)
        if seen is None and len(left) < self.thin_rows:
            return ring.matmul(left, right)
        sizes = f"{left.shape[0]} × {left.shape[1]} by {right.shape[0]} × {right.shape[1]}"
        answer, reason = self._ask(left, right, seen)
        if answer is not None:
            self.given += 1
            return answer
        self.failure = f"product {self.given + 1} ({sizes}): {reason}"
        if self.on_failure == "stop":
            raise PartyError(self.worker.name, self.failure)
        return ring.matmul(left, right)

    def _fits(self, left: Tensor, right: Tensor) -> bool:
        """Tell whether each product of two matrices is so large that giving it away pays."""
        if self.failure or min(left.dim(), right.dim()) < 2:
            return False
        return left.shape[-2] * left.shape[-1] * right.shape[-1] >= self.least_terms

    def _ask(self, left: Tensor, right: Tensor, seen: _Seen | None) -> tuple[Tensor | None, str]:
        """Ask the worker, and check what it says."""
        try:
            kept = 0 if seen is None else seen.number
            answer = self.worker.multiply(left.clone(), right.clone(), kept)
        except TacitError as error:
            return None, str(error)
        except Exception as error:  # whatever a worker raises is its own failure
            # Its words could hold what it was given.
            return None, f"it raised {type(error).__name__}"
        claimed = _taken(answer, left.device)
        if claimed is None:
            return None, "its answer is not the product, but no matrix at all"
        if seen is None or seen.check is None:
            is_right = ring.is_product(left, right, claimed, prg=self.prg)
        else:
            is_right = seen.check.accepts(left, claimed)
        return (claimed, "") if is_right else (None, "its answer is not the product")

    def _find(self, right: Tensor) -> _Seen | None:
        """Find a right operand that has come before and has not changed; note it if it has not.

        A change is known by torch's version counter: nothing here writes to tensors past it.
        """
        storage = right.untyped_storage()
        key = (storage._cdata, right.storage_offset(), right.shape, right.stride(), right._version)
        seen = self._seen.get(key)
        if seen is None or _is_gone(seen.storage):
            self._purge()
            if len(self._seen) < _MOST_KEPT:
                self._seen[key] = _Seen(_refer_to(storage), next(self._numbers))
            return None
        if seen.check is None:
            seen.check = ring.FixedCheck(right, prg=self.prg)
        return seen

    def _purge(self) -> None:
        """Let go of operands whose memory is gone: they cannot come again."""
        for key in [one for one, seen in self._seen.items() if _is_gone(seen.storage)]:
            seen = self._seen.pop(key)
            if seen.check is not None:
                with suppress(Exception):  # a worker that fails here fails at the next product
                    self.worker.forget(seen.number)


def _refer_to(storage: torch.UntypedStorage) -> StorageWeakRef:
    """Refer to memory without keeping it; a tensor would not do, views of it come and go."""
    return StorageWeakRef(storage)  # type: ignore[no-untyped-call]


def _is_gone(storage: StorageWeakRef) -> bool:
    return bool(storage.expired())  # type: ignore[no-untyped-call]


def _taken(answer: object, device: torch.device) -> Tensor | None:
    """Copy a worker's answer to where it cannot be changed any more; None if it is no matrix."""
    # A subclass of Tensor could answer the questions of the check itself.
    if type(answer) is not Tensor or answer.layout is not torch.strided:
        return None
    return answer.detach().clone() if answer.device == device else None


_CURRENT: ContextVar[Outsourcing | None] = ContextVar("outsourcing", default=None)


@contextmanager
def outsourced(outsourcing: Outsourcing) -> Iterator[Outsourcing]:
    """Give large products to a worker, in this thread and in those that copy its context."""
    token = _CURRENT.set(outsourcing)
    try:
        yield outsourcing
    finally:
        _CURRENT.reset(token)


def current() -> Outsourcing | None:
    """Return how this party's products are given away, if they are."""
    return _CURRENT.get()


def matmul(left: Tensor, right: Tensor) -> Tensor:
    """Multiply as the current party does: here, or by its worker with a check."""
    outsourcing = _CURRENT.get()
    return ring.matmul(left, right) if outsourcing is None else outsourcing.matmul(left, right)


def conv2d(
    images: Tensor,
    weights: Tensor,
    *,
    stride: tuple[int, int],
    padding: tuple[int, int],
    dilation: tuple[int, int],
    groups: int,
) -> Tensor:
    """Convolve as the current party does: here, or as products by its worker with checks."""
    current = _CURRENT.get()
    multiply = None
    # A check takes 40 columns of every window: with few filters it is the product itself.
    if current is not None and len(weights) // groups >= current.thin_rows:
        multiply = current.matmul
    return ring.conv2d(
        images,
        weights,
        stride=stride,
        padding=padding,
        dilation=dilation,
        groups=groups,
        multiply=multiply,
    )


def break_even(
    worker: Worker,
    prg: Prg,
    *,
    sides: tuple[int, ...] = _SIDES,
    clock: Callable[[], float] = time.perf_counter,
) -> int:
    """Measure from how many multiplications on a worker and its check beat computing here.

    Returns:
        The number for `Outsourcing.least_terms`; so large that nothing is given away, if the
        worker is slower at the largest side as well.
    """
    for side in sides:
        # Any words will do: products take as long whatever they are of.
        left = torch.arange(side * side).reshape(side, side) * _SPREAD
        right = left.t().contiguous()
        worker.multiply(left, right)  # the first one loads what a worker needs
        began = clock()
        claimed = worker.multiply(left, right)
        is_right = ring.is_product(left, right, claimed, prg=prg)
        there = clock() - began
        began = clock()
        ring.matmul(left, right)
        if is_right and there < clock() - began:
            return side**3
    return MOST_PRODUCTS
