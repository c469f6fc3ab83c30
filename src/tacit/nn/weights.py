"""Weights of torch modules in files: .safetensors, .pt, .npz and flat floats; nothing is run."""

import json
from collections.abc import Mapping
from pathlib import Path
from pickle import UnpicklingError  # noqa: TID251 - what torch raises; nothing is unpickled
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from tacit.errors import ConfigError, DataError, TacitError
from tacit.files import open_arrays

ENDINGS = (".safetensors", ".pt", ".pth", ".npz")
_FLAT = ".f32"
_WRAPPED = ("state_dict", "model_state_dict", "model")
_SAFE_TORCH = (2, 6)
"""Before, a file could run code in spite of ``weights_only`` (CVE-2025-32434)."""


def read_weights(path: Path) -> dict[str, Tensor]:
    """Read named weights, as ``state_dict`` names them.

    A .pt is read by ``torch.load(weights_only=True)``: tensors alone, no code.

    Raises:
        DataError: there is no such file, or it holds something else.
    """
    readers = {".safetensors": _safetensors, ".pt": _torch, ".pth": _torch, ".npz": _npz}
    reader = readers.get(path.suffix)
    if reader is None:
        raise DataError(f"{path}: wanted weights as {', '.join(ENDINGS)}")
    try:
        found = reader(path)
    except FileNotFoundError as error:
        raise DataError(f"{path}: no such file (looked for from {Path.cwd()})") from error
    except TacitError:
        raise
    except Exception as error:  # torch.load stumbles in any way over what a pickle says
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DataError(f"{path}: not a {path.suffix} file of weights: {first}") from error
    for name, value in found.items():
        if value.is_floating_point() and not bool(torch.isfinite(value).all()):
            raise DataError(f"{path}: {name!r} holds NaN or infinite values")
    return found


def load_weights(module: nn.Module, path: Path) -> None:
    """Put the weights of a file into a module.

    ``.f32`` is read, too: floats of all parameters in order, as earlier versions wrote them.

    Raises:
        DataError: the file cannot be read, or holds the weights of another module.
    """
    if path.suffix == _FLAT:
        _load_flat(module, path)
    else:
        put_weights(module, read_weights(path), source=str(path))


def put_weights(module: nn.Module, weights: Mapping[str, Tensor], *, source: str) -> None:
    """Put named weights into a module.

    Raises:
        DataError: they are those of another module.
    """
    try:
        module.load_state_dict(weights)
    except RuntimeError as error:
        first = " ".join(str(error).split())
        raise DataError(f"{source} does not hold the weights of this model: {first}") from error


def to_safetensors(weights: Mapping[str, Tensor], facts: Mapping[str, Any]) -> bytes:
    """Write named weights, with public facts about them such as the scale of the features.

    ``module.load_state_dict(safetensors.torch.load_file(path))`` reads them back.
    """
    tensors = {name: value.detach().cpu().contiguous() for name, value in weights.items()}
    metadata = {"format": "pt"} | {name: json.dumps(value) for name, value in facts.items()}
    return bytes(save(tensors, metadata))


def read_facts(path: Path) -> dict[str, Any]:
    """Read the facts that `to_safetensors` wrote beside weights."""
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
        return {name: json.loads(text) for name, text in metadata.items() if name != "format"}
    except (OSError, ValueError, SafetensorError) as error:
        raise DataError(f"{path}: not a .safetensors file of ours: {error}") from error


def unflatten(module: nn.Module, flat: Tensor) -> dict[str, Tensor]:
    """Cut one vector of all parameters in order into those of a module, by name.

    Raises:
        DataError: there are more or fewer numbers than parameters.
    """
    shapes = {name: value.shape for name, value in module.named_parameters()}
    wanted = sum(shape.numel() for shape in shapes.values())
    if flat.numel() != wanted:
        raise DataError(f"wanted {wanted} weights of this model, got {flat.numel()}")
    named, at = {}, 0
    for name, shape in shapes.items():
        named[name] = flat[at : at + shape.numel()].view(shape)
        at += shape.numel()
    return {**module.state_dict(), **named}


def _load_flat(module: nn.Module, path: Path) -> None:
    try:
        numbers = np.frombuffer(path.read_bytes(), dtype="<f4")
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: wanted little-endian floats: {error}") from error
    try:
        module.load_state_dict(unflatten(module, torch.from_numpy(numbers.copy())))
    except DataError as error:
        raise DataError(f"{path}: {error}") from error


def _safetensors(path: Path) -> dict[str, Tensor]:
    with safe_open(path, framework="pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dict


def _torch(path: Path) -> dict[str, Tensor]:
    version = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
    if version < _SAFE_TORCH:
        raise ConfigError(
            f"reading {path} safely takes torch 2.6 or newer, got {torch.__version__}; install "
            "that, or save the weights as .safetensors"
        )
    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
    except (RuntimeError, KeyError, IndexError, UnpicklingError) as error:
        raise ValueError(
            "wanted tensors by name and no code, as torch.save(module.state_dict(), path) writes "
            f"them ({type(error).__name__})"
        ) from error
    for key in _WRAPPED:
        if isinstance(found, Mapping) and isinstance(found.get(key), Mapping):
            found = found[key]
    is_named = isinstance(found, Mapping) and all(isinstance(one, str) for one in found)
    if not is_named or not all(isinstance(one, Tensor) for one in found.values()):
        raise ValueError(
            f"wanted tensors by name, as torch.save(module.state_dict(), path) writes them, got "
            f"{type(found).__name__}"
        )
    return {name: value.detach() for name, value in found.items()}


def _npz(path: Path) -> dict[str, Tensor]:
    # Opened here, because numpy leaves the file open when it is no archive.
    with path.open("rb") as file, open_arrays(file) as arrays:
        return {name.replace("/", "."): torch.from_numpy(arrays[name]) for name in arrays.files}
