"""Events and ledgers as plain dictionaries, for reports and for checking them elsewhere."""

from dataclasses import fields
from fractions import Fraction
from typing import Any

from tacit.dp import event as events
from tacit.dp.event import Event, Relation
from tacit.dp.ledger import Entry, Ledger
from tacit.errors import DataError

_KINDS: dict[str, type[Event]] = {
    kind.__name__: kind
    for kind in (
        events.Approximate,
        events.Binomial,
        events.DiscreteGaussian,
        events.DiscreteLaplace,
        events.FixedSample,
        events.Gaussian,
        events.Laplace,
        events.Poisson,
        events.Pure,
        events.Repeated,
        events.Response,
        events.Shuffled,
        events.Unaccountable,
    )
}

Record = dict[str, Any]  # what json.loads returns for an object


def event_to_record(event: Event) -> Record:
    """Write an event as a dictionary that JSON can hold; fractions become "p/q"."""
    record: Record = {"kind": type(event).__name__}
    for field in fields(event):
        record[field.name] = _plain(getattr(event, field.name))
    return record


def event_from_record(record: object) -> Event:
    """Read an event back; whatever is not exactly one is refused."""
    if not isinstance(record, dict) or record.get("kind") not in _KINDS:
        raise DataError(f"an event names its kind, one of {', '.join(_KINDS)}; got {record!r}")
    kind = _KINDS[record["kind"]]
    given = {name: value for name, value in record.items() if name != "kind"}
    wanted = {field.name for field in fields(kind)}
    # What came later has a default: ledgers that were written before are still read.
    needed = {field.name for field in fields(kind) if field.name != "distance"}
    if not needed <= set(given) <= wanted:
        raise DataError(f"{record['kind']} has the fields {sorted(wanted)}, got {sorted(given)}")
    return kind(**{name: _rich(kind, name, value) for name, value in given.items()})


def ledger_to_record(ledger: Ledger) -> list[Record]:
    """Write a ledger as a list of dictionaries."""
    return [
        {
            "event": event_to_record(entry.event),
            "clients": None if entry.clients is None else sorted(entry.clients),
            "note": entry.note,
        }
        for entry in ledger.entries
    ]


def ledger_from_record(record: object) -> Ledger:
    """Read a ledger back."""
    if not isinstance(record, list):
        raise DataError(f"a ledger is a list of entries, got {type(record).__name__}")
    return Ledger(_entry(item) for item in record)


def _entry(item: object) -> Entry:
    if not isinstance(item, dict) or set(item) != {"event", "clients", "note"}:
        raise DataError(f"a ledger entry has event, clients and note, got {item!r}")
    clients = item["clients"]
    if clients is not None and not (
        isinstance(clients, list) and all(isinstance(name, str) for name in clients)
    ):
        raise DataError(f"clients of a ledger entry are a list of names or null, got {clients!r}")
    if not isinstance(item["note"], str):
        raise DataError(f"the note of a ledger entry is text, got {item['note']!r}")
    names = None if clients is None else frozenset(clients)
    return Entry(event_from_record(item["event"]), names, item["note"])


def _plain(value: object) -> object:
    if isinstance(value, Relation):
        return {"neighbours": value.neighbours, "unit": value.unit}
    if isinstance(value, Fraction):
        return f"{value.numerator}/{value.denominator}"
    return event_to_record(value) if isinstance(value, Event) else value


def _rich(kind: type[Event], name: str, value: object) -> Any:
    """Turn a JSON value into the type of its field."""
    annotation = str(kind.__dataclass_fields__[name].type)
    if name == "relation":
        if not isinstance(value, dict) or set(value) != {"neighbours", "unit"}:
            raise DataError(f"a relation has neighbours and unit, got {value!r}")
        return Relation(**value)
    if name == "event":
        return event_from_record(value)
    for word in ("int", "float", "bool"):
        if annotation == f"<class '{word}'>":
            return _number(f"{name} of {kind.__name__}", word, value)
    if not isinstance(value, str):
        raise DataError(f"{name} of {kind.__name__} is text, got {value!r}")
    return _fraction(value) if "Fraction" in annotation else value


def _number(what: str, word: str, value: object) -> float | int | bool:
    if word == "bool" and isinstance(value, bool):
        return value
    if word == "int" and isinstance(value, int) and not isinstance(value, bool):
        return value
    if word == "float" and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    raise DataError(f"{what} is a {word}, got {value!r}")


def _fraction(text: str) -> Fraction:
    try:
        return Fraction(text)
    except (ValueError, ZeroDivisionError):
        raise DataError(f"a fraction is written p/q, got {text!r}") from None
