"""Workers: hired by a party as its job file says, or being one (``tacit worker``)."""

import hashlib
import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from torch import Tensor

from tacit import ring
from tacit.crypto import Identity, load_identity
from tacit.errors import PartyError, TacitError
from tacit.jobs.config import WorkerTable, parse_address
from tacit.llm.model.machine import free_memory_bytes
from tacit.mpc.outsource import (
    DeviceWorker,
    Outsourcing,
    RemoteWorker,
    Worker,
    break_even,
    outsourced,
    serve_products,
)
from tacit.party import Meeting, Progress, Session, joined
from tacit.result import Claim, Result
from tacit.ring import Prg, check_device
from tacit.transport import Patience, Peer, listen

_log = logging.getLogger(__name__)
_PARTY, _WORKER = "party", "worker"
_SIDES = (256, 512, 1024)  # larger ones would take seconds at the start of every job


@contextmanager
def hired(
    table: WorkerTable, *, me: str, identity: Identity, patience: Patience
) -> Iterator[Outsourcing]:
    """Give a party's large products to its worker while it does its part of a job.

    Raises:
        ConfigError: this host has no such device.
        PartyError: the worker cannot be reached or was caught, and the job wants to end then.
    """
    with ExitStack() as stack:
        outsourcing = Outsourcing(
            DeviceWorker("cpu", f"worker of {me}"),
            Prg.from_os(),
            least_terms=table.least_terms or 0,
            on_failure=table.on_failure,
        )
        try:
            outsourcing.worker = _find_worker(stack, table, me, identity, patience)
            if table.least_terms is None:
                outsourcing.least_terms = break_even(
                    outsourcing.worker, outsourcing.prg, sides=_SIDES
                )
        except PartyError as error:
            if table.on_failure == "stop":
                raise PartyError(outsourcing.worker.name, error.reason) from error
            outsourcing.failure = f"before the first product: {error.reason}"
        stack.enter_context(outsourced(outsourcing))
        yield outsourcing


def _find_worker(
    stack: ExitStack, table: WorkerTable, me: str, identity: Identity, patience: Patience
) -> Worker:
    name = f"worker of {me}"
    if table.address is None or table.key is None:
        check_device(table.device or "", "worker.device")
        return DeviceWorker(table.device or "", name)
    session = stack.enter_context(
        joined(
            _PARTY,
            _meeting(patience),
            peers={_WORKER: Peer(parse_address(table.address), table.key)},
            identity=identity,
            listener=None,
            progress=Progress(),
        )
    )
    worker = RemoteWorker(session, _WORKER, name)
    stack.callback(_release, worker)
    return worker


def _release(worker: RemoteWorker) -> None:
    with suppress(PartyError):  # a worker that is gone needs no word
        worker.release()


def with_worker(result: Result, me: str, outsourcing: Outsourcing) -> Result:
    """Say in a party's result what its worker did, and what holds of it."""
    claim = Claim(
        subject=f"products that {me} gave to a worker",
        guarantee=f"{outsourcing.given:,} products, each checked before it was used: a wrong one "
        f"passed with a probability of at most {outsourcing.given:,} · 2^-{ring.SOUNDNESS_BITS}",
        assumptions=(
            f"the worker sees what {me} sees, shares and masked openings, and counts as {me}: "
            "it does not pool with another party",
            f"{me} itself follows the protocol (semi-honest)",
        ),
    )
    notes = result.notes
    if outsourcing.failure:
        text = f"{outsourcing.worker.name} was dropped: {outsourcing.failure}; nothing that it "
        notes = (*notes, f"{text}answered then was used, and {me} went on without it")
    return replace(result, claims=(*result.claims, claim), notes=notes)


def run_worker(
    *,
    key: str,
    name: str,
    keys: Path,
    at: str,
    device: str,
    is_once: bool,
    tell: Callable[[str], None],
) -> None:
    """Multiply for the party with this key, one job after another, until stopped.

    Args:
        key: the fingerprint of the party; nobody else is answered.
        name: which key of ours it knows.
        keys: the folder with it.
        at: where to listen.
        device: where to multiply.
        is_once: whether to end after one job.
        tell: says what happens, a line each.
    """
    check_device(device, "--device")
    identity = load_identity(keys, name)
    with listen(*parse_address(at)) as listener:
        tell(f"waiting on {at} as {identity.fingerprint}")
        while True:
            try:
                with joined(
                    _WORKER,
                    _meeting(Patience(connect_s=_FOREVER_S)),
                    peers={_PARTY: Peer(None, key)},
                    identity=identity,
                    listener=listener,
                    progress=Progress(),
                ) as session:
                    made = _serve(session, device)
                tell(f"{made:,} products made")
            except TacitError as error:
                if is_once:
                    raise
                tell(str(error))
            if is_once:
                return


def _serve(session: Session, device: str) -> int:
    """Multiply until released; whatever a job brings here ends that job alone."""
    most = free_memory_bytes() // 2
    try:
        return serve_products(session, _PARTY, multiply=_on(device), memory_bytes=most)
    except TacitError:
        raise
    except Exception as error:
        _log.warning("a job of the worker ended in a bug of ours", exc_info=error)
        raise PartyError(_WORKER, f"internal error ({type(error).__name__})") from error


_FOREVER_S = 30 * 86_400.0


def _meeting(patience: Patience) -> Meeting:
    digest = hashlib.sha256(b"tacit worker 1").digest()
    return Meeting(parties=(_PARTY, _WORKER), job_digest=digest, patience=patience)


def _on(device: str) -> Callable[[Tensor, Tensor], Tensor]:
    def multiply(left: Tensor, right: Tensor) -> Tensor:
        return ring.matmul(left.to(device), right.to(device)).cpu()

    return multiply
