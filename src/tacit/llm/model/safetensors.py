"""Checkpoints of several files: ``config.json`` and tensors in safetensors, whole or in shards."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tacit.errors import DataError
from tacit.llm.model.machine import extra
from tacit.llm.model.tensor_names import Readers

_INDEX = "model.safetensors.index.json"
_WHOLE = ("model.safetensors", "model_int8.safetensors")
_SCALE, _ZERO = ".__scale", ".__zero"
_LARGEST_JSON_BYTES = 64 << 20


def read_json(path: Path) -> Any:  # whatever the file holds; the caller checks
    """Read a JSON file of a checkpoint.

    Raises:
        DataError: missing, too large, or not JSON.
    """
    try:
        if path.stat().st_size > _LARGEST_JSON_BYTES:
            raise DataError(f"{path}: wanted at most {_LARGEST_JSON_BYTES >> 20} MiB of JSON")
        return json.loads(path.read_bytes())
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: not JSON: {error}") from error


def tensor_readers(folder: Path) -> Readers:
    """List the tensors of a folder, without reading them.

    Matrices of bytes with a ``.__scale`` and a ``.__zero`` beside them are quantised, and become
    (bytes − zero) · scale.
    """
    raw: dict[str, Callable[[], Tensor]] = {}
    for path in _files(folder):
        raw |= _readers(path)
    out: dict[str, Callable[[], Tensor]] = {}
    for name, read in raw.items():
        if name.endswith((_SCALE, _ZERO)):
            continue
        out[name] = _scaled(raw, name) if name + _SCALE in raw else read
    return out


def without_prefix(readers: Readers, prefix: str) -> Readers:
    """Drop a prefix that some writers of the same model put before names and others do not."""
    return {name.removeprefix(prefix): read for name, read in readers.items()}


def _files(folder: Path) -> list[Path]:
    for name in _WHOLE:
        if (folder / name).is_file():
            return [folder / name]
    index = folder / _INDEX
    if not index.is_file():
        raise DataError(f"{folder}: wanted one of {', '.join((*_WHOLE, _INDEX))}, found none")
    table = read_json(index)
    shards = table.get("weight_map") if isinstance(table, dict) else None
    if not isinstance(shards, dict):
        raise DataError(f"{index}: wanted a table weight_map")
    # A name, not a path: an index must not send us outside its folder.
    paths = [folder / Path(str(name)).name for name in sorted(set(map(str, shards.values())))]
    for path in paths:
        if not path.is_file():
            raise DataError(f"{index} names the shard {path.name}, which is not there")
    return paths


def _readers(path: Path) -> dict[str, Callable[[], Tensor]]:
    with _opened(path) as file:
        names = list(file.keys())
    return {name: _reader(path, name) for name in names}


def _reader(path: Path, name: str) -> Callable[[], Tensor]:
    # Opened for each: an open file is mapped, and what was read of it counts as our memory.
    def read() -> Tensor:
        with _opened(path) as file:
            tensor: Tensor = file.get_tensor(name)
        return tensor

    return read


@contextmanager
def _opened(path: Path) -> Iterator[Any]:  # the library has no types
    library = extra("safetensors")
    try:
        with library.safe_open(path, framework="pt") as file:
            yield file
    except (OSError, library.SafetensorError) as error:
        raise DataError(f"{path}: not a whole safetensors file: {error}") from error


def _scaled(raw: Readers, name: str) -> Callable[[], Tensor]:
    if name + _ZERO not in raw:
        raise DataError(f"tensor {name!r} has a {_SCALE} but no {_ZERO}")

    def read() -> Tensor:
        scale, zero = raw[name + _SCALE](), raw[name + _ZERO]()
        return (raw[name]().to(torch.float32) - zero.float()) * scale.float()

    return read
