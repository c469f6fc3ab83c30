"""Reconstruction of the rows behind an update: read off without searching, or by search."""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Literal

import torch
from torch import Tensor, nn

from tacit.audit.reconstruction.views import Rebuilt, SeenUpdate, Update, do_work
from tacit.audit.views import seeded
from tacit.errors import ConfigError

_PROBES = 64
_SAME = 1e-3


def infer_labels(seen: SeenUpdate) -> Tensor:
    """Return the labels behind an update, sorted, from the gradient of the last layer.

    The gradient of class c's logit is the mean of p_c − y_c: with one row it is negative for the
    label alone (iDLG, Zhao et al. 2020). With several rows p_c is estimated by what the model
    answers to noise, and the label counts are those that explain the gradient best.
    """
    if seen.labels is not None:
        return seen.labels
    pull = _last_pull(seen)
    if seen.records == 1:
        return pull.argmin().view(1)
    counts = seen.records * (_usual_answer(seen) - pull)
    found = []
    for _ in range(seen.records):
        best = int(counts.argmax())
        found.append(best)
        counts[best] -= 1
    return torch.tensor(sorted(found), device=pull.device)


def invert_linear(seen: SeenUpdate, *, generator: torch.Generator) -> Rebuilt:
    """Divide the weight gradient of a first linear layer by its bias gradient.

    A neuron's weight gradient is Σ δ x over the rows and its bias gradient Σ δ, so wherever one
    row alone moved the neuron the quotient is this row, exactly (Phong et al. 2017). With several
    rows, neurons that agree with one another and stay within the bounds are believed first.

    Raises:
        ConfigError: the model does not start with a linear layer with a bias.
    """
    weight, bias = _first_linear(seen)
    low, high = seen.bounds
    live = bias.abs() > 1e-6 * bias.abs().max().clamp_min(1e-30)
    if not bool(live.any()):
        middle = torch.full((seen.records, *seen.shape), (low + high) / 2).to(weight)
        return Rebuilt(rows=middle, labels=infer_labels(seen))
    pulls = bias[live].abs()
    found = weight[live] / bias[live].unsqueeze(1)
    outside = (found - found.clamp(low, high)).abs().mean(1)
    chosen = _most_agreed(found, outside, pulls, seen.records)
    rows = found[chosen].clamp(low, high).view(-1, *seen.shape)
    return Rebuilt(rows=rows, labels=infer_labels(seen))


def _most_agreed(found: Tensor, outside: Tensor, pulls: Tensor, records: int) -> list[int]:
    """Return candidates that differ from each other, those that many neurons name first."""
    distance = torch.cdist(found, found) / found.shape[1] ** 0.5
    friends = (distance < _SAME).sum(1).to(found)
    # Within the bounds first, then the most often named, then the strongest.
    score = friends + pulls / pulls.max() - found.shape[0] * (outside > _SAME).to(found)
    order = score.argsort(descending=True).tolist()
    chosen: list[int] = []
    for one in order:
        if all(float(distance[one, other]) >= _SAME for other in chosen):
            chosen.append(one)
        if len(chosen) == records:
            return chosen
    return [chosen[i % len(chosen)] for i in range(records)]


def _first_linear(seen: SeenUpdate) -> tuple[Tensor, Tensor]:
    names = [n for n, p in seen.model.named_parameters() if p.requires_grad]
    leaves = [m for m in seen.model.modules() if not list(m.children())]
    first = next((m for m in leaves if list(m.parameters())), None)
    if not isinstance(first, nn.Linear) or first.bias is None or len(names) < 2:
        raise ConfigError(
            "the analytic attack needs a model that starts with a linear layer with a bias, got "
            f"{type(first).__name__}; use one of the searching attacks"
        )
    return seen.update[0], seen.update[1]


