"""The same training on one machine: what travels is rounded and masked as on the wire.

So compressors are tried, where only so many bytes may travel, and one is recommended.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod

import torch
from torch import Tensor, nn

from tacit.errors import ConfigError
from tacit.exclusive import seeded
from tacit.ring import KEY_BYTES, Prg
from tacit.split.codec import Codec, Compression, make_codec
from tacit.split.defend import blur_activations, blur_gradient, defence_loss, hide_labels
from tacit.split.exchange import Returned
from tacit.split.models import CUT, Flat, ShapedTop, cut, cut_shape, make_head
from tacit.split.spec import SplitSpec, TrainingPace
from tacit.split.stepping import make_optimiser, steps, steps_per_epoch, weighted_loss


@dataclass(frozen=True, kw_only=True, eq=False)
class Halves:
    """Both parts of a model, flat at the cut, whose last `own_width` values never travel."""

    bottom: nn.Module
    top: nn.Module
    codec: Codec
    own_width: int = 0

    def logits(self, x: Tensor) -> Tensor:
        """Return what the model serves, through the compressor."""
        self.bottom.eval()
        self.top.eval()
        with torch.no_grad():
            parts = [self.serve(batch) for batch in torch.split(x, 1024)]
        return torch.cat(parts)

    def accuracy(self, x: Tensor, y: Tensor) -> float:
        """Return the share of rows that the model gets right."""
        return float((self.logits(x).argmax(1) == y).float().mean())

    def serve(self, batch: Tensor) -> Tensor:
        """Return logits of rows, as they would be served."""
        shown, own = self.divide(self.bottom(batch))
        logits: Tensor = self.top(torch.cat([self.codec.apply(shown, is_training=False), own], 1))
        return logits

    def divide(self, h: Tensor) -> tuple[Tensor, Tensor]:
        """Return what of a cut layer travels, and what stays."""
        at = h.shape[1] - self.own_width
        return h[:, :at], h[:, at:]


def cut_model(model: nn.Module, spec: SplitSpec, example: Tensor) -> Halves:
    """Cut a model as the spec says; the parts share its weights.

    Args:
        model: takes one tensor and returns one.
        spec: says where to cut, how to compress, and whether to normalise.
        example: at least one row, on the device where the model lives.
    """
    low, high = cut(model, spec.model.cut)
    inner = cut_shape(low, example)
    return Halves(
        bottom=Flat(low, is_normalised=spec.is_normalised),
        top=ShapedTop(high, inner),
        codec=make_codec(spec.split.compress, prod(inner)),
    )


def make_bottom(spec: SplitSpec, shape: Sequence[int]) -> nn.Module:
    """Build a feature owner's part with fresh weights, for rows of a shape."""
    return Flat(
        cut(spec.model(shape, spec.classes), spec.model.cut)[0], is_normalised=spec.is_normalised
    )


def make_top(
    spec: SplitSpec, shape: Sequence[int] | None = None
) -> tuple[nn.Module, dict[str, int]]:
    """Build the label owner's part with fresh weights, and say which widths it takes.

    From the layer "cut" on, all models of the table are one or two linear layers, and nothing about
    the features is needed; a cut elsewhere needs the shape of a row.
    """
    if spec.model.cut == CUT:
        width, hidden = spec.model.width, spec.model.hidden
        head = make_head(spec.bottoms * width, spec.classes, hidden=hidden)
        return head, dict.fromkeys(spec.feature_owners, width)
    if shape is None:
        raise ConfigError(f"a cut at {spec.model.cut!r} needs the shape of a row; wanted {CUT!r}")
    low, high = cut(spec.model(shape, spec.classes), spec.model.cut)
    inner = cut_shape(low, torch.zeros(1, *shape))
    return ShapedTop(high, inner), {spec.feature_owners[0]: prod(inner)}


def fit_locally(
    spec: SplitSpec,
    halves: Halves,
    x: Tensor,
    y: Tensor,
    *,
    seed: int,
    on_gradient: Callable[[Returned], None] | None = None,
) -> list[float]:
    """Train both halves here and return the mean loss of every epoch.

    For trying things out: the steps are those of the parties, the bytes are not sent. Error
    feedback and batches in flight, which change nothing at the label owner, are left out.

    Args:
        spec: what is trained, and how.
        halves: both parts.
        x: the feature owner's rows.
        y: the label owner's classes.
        seed: of order, choices and noise.
        on_gradient: is shown what the feature owner receives, for an audit.
    """
    key = seed.to_bytes(KEY_BYTES, "little")
    prg, generator = Prg(key), torch.Generator(device=x.device).manual_seed(seed)
    targets = hide_labels(spec.defences, y, spec.classes, prg.fork("labels"))
    optimisers = [
        make_optimiser(halves.bottom, spec.train),
        make_optimiser(halves.top, spec.train, rate=spec.train.top_rate),
    ]
    halves.bottom.train()
    halves.top.train()
    losses: list[float] = []
    weights = None if spec.train.class_weights is None else torch.tensor(spec.train.class_weights)
    total = torch.zeros((), device=x.device)
    for step in steps(len(x), spec.train, order=prg.fork("order")):
        for optimiser in optimisers:
            optimiser.zero_grad(set_to_none=True)
        rows = torch.cat(step.parts).to(x.device)
        noise = prg.fork(f"step {step.number}")
        h = halves.bottom(x[rows])
        shown, own = halves.divide(h)
        arriving = blur_activations(spec.defences, shown, noise).view_as(shown)
        sent = halves.codec.apply(arriving, is_training=True, generator=generator)
        if on_gradient is not None:
            # The gradient of what arrived comes back later: shown once it is there.
            tell = partial(_tell, on_gradient, step.number, rows, sent.detach())
            arriving.register_hook(tell)  # type: ignore[no-untyped-call]
        if any(one.kind.startswith("gradient-") for one in spec.defences):
            sent.register_hook(partial(blur_gradient, spec.defences, prg=noise))  # type: ignore[no-untyped-call]
        loss = weighted_loss(halves.top(torch.cat([sent, own], 1)), targets[rows], weights)
        loss = loss + defence_loss(spec.defences, sent, targets[rows], step.number)
        loss = loss + halves.codec.penalty(shown) if halves.codec.l1_weight else loss
        loss.backward()  # type: ignore[no-untyped-call]
        for optimiser in optimisers:
            optimiser.step()
        total += loss.detach()
        if (step.number + 1) % steps_per_epoch(len(x), spec.train) == 0:
            losses.append(float(total) / steps_per_epoch(len(x), spec.train))
            total.zero_()
    return losses


