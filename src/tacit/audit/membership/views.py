"""What someone who asks whether a record was trained on can see of a model."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from tacit.audit.target import Classifier, TorchClassifier
from tacit.errors import ConfigError, DataError

COPIES = 8
SCALES = (0.05, 0.1, 0.2, 0.4)
_BLOCK = 256


@dataclass(frozen=True, kw_only=True, eq=False)
class SeenScores:
    """A client of the model: (rows, classes) log-probabilities of records, and their labels."""

    log_probs: Tensor
    labels: Tensor


@dataclass(frozen=True, kw_only=True, eq=False)
class SeenLabels:
    """A client who gets classes only: (rows, queries) answers, the first for the record itself.

    The others are answers for copies with noise that grows along the queries.
    """

    answers: Tensor
    labels: Tensor


@dataclass(frozen=True, kw_only=True, eq=False)
class SeenShadows:
    """A client who can train models like the target on data like its own.

    Attributes:
        log_probs: (rows, classes) of the target.
        labels: (rows,).
        shadow_log_probs: (models, rows, classes) of the shadow models.
        shadow_coins: (models, rows) which records each shadow model was trained on.
    """

    log_probs: Tensor
    labels: Tensor
    shadow_log_probs: Tensor
    shadow_coins: Tensor


@dataclass(frozen=True, kw_only=True, eq=False)
class SeenGradients:
    """Someone who holds the weights: lengths of each record's gradient, layer by layer.

    Attributes:
        norms: (rows, layers).
        losses: (rows,).
        known: (some,) rows whose membership the attacker knows already.
        known_members: (some,) whether those are members.
    """

    norms: Tensor
    losses: Tensor
    known: Tensor
    known_members: Tensor


@dataclass(frozen=True, kw_only=True)
class Push:
    """How the participant attacks.

    Attributes:
        clients: honest ones, who share the members among themselves.
        warm_rounds: rounds before the attack begins.
        rounds: rounds of attack; each is a push and the others' answer.
        length: of a push, as a share of the weights' norm.
        steps: of an honest client in a round.
        batch: rows of each step.
        rate: of its learning.
    """

    clients: int = 4
    warm_rounds: int = 10
    rounds: int = 10
    length: float = 0.1
    steps: int = 10
    batch: int = 16
    rate: float = 0.1

    def __post_init__(self) -> None:
        if self.clients < 1 or self.rounds < 1 or self.warm_rounds < 1 or not self.length > 0:
            raise ConfigError(f"clients, rounds and length must be positive, got {self}")


@dataclass(frozen=True, kw_only=True, eq=False)
class SeenRounds:
    """A participant of federated training who pushes the model away from records.

    Attributes:
        quiet: (rounds, rows) losses of the rounds before it began.
        pushed: (rounds, rows) losses right after its own step up the gradient.
        returned: (rounds, rows) losses after the others' updates of the same round.
    """

    quiet: Tensor
    pushed: Tensor
    returned: Tensor


def see_scores(target: Classifier, x: Tensor, labels: Tensor) -> SeenScores:
    """Ask for probabilities."""
    return SeenScores(log_probs=target.log_probs(x), labels=labels)


def see_labels(
    target: Classifier,
    x: Tensor,
    labels: Tensor,
    *,
    generator: torch.Generator,
    scales: Sequence[float] = SCALES,
    copies: int = COPIES,
) -> SeenLabels:
    """Ask for classes, of the records and of noisy copies.

    The noise is a share of each feature's deviation over the records, which the attacker holds.
    """
    spread = x.std(0) if len(x) > 1 else torch.ones_like(x[0])
    asked = [target.log_probs(x).argmax(1)]
    for scale in scales:
        for _ in range(copies):
            noise = torch.empty(x.shape, dtype=x.dtype).normal_(generator=generator)
            asked.append(target.log_probs(x + scale * spread * noise).argmax(1))
    return SeenLabels(answers=torch.stack(asked, dim=1), labels=labels)


def see_shadows(
    target: Classifier, x: Tensor, labels: Tensor, *, outputs: Tensor, coins: Tensor
) -> SeenShadows:
    """Ask for probabilities, beside those of one's own shadow models."""
    if outputs.shape[:2] != coins.shape or coins.shape[1] != len(x):
        raise DataError(
            f"wanted outputs and coins of the same models on {len(x)} rows, got "
            f"{tuple(outputs.shape)} and {tuple(coins.shape)}"
        )
    held = coins.sum(0)
    if bool((held < 1).any()) or bool((held >= len(coins)).any()):
        raise ConfigError(
            "every record must be inside a shadow model and outside another; "
            f"use more than {len(coins)} shadow models"
        )
    return SeenShadows(
        log_probs=target.log_probs(x), labels=labels, shadow_log_probs=outputs, shadow_coins=coins
    )


def see_gradients(
    target: Classifier, x: Tensor, labels: Tensor, *, known: Tensor, known_members: Tensor
) -> SeenGradients:
    """Look at the weights: take every record's own gradient.

    Raises:
        DataError: the model has no gradients.
    """
    if not isinstance(target, TorchClassifier):
        raise DataError(
            f"a white-box view needs gradients, and {type(target).__name__} has none; "
            "leave this threat out, or give a torch module"
        )
    module = target.module
    named = {name: p.detach() for name, p in module.named_parameters() if p.requires_grad}
    if not named:
        raise DataError("a white-box view needs gradients, and no parameter of the model asks any")
    module.eval()
    buffers = dict(module.named_buffers())

    def loss(parameters: dict[str, Tensor], row: Tensor, label: Tensor) -> Tensor:
        logits = functional_call(module, {**parameters, **buffers}, (row[None],))
        return nn.functional.cross_entropy(logits, label[None])

    slopes = vmap(grad(loss), in_dims=(None, 0, 0))
    place = next(iter(named.values())).device
    norms = []
    for rows, classes in zip(torch.split(x, _BLOCK), torch.split(labels, _BLOCK), strict=True):
        found = slopes(named, rows.to(place), classes.to(place))
        norms.append(torch.stack([g.flatten(1).norm(dim=1) for g in found.values()], dim=1).cpu())
    losses = -target.log_probs(x).gather(1, labels[:, None])[:, 0]
    return SeenGradients(
        norms=torch.cat(norms).double(), losses=losses, known=known, known_members=known_members
    )
