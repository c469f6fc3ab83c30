"""DP-SGD: local training with per-record clipping, hidden Poisson batches and Gaussian noise.

Opacus computes the per-record gradients; batches and noise come from our generator, because its own
are made for speed and not for secrecy. Where one person has several records, the person is what is
sampled and clipped.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from tacit.dp.additive import GAUSSIANS, GaussianKind, exact_gaussian_event
from tacit.dp.event import (
    ADD_REMOVE_CLIENT,
    ADD_REMOVE_RECORD,
    DiscreteGaussian,
    Gaussian,
    Poisson,
    Relation,
    Repeated,
)
from tacit.dp.mixing import public_rows, refuse_mixing, scrambled
from tacit.errors import ConfigError, DataError
from tacit.ring import Prg

_CHUNK = 256  # records whose gradients are held at once
_TRIED = 16  # made-up records that a model is tried with
_NO_LOSS = -100  # the class that torch's cross entropy leaves out
_EQUAL = 1e-3  # how far, relatively, what is computed twice may be off


@dataclass(frozen=True, kw_only=True)
class DpSgd:
    """How a model is trained.

    Attributes:
        steps: noisy gradient steps.
        sample_rate: the probability with which a record, or a client with all its records, joins a
            batch.
        clip: largest L2 norm of the gradient of a record, or of a client.
        multiplier: noise per clip.
        rate: of plain gradient descent, the size of a step.
        momentum: of the steps; what is public stays public.
        noise: "continuous" is drawn in floating point; "discrete" is exact, takes longer to draw,
            and its ε comes from Rényi divergences alone.
    """

    steps: int
    sample_rate: float
    clip: float
    multiplier: float
    rate: float = 0.1
    momentum: float = 0.0
    noise: GaussianKind = "continuous"

    def __post_init__(self) -> None:
        if self.noise not in GAUSSIANS:
            raise ConfigError(f"noise is one of {', '.join(GAUSSIANS)}, got {self.noise!r}")
        if self.steps < 1 or not self.rate > 0 or not 0 <= self.momentum < 1:
            raise ConfigError(
                "steps, rate and momentum must make sense, got "
                f"{self.steps}, {self.rate} and {self.momentum}"
            )
        _ = self.event  # checks sample_rate, clip and multiplier

    @property
    def event(self) -> Repeated:
        """What the whole training does to one record, before the grid of the noise is known."""
        return self.event_for(ADD_REMOVE_RECORD)

    def event_for(self, relation: Relation) -> Repeated:
        """Return what the whole training does to whatever it samples and clips."""
        sigma = self.multiplier * self.clip
        noise: Gaussian | DiscreteGaussian
        if self.noise == "discrete":
            noise = exact_gaussian_event(
                1, sigma=sigma, l2_sensitivity=self.clip, relation=relation
            )
        else:
            noise = Gaussian(sigma=sigma, l2_sensitivity=self.clip, relation=relation)
        return Repeated(
            event=Poisson(event=noise, rate=self.sample_rate, is_hidden=True), count=self.steps
        )


def train_dp_sgd(
    model: nn.Module,
    x: Tensor,
    labels: Tensor,
    settings: DpSgd,
    *,
    prg: Prg,
    owners: Tensor | None = None,
) -> Repeated:
    """Train a classifier in place and return the event of the whole training.

    Guarantee: for adding or removing one record, as the event says; batches are never shown. With
    `owners`, for adding or removing one client with all its records, however many and however
    alike. The number of records, or of clients, is taken as public: it sets the step size. A
    record whose gradient is not finite counts as one of gradient 0, and nobody is told: an error,
    or a count, would show that record without any noise. It holds if what a record gets from the
    model depends on that record alone: before the steps whose number is a power of two the model is
    tried for that on made-up rows, with its own weights and at first with others, which shows
    normalisations over the batch, and not what only some rows bring about.
    Cost: one gradient per record that is drawn; memory for 256 gradients, twice with owners.

    Args:
        model: maps rows to scores, the classes second.
        x: rows.
        labels: of the rows.
        settings: how it is trained.
        prg: where batches and noise come from.
        owners: a whole number per row, the same for all rows of one client.

    Raises:
        ConfigError: the extra is missing, or the model mixes records (a normalisation over the
            batch, say), or gives its layers other rows than records.
        DataError: there are no rows, or not as many labels and owners as rows; or the weights, as
            anyone may see them, are no longer finite.
    """
    if len(x) != len(labels) or len(x) == 0:
        raise DataError(f"as many labels as rows are needed, got {len(x)} and {len(labels)}")
    units, whose = _units(len(x), owners)
    relation = ADD_REMOVE_RECORD if owners is None else ADD_REMOVE_CLIENT
    tried = public_rows(model, x, records=_TRIED)
    others = scrambled({name: p for name, p in model.named_parameters() if p.requires_grad})
    wrapped = _per_record(model)
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimiser = torch.optim.SGD(parameters, settings.rate, momentum=settings.momentum)
    add_noise = GAUSSIANS[settings.noise]
    noise: Gaussian | DiscreteGaussian
    try:
        refuse_mixing(model, (tried,), {}, records=_TRIED, weights=others)
        _refuse_mixed_gradients(wrapped, parameters, tried, labels)
        for step in range(settings.steps):
            if step & (step - 1) == 0:
                refuse_mixing(model, (tried,), {}, records=_TRIED)
            rows, names = _drawn(_poisson_batch(units, settings.sample_rate, prg), whose)
            total = _clipped_sum(wrapped, parameters, x[rows], labels[rows], settings.clip, names)
            noisy, noise = add_noise(
                total,
                sigma=settings.multiplier * settings.clip,
                l2_sensitivity=settings.clip,
                relation=relation,
                prg=prg,
            )
            _load_gradient(parameters, noisy / (settings.sample_rate * units))
            optimiser.step()
            _refuse_divergence(parameters)
    finally:
        wrapped.to_standard_module()  # takes the hooks and the stored gradients off the model
    sampled = Poisson(event=noise, rate=settings.sample_rate, is_hidden=True)
    return Repeated(event=sampled, count=settings.steps)


# Opacus is untyped, hence Any.
def _per_record(model: nn.Module) -> Any:
    try:
        from opacus import GradSampleModule
        from opacus.validators import ModuleValidator
    except ModuleNotFoundError:
        raise ConfigError("DP-SGD needs Opacus; run: pip install 'tacit-ml[dp]'") from None
    problems = ModuleValidator.validate(model, strict=False)
    if problems:
        raise ConfigError(f"the model has no per-record gradients: {problems[0]}")
    return GradSampleModule(model, loss_reduction="sum")


def _units(rows: int, owners: Tensor | None) -> tuple[int, Tensor | None]:
    """Return how many are sampled and clipped, and which of them each row belongs to."""
    if owners is None:
        return rows, None
    if owners.shape != (rows,) or owners.is_floating_point():
        raise DataError(
            f"wanted a whole number per row as its owner, got {tuple(owners.shape)} of "
            f"{owners.dtype} for {rows} rows"
        )
    names, whose = torch.unique(owners.cpu(), return_inverse=True)
    return len(names), whose


def _drawn(units: Tensor, whose: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Return the rows of the units that were drawn, those of one unit together, and the units."""
    if whose is None:
        return units, None
    rows = torch.nonzero(torch.isin(whose, units)).view(-1)
    rows = rows[whose[rows].argsort(stable=True)]
    return rows, whose[rows]


