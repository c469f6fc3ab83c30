"""JSON Schema of a result file, read off the records: what any other program may rely on."""

import dataclasses
import inspect
from types import UnionType
from typing import Literal, Union, get_args, get_origin, get_type_hints

from tacit.result import SCHEMA, Result

_NUMBERS = {int: "integer", float: "number", str: "string"}


def describe_result() -> dict[str, object]:
    """Return the JSON Schema (2020-12) of what `save` writes.

    Every key is always there; what was not measured is null. `load` reads older schemas as well.
    """
    records: dict[str, dict[str, object]] = {}
    _describe(Result, records)
    top = records.pop("Result")
    properties = top["properties"]
    assert isinstance(properties, dict)  # noqa: S101 - `_describe` has just made it
    properties["schema"] = {"const": SCHEMA}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"tacit result, schema {SCHEMA}",
        **top,
        "$defs": dict(sorted(records.items())),
    }


def _describe(hint: object, records: dict[str, dict[str, object]]) -> dict[str, object]:
    """Describe one annotation; a record is described once, under its name."""
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        if hint.__name__ not in records:
            found = records[hint.__name__] = {}  # before its fields: a record may hold itself
            hints = get_type_hints(hint)
            words = " ".join((inspect.getdoc(hint) or "").replace("``", "`").split())
            found |= {"description": words, "type": "object"}
            found["properties"] = {key: _describe(one, records) for key, one in hints.items()}
            found |= {"required": list(hints), "additionalProperties": False}
        return {"$ref": f"#/$defs/{hint.__name__}"}
    inner = get_args(hint)
    if get_origin(hint) is Literal:
        return {"enum": list(inner)}
    if get_origin(hint) in {Union, UnionType}:
        return {"anyOf": [_describe(one, records) for one in inner]}
    if get_origin(hint) is tuple:
        if inner[-1] is Ellipsis:
            return {"type": "array", "items": _describe(inner[0], records)}
        each = [_describe(one, records) for one in inner]
        return {"type": "array", "prefixItems": each, "items": False, "minItems": len(inner)}
    if hint is type(None):
        return {"type": "null"}
    assert isinstance(hint, type)  # noqa: S101 - records hold nothing else, or cannot be written
    return {"type": _NUMBERS[hint]}
