"""Attacks on the labels of training rows, through the gradients that a feature owner receives.

Rows of one class are pushed in one direction: groups of gradients are classes, and no label is
needed to find them.
"""

from dataclasses import replace

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from sklearn.cluster import KMeans
from sklearn.neighbors import NearestNeighbors
from torch import Tensor, nn

from tacit.audit.split.attacks import whiten
from tacit.audit.split.training import SeenTraining
from tacit.audit.split.views import SeenLayer
from tacit.split import Defence, Returned, angle_energies

_ROUNDS, _INNER = 4, 5
_MOST_CLASSES = 100
_EARLY_ROWS, _MOST_PARTS = 40, 10
_NEIGHBOURS = 16


def sum_epochs(seen: SeenTraining, epochs: int) -> SeenLayer:
    """Look at where every row's gradients point, on the whole, over the first passes."""
    total = torch.stack(_directions(seen, epochs)).sum(0)
    return as_layer(seen, nn.functional.normalize(total, dim=1))


def whiten_epochs(seen: SeenTraining, epochs: int) -> SeenLayer:
    """Look at the first passes side by side, all directions of each brought to unit spread.

    Directions that are loud in every row, as those of a loss on pairs, count no more than others.
    """
    white = [whiten(as_layer(seen, rows))[1] for rows in _directions(seen, epochs)]
    return as_layer(seen, torch.cat(white, 1))


def whiten_early(seen: SeenLayer) -> SeenLayer:
    """Do the same with a part of the first pass."""
    return replace(seen, targets=whiten(seen)[1])


def find_neighbours(seen: SeenTraining) -> Tensor:
    """Return (rows, few) the rows most like each: by the inputs, else by the first cut layers."""
    rows = seen.inputs
    if rows is None:
        first = seen.epochs[0]
        rows = torch.zeros(seen.rows, first[0].cut.shape[1])
        for one in first:
            rows[one.rows] = one.cut
    few = min(_NEIGHBOURS, seen.rows)
    values = rows.double().numpy()
    return torch.from_numpy(NearestNeighbors(n_neighbors=few).fit(values).kneighbors(values)[1])


def join_neighbours(seen: SeenTraining, epochs: int, near: Tensor) -> SeenLayer:
    """Look at where the gradients of each row and of those most like it point together.

    Noise on gradients or labels cancels out among rows that are alike: what is left is what
    training tells of such rows, which no privacy of single labels hides.
    """
    total = sum_epochs(seen, epochs).targets[near].sum(1)
    return as_layer(seen, nn.functional.normalize(total, dim=1))


