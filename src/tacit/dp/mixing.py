"""Whether records of a batch mix in a model: what one of them does to what others get."""

import math
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils._pytree import tree_leaves, tree_structure, tree_unflatten

from tacit.errors import ConfigError
from tacit.exclusive import seeded

_EQUAL = 2.0**-19
"""How far, relatively, what a record gets may move where equal calls compute alike."""

_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class AnswerSketch(NamedTuple):
    """What is kept of one answer: two numbers per record, and how exact it was."""

    numbers: Tensor
    eps: float


def refuse_mixing(
    model: nn.Module,
    args: tuple[Any, ...],
    named: Mapping[str, Any],
    *,
    records: int,
    weights: Mapping[str, Tensor] | None = None,
    shared: Collection[int] = (),
) -> None:
    """Run a call of a model again with other records in it: what the rest get must stay.

    What goes into every trained layer is compared, and what the model returns, and its buffers and
    frozen parameters with what they were. Buffers and torch's generators stay as they are.

    Guarantee: none: a model that mixes for some rows and weights alone passes with others.
    Cost: `find_mixing`'s, without gradients.

    Args:
        model: as it was called.
        args: of the call; tensors whose first dimension is `records` are taken as theirs.
        named: as `args`.
        records: how many there are; with 1, what the model keeps from one call to the next shows.
        weights: in place of the model's own, by name; see `scrambled`.
        shared: which leaves of the arguments are no records' in spite of their size.

    Raises:
        ConfigError: a record changes what others get, equal calls differ, or a call changes what
            the model holds.
    """
    seen: list[AnswerSketch] = []
    changed: list[str] = []
    held = dict(model.named_buffers())
    frozen = {name: p for name, p in model.named_parameters() if not p.requires_grad}
    sums = {name: checksum(p) for name, p in frozen.items()}

    def watch(layer: nn.Module, inputs: tuple[Any, ...], given: dict[str, Any]) -> None:
        seen.extend(tell((inputs, given)))

    def look(*_: object) -> None:
        # While the clones that were called with are in place, or what the call has put there.
        for name, now in model.named_buffers():
            if name not in held or checksum(now) != checksum(held[name]):
                changed.append(name)

    def answer(batch: Any) -> list[AnswerSketch]:
        seen.clear()
        buffers = {name: buffer.clone() for name, buffer in held.items()}
        said = functional_call(model, {**buffers, **(weights or {})}, batch[0], batch[1])
        return [*seen, *tell(said)]

    hooks = [
        layer.register_forward_pre_hook(watch, with_kwargs=True)
        for layer in model.modules()
        if any(p.requires_grad for p in layer.parameters(recurse=False))
    ]
    hooks.append(model.register_forward_hook(look))
    try:
        with torch.no_grad():
            found = find_mixing(answer, (args, dict(named)), records=records, shared=shared)
    finally:
        for hook in hooks:
            hook.remove()
    changed += [name for name, p in frozen.items() if checksum(p) != sums[name]]
    if changed:
        raise ConfigError(
            f"a call of the model changes {changed[0]}, which is not trained: what a model keeps "
            "of rows (running statistics, a centre, a bank) has no noise on it; take a model "
            "without that, or change it in the loop, from weights alone"
        )
    if found:
        raise ConfigError(
            f"{found} (a normalisation or a difference over the batch, a state that is kept, a "
            "generator that is not torch's?); clipping would not bound what one record does"
        )


def find_mixing(
    answer: Callable[[Any], list[AnswerSketch]],
    batch: Any,
    *,
    records: int,
    shared: Collection[int] = (),
) -> str:
    """Say how records mix in what is answered to a batch; nothing if they do not, as far as seen.

    Every two records are told apart, in both directions: those whose number has a certain bit get
    the rows of their neighbours, then those that have it not; and once rows that are made up, as
    those of a batch may all be alike. Then half of the batch is asked about alone, unless answers
    depend on chance.

    Cost: 6 answers, and twice the binary logarithm of `records`; of each, what `tell` keeps.
    """
    given = tree_leaves(batch)
    mine = [
        number
        for number, one in enumerate(given)
        if isinstance(one, Tensor) and one.ndim and len(one) == records and number not in shared
    ]
    # (n, n) beside the rows is what all records share, an attention mask, say.
    mine = [n for n in mine if n == mine[0] or given[n].shape != (records, records)]
    form = tree_structure(batch)
    numbers, half = torch.arange(records), records // 2

    def run(
        change: Callable[[Tensor], Tensor], *, seed: int = 0, most: int | None = None
    ) -> list[AnswerSketch]:
        torch.manual_seed(seed)
        changed = [change(one) if n in mine[:most] else one for n, one in enumerate(given)]
        return answer(tree_unflatten(changed, form))

    is_on = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]  # torch has none here
    with seeded(0, range(torch.cuda.device_count()) if is_on else ()):
        before = run(torch.clone)
        # What a product that is cut in another way may be off by.
        loose = math.sqrt(max((one.eps for one in before), default=0.0))
        is_plain = all(one.numbers.device.type == "cpu" for one in before)

        def differs(after: list[AnswerSketch], rows: Any, most: float) -> bool:
            return len(after) != len(before) or any(
                _gap(old.numbers[rows], new.numbers[rows]) > most
                for old, new in zip(before, after, strict=True)
                if len(old.numbers) == records
            )

        everyone, again = slice(None), run(torch.clone)
        # A card may cut as it likes; one that does not is held to what it does.
        equal = _EQUAL if is_plain or not differs(again, everyone, 0.0) else max(loose, _EQUAL)
        if differs(again, everyone, equal):
            return "equal calls of the model answer differently"
        if records == 1:
            run(_made_up, most=1)
            if differs(run(torch.clone), everyone, equal):
                return "what one record gets from the model depends on the one before it"
        for bit in range((records - 1).bit_length()):
            for value in (0, 1):
                is_in = (numbers >> bit) & 1 == value
                if differs(run(partial(_exchange, is_in)), ~is_in, equal):
                    return "what one record gets from the model depends on other records"
        # Of the first tensor alone: what comes with rows, a mask, say, may choose how all are done.
        for is_in in (numbers % 2 == 0, numbers % 2 == 1) if records > 1 else ():
            if differs(run(partial(_replace, is_in), most=1), ~is_in, equal):
                return "what one record gets from the model depends on other records"
        is_fixed = not differs(run(torch.clone, seed=1), everyone, equal)
        # One row alone is left out: models that squeeze it away mix nothing.
        if is_fixed and half > 1 and differs(run(lambda one: one[:half]), slice(half), loose):
            return "what a record gets from the model depends on how many others there are"
    return ""


