"""Fine-tuning of a causal language model: on texts as they are, or under (ε, δ)."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader

from tacit.dp.event import Relation
from tacit.dp.private import Private, make_private
from tacit.errors import ConfigError
from tacit.ring import Prg
from tacit.text.corpus import Row, Units, collate

_RISING = 0.06  # share of the steps in which the rate rises, as RoBERTa's (Liu et al. 2019)
_NEAR = 16  # batches among which rows are put in order: little padding, and still much chance

Note = Callable[[int, int], None]
"""Told how many steps of how many are done."""


def silent(*progress: object) -> None:
    """Say nothing."""


@dataclass(frozen=True, kw_only=True)
class Course:
    """How long and how fast a model is tuned.

    Args:
        epochs: passes over the texts.
        rate: of Adam; it rises in the first steps, and falls to a tenth of itself by the end.
        batch: units at a time; under privacy the expected number.
        at_once: tokens that the model is given at a time, under privacy; a unit is never cut.
    """

    epochs: int
    rate: float
    batch: int = 32
    at_once: int = 1 << 14

    def __post_init__(self) -> None:
        if min(self.epochs, self.batch, self.at_once) < 1 or not self.rate > 0:
            raise ConfigError(f"epochs, rate, batch and at_once must be above 0, got {self}")


def unit_losses(module: nn.Module, ids: Tensor, weights: Tensor) -> Tensor:
    """Return the mean loss of every unit over those of its tokens that count, (units,)."""
    losses = token_losses(module, ids)
    counted = weights[..., 1:]
    total = (losses * counted).flatten(1).sum(1)
    return total / counted.flatten(1).sum(1).clamp_min(1.0)


def token_losses(module: nn.Module, ids: Tensor, *, spared: Tensor | None = None) -> Tensor:
    """Return −log p of each token but the first, (…, tokens − 1), among all but those spared."""
    scores = module(ids[..., :-1])
    if spared is not None:
        scores = scores.index_fill(-1, spared, -torch.inf)
    flat = functional.cross_entropy(
        scores.flatten(0, -2).float(), ids[..., 1:].flatten(), reduction="none"
    )
    return flat.view(ids[..., 1:].shape)


def tune(
    module: nn.Module,
    units: Units,
    course: Course,
    *,
    prg: Prg,
    note: Note = silent,
    is_half: bool = False,
    spared: Sequence[int] = (),
) -> None:
    """Train in place, every row for itself, without any protection.

    `is_half` computes layers in bfloat16. The scores of `spared` tokens, which no row may hold, are
    left out of the loss: what a model thinks of them stays, where it would soon be "never".

    Guarantee: no guarantee.
    """
    rows = Units(units.rows)
    place = next(module.parameters()).device
    trained = [p for p in module.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=course.rate, weight_decay=0.0)
    order_of = prg.fork("order")
    kept_out = torch.tensor(list(spared), device=place) if spared else None
    total = course.epochs * -(-len(rows) // course.batch)
    done = 0
    for _ in range(course.epochs):
        for some in _batches(len(rows), course.batch, order_of):
            ids, weights = collate([rows[i] for i in some])
            _set_rate(optimizer, course, done, total)
            optimizer.zero_grad(set_to_none=True)
            with _half(place, is_half):
                losses = token_losses(module, ids.to(place), spared=kept_out)
            counted = weights[..., 1:].to(place)
            torch.autograd.backward((losses * counted).sum() / counted.sum().clamp_min(1.0))
            nn.utils.clip_grad_norm_(trained, 1.0)
            optimizer.step()
            done += 1
            note(done, total)


def tune_private(
    module: nn.Module,
    units: Units,
    course: Course,
    *,
    epsilon: float,
    delta: float,
    clip: float,
    relation: Relation,
    prg: Prg | None = None,
    note: Note = silent,
    is_half: bool = False,
) -> Private:
    """Train what is not frozen under (ε, δ), a unit for a unit of the relation.

    Guarantee: `tacit.dp.make_private`'s, for the units that are handed in; what the model was
    before is taken as public. The ledger and the claim are those of what is returned.
    Cost: that of `make_private`; `is_half` computes layers in bfloat16, norms and sums in float32.
    """
    place = next(module.parameters()).device
    trained = [p for p in module.parameters() if p.requires_grad]
    optimizer = torch.optim.Adam(trained, lr=course.rate)
    loader: DataLoader[list[Row]] = DataLoader(
        units, batch_size=min(course.batch, len(units)), collate_fn=collate
    )
    private = make_private(
        module,
        optimizer,
        loader,
        epsilon=epsilon,
        delta=delta,
        epochs=course.epochs,
        clip=clip,
        at_once=partial(units.cut, most=course.at_once),
        prg=prg,
        relation=relation,
    )
    total = private.loader.steps_left
    for _ in range(course.epochs):
        for ids, weights in private.loader:
            _set_rate(optimizer, course, len(private.ledger), total)
            with _half(place, is_half):
                losses = unit_losses(module, ids.to(place), weights.to(place))
            private.step(losses)
            note(len(private.ledger), total)
    private.remove()
    return private


def _batches(rows: int, size: int, prg: Prg) -> list[list[int]]:
    """Deal rows out at random, those of about one length together: they lie in order of size."""
    order = prg.permutation(rows)
    near = [some.sort().values for some in torch.split(order, _NEAR * size)]
    batches = [batch.tolist() for some in near for batch in torch.split(some, size)]
    return [batches[i] for i in prg.permutation(len(batches)).tolist()]


def _half(place: torch.device, is_half: bool) -> AbstractContextManager[object]:
    return torch.autocast(place.type, torch.bfloat16) if is_half else nullcontext()


def _set_rate(optimizer: torch.optim.Optimizer, course: Course, done: int, total: int) -> None:
    """Set the rate: up in a line at first, as Adam's first steps are blind, then down."""
    rising = min(1.0, (done + 1) / (1 + _RISING * total))
    for group in optimizer.param_groups:
        group["lr"] = course.rate * rising * (1 - 0.9 * done / max(total, 1))