def look_early(seen: SeenTraining) -> list[tuple[Tensor, SeenLayer]]:
    """Look at parts of the first pass alone; return which rows are in each, and their gradients.

    Weights change while a pass lasts, and with them where a class is pushed to: within a part
    they are nearly the same.
    """
    messages, parts = seen.epochs[0], [list[Returned]()]
    wanted = max(_EARLY_ROWS * seen.classes, seen.rows // _MOST_PARTS)
    for one in messages:
        if sum(len(own.rows) for own in parts[-1]) >= wanted:
            parts.append([])
        parts[-1].append(one)
    found = []
    for part in parts[: None if len(parts) == 1 else -1]:  # the last may be small
        rows = torch.cat([one.rows for one in part])
        values = torch.cat([nn.functional.normalize(one.gradient, dim=1) for one in part])
        nothing = torch.zeros(0, dtype=torch.int64)
        layer = SeenLayer(
            leaked=values[:0], leaked_labels=nothing, targets=values, classes=seen.classes
        )
        found.append((rows, layer))
    return found


def as_layer(seen: SeenTraining, rows: Tensor) -> SeenLayer:
    """Take any (rows, width) values of the watched rows for a layer, with the same leak."""
    return SeenLayer(
        leaked=rows[seen.leaked],
        leaked_labels=seen.leaked_labels,
        targets=rows,
        classes=seen.classes,
    )


def group(seen: SeenLayer, *, generator: torch.Generator) -> Tensor:
    """Guess groups, not names, without any label: k-means at the best of three starts."""
    return torch.from_numpy(_fit(seen, generator).labels_).long()


def group_and_name(seen: SeenLayer, *, generator: torch.Generator) -> Tensor:
    """Guess classes: k-means, also started at the leaked rows, its groups named by them."""
    known = sorted(set(seen.leaked_labels.tolist()))
    means = torch.stack([seen.leaked[seen.leaked_labels == one].mean(0) for one in known])
    ways = [_fit(seen, generator)]
    if len(known) == seen.classes:
        started = KMeans(seen.classes, init=means.double().cpu().numpy(), n_init=1)
        ways.append(started.fit(seen.targets.double().cpu().numpy()))
    best = min(ways, key=lambda one: float(one.inertia_))
    table = np.zeros((seen.classes, seen.classes), np.int64)
    places = best.predict(seen.leaked.double().cpu().numpy())
    np.add.at(table, (places, seen.leaked_labels.cpu().numpy()), 1)
    groups, names = linear_sum_assignment(-table)
    return torch.from_numpy(names[np.argsort(groups)][best.labels_]).long()


def has_known_energy(seen: SeenTraining) -> bool:
    """Tell whether `take_energy_out` can work out what the defence adds to a gradient."""
    is_small = seen.classes <= _MOST_CLASSES  # each row is tried in each
    return seen.is_whole and is_small and any(one.is_on_sphere for one in seen.defences)


def take_energy_out(seen: SeenTraining, guess: Tensor, *, epochs: int) -> Tensor:
    """Improve a guess of groups by undoing the potential energy, whose form is in the job.

    The energy at a row follows from the cut layers, which the feature owner computed, and from
    which rows share its class. So each row is tried in every group: where what is left of its
    gradient lies nearest to what is left of that group's other rows, there it belongs.
    """
    passes = seen.epochs[:epochs]
    for _ in range(_ROUNDS):
        parts = [_without_energy(seen, messages, guess) for messages in passes]
        left = torch.cat(parts, 2)  # (rows, classes, epochs · width)
        for _ in range(_INNER):
            own = left[torch.arange(seen.rows), guess]
            centres = torch.stack([_centre(own, guess == one) for one in range(seen.classes)])
            guess = (left - centres).square().sum(2).argmin(1)
    return guess


def _without_energy(seen: SeenTraining, messages: tuple[Returned, ...], guess: Tensor) -> Tensor:
    """Return, at length 1, what is left of each row's gradient for every group it may be in."""
    width = messages[0].gradient.shape[1]
    left = torch.empty(seen.rows, seen.classes, width)
    for one in messages:
        energy = torch.zeros(len(one.rows), seen.classes, width)
        for defence in seen.defences:
            if defence.is_on_sphere:
                energy += _forces(one, guess[one.rows], seen.classes, defence)
        energy *= (one.gradient != 0)[:, None, :]  # what a compressor dropped has no gradient
        left[one.rows] = nn.functional.normalize(one.gradient[:, None, :] - energy, dim=2)
    return left


def _forces(one: Returned, guess: Tensor, classes: int, defence: Defence) -> Tensor:
    """Return the gradient of the energy at each row for every group, the others as guessed."""
    h = one.cut.float().clone().requires_grad_()
    unit = nn.functional.normalize(h, dim=1)
    others, counts = unit.detach(), torch.bincount(guess, minlength=classes)
    pairs = int((counts * (counts - 1)).sum())
    energies = angle_energies(unit, others) * (1 - torch.eye(len(h)))
    # A pair counts twice in the mean, once for each of its rows.
    scale = 2 * one.share * defence.weight_at(one.step) / max(pairs, 1)
    found = [
        torch.autograd.grad(energies[:, guess == k].sum() * scale, h, retain_graph=True)[0]
        for k in range(classes)
    ]
    return torch.stack(found, 1)


def _centre(rows: Tensor, is_in: Tensor) -> Tensor:
    """Return the median of a group, which few wrong rows do not move; of all if it is empty."""
    return (rows[is_in] if bool(is_in.any()) else rows).median(0).values


def _directions(seen: SeenTraining, epochs: int) -> list[Tensor]:
    """Return (rows, width) gradients of each of the first passes, every row at length 1."""
    found = []
    for messages in seen.epochs[:epochs]:
        rows = torch.zeros(seen.rows, messages[0].gradient.shape[1])
        for one in messages:
            rows[one.rows] = nn.functional.normalize(one.gradient, dim=1)
        found.append(rows)
    return found


def _fit(seen: SeenLayer, generator: torch.Generator) -> KMeans:
    seed = int(torch.empty(()).uniform_(generator=generator) * 2**31)
    return KMeans(seen.classes, n_init=3, random_state=seed).fit(seen.targets.double().numpy())