def tell(answer: Any) -> list[AnswerSketch]:
    """Keep of every tensor in a nest two numbers per record: large models answer at length."""
    tensors = [one.detach() for one in tree_leaves(answer) if isinstance(one, Tensor) and one.ndim]
    return [
        AnswerSketch(
            _digest(one) if one.numel() else one.new_zeros(len(one), 2, dtype=torch.float64),
            torch.finfo(one.dtype).eps if one.is_floating_point() else 0.0,
        )
        for one in tensors
    ]


def checksum(tensor: Tensor) -> int:
    """Add up the bits of a tensor, exactly and in any order: to notice that it was changed."""
    bits = torch.view_as_real(tensor.detach()) if tensor.is_complex() else tensor.detach()
    bits = bits.view(_BITS[bits.element_size()])
    sums = bits.sum(-1) if bits.ndim > 1 else bits.reshape(-1)
    return int((sums.reshape(-1) * torch.arange(1, 2 * sums.numel(), 2, device=bits.device)).sum())


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
    wave = _wave(math.prod(shape), torch.empty(0, dtype=torch.float64)).reshape(shape)
    if like.is_floating_point():
        return wave.to(like)
    tables = [layer.num_embeddings for layer in model.modules() if isinstance(layer, nn.Embedding)]
    return ((wave * 1e4).long() % max(1, min(tables, default=2))).to(like)


def _exchange(is_in: Tensor, rows: Tensor) -> Tensor:
    """Give those the rows of the records before them."""
    found = rows.clone()
    found[is_in] = rows.roll(1, 0)[is_in]
    return found


def _replace(is_in: Tensor, rows: Tensor) -> Tensor:
    """Give those rows that are made up; ids that differ among records show enough by themselves."""
    if not rows.is_floating_point() and bool((rows != rows[:1]).any()):
        return rows.clone()
    found = rows.clone()
    found[is_in] = _made_up(rows)[is_in]
    return found


def _made_up(rows: Tensor) -> Tensor:
    """Make rows that a model takes whatever it takes: 0 as an id, 0 to 1 as a number."""
    if not rows.is_floating_point():
        found = torch.zeros_like(rows)
        if rows.ndim > 1:  # one id stays: 0 may stand for padding, and rows of that alone end badly
            found[..., -1] = torch.where(rows[..., 0] == 0, rows[..., -1], found[..., -1])
            found[..., 0] = rows[..., 0]
        return found
    wave = _wave(rows.numel(), torch.empty(0, dtype=torch.float64))
    return wave.abs().reshape(rows.shape).to(rows)


def _digest(rows: Tensor) -> Tensor:
    """Return the length of each record, and how far it goes in a direction that nobody chose."""
    if rows.is_complex():
        rows = torch.view_as_real(rows)
    rows = rows.reshape(len(rows), -1, rows.shape[-1] if rows.ndim > 1 else 1)
    if not rows.is_floating_point():
        rows = rows.double()
    inner = (rows * _wave(rows.shape[2], rows)).sum(2, dtype=torch.float64)
    along = (inner * _wave(rows.shape[1], inner)).sum(1)
    return torch.stack([along, torch.linalg.vector_norm(rows, dim=(1, 2), dtype=torch.float64)], 1)


def _wave(count: int, like: Tensor) -> Tensor:
    return torch.arange(1, 1 + count, dtype=torch.float64).square().sin().to(like)


def _gap(one: Tensor, other: Tensor) -> float:
    """Return the largest difference to a record, in units of its own numbers; NaN equals NaN.

    Or in units of a quarter of the records where its own are smaller: those may have cancelled, and
    what is left is rounding. Not of the largest: one record that dwarfs the others would hide them.
    """
    if one.shape != other.shape:
        return math.inf
    is_same = (one == other) | (one != one) & (other != other)
    if bool(is_same.all()):
        return 0.0
    off = torch.where(is_same, 0.0, (one - other).abs()).nan_to_num(nan=math.inf)
    own = one.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0).abs().amax(1)
    usual = own[own > 0].sort().values
    least = usual[len(usual) // 4] if len(usual) else own.new_tensor(0.0)
    return float((off.amax(1) / own.clamp_min(least).clamp_min(1e-300)).max())
