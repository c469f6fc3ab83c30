"""What a run says about itself: frozen records that every room may fill and the report renders.

Nothing here computes. A value that was not measured is ``None`` and is shown as "not measured";
zero is never a substitute.

A file ``result.json`` is a ``Result`` with these fields as keys, all of them, records as objects,
tuples as lists, ``None`` as null. ``tacit report --schema`` prints its JSON Schema, which is
``docs/reference/result.schema.json``. ``schema`` counts its changes up: files of older schemas are
read, a newer one is refused.
"""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from math import ceil
from typing import Literal

from tacit import __version__
from tacit.notebook import Shown, lines, table

Phase = Literal["setup", "offline", "online"]
PHASES: tuple[Phase, ...] = ("setup", "offline", "online")

LeakKind = Literal["output", "protocol", "size"]
"""A declared result, what the protocol shows on the way, or only shapes and counts."""

SCHEMA = 4

ADDED: dict[int, dict[str, tuple[str, ...]]] = {
    2: {"Result": ("pictures", "sheets"), "Curve": ("style", "x_axis", "y_axis")},
    3: {"Claim": ("detection",)},
    4: {"Forecast": ("computing_seconds", "notes")},
}
"""The keys that each schema brought, by record: a file of an older one lacks them.

Whoever adds a key gives it a default that says "not known", counts `SCHEMA` up, and adds a line.
"""

TOLD = "– "
"""What a party tells while it works begins so, unlike the name of a stage."""


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """What one party sent to another in one phase. Payload only; framing and TLS come on top."""

    sender: str
    receiver: str
    phase: Phase
    messages: int
    payload_bytes: int


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Traffic of a run and, per phase, the longest chain of messages that wait for each other."""

    traffic: tuple[Traffic, ...]
    offline_rounds: int
    online_rounds: int


NOTHING_SENT = Cost(traffic=(), offline_rounds=0, online_rounds=0)
"""Of what runs on one machine, without parties."""


@dataclass(frozen=True, kw_only=True)
class Leak:
    """One thing that a party learned, and why it was shown to it."""

    to: str
    what: str
    why: str
    kind: LeakKind
    elements: int


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A promise, with everything it rests on; ``guarantee`` may be "no guarantee".

    ``detection`` says what ε and δ mean: the true-positive rate that no attacker exceeds who is
    wrong about 1 % of those whose data was not used.
    """

    subject: str
    guarantee: str
    assumptions: tuple[str, ...]
    epsilon: float | None = None
    delta: float | None = None
    relation: str | None = None
    accountant: str | None = None
    detection: float | None = None


@dataclass(frozen=True, kw_only=True)
class Metric:
    """A measured quantity, with its sample size, its 95 % interval and the plaintext reference."""

    name: str
    value: float | None
    unit: str
    samples: int | None = None
    low: float | None = None
    high: float | None = None
    reference: float | None = None
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Curve:
    """A named line of points to draw, e.g. loss against step, or a cloud of unconnected ones."""

    title: str
    x_label: str
    y_label: str
    name: str
    points: tuple[tuple[float, float], ...]
    style: Literal["line", "dots"] = "line"
    x_axis: Literal["linear", "log"] = "linear"
    y_axis: Literal["linear", "log"] = "linear"


@dataclass(frozen=True, kw_only=True)
class Picture:
    """A small image to show; those with the same title stand side by side.

    ``pixels`` is base64 of ``height`` rows of ``width`` pixels of 1 (gray) or 3 (rgb) bytes.
    """

    title: str
    caption: str
    width: int
    height: int
    mode: Literal["gray", "rgb"]
    pixels: str


@dataclass(frozen=True, kw_only=True)
class Sheet:
    """A table to show as it is; a head that starts with # stands over numbers."""

    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    caption: str = ""


@dataclass(frozen=True, kw_only=True)
class Span:
    """A stage of one party's run, in seconds since that party started."""

    name: str
    start_s: float
    end_s: float