def _poisson_batch(records: int, rate: float, prg: Prg) -> Tensor:
    coins = prg.below(2**53, records) < round(rate * 2**53)
    return torch.nonzero(coins).view(-1)


def _clipped_sum(
    wrapped: Any,
    parameters: list[nn.Parameter],
    x: Tensor,
    labels: Tensor,
    clip: float,
    whose: Tensor | None = None,
) -> Tensor:
    """Add up the gradients of the batch, each scaled to the clip if it is longer.

    What is not finite counts as 0: a function of the one record, or owner, like clipping itself.
    """
    total = torch.zeros(sum(p.numel() for p in parameters), dtype=torch.float64)
    found = _gradients(wrapped, parameters, x, labels)
    for gradients in found if whose is None else _by_owner(found, whose):
        norms = gradients.norm(dim=1)
        factors = (clip * (1 - 2.0**-20) / norms.clamp_min(1e-300)).clamp_max(1.0)
        total += (factors @ gradients).cpu()
    wrapped.zero_grad(set_to_none=True)
    return total


def _gradients(
    wrapped: Any, parameters: list[nn.Parameter], x: Tensor, labels: Tensor
) -> Iterator[Tensor]:
    """Yield (records, parameters) gradients, some records at a time."""
    for rows, targets in _chunks(x, labels):
        wrapped.zero_grad(set_to_none=True)
        # Opacus hooks the whole model: without a gradient to the inputs torch warns at every step.
        rows = rows.detach().requires_grad_(rows.is_floating_point())
        loss = nn.functional.cross_entropy(wrapped(rows), targets, reduction="sum")
        torch.autograd.backward(loss)
        samples = [_sample(p) for p in parameters]
        if strange := {len(one) for one in samples} - {len(rows)}:
            raise ConfigError(
                f"a layer of the model takes {min(strange)} rows for {len(rows)} records (times, "
                "places or parts of one record folded into the first dimension?): each would be "
                "clipped for itself; keep records first, layers take any dimensions behind them"
            )
        found = torch.cat([one.flatten(1) for one in samples], dim=1).double()
        yield torch.where(found.isfinite().all(dim=1, keepdim=True), found, 0.0)


