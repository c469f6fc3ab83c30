"""Run a program of ops between three parties in one process, and keep everything they saw.

Under a protocol without a dealer the third one only owns inputs and receives results.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from tacit import ring
from tacit.mpc import (
    OpeningCache,
    Plan,
    Roles,
    compute,
    deal_ahead,
    find_protocol,
    make_plan,
    serve,
)
from tacit.mpc.material.offline import (
    MaterialFacts,
    body_bytes,
    material_key,
    open_material,
    store,
    write_material,
)
from tacit.party import Meeting, Session, merge_costs, run_threads, without_setup
from tacit.result import Cost, Leak
from tacit.ring import Prg
from tacit.transport import Frame, Link, Patience

ALICE, BOB, CAROL = PARTIES = ("alice", "bob", "carol")
ROLES = Roles(ALICE, BOB, CAROL)
ALONE = Roles(ALICE, BOB)
PATIENCE = Patience(connect_s=60, silence_s=60, heartbeat_s=1, stall_s=200)
MEETING = Meeting(parties=PARTIES, job_digest=b"j" * 32, patience=PATIENCE)

Program = Callable[[Any], Any]
Notes = list[tuple[str, Tensor]]
"""Messages with their tags."""


@dataclass
class Run:
    """What came out of a run, what it cost, and what every party received while computing."""

    plan: Plan
    values: dict[str, Any] = field(default_factory=dict)
    received: dict[str, Notes] = field(default_factory=dict)
    sent: dict[str, Notes] = field(default_factory=dict)
    leaks: dict[str, tuple[Leak, ...]] = field(default_factory=dict)
    costs: dict[str, Cost] = field(default_factory=dict)

    @property
    def metered(self) -> Cost:
        return without_setup(merge_costs(self.costs))


class Wiretap:
    """A link that notes every protocol message its owner receives."""

    def __init__(self, inner: Link, notes: Notes, sent: Notes | None = None) -> None:
        self._inner = inner
        self._notes = notes
        self._sent = [] if sent is None else sent
        self.peer = inner.peer

    def send(self, tag: str, frame: Frame, *, phase: Any = "online") -> None:
        if not tag.startswith("setup/"):
            words = ring.from_bytes(frame.data, frame.dtype, frame.shape)
            self._sent.append((f"{tag} to {self.peer}", words.clone()))
        self._inner.send(tag, frame, phase=phase)

    def recv(self, tag: str) -> Frame:
        frame = self._inner.recv(tag)
        if not tag.startswith("setup/"):
            words = ring.from_bytes(frame.data, frame.dtype, frame.shape)
            self._notes.append((f"{tag} from {self.peer}", words.clone()))
        return frame

    def close(self, *, failure: tuple[str, str] | None = None) -> None:
        self._inner.close(failure=failure)


class ZeroPrg:
    """A generator whose output a corrupt party knows: without loss of generality, zeros."""

    def fork(self, label: str) -> ZeroPrg:
        return self

    def words(self, shape: tuple[int, ...]) -> Tensor:
        return torch.zeros(shape, dtype=torch.int64)

    def permutation(self, count: int) -> Tensor:
        return torch.arange(count)

    def bytes(self, count: int) -> bytes:
        return bytes(count)


def simulate(
    program: Program,
    *,
    protocol: str = "sealed",
    inputs: Mapping[str, Mapping[str, Tensor]] | None = None,
    frac_bits: int = 16,
    corrupt: str | None = None,
    keys: Mapping[frozenset[str], bytes] | None = None,
    device: str = "cpu",
    told: Mapping[str, Tensor] | None = None,
) -> Run:
    """Run a program of three parties in threads.

    Args:
        program: takes ops; the same for PlanOps and SecretOps.
        protocol: a name of the table.
        inputs: each owner's tensors by name.
        frac_bits: precision.
        corrupt: a party all of whose shared generators give zeros, so that nothing it knows
            can make what it receives look random.
        keys: fixed keys of generators by pair, for tests that repeat a run.
        device: where every party computes.
        told: the words of every `Told` of the program.
    """
    found = find_protocol(protocol)
    roles = ROLES if found.has_dealer else ALONE
    plan = make_plan(program, found, roles, frac_bits=frac_bits)
    run = Run(plan)
    notes: dict[str, Notes] = {name: [] for name in PARTIES}
    sent: dict[str, Notes] = {name: [] for name in PARTIES}

    def party(session: Session) -> Any:
        me = session.me
        own: Any = ZeroPrg() if me == corrupt else session.own
        generators = _generators(session, corrupt, keys or {})
        session = replace(session, generators=generators, own=own)
        mine = (inputs or {}).get(me, {})
        if me in ROLES.computing:
            value = compute(session, plan, program, inputs=mine, device=device, told=told)
        else:
            value = serve(session, plan, inputs=mine, device=device)
        run.leaks[me] = session.ledger.entries()
        run.costs[me] = session.cost()
        return value

    run.values = run_threads(
        dict.fromkeys(PARTIES, party),
        MEETING,
        wrap=lambda me, link: Wiretap(link, notes[me], sent[me]),
    )
    run.received, run.sent = notes, sent
    return run


def _generators(
    session: Session, corrupt: str | None, keys: Mapping[frozenset[str], bytes]
) -> dict[str, Any]:
    generators: dict[str, Any] = {}
    for peer, prg in session.generators.items():
        pair = frozenset((session.me, peer))
        if corrupt in pair:
            generators[peer] = ZeroPrg()
        elif pair in keys:
            generators[peer] = ring.Prg(keys[pair])
        else:
            generators[peer] = prg
    return generators


# Material of one run in files, as a dealer and two parties make them

TWO = Meeting(parties=(ALICE, BOB), job_digest=b"j" * 32, patience=MEETING.patience)
NAME = "one run"


def prepared(plan, folder):
    """Deal for a plan, and return both files."""
    paths = {me: folder / f"{me}.material" for me in (ALICE, BOB)}

    def facts(me):
        body = body_bytes(plan) if me == BOB else 0
        about = {"plans": plan.digest().hex(), "about": ""}
        return MaterialFacts(identity=NAME, party=me, body_bytes=body, **about)

    def party(session):
        if session.me == CAROL:
            keys = {one: Prg(material_key(session.shared(one), NAME)) for one in session.peers}
            deal_ahead(replace(session, generators=keys), plan, run=0, cache=OpeningCache())
            return
        me, key = session.me, material_key(session.shared(CAROL), NAME)
        with write_material(paths[me], facts(me), key) as writer:
            if me == BOB:
                store(session, plan, run=0, writer=writer)

    run_threads(dict.fromkeys((ALICE, BOB, CAROL), party), MEETING)
    return paths


@contextmanager
def begun(path, me):
    """Open a file and begin it."""
    with open_material(path, me=me) as material:
        material.begin()
        yield material


def run_on(plan, program, files, inputs):
    """Run a plan between two parties on their files."""

    def party(session):
        with ExitStack() as stack:
            material = stack.enter_context(begun(files[session.me], session.me))
            return compute(session, plan, program, inputs=inputs, material=material)

    return run_threads(dict.fromkeys((ALICE, BOB), party), TWO)


def by_size(walker):
    """The plans that a walker has run, and how often, by the size of a batch; 0 is the start."""
    runs = {id(plan): (plan, times) for plan, times in walker.runs}
    keys = ((size, id(plan)) for (size, _), (plan, _) in walker.plans.items())
    return {size: runs[plan] for size, plan in keys if plan in runs}
