"""The defences of the cut layer by name, what each does at which party, and what it claims.

Losses spread or blur the classes at the cut layer, so that the finished bottom model tells little
of the label; noise and randomised labels change what is sent.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from math import exp, log

import torch
from torch import Tensor

from tacit.dp import Pure, Relation, Responder, epsilon, normal, respond
from tacit.errors import ConfigError
from tacit.result import Claim
from tacit.ring import Prg

DEFENCES: dict[str, tuple[frozenset[str], frozenset[str]]] = {
    "potential-energy": (frozenset({"weight"}), frozenset({"form", "warmup"})),
    "distance-correlation": (frozenset({"weight"}), frozenset({"warmup"})),
    "label-dp": (frozenset({"epsilon"}), frozenset()),
    "activation-noise": (frozenset({"scale"}), frozenset()),
    "gradient-noise": (frozenset({"scale"}), frozenset()),
    "gradient-norm": (frozenset(), frozenset()),
}
"""Every defence there is, with the settings that it needs and those that it may have."""

_LOSSES = ("potential-energy", "distance-correlation")
_ANY_DELTA = 1e-9
"""For the accountant, which wants one: the steps are pure, so their sum holds at δ = 0."""
_LABEL = Relation("replace-one", "label")
_SOFT_ANGLE = 0.05
_SOFT_DISTANCE = 0.05
_LARGEST_COSINE = 1 - 1e-6
"""The slope of the arc cosine has no bound at 1."""


@dataclass(frozen=True, kw_only=True)
class Defence:
    """One defence of a job.

    Attributes:
        kind: potential-energy, distance-correlation, label-dp, activation-noise, gradient-noise or
            gradient-norm.
        weight: of its loss.
        form: "sphere" (after layer normalisation, the default) or "plane".
        warmup: over how many steps the weight grows from 0.
        epsilon: of label differential privacy.
        scale: of the noise; on activations its deviation, on gradients as a share of the norm of
            the largest row.
    """

    kind: str
    weight: float | None = None
    form: str | None = None
    warmup: int | None = None
    epsilon: float | None = None
    scale: float | None = None

    def __post_init__(self) -> None:
        if self.kind not in DEFENCES:
            known = ", ".join(sorted(DEFENCES))
            raise ConfigError(f"defend.kind: wanted one of {known}, got {self.kind!r}")
        needs, takes = DEFENCES[self.kind]
        asked = {field.name: getattr(self, field.name) for field in fields(self)}
        given = {name for name, value in asked.items() if value is not None} - {"kind"}
        if needs - given:
            raise ConfigError(f"defend: kind {self.kind!r} needs {', '.join(needs - given)}")
        if given - needs - takes:
            strange = ", ".join(sorted(given - needs - takes))
            raise ConfigError(f"defend: kind {self.kind!r} has no {strange}")
        if self.form not in (None, "sphere", "plane"):
            raise ConfigError(f"defend.form: wanted 'sphere' or 'plane', got {self.form!r}")
        for name in ("weight", "warmup", "scale"):
            if asked[name] is not None and not 0 <= asked[name] < float("inf"):
                raise ConfigError(f"defend.{name}: wanted at least 0, got {asked[name]}")
        if self.epsilon is not None and not 0 < self.epsilon < 50:
            raise ConfigError(f"defend.epsilon: wanted between 0 and 50, got {self.epsilon}")

    @property
    def is_on_sphere(self) -> bool:
        """Tell whether the cut layer has to be normalised."""
        return self.kind == "potential-energy" and self.form in (None, "sphere")

    def weight_at(self, step: int) -> float:
        """Return the weight at a step: it grows over the warm-up, then stays."""
        share = 1.0 if not self.warmup else min(1.0, (step + 1) / self.warmup)
        return (self.weight or 0.0) * share


def defence_loss(defences: Sequence[Defence], h: Tensor, labels: Tensor, step: int) -> Tensor:
    """Return what the defences add to the loss for one feature owner's cut layer."""
    loss = h.new_zeros(())
    for one in defences:
        if one.kind == "potential-energy":
            energy = sphere_energy if one.is_on_sphere else plane_energy
            loss = loss + one.weight_at(step) * energy(h, labels)
        elif one.kind == "distance-correlation":
            loss = loss + one.weight_at(step) * distance_correlation(h, labels)
    return loss


