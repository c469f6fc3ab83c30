"""Products given to a worker that is not trusted, and checked (Freivalds 1977, Slalom 2019).

A worker is an accelerator, a process or another host. It may lie, be late, die or send an old
answer again; whatever it sends is checked before it is used.

Guarantee: a wrong product is used with a probability of at most 2^-40 (each; the probabilities of
several products add up), whatever is wrong with it: the vectors of the check are drawn after the
answer has come, and both the operands of the check and the answer that is used are copies out of
the worker's reach. That holds for a worker behind a device or a link; code that runs inside this
process could change anything, and is trusted not to. Nothing is promised about privacy towards the
worker beyond this: it sees what its party sees, one party's shares and masked openings, and counts
as that party. A worker that pools with the other computing party, or with the dealer, is as if its
party did. At the end of a link, a worker that does not answer is given up
when the session loses patience (`stall_s`); a device that hangs is waited for.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Literal, Protocol

import torch
from torch import Tensor

from tacit import ring
from tacit.errors import PartyError, TacitError
from tacit.party import Session
from tacit.ring import Prg

MOST_PRODUCTS = 1 << 62
_SIDES = (256, 512, 1024, 2048)
_STOP = (0, 0, 0, 0)
_SPREAD = 0x1E3779B97F4A7C15  # odd, so that small numbers fill the word


class Worker(Protocol):
    """Whoever multiplies for a party."""

    @property
    def name(self) -> str:
        """Return by what name it is blamed."""
        ...

    def multiply(self, left: Tensor, right: Tensor) -> Tensor:
        """Return what should be left · right modulo 2^64; whatever it raises is its failure."""
        ...


@dataclass(frozen=True)
class DeviceWorker:
    """An accelerator of this host, whose answers are not believed."""

    device: str
    name: str = "accelerator"

    def multiply(self, left: Tensor, right: Tensor) -> Tensor:
        """Multiply there and bring the result back."""
        there = torch.device(self.device)
        try:
            return ring.matmul(left.to(there), right.to(there)).to(left.device)
        except RuntimeError as error:  # out of memory, a lost device
            raise PartyError(self.name, f"could not multiply: {type(error).__name__}") from error


@dataclass
class RemoteWorker:
    """A worker on the other end of a session: a process of this host, or another host."""

    session: Session
    name: str
    _count: int = field(default=0, init=False)

    def multiply(self, left: Tensor, right: Tensor) -> Tensor:
        """Send both matrices, and wait for their product."""
        self._count += 1
        tag, shapes = f"product/{self._count}", (*left.shape, *right.shape)
        self.session.send(self.name, f"{tag}.shape", torch.tensor(shapes))
        for matrix in (left, right):
            self.session.send(self.name, f"{tag}.operand", matrix.contiguous())
        shape = (left.shape[0], right.shape[1])
        return self.session.recv(self.name, f"{tag}.answer", shape)

    def release(self) -> None:
        """Tell the worker that no more products come."""
        self.session.send(self.name, f"product/{self._count + 1}.shape", torch.tensor(_STOP))


def serve_products(
    session: Session, party: str, *, multiply: Callable[[Tensor, Tensor], Tensor] = ring.matmul
) -> int:
    """Be the worker of a party until it releases me; return how many products I made."""
    count = 0
    while True:
        tag = f"product/{count + 1}"
        shape = tuple(map(int, session.recv(party, f"{tag}.shape", (4,))))
        if shape == _STOP:
            return count
        left = session.recv(party, f"{tag}.operand", shape[:2])
        right = session.recv(party, f"{tag}.operand", shape[2:])
        session.send(party, f"{tag}.answer", multiply(left, right).contiguous())
        count += 1


@dataclass
class Outsourcing:
    """How a party's large products are given away.

    Attributes:
        worker: who multiplies.
        prg: of the party alone; draws the vectors of the checks.
        least_terms: products of fewer multiplications stay here; see `break_even`.
        on_failure: end with the worker's name, or go on without it.
        failure: what the worker did, once it was caught; it is not asked again.
        given: products that were given away and found right.
    """

    worker: Worker
    prg: Prg
    least_terms: int
    on_failure: Literal["stop", "local"] = "stop"
    failure: str = ""
    given: int = 0

    def matmul(self, left: Tensor, right: Tensor) -> Tensor:
        """Multiply two matrices, here or there.

        Raises:
            PartyError: the worker was caught, and the party wants to end then.
        """
        if left.dim() > 2 and right.dim() == 2:  # a batch of rows is a taller matrix
            flat = self.matmul(left.reshape(-1, left.shape[-1]), right)
            return flat.reshape(*left.shape[:-1], right.shape[1])
        terms = left.numel() * right.shape[-1]
        if self.failure or right.dim() != 2 or left.dim() != 2 or terms < self.least_terms:
            return ring.matmul(left, right)
        try:
            answer = self.worker.multiply(left.clone(), right.clone())
        except TacitError as error:
            reason = str(error)
        except Exception as error:  # whatever a worker raises is its own failure
            reason = f"it raised {type(error).__name__}"  # its words could hold what it was given
        else:
            claimed = _taken(answer, left.device)
            if claimed is not None and ring.is_product(left, right, claimed, prg=self.prg):
                self.given += 1
                return claimed
            reason = "its answer is not the product"
        sizes = f"{left.shape[0]} × {left.shape[1]} by {right.shape[0]} × {right.shape[1]}"
        self.failure = f"product {self.given + 1} ({sizes}): {reason}"
        if self.on_failure == "stop":
            raise PartyError(self.worker.name, self.failure)
        return ring.matmul(left, right)


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


def matmul(left: Tensor, right: Tensor) -> Tensor:
    """Multiply as the current party does: here, or by its worker with a check."""
    outsourcing = _CURRENT.get()
    return ring.matmul(left, right) if outsourcing is None else outsourcing.matmul(left, right)


def break_even(worker: Worker, prg: Prg, *, sides: tuple[int, ...] = _SIDES) -> int:
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
        began = time.perf_counter()
        claimed = worker.multiply(left, right)
        is_right = ring.is_product(left, right, claimed, prg=prg)
        there = time.perf_counter() - began
        began = time.perf_counter()
        ring.matmul(left, right)
        if is_right and there < time.perf_counter() - began:
            return side**3
    return MOST_PRODUCTS
