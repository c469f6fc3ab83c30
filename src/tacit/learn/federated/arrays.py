"""Flower's records of named arrays, and the one vector that is aggregated."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tacit.errors import ConfigError

try:
    from flwr.app import Array, ArrayRecord
except ImportError as error:
    raise ConfigError(f"Flower is not installed: pip install 'tacit-ml[fl]' ({error})") from error

Flat = NDArray[np.float32]


def flat_arrays(record: ArrayRecord) -> Flat:
    """Join the arrays of a record into one vector."""
    return np.concatenate([array.numpy().reshape(-1) for array in record.values()]).astype(
        np.float32
    )


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
