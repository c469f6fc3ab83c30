"""What can be read off an update without searching: labels, and the input of a linear layer."""

import torch
from torch import Tensor, nn

from tacit.audit.reconstruction.views import Rebuilt, SeenUpdate
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