@dataclass(frozen=True, kw_only=True)
class PartyReport:
    """One party's own view of the run."""

    name: str
    role: str
    host: str
    seconds: float
    cpu_seconds: float
    peak_memory_bytes: int
    spans: tuple[Span, ...]
    device: str = "cpu"


@dataclass(frozen=True, kw_only=True)
class Timing:
    """Forecast seconds for a network of the given round-trip time and bandwidth."""

    rtt_ms: float
    mbit_per_s: float
    offline_seconds: float
    online_seconds: float


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """What the plan said before anything was sent.

    ``timings`` are of networks alone. ``computing_seconds`` is an estimate for one computing party
    on the machine that made it, so two forecasts can be equal without it. ``notes`` say for which
    values a result is wrong without a word.
    """

    cost: Cost
    timings: tuple[Timing, ...]
    plan_hash: str
    computing_seconds: float | None = field(default=None, compare=False)
    notes: tuple[str, ...] = field(default=(), compare=False)


@dataclass(frozen=True, kw_only=True)
class Result:
    """Everything one run has to say. ``metered`` covers the parties in ``parties``, no others.

    ``forecast`` is None where no plan can tell the traffic beforehand. A result is
    made now, by this version, unless it is read from a file.
    """

    kind: str
    name: str
    protocol: str
    launched: str
    created: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    version: str = __version__
    parties: tuple[PartyReport, ...]
    forecast: Forecast | None
    metered: Cost
    leakage: tuple[Leak, ...]
    claims: tuple[Claim, ...]
    utility: tuple[Metric, ...]
    curves: tuple[Curve, ...] = ()
    pictures: tuple[Picture, ...] = ()
    sheets: tuple[Sheet, ...] = ()
    notes: tuple[str, ...] = ()
    schema: int = SCHEMA

    def headline(self) -> list[tuple[str, ...]]:
        """List what matters most, as words: measures, cost, who was shown what, and promises."""
        sent = {
            phase: [one.payload_bytes for one in self.metered.traffic if one.phase == phase]
            for phase in ("offline", "online")
        }
        rows = [("protocol", self.protocol), *map(_measured, self.utility)]
        rounds = {"offline": self.metered.offline_rounds, "online": self.metered.online_rounds}
        for phase, count in rounds.items():
            word = "round" if count == 1 else "rounds"
            rows.append((phase, f"{count:,} {word}, {sum(sent[phase]):,} bytes"))
        rows += [(f"shown to {one.to}", f"{one.what} ({one.elements})") for one in self.leakage]
        rows += [("promise", _promised(one)) for one in self.claims]
        return [*rows, *(("note", note) for note in self.notes)]

    def __str__(self) -> str:
        return lines(f"{self.kind}: {self.name}", self.headline())

    def _repr_html_(self) -> str:
        return table(f"{self.kind}: {self.name}", self.headline())


class Reported(Shown):
    """Something that parties computed together, and what its run says about itself."""

    result: Result

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """Return what was measured on the rows kept for it."""
        return self.result.utility

    @property
    def ledger(self) -> tuple[Leak, ...]:
        """Return what was shown to whom, and why."""
        return self.result.leakage

    @property
    def cost(self) -> Cost:
        """Return the metered traffic and rounds."""
        return self.result.metered

    @property
    def claims(self) -> tuple[Claim, ...]:
        """Return what is promised, and what is not."""
        return self.result.claims


def _promised(one: Claim) -> str:
    text = f"{one.subject}: {one.guarantee}"
    if one.epsilon is None or one.delta is None:
        return text
    most = ceil(1000 * one.epsilon) / 1000  # rounded up: it is a bound
    return f"{text}, ε = {most:g} at δ = {one.delta:g} for {one.relation} ({one.accountant})"


def _measured(one: Metric) -> tuple[str, str]:
    value = "not measured" if one.value is None else f"{one.value:.4g} {one.unit}".rstrip()
    between = "" if one.low is None or one.high is None else f" ({one.low:.4g} to {one.high:.4g})"
    return one.name, value + between + (f", n = {one.samples:,}" if one.samples else "")
