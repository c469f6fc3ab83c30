"""TOML, read strictly and written: what `read_toml` reads is what `write_toml` wrote."""

import io
import json
import re
import tomllib
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from tacit.errors import ConfigError

JOB_INSIDE = "service.toml"
"""The one file of an archive that a client of a service is handed."""
_LARGEST_FILE_BYTES = 1 << 20
_DEEPEST = 50
_KEY = r"""(?:[A-Za-z0-9_-]++|"[^"\n]*+"|'[^'\n]*+')"""
_DEEP_KEY = re.compile(rf"(?<![A-Za-z0-9_-]){_KEY}(?:[ \t]*+\.[ \t]*+{_KEY}){{{_DEEPEST}}}")
"""The library takes memory by the square of the parts of a key: 100,000 of them end the process."""
_PLACE = re.compile(r"\s*\(at line (\d+), column (\d+)\)$")
_BARE = re.compile(r"[A-Za-z0-9_-]+")


def read_toml(path: Path) -> dict[str, object]:
    """Read a file of TOML, or the one inside an archive that `tacit serve --client` wrote.

    Raises:
        ConfigError: no such file, unreadable, too large, or not TOML; names the line.
    """
    try:
        with path.open("rb") as stream:
            content = stream.read(_LARGEST_FILE_BYTES + 1)
    except FileNotFoundError as error:
        raise ConfigError(f"{path}: no such file") from error
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:  # a null byte
        raise ConfigError(f"{str(path)!r}: no path of a file") from error
    if content.startswith(b"PK\x03\x04"):
        content = _unpacked(content, path)
    if len(content) > _LARGEST_FILE_BYTES:
        raise ConfigError(f"{path}: wanted at most {_LARGEST_FILE_BYTES} bytes of TOML, got more")
    try:
        return parse_toml(content.decode(), source=str(path))
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: wanted UTF-8 text (byte {error.start} is not)") from error


def _unpacked(content: bytes, path: Path) -> bytes:
    """Return the one file of an archive, or as much of it as is too much; nothing is written."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            names = archive.namelist()
            if names != [JOB_INSIDE]:
                raise ConfigError(f"{path}: wanted an archive of {JOB_INSIDE} alone, got {names}")
            with archive.open(JOB_INSIDE) as stream:
                return stream.read(_LARGEST_FILE_BYTES + 1)
    # What somebody made of an archive may be wrong in any of these ways.
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, zlib.error, OSError) as error:
        raise ConfigError(f"{path}: not an archive of `tacit serve --client`: {error}") from error


def parse_toml(text: str, *, source: str) -> dict[str, object]:
    """Read TOML.

    Raises:
        ConfigError: not TOML, or nested too deeply for those who walk through it; names the line.
    """
    if _DEEP_KEY.search(text):
        raise ConfigError(f"{source}: nested too deeply")
    try:
        raw = tomllib.loads(text)
    except RecursionError as error:
        raise ConfigError(f"{source}: nested too deeply") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{source}{_place(str(error), text)}") from error
    level: list[object] = [raw]
    for _ in range(_DEEPEST):
        level = [inner for one in level for inner in _inside(one)]
    if level:
        raise ConfigError(f"{source}: nested too deeply")
    return raw


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


def _inside(raw: object) -> Iterable[object]:
    if isinstance(raw, Mapping):
        return raw.values()
    return raw if isinstance(raw, list) else ()


def _place(message: str, text: str) -> str:
    """Turn a syntax error into `, line 3: what is wrong: the line`."""
    place = _PLACE.search(message)
    line = int(place[1]) if place else text.count("\n") + 1
    said = _PLACE.sub("", message).removesuffix(" (at end of document)")
    lines = text.splitlines()
    shown = f" in {lines[line - 1].strip()[:60]!r}" if 0 < line <= len(lines) else ""
    return f", line {line}: not TOML: {said}{shown}"
