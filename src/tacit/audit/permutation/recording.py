"""What every party saw in real runs: permuted values in the clear, and masked words."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tacit import ring
from tacit.mpc import Plan, Roles, Share, compute, narrow, serve
from tacit.mpc.permuted.hiding import instance_of
from tacit.mpc.protocols.permuted3 import SeenByHelper
from tacit.mpc.share import Spec
from tacit.party import Meeting, Session, run_threads
from tacit.result import Phase
from tacit.transport import Frame, Link

_SAMPLE = 64
"""Of what a computing party receives, so many words of every message are kept."""

# A program is any function of ops, and what it returns is not looked at.
Program = Callable[[Any], object]


@dataclass(frozen=True, eq=False)
class Run:
    """One run to watch: what is planned, and the values that the two parties share."""

    plan: Plan
    program: Program
    values: Mapping[str, tuple[Tensor, float]]
    """Clear values and their bounds, by the names under which the program takes them up."""


@dataclass(frozen=True, eq=False)
class Glimpse:
    """What was seen of one use of a function: values in random order, row by row if of rows."""

    function: str
    values: Tensor


@dataclass(frozen=True, eq=False)
class Seen:
    """What was seen of one run.

    Attributes:
        glimpses: by whoever the protocol shows permuted values to.
        received: a sample of the words that each party was sent, as numbers between -1 and 1.
    """

    glimpses: tuple[Glimpse, ...]
    received: Mapping[str, Tensor]


def watch(runs: Sequence[Run], roles: Roles) -> list[Seen]:
    """Run everything between three parties in this process, and return what they saw.

    Under permuted2 the second party sees what the helper of permuted3 would: the same values,
    through the same code, in an order that is as random. Watch permuted3 in its place.
    """
    parties = (*roles.computing, roles.dealer)
    taps: dict[str, list[_Tap]] = {name: [] for name in parties}

    def wrap(me: str, link: Link) -> Link:
        tap = _Tap(link, sample=None if me == roles.dealer else _SAMPLE)
        taps[me].append(tap)
        return tap

    def party(session: Session) -> None:
        for number, run in enumerate(runs):
            if session.me == roles.dealer:
                serve(session, run.plan, inputs={}, is_agreed=True)
            else:
                kept = _shares(run, is_first=session.me == roles.first, number=number)
                compute(session, run.plan, run.program, inputs={}, kept=kept, is_agreed=True)

    meeting = Meeting(parties=parties, job_digest=b"leakage lab".ljust(32))
    run_threads(dict.fromkeys(parties, party), meeting, wrap=wrap)
    return [_seen(run, number, roles, taps) for number, run in enumerate(runs)]


class _Tap:
    """A link that keeps what its owner receives, or a sample of it."""

    def __init__(self, link: Link, *, sample: int | None) -> None:
        self._link = link
        self._sample = sample
        self.kept: dict[str, Tensor] = {}

    @property
    def peer(self) -> str:
        """Return the name of the party at the other end."""
        return self._link.peer

    def send(self, tag: str, frame: Frame, *, phase: Phase = "online") -> None:
        """Send a frame."""
        self._link.send(tag, frame, phase=phase)

    def recv(self, tag: str) -> Frame:
        """Return the next frame, and keep a copy of the words in it."""
        frame = self._link.recv(tag)
        if not tag.startswith("setup/"):
            words = ring.from_bytes(frame.data, frame.dtype, frame.shape).reshape(-1)
            stride = 1 if self._sample is None else max(1, len(words) // self._sample)
            self.kept[tag] = words[::stride][: self._sample].clone()
        return frame

    def close(self, *, failure: tuple[str, str] | None = None) -> None:
        """Close the link."""
        self._link.close(failure=failure)


def _shares(run: Run, *, is_first: bool, number: int) -> dict[str, Share]:
    """Split the values of a run; both parties draw the same masks, which no third one sees."""
    prg = ring.Prg(number.to_bytes(ring.KEY_BYTES, "big"))
    shares = {}
    for name, (value, bound) in run.values.items():
        frac_bits = run.plan.frac_bits
        words = ring.encode(value.double(), frac_bits=frac_bits)
        spec = Spec.of(shape=tuple(words.shape), frac_bits=frac_bits, bound=bound)
        if not spec.shape:  # a public number, which both know
            shares[name] = Share(words, spec)
            continue
        mask = prg.words(spec.shape)
        shares[name] = Share(mask if is_first else words - mask, spec)
    return shares


def _seen(run: Run, number: int, roles: Roles, taps: Mapping[str, Sequence[_Tap]]) -> Seen:
    helper = {tap.peer: tap.kept for tap in taps[roles.dealer]}
    glimpses = []
    for at, step in enumerate(run.plan.steps):
        if isinstance(step.kernel, SeenByHelper):
            tag = f"run/{number}.{at}.0"
            shares = [helper[name][tag] for name in roles.computing]
            glimpses.append(_glimpse(step.kernel, step.operands[0], shares))
    received = {
        name: _as_numbers([tap.kept for tap in taps[name]], number) for name in roles.computing
    }
    return Seen(tuple(glimpses), received)


def _glimpse(kernel: SeenByHelper, x: object, shares: Sequence[Tensor]) -> Glimpse:
    assert isinstance(x, Spec)  # noqa: S101 - functions are of numbers
    instance = instance_of(kernel.view, kernel.hiding, x)
    left, right = (narrow.uncut(share, instance.size) for share in shares)
    values = ring.decode(narrow.sign_extend(left + right, instance.size), frac_bits=x.frac_bits)
    function = instance.view.function
    name = function if isinstance(function, str) else "a piecewise polynomial"
    return Glimpse(name, values.view(instance.layout.rows, -1))


def _as_numbers(kept: Sequence[Mapping[str, Tensor]], number: int) -> Tensor:
    """Lay the sampled words of one run out in the order of their tags."""
    found = [
        words.double() / (2.0**7 if words.dtype == torch.uint8 else 2.0**63)
        for one in kept
        for tag, words in sorted(one.items())
        if tag.split("/")[-1].split(".")[0] == str(number)
    ]
    return torch.cat(found) if found else torch.zeros(0, dtype=torch.float64)
