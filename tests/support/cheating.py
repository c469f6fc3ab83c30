"""A computing party that cheats: one message of a run is changed, and what comes of it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from support.mpc import ALICE, BOB, CAROL, MEETING, PARTIES, ROLES
from tacit import ring
from tacit.errors import TacitError
from tacit.mpc import compute, find_protocol, make_plan, serve
from tacit.party import Session, run_threads
from tacit.transport import Frame, Patience

X = torch.tensor([[1.5, -2.0, 0.25], [0.75, 3.0, -1.0]], dtype=torch.float64)
W = torch.tensor([[0.5, -1.0], [2.0, 0.25], [-0.5, 1.0]], dtype=torch.float64)
Z = torch.tensor([[0.5, 1.0], [-0.25, 2.0]], dtype=torch.float64)


def program(ops: Any) -> Any:
    """Use every kind of message: inputs of all three, products, truncation, pieces, outputs."""
    x = ops.input("x", owner=ALICE, shape=(2, 3), bound=4.0)
    w = ops.input("w", owner=BOB, shape=(3, 2), bound=4.0)
    z = ops.input("z", owner=CAROL, shape=(2, 2), bound=4.0)
    hidden = ops.relu(ops.add(ops.matmul(x, w), z))
    result = ops.mul(ops.tanh(hidden), z)
    first = ops.open(result, to=(ALICE, BOB, CAROL), what="y", why="test")
    second = ops.open(ops.sum(hidden, dim=0), to=(ALICE,), what="h", why="test")
    return first, second


def wanted(x: Tensor = X, w: Tensor = W, z: Tensor = Z) -> tuple[Tensor, Tensor]:
    hidden = (x @ w + z).relu()
    return hidden.tanh() * z, hidden.sum(0)


Change = Callable[[Tensor], Tensor | None]
"""What becomes of a message: other words, or None for nothing at all."""


@dataclass
class Liar:
    """The links of one party: one of its messages is changed on the way out.

    If it is ``steady``, the liar goes on as if it had meant it: what it receives under the same
    name is changed alike, so that both sides see the same wrong opening.
    """

    name: str
    tag: str
    receiver: str
    change: Change
    steady: bool = False
    did: bool = False

    def wrap(self, me: str, link: Any) -> Any:
        return _Link(link, self) if me == self.name and link.peer == self.receiver else link


class _Link:
    def __init__(self, inner: Any, liar: Liar) -> None:
        self._inner, self._liar = inner, liar
        self._delta: Tensor | None = None
        self._is_bits = False
        self.peer = inner.peer

    def send(self, tag: str, frame: Frame, *, phase: Any = "online") -> None:
        if tag == self._liar.tag:
            words = ring.from_bytes(frame.data, frame.dtype, frame.shape)
            changed = self._liar.change(words.clone())
            self._liar.did = True
            if changed is None:
                return
            self._delta = changed - words
            frame = Frame(frame.dtype, tuple(changed.shape), ring.to_bytes(changed))
        self._inner.send(tag, frame, phase=phase)

    def recv(self, tag: str) -> Frame:
        frame = self._inner.recv(tag)
        if tag != self._liar.tag or not self._liar.steady or self._delta is None:
            return frame
        words = ring.from_bytes(frame.data, frame.dtype, frame.shape) + self._delta
        return Frame(frame.dtype, frame.shape, ring.to_bytes(words))

    def close(self, **kwargs: Any) -> None:
        self._inner.close(**kwargs)


@dataclass
class Outcome:
    """What each party got, what ended it, and what it sent: (tag, receiver, words)."""

    values: dict[str, Any] = field(default_factory=dict)
    errors: dict[str, BaseException] = field(default_factory=dict)
    sent: dict[str, list[tuple[str, str, Tensor]]] = field(default_factory=dict)


def run(
    liar: Liar | None,
    *,
    protocol: str = "checked",
    inputs: dict[str, dict[str, Tensor]] | None = None,
    work: Any = program,
    keys: dict[frozenset[str], bytes] | None = None,
    stall_s: float = 60.0,
) -> Outcome:
    """Run the program with a liar, and say how it ended for everyone."""
    plan = make_plan(work, find_protocol(protocol), ROLES, frac_bits=16)
    given = inputs or {ALICE: {"x": X}, BOB: {"w": W}, CAROL: {"z": Z}}
    outcome = Outcome(sent={name: [] for name in PARTIES})

    def party(session: Session) -> Any:
        me, mine = session.me, given.get(session.me, {})
        if keys:
            fixed = {one: ring.Prg(keys[frozenset((me, one))]) for one in session.generators}
            session = replace(session, generators=fixed)
        try:
            if me in ROLES.computing:
                outcome.values[me] = compute(session, plan, work, inputs=mine)
            else:
                outcome.values[me] = serve(session, plan, inputs=mine)
        except BaseException as error:
            outcome.errors[me] = error
            raise

    def wrap(me: str, link: Any) -> Any:
        return _Tap(liar.wrap(me, link) if liar else link, outcome.sent[me])

    patience = Patience(connect_s=60, silence_s=60, heartbeat_s=0.2, stall_s=stall_s)
    meeting = replace(MEETING, patience=patience)
    with suppress(TacitError):
        run_threads(dict.fromkeys(PARTIES, party), meeting, wrap=wrap)
    return outcome


class _Tap:
    def __init__(self, inner: Any, notes: list[tuple[str, str, Tensor]]) -> None:
        self._inner, self._notes, self.peer = inner, notes, inner.peer

    def send(self, tag: str, frame: Frame, *, phase: Any = "online") -> None:
        if not tag.startswith("setup/"):
            words = ring.from_bytes(frame.data, frame.dtype, frame.shape)
            self._notes.append((tag, self.peer, words.clone()))
        self._inner.send(tag, frame, phase=phase)

    def recv(self, tag: str) -> Frame:
        return self._inner.recv(tag)

    def close(self, **kwargs: Any) -> None:
        self._inner.close(**kwargs)