def _refuse_mixed_gradients(
    wrapped: Any, parameters: list[nn.Parameter], tried: Tensor, labels: Tensor
) -> None:
    """Refuse a hook or a backward that mixes what comes back to records, which no answer shows."""
    is_share = labels.is_floating_point()  # of every class; a row of zeros has no loss
    whole = labels.new_full((len(tried), *labels.shape[1:]), 1 if is_share else 0)
    part, half = whole.clone(), len(tried) // 2
    part[half:] = 0 if is_share else _NO_LOSS
    found = []
    with torch.random.fork_rng([tried.device] if tried.is_cuda else ()):
        for targets in (whole, part):
            torch.manual_seed(0)
            (gradients,) = _gradients(wrapped, parameters, tried, targets)
            found.append(gradients[:half])
    wrapped.zero_grad(set_to_none=True)
    if (found[0] - found[1]).norm() > _EQUAL * found[0].norm():
        raise ConfigError(
            "what comes back to one record depends on other records (a hook or a backward over "
            "the batch?); clipping would not bound what one record does"
        )


def _by_owner(found: Iterator[Tensor], whose: Tensor) -> Iterator[Tensor]:
    """Add up the gradients of each owner, whose rows stand together but may span two yields."""
    at, last, rest = 0, -1, None
    for gradients in found:
        own = whose[at : at + len(gradients)]
        names, place = torch.unique_consecutive(own, return_inverse=True)
        at += len(gradients)
        sums = gradients.new_zeros(len(names), gradients.shape[1])
        sums.index_add_(0, place.to(sums.device), gradients)
        if rest is not None and int(names[0]) == last:
            sums[0] += rest
        elif rest is not None:
            yield rest[None]
        yield sums[:-1]
        last, rest = int(names[-1]), sums[-1].clone()
    if rest is not None:
        yield rest[None]


def _sample(parameter: Any) -> Tensor:  # Any: grad_sample is planted on parameters by Opacus
    gradients: Tensor = parameter.grad_sample
    return gradients.detach()


def _chunks(x: Tensor, labels: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    for at in range(0, len(x), _CHUNK):
        yield x[at : at + _CHUNK], labels[at : at + _CHUNK]


def _refuse_divergence(parameters: list[nn.Parameter]) -> None:
    """Stop when the weights are lost: they are released under noise, so this tells nothing new."""
    if not all(bool(p.isfinite().all()) for p in parameters):
        raise DataError("the weights are NaN or infinite: training diverged; lower rate")


def _load_gradient(parameters: list[nn.Parameter], gradient: Tensor) -> None:
    pieces = torch.split(gradient, [p.numel() for p in parameters])
    for parameter, piece in zip(parameters, pieces, strict=True):
        parameter.grad = piece.view_as(parameter).to(parameter)
