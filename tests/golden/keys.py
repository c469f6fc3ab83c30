"""The keys of every kind of job: which ones all parties must agree on, and which are one's own."""

from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, NamedTuple, get_args, get_origin, get_type_hints

from golden.jobs import JOBS
from golden.product import KINDS, LOCAL, describe_type, load_job, shared_content, strip_type
from golden.words import rounded


class Key(NamedTuple):
    """A key of a job file, with NAME for what a user names, and what may stand there."""

    dotted: str
    hint: object
    default: str
    is_agreed: bool


def keys_of(record: type, at: str = "", is_agreed: bool = True) -> Iterator[Key]:
    """Walk through the tables of a kind."""
    hints = get_type_hints(record, include_extras=True)
    for one in fields(record):
        dotted = f"{at}.{one.name}" if at else one.name
        agreed = is_agreed and not one.metadata.get(next(iter(LOCAL)), False)
        default = "needed"
        if one.default is not MISSING:
            default = repr(one.default)
        elif one.default_factory is not MISSING:
            default = "given"
        yield from _below(dotted, hints[one.name], default, agreed)


def _below(dotted: str, hint: object, default: str, agreed: bool) -> Iterator[Key]:
    inner = strip_type(hint)
    if isinstance(inner, type) and is_dataclass(inner):
        yield from keys_of(inner, dotted, agreed)
    elif get_origin(inner) is Mapping or get_origin(inner) is dict:
        yield from _below(f"{dotted}.NAME", get_args(inner)[1], default, agreed)
    elif get_origin(inner) is tuple and is_dataclass(get_args(inner)[0]):
        yield from _below(f"{dotted}[]", get_args(inner)[0], default, agreed)
    else:
        yield Key(dotted, hint, default, agreed)


def key_table() -> dict[str, Any]:
    """Return, for every kind, what stands at its keys."""
    found: dict[str, Any] = {}
    for name, entry in sorted(KINDS.items()):
        keys = list(keys_of(entry().record))
        found[name] = {
            word: {
                one.dotted: f"{describe_type(one.hint)}; {one.default}"
                for one in sorted(keys)
                if one.is_agreed == is_agreed
            }
            for word, is_agreed in (("agreed", True), ("local", False))
        }
    return found


def agreed_table() -> dict[str, Any]:
    """Return what the digest of every example covers, with what follows from other keys."""
    return {
        path.stem: rounded(shared_content(load_job(path))) for path in sorted(JOBS.glob("*.toml"))
    }
