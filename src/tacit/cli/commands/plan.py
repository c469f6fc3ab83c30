"""``tacit plan``: what a job or a chat will do, without connecting to anyone."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tacit.cli.screen import printable
from tacit.errors import ConfigError, InputError
from tacit.inference import DIRECT
from tacit.jobs.config import Job
from tacit.jobs.kind import Asked, Network, Outlook, timed
from tacit.jobs.kinds import kind_of, load_job, read_job
from tacit.jobs.toml import read_toml
from tacit.llm.backend.chat_file import ROLES, load_chat
from tacit.mpc import PROTOCOLS
from tacit.mpc.registry import NO_DEALER
from tacit.report.terminal import lay_claims, make_table, part, preview
from tacit.result import Forecast, Leak, Phase
from tacit.spec import ListedError, Problem

_DEALER = "dealer"
_ALONE = (NO_DEALER, *DIRECT)
"""Protocols that have no dealer."""
_TRUSTED = {
    "he": "nobody",
    "enclave": "the model's host",
    "checked": "an honest dealer",
    NO_DEALER: "nobody else",
}
"""Whom the data owner trusts beside its own machine; a dealer, where nothing is said."""


def plan_file(
    path: Path, asked: Asked, *, model: str | None, network: Network | None
) -> RenderableType:
    """Lay out the plan of a job file, or of the file of a chat.

    Args:
        path: the file.
        asked: sizes of data that is not here.
        model: the model of a chat, whose file does not name it.
        network: one network to forecast for; a few usual ones if not given.
    """
    raw = read_toml(path)
    parties = raw.get("parties")
    if "job" not in raw and isinstance(parties, dict) and set(parties) == set(ROLES):
        from tacit.cli.forecast_chat import chat_roles, forecast_chat

        chat = load_chat(path)
        outlook = forecast_chat(chat, asked, model=model, network=network)
        return _lay_out(chat.chat.name, chat_roles(), outlook, network)
    if model is not None:
        raise ConfigError("--model belongs to the file of a chat; a job names its own")
    job = load_job(path)
    roles = {name: job.role(name) for name in job.parties}
    return _lay_out(job.job.name, roles, foresee(job, path, asked), network)


def foresee(job: Job, path: Path, asked: Asked) -> Outlook:
    """Forecast a job, or refuse it with everything that a run would refuse."""
    kind, wrong = kind_of(job), []
    if kind.run is not None or kind.take_part is not None:  # else a service: nothing runs it
        try:
            # Files of parties may be elsewhere: the forecast asks for sizes in their place.
            kind.check_inputs(job, () if kind.run is None else tuple(job.parties))
        except InputError as error:
            wrong.append(error)
    try:
        outlook = kind.forecast(job, asked)
    except InputError as error:
        if not any(str(one) in str(error) for one in wrong):  # said already
            wrong.append(error)
    if len(wrong) > 1:
        raise ListedError(str(path), [Problem("", str(error)) for error in wrong])
    if wrong:
        raise wrong[0]
    return outlook


def _lay_out(
    name: str, roles: Mapping[str, str], outlook: Outlook, network: Network | None
) -> RenderableType:
    """Lay out what will be done; seconds are for one network, or for a few usual ones."""
    parts: list[RenderableType] = [
        Text.assemble(
            ("tacit", "bold cyan"), " plan · ", (name, "bold"), (f" · {outlook.about}", "dim")
        ),
        *(Text(f"{party}: {role}") for party, role in roles.items()),
        *(Text(printable(line)) for line in outlook.lines),
    ]
    if outlook.forecast is not None:
        whole = timed(outlook.forecast, network)
        parts += [*part("Who sends what to whom", _directions(whole)), preview(whole)]
    if outlook.leaks:
        told = dict[Leak, list[str]]()  # what several parties learn alike is said once
        for leak in outlook.leaks:
            told.setdefault(replace(leak, to=""), []).append(leak.to)
        lines = [
            f"{', '.join(to)}: {leak.what} ({leak.elements:,}) — {leak.why}"
            for leak, to in told.items()
        ]
        parts += part("What will be learned", Group(*(Text(printable(one)) for one in lines)))
    if outlook.claims:
        parts += part("What is promised", lay_claims(outlook.claims))
    return Group(*parts)


def _directions(forecast: Forecast) -> Table:
    table = make_table("phase", "from", "to", "#messages", "#payload")
    for one in sorted(forecast.cost.traffic, key=lambda one: (one.phase, one.sender, one.receiver)):
        table.add_row(
            *(Text(word) for word in (one.phase, one.sender, one.receiver)),
            f"{one.messages:,}",
            f"{one.payload_bytes:,} B",
        )
    return table


def compare_protocols(path: Path, asked: Asked, *, network: Network | None) -> RenderableType:
    """Lay out what a job would cost and show under each protocol, side by side.

    Raises:
        ConfigError: the job has no protocol to choose.
    """
    raw = read_toml(path)
    table = raw.get("protocol")
    if not isinstance(table, dict) or "kind" not in table:
        raise ConfigError(f"{path}: only a job with [protocol] kind has protocols to compare")
    shown = Table(box=box.SIMPLE_HEAD, show_edge=False, header_style="dim")
    shown.add_column("protocol", min_width=len("activations:"))
    for head in ("online", "offline", "rounds", "seconds"):
        shown.add_column(head, justify="right")
    shown.add_column("trusted")
    shown.add_column("shown on the way")
    notes = []
    about = raw.get("job")
    is_asked = isinstance(about, dict) and about.get("kind") == "infer"
    for name in (*PROTOCOLS, *(_ALONE if is_asked else ())):
        try:
            job = read_job(_under(name, raw, table), source=str(path))
            outlook = kind_of(job).forecast(job, asked)
        except InputError as error:
            notes.append(f"{name}: refused: {error}")
            continue
        shown.add_row(*_compared(name, outlook, network))
        if name == "he" and table.get("reveal", "class") == "class":
            notes.append("he: reveals all scores in place of the class: it cannot find the largest")
        if outlook.claims:  # the first assumption is whom one trusts; the plan itself has them all
            notes.append(f"{name}: {outlook.claims[0].assumptions[0]}")
    where = "the slowest of the usual networks" if network is None else "this network"
    notes.append(f"Seconds are of {where}, without computing.")
    return Group(shown, *(Text(printable(note)) for note in notes))


def _compared(name: str, outlook: Outlook, network: Network | None) -> Iterator[str]:
    """Give the row of one protocol."""
    yield name
    if outlook.forecast is None:
        yield from ("–",) * 4
    else:
        yield from _costs(outlook.forecast, network)
    seen: Counter[str] = Counter()
    for one in outlook.leaks:
        seen[one.to] += one.elements if one.kind == "protocol" else 0
    yield _TRUSTED.get(name, "a dealer")
    yield ", ".join(f"{to}: {count:,} values" for to, count in seen.items() if count) or "sizes"


def _under(name: str, raw: Mapping[str, object], table: Mapping[str, object]) -> dict[str, object]:
    """Return a job under another protocol, with the parties and settings that this one has."""
    is_alone, was_alone = name in _ALONE, table["kind"] in _ALONE
    changed: dict[str, object] = dict(raw)
    parties, model = _table(raw, "parties"), _table(raw, "model")
    protocol: dict[str, object] = {**table, "kind": name}
    if is_alone and not was_alone:
        parties.pop(str(protocol.pop("dealer", None)), None)
    if name in DIRECT:
        protocol.pop("compute", None)
    if was_alone and not is_alone:
        parties[_DEALER] = {}
        protocol["dealer"] = _DEALER
    if name != table["kind"] and {name, table["kind"]} & set(DIRECT):
        changed.pop("ring", None)  # bits mean something else there
    if name == "he" and protocol.get("reveal", "class") == "class":
        protocol["reveal"] = "output" if "layers" in model or "code" in model else "score"
    owner = str(model.get("owner"))
    if name == "enclave" and owner in parties:
        parties[owner] = {**_table(parties, owner), "enclave": "simulated"}
    return {**changed, "parties": parties, "protocol": protocol}


def _table(raw: Mapping[str, object], key: str) -> dict[str, object]:
    found = raw.get(key)
    return dict(found) if isinstance(found, dict) else {}


def _costs(forecast: Forecast, network: Network | None) -> Iterator[str]:
    cost = forecast.cost
    phases: tuple[Phase, ...] = ("online", "offline")
    for phase in phases:
        sent = sum(one.payload_bytes for one in cost.traffic if one.phase == phase)
        yield f"{sent / 1e6:,.3f} MB"
    yield f"{cost.online_rounds:,}"
    slowest = timed(forecast, network).timings[-1]
    yield f"{slowest.online_seconds + slowest.offline_seconds:,.2f}"
