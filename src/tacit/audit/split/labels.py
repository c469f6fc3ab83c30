"""Attacks on the labels of a split model: completing it from few labels, clustering, norms."""

from collections.abc import Callable

import torch
from sklearn.cluster import KMeans
from torch import Tensor, nn

from tacit.audit.split.complete import STEPS, complete_each, even_out, whiten
from tacit.audit.split.views import SeenGradients, SeenLayer, SeenRows


def fine_tune(seen: SeenLayer, *, generator: torch.Generator) -> Tensor:
    """Guess labels by a linear top that starts at the class means and learns the leaked rows.

    The model completion of section 4.2.2 of the thesis, after `even_out`: a defence that only
    stretches the layer is not mistaken for one that hides the classes.
    """
    leaked, targets = even_out(seen)
    return complete_each([leaked], [seen.leaked_labels], [targets], classes=seen.classes)[0]


def fine_tune_whitened(seen: SeenLayer, *, generator: torch.Generator) -> Tensor:
    """Do the same after `whiten`: all directions of the layer count alike."""
    leaked, targets = whiten(seen)
    return complete_each([leaked], [seen.leaked_labels], [targets], classes=seen.classes)[0]


def cluster(seen: SeenLayer, *, generator: torch.Generator) -> Tensor:
    """Guess groups, not names: k-means with as many clusters as classes, without any label."""
    seed = int(torch.empty(()).uniform_(generator=generator) * 2**31)
    means = KMeans(seen.classes, n_init=3, random_state=seed)
    return torch.from_numpy(means.fit_predict(seen.targets.double().cpu().numpy())).long()


def train_from_scratch(
    seen: SeenRows,
    *,
    generator: torch.Generator,
    vary: Callable[[Tensor], Tensor] = lambda rows: rows,
) -> Tensor:
    """Guess labels by a whole fresh model trained on the leak: what needs no bottom model.

    A defence is perfect (definition 4.2.2 of the thesis) if no attack on the bottom does better.

    Args:
        seen: the leaked rows.
        generator: of the first weights.
        vary: changes the leaked rows before each step, as shifting pictures does.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(torch.empty(()).uniform_(generator=generator) * 2**31))
        model = seen.make_model().to(seen.leaked.device)
    # Few rows: statistics of a batch would be those of the leak alone, so models keep their own.
    _learn(model, lambda: vary(seen.leaked), seen.leaked_labels, rate=1e-3)
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


def _learn(model: nn.Module, rows: Callable[[], Tensor], y: Tensor, *, rate: float) -> None:
    optimiser = torch.optim.Adam(model.parameters(), lr=rate, weight_decay=1e-4)
    model.train()
    for _ in range(STEPS):
        optimiser.zero_grad(set_to_none=True)
        loss = nn.functional.cross_entropy(model(rows()), y)
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