def _last_pull(seen: SeenUpdate) -> Tensor:
    """Return the gradient of the logits, up to a positive factor where there is no bias."""
    last = seen.update[-1]
    if last.ndim == 1 and len(last) == seen.classes:
        return last
    if last.ndim == 2 and last.shape[0] == seen.classes:
        return last.sum(1)
    raise ConfigError(
        f"the labels are read off a last linear layer with {seen.classes} outputs, got one of "
        f"shape {tuple(last.shape)}; hand in the labels with the view"
    )


@torch.no_grad()
def _usual_answer(seen: SeenUpdate) -> Tensor:
    low, high = seen.bounds
    noise = torch.empty(_PROBES, *seen.shape).uniform_(low, high, generator=seeded(0))
    answer: Tensor = seen.model(noise.to(seen.update[-1])).softmax(1).mean(0)
    return answer


_STRIDE = 20  # iterations between two looks at the distance


@dataclass(frozen=True, kw_only=True)
class MatchExactly:
    """Match the update in the squared norm with L-BFGS, from random starts until one fits.

    With searched labels this is DLG (Zhu et al. 2019); with labels read off the update first it
    is iDLG (Zhao et al. 2020). A start that does not fit is seen by its distance and thrown away,
    which needs no knowledge of the rows.

    Args:
        steps: iterations of one start.
        restarts: starts at most.
        fits: relative squared distance at which the search ends.
        labels: whether they are read off the update, or searched along with the rows.
    """

    steps: int = 500
    restarts: int = 4
    fits: float = 1e-8
    labels: Literal["read", "searched"] = "read"

    def __post_init__(self) -> None:
        if self.steps < 1 or self.restarts < 1:
            raise ConfigError(f"steps and restarts must be positive, got {self}")

    def __call__(self, seen: SeenUpdate, *, generator: torch.Generator) -> Rebuilt:
        """Return the best of the starts."""
        return best_of(lambda: self._start(seen, generator), self.restarts, fits=self.fits)

    def _start(self, seen: SeenUpdate, generator: torch.Generator) -> Rebuilt:
        rows = _random_rows(seen, generator).requires_grad_()
        if self.labels == "read":
            labels, searched = infer_labels(seen), [rows]
        else:
            labels = torch.empty(seen.records, seen.classes).normal_(generator=generator)
            labels = labels.to(rows).requires_grad_()
            searched = [rows, labels]
        scale = sum(float(part.square().sum()) for part in seen.update) or 1.0

        def distance() -> Tensor:
            guess = labels if self.labels == "read" else labels.softmax(1)
            update = do_work(seen.model, rows, guess, seen.work)
            gaps = [(x - y).square().sum() for x, y in zip(update, seen.update, strict=True)]
            return torch.stack(gaps).sum() / scale

        reached = self._descend(distance, searched)
        named = labels if self.labels == "read" else labels.argmax(1)
        low, high = seen.bounds
        found = rows.detach().nan_to_num((low + high) / 2).clamp(low, high)
        return Rebuilt(rows=found, labels=named.detach(), distance=reached)

    def _descend(self, distance: Callable[[], Tensor], searched: list[Tensor]) -> float:
        """Go down until the update fits, the steps are spent or nothing moves any more."""
        optimiser = torch.optim.LBFGS(
            searched,
            max_iter=min(_STRIDE, self.steps),
            history_size=50,
            line_search_fn="strong_wolfe",
            tolerance_grad=1e-12,
            tolerance_change=1e-14,
        )

        def closure() -> float:
            loss = distance()
            for one, gradient in zip(searched, torch.autograd.grad(loss, searched), strict=True):
                one.grad = gradient
            return float(loss.detach())

        before = torch.inf
        for _ in range(-(-self.steps // _STRIDE)):
            optimiser.step(closure)  # type: ignore[no-untyped-call]
            now = closure()
            if not now < before * (1 - 1e-4) or now < self.fits:
                break
            before = now
        return now if now == now else torch.inf


@dataclass(frozen=True, kw_only=True)
class MatchDirection:
    """Match the direction of the update and prefer smooth pictures (Geiping et al. 2020).

    Minimises 1 − cos plus a weight times the total variation, by Adam on the sign of the gradient
    with a falling step, within the bounds. Ranks the starts by the distance alone.

    Args:
        steps: iterations of one start.
        restarts: starts.
        smoothness: weight of the total variation; 0 for rows that are no pictures.
        step_size: of the first iterations, as a share of the width of the bounds.
    """

    steps: int = 1000
    restarts: int = 2
    smoothness: float = 0.1
    step_size: float = 0.1

    def __post_init__(self) -> None:
        if self.steps < 1 or self.restarts < 1:
            raise ConfigError(f"steps and restarts must be positive, got {self}")

    def __call__(self, seen: SeenUpdate, *, generator: torch.Generator) -> Rebuilt:
        """Return the best of the starts."""
        return best_of(lambda: self._start(seen, generator), self.restarts)

    def _start(self, seen: SeenUpdate, generator: torch.Generator) -> Rebuilt:
        low, high = seen.bounds
        labels = infer_labels(seen)
        rows = _random_rows(seen, generator).requires_grad_()
        optimiser = torch.optim.Adam([rows], lr=self.step_size * (high - low))
        milestones = [self.steps * k // 8 for k in (3, 5, 7)]
        schedule = torch.optim.lr_scheduler.MultiStepLR(optimiser, milestones, gamma=0.1)
        best, kept = torch.inf, rows.detach().clone()
        for _ in range(self.steps):
            update = do_work(seen.model, rows, labels, seen.work)
            distance = _angle(update, seen.update)
            loss = distance + self.smoothness * _variation(rows) / (high - low)
            reached = float(distance.detach())
            if reached < best:
                best, kept = reached, rows.detach().clone()
            (gradient,) = torch.autograd.grad(loss, [rows])
            rows.grad = gradient.sign()
            optimiser.step()
            schedule.step()
            with torch.no_grad():
                rows.clamp_(low, high)
        return Rebuilt(rows=kept, labels=labels, distance=best)


dlg = MatchExactly(labels="searched")
idlg = MatchExactly()
match_cosine = MatchDirection()


def guess_blindly(seen: SeenUpdate, *, generator: torch.Generator) -> Rebuilt:
    """Return random rows: what an attack is worth must be more than this."""
    labels = torch.empty(seen.records).uniform_(generator=generator) * seen.classes
    return Rebuilt(rows=_random_rows(seen, generator), labels=labels.long())


def best_of(start: Callable[[], Rebuilt], restarts: int, *, fits: float = -inf) -> Rebuilt:
    """Start again and again, until an update is this close or all starts are used up."""
    best = start()
    for _ in range(restarts - 1):
        if _of(best) < fits:
            break
        best = min(best, start(), key=_of)
    return best


def _of(found: Rebuilt) -> float:
    return float("inf") if found.distance is None else found.distance


def _random_rows(seen: SeenUpdate, generator: torch.Generator) -> Tensor:
    low, high = seen.bounds
    rows = torch.empty(seen.records, *seen.shape).uniform_(low, high, generator=generator)
    return rows.to(seen.update[0])


def _angle(a: Update, b: Update) -> Tensor:
    pairs = list(zip(a, b, strict=True))
    dot = torch.stack([(x * y).sum() for x, y in pairs]).sum()
    first = torch.stack([x.square().sum() for x, _ in pairs]).sum().sqrt()
    second = torch.stack([y.square().sum() for _, y in pairs]).sum().sqrt()
    return 1 - dot / (first * second).clamp_min(1e-30)


def _variation(rows: Tensor) -> Tensor:
    if rows.ndim < 4:
        return rows.new_zeros(())
    across = (rows[..., :, 1:] - rows[..., :, :-1]).abs().mean()
    down = (rows[..., 1:, :] - rows[..., :-1, :]).abs().mean()
    return across + down
