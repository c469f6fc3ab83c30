"""Three parties of a training as processes over mutual TLS, for benchmarks/training/networks.py."""

import multiprocessing
import socket
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from time import monotonic
from typing import Any, cast

import torch
from torch import Tensor
from training._plans import plan_of

from tacit import ring
from tacit.crypto import load_identity, make_identity
from tacit.mpc import Roles, Share, compute, find_protocol, make_plan, serve, sum_forecasts
from tacit.mpc.share import Spec
from tacit.nn import parse_layers
from tacit.party import Meeting, Progress, Session, session_over, without_setup
from tacit.result import Cost
from tacit.training import Training, TrainModel, TrainPlan, train
from tacit.training.programs import Programs, initial_state, state_bounds
from tacit.transport import (
    Credentials,
    LinkLimits,
    Meter,
    PacketLink,
    Patience,
    Peer,
    ShapedLink,
    mesh,
)

ROLES = Roles("north", "south", "helper")
NAMES = (*ROLES.computing, ROLES.dealer)
LIMITS = LinkLimits(max_frame_bytes=4 << 30, queue_bytes=4 << 30, stash_bytes=16 << 30)
Answer = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Shape:
    """A model to train, and how; everything a party needs to build its task."""

    layers: tuple[str, ...]
    inputs: tuple[int, ...]
    protocol: str
    batch: int
    loss: str = "softmax"
    optimiser: str = "sgd"
    rate: float = 0.1
    schedule: str = "constant"
    cap: float | None = None
    weight_bound: float = 4.0
    epochs: int = 1
    look_every: int = 50
    seed: int = 0

    def task(self, rows: int, test_rows: int) -> TrainPlan:
        """Return the training of so many rows, half of them with each owner."""
        return plan_of(
            parse_layers(self.layers, self.inputs, seed=self.seed),
            self.inputs,
            {ROLES.first: rows // 2, ROLES.second: rows - rows // 2},
            roles=ROLES,
            protocol=self.protocol,
            test_rows=test_rows,
            model=TrainModel(bound=self.weight_bound, cap=self.cap),
            training=Training(
                loss=cast(Any, self.loss),
                optimiser=cast(Any, self.optimiser),
                rate=self.rate,
                schedule=cast(Any, self.schedule),
                epochs=self.epochs,
                batch=self.batch,
                look_every=self.look_every,
            ),
        )


@dataclass(frozen=True)
class Network:
    """What the links are like; nothing is held back by default."""

    rtt_ms: float = 0.0
    mbit_per_s: float = 0.0


def run_parties(
    work: Callable[[Session], Answer], network: Network | None = None, *, threads: int = 1
) -> list[Answer]:
    """Run one function as north, south and helper, each a process.

    Args:
        work: a function of a session that can be sent to another process.
        network: how slow the links are.
        threads: with which each process computes.
    """
    context = multiprocessing.get_context("spawn")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        prints = {name: make_identity(name, folder).fingerprint for name in NAMES}
        pipes, processes = {}, []
        for name in NAMES:
            pipes[name], theirs = context.Pipe()
            process = context.Process(
                target=_be_party, args=(name, folder, network or Network(), theirs, work, threads)
            )
            process.start()
            theirs.close()
            processes.append(process)
        ports = {name: pipes[name].recv() for name in NAMES}
        for pipe in pipes.values():
            pipe.send({name: (prints[name], ports[name]) for name in NAMES})
        answers = [pipes[name].recv() for name in NAMES]
        for process in processes:
            process.join()
    return answers


def _be_party(
    me: str,
    folder: Path,
    network: Network,
    pipe: Connection,
    work: Callable[[Session], Answer],
    threads: int,
) -> None:
    torch.set_num_threads(threads)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        pipe.send(listener.getsockname()[1])
        entries = pipe.recv()
        identity, meter = load_identity(folder, me), Meter(me)
        links = mesh(
            me,
            {n: Peer(("127.0.0.1", port), p) for n, (p, port) in entries.items() if n != me},
            credentials=Credentials(identity.certificate_file, identity.key_file),
            listener=listener,
            meter=meter,
            limits=LIMITS,
        )
    if network.rtt_ms:
        # The links of a mesh can be wrapped; their declared type does not say so.
        links = {
            name: ShapedLink(
                cast(PacketLink, link), rtt_ms=network.rtt_ms, mbit_per_s=network.mbit_per_s
            )
            for name, link in links.items()
        }
    patience = Patience(stall_s=36000.0)
    meeting = Meeting(parties=NAMES, job_digest=b"b" * 32, limits=LIMITS, patience=patience)
    with session_over(me, meeting, links=links, meter=meter, progress=Progress()) as session:
        answer = work(session)
        session.finish()
    pipe.send(answer)


def time_steps(session: Session, *, shape: Shape, steps: int, what: str) -> Answer:
    """Time training steps or inferences on random rows; the first is for warming up."""
    task = shape.task(rows=2 * shape.batch + 2, test_rows=2)
    if what == "training":
        program = partial(Programs(task).step, rate=task.spec.training.rate)
    else:
        program = partial(_infer, task=task)
    protocol = find_protocol(task.spec.protocol.spelled)
    plan = make_plan(program, protocol, ROLES, frac_bits=task.frac_bits)
    session.agree("plan", plan.digest())
    kept = _random_halves(task, is_first=session.me == ROLES.first)
    start, before = 0.0, _bytes(session.cost())
    for number in range(steps + 1):
        if number == 1:
            _meet(session)
            start, before = monotonic(), _bytes(session.cost())
        if session.me == ROLES.dealer:
            serve(session, plan, inputs={}, is_agreed=True)
        else:
            compute(session, plan, program, inputs={}, kept=kept, is_agreed=True)
    return {
        "start": start,
        "end": monotonic(),
        "bytes": _bytes(session.cost()) - before,
        "rounds": plan.cost.online_rounds,
        "planned_bytes": sum(one.payload_bytes for one in plan.cost.traffic),
    }


def _infer(ops: Any, *, task: TrainPlan) -> Any:
    weights = {
        name: ops.resume(name, shape=tuple(value.shape), bound=task.spec.weight_bound)
        for name, value in task.model.initial.items()
    }
    x = ops.resume("x", shape=(task.batch, *task.model.inputs), bound=task.bound)
    # The answer stays shared, as in algorithm 5.3 of seed 000.
    return ops.normalise_scale(ops.sigmoid(task.model(ops, weights, x)))


def _random_halves(task: TrainPlan, *, is_first: bool) -> dict[str, Share]:
    """Share weights, memory, rows and labels; which values they have does not matter for time."""
    prg = ring.Prg(b"training halves!")
    generator = torch.Generator().manual_seed(0)
    x = torch.empty(task.batch, *task.model.inputs).uniform_(0, 1, generator=generator)
    y = torch.zeros(task.batch, task.label_width)
    y[:, 0] = 1
    bounds = state_bounds(task)
    values: dict[str, tuple[Tensor, float]] = {
        **{name: (one, task.spec.weight_bound) for name, one in task.model.initial.items()},
        **{name: (one, bounds[name]) for name, one in initial_state(task).items()},
        "x": (x, task.bound),
        "y": (y, 1.0),
    }
    dials = task.spec.training.dial_bounds()
    halves = {
        # Public numbers: each party has them whole.
        name: Share(
            ring.encode(torch.tensor(1.0), frac_bits=task.frac_bits),
            Spec.of(shape=(), frac_bits=task.frac_bits, bound=bound),
        )
        for name, bound in dials.items()
    }
    for name, (value, bound) in values.items():
        words = ring.encode(value.double(), frac_bits=task.frac_bits)
        mask = prg.words(tuple(words.shape))
        spec = Spec.of(shape=tuple(words.shape), frac_bits=task.frac_bits, bound=bound)
        halves[name] = Share(mask if is_first else words - mask, spec)
    return halves


def train_whole(
    session: Session,
    *,
    shape: Shape,
    load: Callable[[], tuple[Tensor, Tensor]],
    test_rows: int,
    live: Path | None,
    name: str,
) -> Answer:
    """Train from start to end on data that each owner has half of.

    Args:
        session: my end.
        shape: what is trained.
        load: gives all rows and labels, of which an owner takes its half.
        test_rows: rows to measure with.
        live: what is shown on the way is added to this file, after the name of the run.
        name: of the run.
    """
    rows, labels = load()
    task = shape.task(len(rows), test_rows)
    half = len(rows) // 2
    mine = {ROLES.first: slice(0, half), ROLES.second: slice(half, None)}.get(session.me)
    if live is not None and session.me == ROLES.first:
        session = replace(session, progress=Progress(partial(_tell, live, name)))
    _meet(session)
    start = monotonic()
    trained = train(
        session,
        task,
        rows=None if mine is None else rows[mine],
        labels=None if mine is None else labels[mine],
    )
    forecast = sum_forecasts(trained.runs)
    return {
        "seconds": monotonic() - start,
        "shown": trained.shown,
        "metered": _by_phase(session, replace(session.cost())),
        "forecast": _by_phase(session, forecast.cost),
        "forecast_rounds": forecast.cost.online_rounds,
        "rounds": session.cost().online_rounds,
    }


def _tell(live: Path, name: str, text: str, done: int, total: int) -> None:
    """Add what a look has shown to a file that others write to as well."""
    if text.startswith("step "):
        with live.open("a") as stream:
            stream.write(f"{monotonic():.0f} s: {name}: {text}\n")


def _by_phase(session: Session, cost: Cost) -> dict[str, int]:
    """Add up what I sent, by phase; setup is not forecast."""
    found: dict[str, int] = {}
    for one in without_setup(cost).traffic:
        if one.sender == session.me:
            found[one.phase] = found.get(one.phase, 0) + one.payload_bytes
    return found


def _bytes(cost: Cost) -> int:
    return sum(one.payload_bytes for one in without_setup(cost).traffic)


def _meet(session: Session) -> None:
    for peer in session.peers:
        session.send(peer, "bench/ready", torch.zeros(1, dtype=torch.int64), phase="setup")
    for peer in session.peers:
        session.recv(peer, "bench/ready", (1,))
