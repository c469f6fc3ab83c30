"""Writing tables as TOML: what `read_toml` reads is what was written."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def write_toml(raw: Mapping[str, object]) -> str:
    """Write tables as the text of a TOML file, in their order; lists of tables stand inline."""
    return "\n".join(_lines(raw, ())).strip() + "\n"


def write_value(value: object) -> str:
    """Write one value as it stands behind its key."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | Path):
        # JSON's escapes are TOML's, but for DEL.
        return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, Mapping):
        inner = ", ".join(f"{_key(key)} = {write_value(one)}" for key, one in value.items())
        return f"{{ {inner} }}" if inner else "{}"
    if isinstance(value, Sequence):
        return f"[{', '.join(map(write_value, value))}]"
    return repr(value)


def _lines(table: Mapping[str, object], at: tuple[str, ...]) -> Iterator[str]:
    tables = {key: value for key, value in table.items() if isinstance(value, Mapping)}
    plain = {key: value for key, value in table.items() if key not in tables}
    if at and (plain or not tables):
        yield f"\n[{'.'.join(map(_key, at))}]"
    for key, value in plain.items():
        yield f"{_key(key)} = {write_value(value)}"
    for key, inner in tables.items():
        yield from _lines(inner, (*at, key))


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else write_value(name)
