"""Attacks on the labels of a split model: completing it from few labels, clustering, norms."""

from math import sqrt

import torch
from sklearn.cluster import KMeans
from torch import Tensor, nn

from tacit.audit.split.views import SeenGradients, SeenLayer, SeenRows

_STEPS = 200


def fine_tune(seen: SeenLayer, *, generator: torch.Generator) -> Tensor:
    """Guess labels by a linear top that starts at the class means and learns the leaked rows.

    The model completion of section 4.2.2 of the thesis. The attacker holds many rows without
    labels, so it first brings every column to mean 0 and deviation 1 and every row to length 1:
    a defence that only stretches the layer, as distance correlation does, is not mistaken for
    one that hides the classes.
    """
    centre, spread = seen.targets.mean(0), seen.targets.std(0).clamp(min=1e-6)

    def prepare(values: Tensor) -> Tensor:
        return nn.functional.normalize((values - centre) / spread, dim=1)

    return _complete(prepare(seen.leaked), seen.leaked_labels, prepare(seen.targets), seen.classes)


def fine_tune_whitened(seen: SeenLayer, *, generator: torch.Generator) -> Tensor:
    """Do the same after whitening: all directions of the layer count alike.

    Weaker where the classes lie along the long directions, stronger where a defence has made
    those long directions meaningless.
    """
    centre = seen.targets.mean(0)
    shifted = (seen.targets - centre).double()
    covariance = shifted.t() @ shifted / max(len(shifted) - 1, 1)
    width = covariance.shape[0]
    floor = 1e-3 * covariance.diagonal().mean().clamp(min=1e-12)
    root = torch.linalg.cholesky(covariance + floor * torch.eye(width, device=shifted.device))

    def prepare(values: Tensor) -> Tensor:
        flat = (values - centre).double().t()
        white: Tensor = torch.linalg.solve_triangular(root, flat, upper=False)
        return white.t().float() / sqrt(width)

    return _complete(prepare(seen.leaked), seen.leaked_labels, prepare(seen.targets), seen.classes)


def cluster(seen: SeenLayer, *, generator: torch.Generator) -> Tensor:
    """Guess groups, not names: k-means with as many clusters as classes, without any label."""
    seed = int(torch.empty(()).uniform_(generator=generator) * 2**31)
    means = KMeans(seen.classes, n_init=3, random_state=seed)
    return torch.from_numpy(means.fit_predict(seen.targets.double().cpu().numpy())).long()


def train_from_scratch(seen: SeenRows, *, generator: torch.Generator) -> Tensor:
    """Guess labels by a whole fresh model trained on the leak: what needs no bottom model.

    A defence is perfect (definition 4.2.2 of the thesis) if no attack on the bottom does better.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(torch.empty(()).uniform_(generator=generator) * 2**31))
        model = seen.make_model().to(seen.leaked.device)
    # Few rows: statistics of a batch would be those of the leak alone, so models keep their own.
    _learn(model, seen.leaked, seen.leaked_labels, learning_rate=1e-3)
    model.eval()
    with torch.no_grad():
        logits = torch.cat([model(batch) for batch in torch.split(seen.targets, 1024)])
    return logits.argmax(1)


def gradient_norm(seen: SeenGradients, *, generator: torch.Generator) -> Tensor:
    """Score rows by the length of their gradient: rare classes are learned worse (Li et al. 2022).

    Returns a score per row; larger means more likely of the rarer class.
    """
    lengths: Tensor = seen.gradients.norm(dim=1)
    return lengths


def class_means(values: Tensor, labels: Tensor, classes: int) -> Tensor:
    """Return the mean of every class; of a class without rows, zeros."""
    sums = torch.zeros(classes, values.shape[1], device=values.device, dtype=values.dtype)
    sums.index_add_(0, labels, values)
    counts = torch.bincount(labels, minlength=classes).clamp(min=1)
    return sums / counts[:, None]


def _complete(leaked: Tensor, labels: Tensor, targets: Tensor, classes: int) -> Tensor:
    top = nn.Linear(leaked.shape[1], classes).to(leaked.device)
    means = class_means(leaked, labels, classes)
    with torch.no_grad():
        top.weight.copy_(means)
        # ⟨m, h⟩ − ‖m‖²/2 is largest for the nearest mean.
        top.bias.copy_(-means.square().sum(1) / 2)
    _learn(top, leaked, labels, learning_rate=1e-3)
    with torch.no_grad():
        guess: Tensor = top(targets).argmax(1)
    return guess


def _learn(model: nn.Module, x: Tensor, y: Tensor, *, learning_rate: float) -> None:
    optimiser = torch.optim.Adam(model.parameters(), lr=learning_rate, weight_decay=1e-4)
    model.train()
    for _ in range(_STEPS):
        optimiser.zero_grad(set_to_none=True)
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
