"""Products given to a worker: multiplying there, transfer and check, against multiplying here.

Without an accelerator the cases are the check alone against the product that it checks.
"""

import time
from collections.abc import Callable

import torch
from bench import Case, InlinePeer

from tacit import ring
from tacit.mpc.outsource import DeviceWorker, Outsourcing
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
    return found


def _milliseconds(work: Callable[[], object]) -> Callable[[], float]:
    def measure() -> float:
        began = time.perf_counter()
        work()
        return 1e3 * (time.perf_counter() - began)

    return measure
