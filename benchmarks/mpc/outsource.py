"""Products given to a worker: multiplying there, transfer and check, against multiplying here.

Without an accelerator the cases are the check alone against the product that it checks.
"""

import time
from collections.abc import Callable
from typing import Any

import torch
from bench import Case, InlinePeer
from torch import Tensor

from tacit import ring
from tacit.mpc import Roles, compute, find_protocol, make_plan, serve
from tacit.mpc.outsource import DeviceWorker, Outsourcing, outsourced
from tacit.party import Meeting, Session, run_threads
from tacit.ring import Prg


def cases(quick: bool) -> list[Case]:
    """List what is measured; `quick` leaves out the large sizes."""
    found, prg = [], Prg.from_os()
    for side in (512, 1024) if quick else (512, 1024, 2048, 4096):
        left, right = prg.words((side, side)), prg.words((side, side))
        here = InlinePeer(
            "our product here", _milliseconds(lambda a=left, b=right: ring.matmul(a, b))
        )
        claimed = ring.matmul(left, right)
        check = _milliseconds(lambda a=left, b=right, c=claimed: ring.is_product(a, b, c, prg=prg))
        goal = {2048: 1 / 8, 4096: 1 / 16}.get(side)
        name = f"check of {side}³"
        found.append(
            Case(name=name, metric="time", unit="ms", ours=check, peers=(here,), goal=goal)
        )
        if torch.cuda.is_available():
            given = Outsourcing(DeviceWorker("cuda"), prg, least_terms=1)
            goal = {2048: 1 / 4.15, 4096: 1 / 12}.get(side)
            work = _milliseconds(lambda a=left, b=right, g=given: g.matmul(a, b))
            name = f"verified product {side}³"
            found.append(
                Case(name=name, metric="time", unit="ms", ours=work, peers=(here,), goal=goal)
            )
    side = 512 if quick else 2048
    bare = InlinePeer("unverified", _milliseconds(lambda: _step(side, is_checked=False)))
    verified = _milliseconds(lambda: _step(side, is_checked=True))
    name = f"verified step, layer {side} × {side}, 256 rows"
    found.append(Case(name=name, metric="time", unit="ms", ours=verified, peers=(bare,), goal=1.3))
    return found


def _step(side: int, *, is_checked: bool) -> None:
    """Train a dense layer by one step on shares; P0, P1 and the dealer have workers."""
    roles, rows = Roles("ann", "bob", "deb"), 256
    device = "cuda" if torch.cuda.is_available() else "cpu"

    def program(ops: Any) -> None:
        x = ops.input("x", owner="ann", shape=(rows, side), bound=1.0)
        w = ops.input("w", owner="bob", shape=(side, side), bound=1.0)
        w = ops.add(w, w)  # nobody's own, as weights are in a training
        x = ops.add(x, x)
        error = ops.restate(ops.sub(ops.matmul(x, w), x), bound=1.0)
        step = ops.restate(ops.matmul(ops.transpose(x, 0, 1), error), bound=1.0)
        ops.open(ops.sum(ops.sub(w, step), dim=0), to=("ann",), what="weights", why="a benchmark")

    plan = make_plan(program, find_protocol("sealed"), roles, frac_bits=12)
    inputs = {"ann": {"x": torch.zeros(rows, side)}, "bob": {"w": torch.zeros(side, side)}}

    def party(session: Session) -> None:
        outsourcing = (Outsourcing if is_checked else _Unchecked)(
            DeviceWorker(device), Prg.from_os(), least_terms=1
        )
        with outsourced(outsourcing):
            if session.me == "deb":
                serve(session, plan, inputs={})
            else:
                compute(session, plan, program, inputs=inputs[session.me])
        if not outsourcing.given:
            raise RuntimeError("nothing was given to a worker")

    meeting = Meeting(parties=("ann", "bob", "deb"), job_digest=bytes(32))
    run_threads(dict.fromkeys(meeting.parties, party), meeting)


class _Unchecked(Outsourcing):
    """Believes its worker, which nobody should."""

    def matmul(self, left: Tensor, right: Tensor) -> Tensor:
        self.given += 1
        return self.worker.multiply(left, right)


def _milliseconds(work: Callable[[], object]) -> Callable[[], float]:
    def measure() -> float:
        began = time.perf_counter()
        work()
        return 1e3 * (time.perf_counter() - began)

    return measure
