"""Flower's records of named arrays, and the one vector that is aggregated."""

import hashlib
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tacit.errors import ConfigError

try:
    from flwr.app import Array, ArrayRecord, RecordDict
except ImportError as error:
    raise ConfigError(f"Flower is not installed: pip install 'tacit-ml[fl]' ({error})") from error

Flat = NDArray[np.float32]


def flat_arrays(record: ArrayRecord) -> Flat:
    """Join the arrays of a record into one vector."""
    return np.concatenate([array.numpy().reshape(-1) for array in record.values()]).astype(
        np.float32
    )


def digest_of(content: RecordDict, *, without: str, bound: float) -> bytes:
    """Hash all that an app is given in a round: every record but one, and the clip.

    Guarantee: different contents, or records or entries of other names, shapes or order, have
    different digests, if SHA-256 is collision-resistant.
    Cost: one pass over the arrays.
    """
    found = hashlib.sha256(b"tacit model")

    def add(*parts: object) -> None:
        for part in parts:  # each behind its length: no two lists of parts run into one another
            body = part if isinstance(part, bytes) else repr(part).encode()
            found.update(struct.pack("<Q", len(body)) + body)

    add(bound)
    for name, record in content.items():  # in the order in which an app finds them
        if name == without:
            continue
        add(name, type(record).__name__, len(record))
        if isinstance(record, ArrayRecord):
            for key, one in record.items():
                add(key, one.dtype, tuple(one.shape), one.stype, one.data)
        else:
            add(*record.items())
    return found.digest()


def named_arrays(model: torch.nn.Module) -> Callable[[Flat], ArrayRecord]:
    """Return what cuts a flat vector into the arrays of a torch model's parameters."""
    shapes = {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}
    return _cutter({name: (shape, np.dtype(np.float32)) for name, shape in shapes.items()})


def arrays_like(record: ArrayRecord) -> Callable[[Flat], ArrayRecord]:
    """Return what cuts a flat vector into arrays like those of a record.

    Raises:
        ConfigError: an array is not of floating-point numbers.
    """
    forms = {}
    for name, array in record.items():
        found = array.numpy()
        if not np.issubdtype(found.dtype, np.floating):
            raise ConfigError(f"{name}: wanted floating-point numbers to add up, got {found.dtype}")
        forms[name] = (found.shape, found.dtype)
    return _cutter(forms)


def _cutter(
    forms: dict[str, tuple[tuple[int, ...], np.dtype[Any]]],
) -> Callable[[Flat], ArrayRecord]:
    def cut(flat: Flat) -> ArrayRecord:
        record, at = ArrayRecord(), 0
        for name, (shape, dtype) in forms.items():
            size = int(np.prod(shape, dtype=np.int64))
            record[name] = Array(flat[at : at + size].reshape(shape).astype(dtype))
            at += size
        return record

    return cut
