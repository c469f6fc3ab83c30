"""Whether records of a batch mix in a model: what one of them does to what others get."""

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils._pytree import tree_leaves, tree_map

from tacit.errors import ConfigError


def refuse_mixing(
    model: nn.Module,
    args: tuple[Any, ...],
    named: Mapping[str, Any],
    *,
    records: int,
    weights: Mapping[str, Tensor] | None = None,
) -> None:
    """Run a call of a model again with other records in it: what the rest get must stay.

    What goes into every trained layer is compared, and what the model returns. The model's buffers
    and torch's generators stay as they are.

    Guarantee: none: a model that mixes for some rows and weights alone passes with others.
    Cost: `find_mixing`'s, without gradients.

    Args:
        model: as it was called.
        args: of the call; tensors whose first dimension is `records` are taken as theirs.
        named: as `args`.
        records: how many there are, at least 2.
        weights: in place of the model's own, by name; see `scrambled`.

    Raises:
        ConfigError: a record changes what others get, or equal calls differ.
    """
    seen: list[Any] = []

    def watch(layer: nn.Module, inputs: tuple[Any, ...], given: dict[str, Any]) -> None:
        seen.append((inputs, given))

    def answer(batch: Any) -> list[Tensor]:
        seen.clear()
        buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
        said = functional_call(model, {**buffers, **(weights or {})}, batch[0], batch[1])
        return [one for one in tree_leaves([seen, said]) if isinstance(one, Tensor)]

    hooks = [
        layer.register_forward_pre_hook(watch, with_kwargs=True)
        for layer in model.modules()
        if any(p.requires_grad for p in layer.parameters(recurse=False))
    ]
    try:
        with torch.no_grad():
            found = find_mixing(answer, (args, dict(named)), records=records)
    finally:
        for hook in hooks:
            hook.remove()
    if found:
        raise ConfigError(
            f"{found} (a normalisation or a difference over the batch, a state that is kept?); "
            "clipping would not bound what one record does"
        )


def find_mixing(answer: Callable[[Any], list[Tensor]], batch: Any, *, records: int) -> str:
    """Say how records mix in what is answered to a batch; nothing if they do not, as far as seen.

    Every two records are told apart, in both directions: those whose number has a certain bit get
    the rows of their neighbours, then those that have it not. On a CPU the others must stay to the
    last bit. Then half of the batch is asked about alone, unless answers depend on chance.

    Cost: 4 answers, and twice the binary logarithm of `records`.
    """
    leaves = [one for one in tree_leaves(batch) if isinstance(one, Tensor) and one.ndim]
    mine = [one for one in leaves if len(one) == records]
    # (n, n) beside the rows is what all records share, an attention mask, say.
    shared = {id(one) for one in mine[1:] if one.shape == (records, records)}
    numbers, half = torch.arange(records), records // 2

    def run(change: Callable[[Tensor], Tensor], *, seed: int = 0) -> list[Tensor]:
        def changed(one: Any) -> Any:
            is_ours = isinstance(one, Tensor) and one.ndim and len(one) == records
            return change(one) if is_ours and id(one) not in shared else one

        torch.manual_seed(seed)
        return [one.detach().clone() for one in answer(tree_map(changed, batch))]

    with torch.random.fork_rng({one.device for one in leaves if one.device.type == "cuda"}):
        before = run(torch.clone)
        loose = _slack(before)
        exact = loose if any(one.device.type != "cpu" for one in before) else 0.0

        def differs(after: list[Tensor], rows: Any, most: float) -> bool:
            return len(after) != len(before) or any(
                _gap(old[rows], new[rows]) > most
                for old, new in zip(before, after, strict=True)
                if old.ndim and len(old) == records
            )

        everyone = slice(None)
        if differs(run(torch.clone), everyone, exact):
            return "equal calls of the model answer differently"
        for bit in range((records - 1).bit_length()):
            for value in (0, 1):
                is_in = (numbers >> bit) & 1 == value
                if differs(run(partial(_exchange, is_in)), ~is_in, exact):
                    return "what one record gets from the model depends on other records"
        is_fixed = not differs(run(torch.clone, seed=1), everyone, exact)
        # One row alone is left out: models that squeeze it away mix nothing.
        if is_fixed and half > 1 and differs(run(lambda one: one[:half]), slice(half), loose):
            return "what a record gets from the model depends on how many others there are"
    return ""


def scrambled(parameters: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return weights of usual size that nobody chose: with them a branch that starts at 0 is open.

    The same ones at every call; like no two of a model's own.
    """
    found, at = {}, 1
    for name, parameter in parameters.items():
        steps = torch.arange(at, at + parameter.numel(), dtype=torch.float64)
        wave = steps.square().sin().reshape(parameter.shape)
        if parameter.ndim > 1:
            wave *= 2 * math.sqrt(len(parameter) / parameter.numel())
        found[name] = wave.to(parameter)
        at += parameter.numel()
    return found


def public_rows(model: nn.Module, like: Tensor, *, records: int) -> Tensor:
    """Make rows of the shape and type of `like`'s, of which nothing but those is used."""
    shape = (records, *like.shape[1:])
    wave = torch.arange(1, 1 + math.prod(shape), dtype=torch.float64).square().sin().reshape(shape)
    if like.is_floating_point():
        return wave.to(like)
    tables = [layer.num_embeddings for layer in model.modules() if isinstance(layer, nn.Embedding)]
    return ((wave * 1e4).long() % max(1, min(tables, default=2))).to(like)


def _exchange(is_in: Tensor, rows: Tensor) -> Tensor:
    """Give those the rows of the records before them."""
    found = rows.clone()
    found[is_in] = rows.roll(1, 0)[is_in]
    return found


def _slack(answers: list[Tensor]) -> float:
    """Return how far, relatively, one product that is cut in two ways may be off."""
    kinds = {one.dtype for one in answers if one.is_floating_point()}
    return math.sqrt(max((torch.finfo(kind).eps for kind in kinds), default=0.0))


def _gap(one: Tensor, other: Tensor) -> float:
    """Return the largest difference, of the largest number; what is NaN in both is equal."""
    if one.shape != other.shape:
        return math.inf
    if not one.numel():
        return 0.0
    is_same = (one == other) | (one != one) & (other != other)
    if bool(is_same.all()):
        return 0.0
    first, second = one.detach().double(), other.detach().double()
    off = torch.where(is_same, 0.0, (first - second).abs()).nan_to_num(nan=math.inf)
    size = first.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0).abs().max()
    return float(off.max() / size.clamp_min(1e-300))