def hide_labels(defences: Sequence[Defence], labels: Tensor, classes: int, prg: Prg) -> Tensor:
    """Return the labels to train on: true, or randomised once and for all.

    Guarantee: with "label-dp", whatever is computed from the returned labels is ε-differentially
    private towards any one label (randomised response over all classes; Warner 1965). It covers
    training; the true labels must not be used for anything else that is shown.
    Cost: none on the wire.
    """
    for one in defences:
        if one.kind == "label-dp" and one.epsilon is not None:
            # The randomiser takes numbers from 0 to 1; a class is a whole step of them.
            steps = labels.cpu().double() / (classes - 1)
            shown, _ = respond(steps, Responder(epsilon=one.epsilon, b=classes - 1), prg=prg)
            labels = shown.to(labels)
    return labels


def blur_activations(defences: Sequence[Defence], h: Tensor, prg: Prg) -> Tensor:
    """Add the noise that a feature owner wants on what it sends.

    Guarantee: none: activations have no bound, so no noise hides them provably.
    """
    for number, one in enumerate(defences):
        if one.kind == "activation-noise":
            noise = _gaussian(prg.fork(f"activations {number}"), h.shape).to(h.device)
            h = h + (one.scale or 0.0) * noise
    return h


def blur_gradient(defences: Sequence[Defence], gradient: Tensor, prg: Prg) -> Tensor:
    """Change the gradient rows that go back, so that their length tells less of the label.

    "gradient-norm" gives all rows the batch's mean length; "gradient-noise" adds to every row a
    Gaussian whose expected length is `scale` times that of the longest row.

    Guarantee: none; directions still depend on the labels.
    """
    for number, one in enumerate(defences):
        norms = gradient.norm(dim=1, keepdim=True)
        if one.kind == "gradient-norm":
            gradient = gradient * (norms.mean() / norms.clamp(min=1e-12))
        elif one.kind == "gradient-noise":
            noise = _gaussian(prg.fork(f"gradient {number}"), gradient.shape).to(gradient.device)
            spread = (one.scale or 0.0) * float(norms.max()) / gradient.shape[1] ** 0.5
            gradient = gradient + spread * noise
    return gradient


def claims_of(defences: Sequence[Defence]) -> tuple[Claim, ...]:
    """Return what a split job promises about the labels; mostly nothing."""
    events = label_events(defences)
    found: list[Claim] = []
    if events:
        spent = epsilon(
            events,
            delta=_ANY_DELTA,
            accountant="basic",
            subject="each training label, towards the feature owners, while training",
        )
        found = [
            replace(
                spent,
                delta=0.0,
                guarantee="ε-label differential privacy",
                assumptions=(
                    *spent.assumptions,
                    "all messages are computed from the randomised labels",
                    "one label at a time: what rows that are alike have in common is not hidden",
                    "an accuracy that is reported on the true labels is not covered",
                ),
            )
        ]
    others = [one.kind for one in defences if one.kind != "label-dp"]
    if not events:
        found = [_unprotected_labels(others)]
    reason = (
        f"{', '.join(others)}: known attacks are made harder, as measured; nothing is proved"
        if others
        else "cut-layer values and gradients travel in the clear between the parties"
    )
    return (
        *found,
        Claim(
            subject="inputs and labels, towards whoever holds the other part of the model",
            guarantee="no guarantee",
            assumptions=(reason,),
        ),
    )


def _unprotected_labels(kinds: Sequence[str]) -> Claim:
    """Say that gradients tell training labels, whatever is done to the finished model."""
    losses = [kind for kind in kinds if kind in _LOSSES]
    reasons = [
        "gradients of rows of one class point one way: clusters of them are classes, and no label "
        "is needed to find them",
        *([f"{', '.join(losses)}: for the finished bottom model, not for these"] if losses else []),
        "label-dp bounds what they tell, with an ε",
    ]
    return Claim(
        subject="labels of the rows trained on, towards the feature owners",
        guarantee="no guarantee",
        assumptions=tuple(reasons),
    )


def keep_probability(classes: int, epsilon: float) -> float:
    """Return how often randomised response over `classes` classes tells the truth."""
    return exp(epsilon) / (exp(epsilon) + classes - 1)


