"""Fine-tuning of a causal language model, and how well it says texts that it has not seen."""

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader

from tacit.dp.event import Relation
from tacit.dp.policy import Policy, mark_tokens
from tacit.dp.private import Private, make_private
from tacit.errors import ConfigError, DataError
from tacit.result import Metric
from tacit.ring import Prg
from tacit.text.corpus import Row, Speller, Tokens, Units, collate, cut, enclose, tokenise

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


_Z95 = 1.959963984540054


def measure_perplexity(
    module: nn.Module,
    texts: Sequence[Tokens],
    *,
    length: int,
    batch: int = 32,
    name: str = "perplexity",
    marks: bool | None = None,
) -> Metric:
    """Return exp of the mean loss over all tokens but the first of every text.

    Texts are taken as they are, marked parts included, spelled sign by sign as in training.
    The interval is of texts that are drawn as these were: a ratio of two means over texts.
    `marks` counts marked tokens alone, or all others alone.

    Raises:
        DataError: no token counts.
    """
    counted = [
        [marks is None or one is marks for one in text.is_private] or [True] for text in texts
    ]
    if not any(any(one[1:]) for one in counted):
        raise DataError(f"none of {len(texts)} texts holds a token that counts")
    return _of_losses(module, texts, counted, length, batch, name)


def measure_scientificity(
    module: nn.Module,
    texts: Sequence[str],
    speller: Speller,
    terms: Policy,
    *,
    length: int,
    policy: Policy | None = None,
    starts: Sequence[int] = (),
    batch: int = 32,
    name: str = "scientificity",
) -> Metric:
    """Return exp of the mean loss over the tokens of terms, true tokens before them.

    The smaller, the better a model knows the words of the field. The list of terms is part of the
    measure: two lists cannot be compared. `policy` spells marked parts, and `starts`
    stand before every text, as in training.

    Raises:
        DataError: no text holds a term.
    """
    spelled = [tokenise(speller, text, policy(text) if policy else ()) for text in texts]
    counted = [
        [*(False for _ in starts), *mark_tokens(terms(text), one.offsets)]
        for text, one in zip(texts, spelled, strict=True)
    ]
    spelled = [enclose(one, starts, ()) for one in spelled]
    if not any(map(any, counted)):
        raise DataError(f"none of {len(texts)} texts holds a term of the list")
    return _of_losses(module, spelled, counted, length, batch, name)


def _of_losses(
    module: nn.Module,
    texts: Sequence[Tokens],
    counted: Sequence[Sequence[bool]],
    length: int,
    batch: int,
    name: str,
) -> Metric:
    units = Units(
        cut(one.ids, [float(w) for w in weights], length=length)
        for one, weights in zip(texts, counted, strict=True)
    )
    place = next(module.parameters()).device
    sums: list[float] = []
    counts: list[float] = []
    with torch.no_grad():
        for at in range(0, len(units), batch):
            ids, weights = collate([units[i] for i in range(at, min(at + batch, len(units)))])
            losses, kept = token_losses(module, ids.to(place)), weights[..., 1:].to(place)
            sums += (losses * kept).double().flatten(1).sum(1).tolist()
            counts += kept.double().flatten(1).sum(1).tolist()
    lost, kept_counts = np.array(sums), np.array(counts)
    samples = kept_counts.sum()
    mean, used = float(lost.sum() / samples), int((kept_counts > 0).sum())
    # The delta method for a ratio of sums over texts.
    spread = float(np.sqrt(((lost - mean * kept_counts) ** 2).sum()) / samples)
    is_known = used > 1 and spread > 0
    return Metric(
        name=name,
        value=math.exp(mean),
        unit="",
        samples=int(samples),
        low=math.exp(mean - _Z95 * spread) if is_known else None,
        high=math.exp(mean + _Z95 * spread) if is_known else None,
        note=f"exp of the mean loss over tokens; interval over {used} texts",
    )
