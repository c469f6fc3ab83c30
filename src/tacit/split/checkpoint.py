"""A party's own state on disk, so that a killed training goes on.

The keys of noise and of random choices are not kept: whoever goes on draws afresh. A peer that has
steps done again, with other weights or rows, would otherwise see two values under one noise. Labels
are the other way round: they are randomised once, so their key is kept from before the first step.
"""

from collections.abc import Iterator, Mapping, Sequence
from io import BytesIO
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from tacit.disk import make_durable, write_durable
from tacit.errors import DataError
from tacit.files import open_arrays
from tacit.split.exchange import Returned
from tacit.vault import Arrays, Checkpoint, pack_arrays

_LABELS = "labels.npz"


def keep_key(kept: Checkpoint | None, made: bytes) -> bytes:
    """Return the key that a training was begun with; if there is none yet, keep the one given.

    Raises:
        DataError: it is lost, though steps were taken under it.
    """
    if kept is None:
        return made
    path = kept.path / _LABELS
    if not kept.has(_LABELS):
        if kept.steps():
            raise DataError(
                f"{path}: the key that labels were randomised with is lost, and a second draw "
                f"would tell more of them; remove {kept.path} to start anew"
            )
        make_durable(kept.path)
        kept.write(_LABELS, pack_arrays({"key": np.frombuffer(made, np.uint8)}))
    try:
        with open_arrays(BytesIO(kept.read(_LABELS))) as arrays:
            return bytes(arrays["key"])
    except (OSError, ValueError, KeyError, EOFError) as error:
        raise DataError(f"{path}: not a key of tacit: {error}") from error


def save_returned(folder: Path, owner: str, number: int, messages: Sequence[Returned]) -> None:
    """Write down what went back to an owner in one pass over the rows, for an audit.

    It is what both ends have seen: nothing that would be kept from whoever reads the folder.
    """
    make_durable(folder)
    tensors = {
        name: torch.cat([getattr(one, name) for one in messages])
        for name in ("rows", "cut", "gradient")
    }
    sizes = [[one.step, one.share, len(one.rows)] for one in messages]
    tensors["sizes"] = torch.tensor(sizes, dtype=torch.float64)
    path = folder / f"returned-{number:06d}-{owner}.npz"
    write_durable(path, pack_arrays(arrays_of(tensors)))


def load_returned(folder: Path) -> Iterator[tuple[str, int, list[Returned]]]:
    """Read what `save_returned` wrote: to whom, in which pass, and the messages.

    Raises:
        DataError: a file is damaged.
    """
    for path in sorted(folder.glob("returned-*.npz")):
        _, number, owner = path.stem.split("-", 2)
        try:
            with open_arrays(path) as arrays:
                found = {name: torch.from_numpy(arrays[name]) for name in arrays.files}
            at, messages = 0, []
            for step, share, rows in found.pop("sizes").tolist():
                parts = {name: one[at : at + int(rows)] for name, one in found.items()}
                messages.append(Returned(step=int(step), share=share, **parts))
                at += int(rows)
            yield owner, int(number), messages
        except (OSError, ValueError, KeyError, EOFError, RuntimeError, TypeError) as error:
            raise DataError(f"{path}: not what went back to an owner: {error}") from error


def save_weights(path: Path, module: nn.Module) -> None:
    """Write the weights of one side, readable by its owner alone."""
    make_durable(path.parent)
    write_durable(path, pack_arrays(arrays_of(module.state_dict())))


def load_weights(path: Path, module: nn.Module) -> None:
    """Read what `save_weights` wrote into a module of the same shape.

    Raises:
        DataError: it is not such a file, or of another model.
    """
    try:
        with open_arrays(path) as arrays:
            found = {name: torch.from_numpy(arrays[name]) for name in arrays.files}
        module.load_state_dict(found)
    except (OSError, ValueError, EOFError, RuntimeError) as error:
        raise DataError(f"{path}: not the weights of this model: {error}") from error


def gather(module: nn.Module, optimiser: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return the numbers of a model and of its optimiser by name."""
    found = {f"model.{name}": tensor for name, tensor in module.state_dict().items()}
    for index, state in optimiser.state_dict()["state"].items():
        found |= {
            f"optimiser.{index}.{name}": torch.as_tensor(value) for name, value in state.items()
        }
    return found


def restore(
    module: nn.Module, optimiser: torch.optim.Optimizer, tensors: Mapping[str, Tensor]
) -> None:
    """Put back what `gather` returned.

    Raises:
        DataError: the checkpoint is of another model.
    """
    try:
        module.load_state_dict(_under("model.", tensors))
    except RuntimeError as error:
        raise DataError(f"the checkpoint is of another model: {error}") from error
    states: dict[int, dict[str, Tensor]] = {}
    for name, value in _under("optimiser.", tensors).items():
        index, _, key = name.partition(".")
        states.setdefault(int(index), {})[key] = value
    groups = optimiser.state_dict()["param_groups"]
    optimiser.load_state_dict({"state": states, "param_groups": groups})


def arrays_of(tensors: Mapping[str, Tensor]) -> Arrays:
    """Return tensors as what is kept of them."""
    return {name: one.detach().cpu().numpy() for name, one in tensors.items()}


def _under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {
        name.removeprefix(prefix): tensor
        for name, tensor in tensors.items()
        if name.startswith(prefix)
    }