def epsilon_of(classes: int, flipped: float) -> float:
    """Return the ε of flipping this share of the labels to a uniform other class."""
    return log((1 - flipped) * (classes - 1) / flipped)


def label_events(defences: Sequence[Defence]) -> tuple[Pure, ...]:
    """Return what label differential privacy does to the labels, for the accountant."""
    return tuple(
        Pure(
            epsilon=one.epsilon,
            relation=_LABEL,
            mechanism="randomised response over all classes, drawn once",
        )
        for one in defences
        if one.kind == "label-dp" and one.epsilon is not None
    )


def _gaussian(prg: Prg, shape: torch.Size) -> Tensor:
    return normal(prg, shape.numel()).view(shape).to(torch.float32)


def plane_energy(h: Tensor, labels: Tensor) -> Tensor:
    """Return the potential energy of equal charges: 1 / ‖h − h'‖ for same-class pairs (eq. 4-10).

    The mean over pairs and not their sum, so that the weight does not depend on the batch, and
    1 / √(r² + 0.05²) in place of 1 / r, whose slope has no bound: a single pair that comes near can
    throw a class out of reach of the top, which then never gets it right again. A class with one
    member has no pair, and a batch without pairs has energy 0.

    Guarantee: none; known attacks on the finished bottom model get harder, as the audit measures.
    Labels of the rows trained on are not protected: their gradients tell them.
    Cost: the label owner computes rows² distances; nothing more is sent.
    """
    return _mean_over_pairs((_squared_distances(h) + _SOFT_DISTANCE**2).rsqrt(), labels)


def sphere_energy(h: Tensor, labels: Tensor) -> Tensor:
    """Return the potential energy on the sphere: 1 / angle for same-class pairs (eq. 4-22).

    Meant for a cut layer after layer normalisation, which bounds it without giving it a border:
    classes cannot flee to infinity. The mean over pairs, and 1 / √(θ² + 0.05²) in place of 1 / θ,
    whose slope has no bound as two points meet.

    Guarantee: none; known attacks on the finished bottom model get harder, as the audit measures.
    Labels of the rows trained on are not protected: their gradients tell them.
    Cost: the label owner computes rows² angles; nothing more is sent.
    """
    unit = torch.nn.functional.normalize(h, dim=1)
    return _mean_over_pairs(angle_energies(unit, unit), labels)


def angle_energies(one: Tensor, other: Tensor) -> Tensor:
    """Return 1 / angle, softened, of all pairs of two sets of rows of length 1."""
    cosine = (one @ other.t()).clamp(-_LARGEST_COSINE, _LARGEST_COSINE)
    angle = torch.arccos(cosine)
    return (angle.square() + _SOFT_ANGLE**2).rsqrt()


def distance_correlation(h: Tensor, labels: Tensor) -> Tensor:
    """Return how far distances at the cut layer follow distances of labels (eq. 4-23, 4-24).

    Both sums run over i and j. One-hot labels are √2 apart or equal. 0 if all labels are equal.

    Guarantee: none, and labels of the rows trained on are not protected. Cost: rows² distances at
    the label owner.
    """
    near = _centre((_squared_distances(h) + 1e-12).sqrt())
    apart = _centre((labels[:, None] != labels[None, :]).to(h.dtype) * 2**0.5)
    scale = (near.square().sum() * apart.square().sum()).clamp(min=1e-12).sqrt()
    return (near * apart).sum() / scale


def _squared_distances(h: Tensor) -> Tensor:
    """Return ‖h − h'‖² for all pairs of rows, without a (rows, rows, width) array.

    In double precision: ‖h‖² + ‖h'‖² − 2⟨h, h'⟩ loses half of the digits of points that are near.
    """
    wide = h.double()
    products = wide @ wide.t()
    lengths = products.diagonal()
    squared = lengths[:, None] + lengths[None, :] - 2 * products
    return squared.clamp(min=0).to(h.dtype)


def _mean_over_pairs(energy: Tensor, labels: Tensor) -> Tensor:
    is_pair = (labels[:, None] == labels[None, :]).fill_diagonal_(False)
    return torch.where(is_pair, energy, 0.0).sum() / is_pair.sum().clamp(min=1)


def _centre(distances: Tensor) -> Tensor:
    rows, columns = distances.mean(0, keepdim=True), distances.mean(1, keepdim=True)
    return distances - rows - columns + distances.mean()