def training_bytes(codec: Codec, rows: int, pace: TrainingPace) -> int:
    """Return what one feature owner sends and receives while training, as the meter counts it."""
    full, rest = divmod(rows, pace.batch)
    sizes = [pace.batch] * full + ([rest] if rest else [])
    per_epoch = 0
    for size in set(sizes):
        forward = codec.forward_bytes(size, is_training=True) or 0
        per_epoch += sizes.count(size) * (forward + codec.backward_bytes(size))
    return per_epoch * pace.epochs


def _tell(
    on_gradient: Callable[[Returned], None], step: int, rows: Tensor, cut: Tensor, gradient: Tensor
) -> None:
    shown = Returned(step=step, share=1.0, rows=rows, cut=cut, gradient=gradient.detach())
    on_gradient(shown)


_BITS = (16, 8, 6, 4, 3, 2, 1)
_PILOT_ROWS = 4000


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A compressor that fits, with the bytes that training with it takes."""

    compression: Compression
    training_bytes: int


@dataclass(frozen=True, kw_only=True)
class CompressionTrial:
    """A candidate and how it did: the share of held-out rows that were right."""

    candidate: Candidate
    accuracy: float
    samples: int


def fitting(spec: SplitSpec, *, rows: int, width: int, budget_bytes: int) -> list[Candidate]:
    """Return, of every kind of compressor, the mildest setting that fits the budget.

    Raises:
        ConfigError: none fits; says what the smallest takes.
    """
    found: list[Candidate] = []
    smallest = None
    for settings in _settings(width):
        for compression in settings:  # mildest first
            size = training_bytes(make_codec(compression, width), rows, spec.train)
            smallest = size if smallest is None else min(smallest, size)
            if size <= budget_bytes:
                found.append(Candidate(compression=compression, training_bytes=size))
                break
    if not found:
        raise ConfigError(
            f"no compressor trains {rows} rows for {spec.train.epochs} epochs within "
            f"{budget_bytes:,} bytes; the smallest takes {smallest:,} (lower train.epochs)"
        )
    return found


def try_candidates(
    spec: SplitSpec,
    candidates: list[Candidate],
    make: Callable[[SplitSpec], Halves],
    x: Tensor,
    y: Tensor,
    *,
    seeds: int = 1,
) -> Iterator[CompressionTrial]:
    """Train a pilot with each candidate, on at most 4,000 rows, and measure it on a fifth of them.

    Args:
        spec: the job; its compression is replaced.
        candidates: from `fitting`.
        make: builds fresh halves for a spec.
        x: rows, all on this machine.
        y: their classes.
        seeds: pilots per candidate, averaged.
    """
    chosen = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))[:_PILOT_ROWS]
    held_out, kept = chosen[: len(chosen) // 5], chosen[len(chosen) // 5 :]
    if not len(held_out):
        raise ConfigError(f"wanted at least 5 rows to try compressors on, got {len(x)}")
    for candidate in candidates:
        trial = replace(spec, split=replace(spec.split, compress=candidate.compression))
        shares = []
        for seed in range(seeds):
            with seeded(seed):
                halves = make(trial)
                fit_locally(trial, halves, x[kept], y[kept], seed=seed)
            shares.append(halves.accuracy(x[held_out], y[held_out]))
        yield CompressionTrial(
            candidate=candidate,
            accuracy=sum(shares) / len(shares),
            samples=len(held_out) * seeds,
        )


def recommend(trials: list[CompressionTrial]) -> CompressionTrial:
    """Return the trial that sends least among those within a point of the most accurate."""
    best = max(trial.accuracy for trial in trials)
    near = [trial for trial in trials if trial.accuracy >= best - 0.01]
    return min(near, key=lambda trial: trial.candidate.training_bytes)


def _settings(width: int) -> Iterator[list[Compression]]:
    """Yield the settings of each kind, mildest first."""
    counts = sorted({max(1, width * share // 64) for share in (64, 48, 32, 24, 16, 12, 8, 6, 4, 2)})
    counts = sorted({*counts, *range(1, min(width, 8) + 1)}, reverse=True)
    yield [Compression()]
    yield [Compression(kind="quantise", bits=bits) for bits in _BITS]
    yield [Compression(kind="shrink", k=k) for k in counts]
    yield [Compression(kind="topk", k=k) for k in counts]
    yield [Compression(kind="randtopk", k=k, alpha=0.1) for k in counts]
    yield [
        Compression(kind="randtopk-coded", k=k, alpha=0.1, bits=4, gradient_bits=8) for k in counts
    ]
