"""Attacks on the labels and the inputs of a split model, from what its owners see of the other.

Labels: a linear top for a layer that was seen, learned from few labels (model completion),
clusters, norms of gradients, a model from scratch. Inputs: a decoder from the cut layer.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod, sqrt

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from sklearn.cluster import KMeans
from sklearn.neighbors import NearestNeighbors
from torch import Tensor, nn

from tacit.audit.split.views import SeenCut, SeenLayer, SeenReturned, SeenRows, SeenTraining
from tacit.audit.views import started
from tacit.split import Defence, Returned, angle_energies

STEPS = 200
"""Steps of every attack that learns from the leaked labels."""
_RATE, _DECAY = 1e-3, 1e-4


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
    model = started(seen.make_model, generator).to(seen.leaked.device)
    # Few rows: statistics of a batch would be those of the leak alone, so models keep their own.
    _learn(model, lambda: vary(seen.leaked), seen.leaked_labels, rate=1e-3)
    model.eval()
    with torch.no_grad():
        logits = torch.cat([model(batch) for batch in torch.split(seen.targets, 1024)])
    return logits.argmax(1)


def gradient_norm(seen: SeenReturned, *, generator: torch.Generator) -> Tensor:
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


def reconstruct(seen: SeenCut, *, generator: torch.Generator) -> Tensor:
    """Guess inputs with a decoder network that is trained on the pairs that leaked (3.4.4)."""
    shape = seen.leaked_inputs.shape[1:]
    width = seen.leaked.shape[1]
    wanted = seen.leaked_inputs.flatten(1).float()
    centre, scale = seen.leaked.mean(0), seen.leaked.std(0).clamp(min=1e-6)
    hidden, last = started(lambda: (nn.Linear(width, 256), nn.Linear(256, prod(shape))), generator)
    with torch.no_grad():
        # Start at the mean input: what one guesses without looking at the cut layer.
        last.weight.mul_(0.1)
        last.bias.copy_(wanted.mean(0))
    decoder = nn.Sequential(hidden, nn.LeakyReLU(), last).to(seen.leaked.device)
    optimiser = torch.optim.Adam(decoder.parameters(), lr=2e-3, weight_decay=1e-5)
    held_out = max(len(wanted) // 10, 1)
    best, kept = torch.inf, {k: v.clone() for k, v in decoder.state_dict().items()}
    x = (seen.leaked - centre) / scale
    for step in range(400):
        optimiser.zero_grad(set_to_none=True)
        loss = (decoder(x[held_out:]) - wanted[held_out:]).square().mean()
        loss.backward()
        optimiser.step()
        if step % 10 == 9:
            with torch.no_grad():
                error = float((decoder(x[:held_out]) - wanted[:held_out]).square().mean())
            if error < best:
                best, kept = error, {k: v.clone() for k, v in decoder.state_dict().items()}
    decoder.load_state_dict(kept)
    with torch.no_grad():
        guess: Tensor = decoder((seen.targets - centre) / scale)
    return guess.view(-1, *shape)


def even_out(seen: SeenLayer) -> tuple[Tensor, Tensor]:
    """Bring every column to mean 0 and deviation 1 and every row to length 1.

    The attacker holds many rows without labels, and so can undo a defence that only stretches
    the layer, as distance correlation does. Returns the leaked rows and the targets.
    """
    centre, spread = seen.targets.mean(0), seen.targets.std(0).clamp(min=1e-6)
    leaked, targets = (
        nn.functional.normalize((values - centre) / spread, dim=1)
        for values in (seen.leaked, seen.targets)
    )
    return leaked, targets


def whiten(seen: SeenLayer) -> tuple[Tensor, Tensor]:
    """Let all directions of the layer count alike; return the leaked rows and the targets.

    Weaker than `even_out` where the classes lie along the long directions, stronger where a
    defence has made those long directions meaningless.
    """
    centre = seen.targets.mean(0)
    shifted = (seen.targets - centre).double()
    covariance = shifted.t() @ shifted / max(len(shifted) - 1, 1)
    width = covariance.shape[0]
    floor = 1e-3 * covariance.diagonal().mean().clamp(min=1e-12)
    root = torch.linalg.cholesky(covariance + floor * torch.eye(width, device=shifted.device))
    leaked, targets = (
        torch.linalg.solve_triangular(root, (values - centre).double().t(), upper=False).t().float()
        / sqrt(width)
        for values in (seen.leaked, seen.targets)
    )
    return leaked, targets


def complete_each(
    leaks: Sequence[Tensor], labels: Sequence[Tensor], targets: Sequence[Tensor], *, classes: int
) -> list[Tensor]:
    """Guess the labels of several sets of targets, each by a linear top of its own.

    A top starts at its leak's class means, then learns the leaked rows (section 4.2.2 of the
    thesis). All are learned at once: many small steps on one device cost what one costs.

    Args:
        leaks: of every top, (few, width) values whose labels leaked; all of one shape.
        labels: of every top, (few,) those labels.
        targets: of every top, (rows, width) values to guess the labels of.
        classes: how many there are.
    """
    x, y = torch.stack(tuple(leaks)), torch.stack(tuple(labels))  # (tops, few, width), (tops, few)
    weight = _class_means(x, y, classes)
    # ⟨m, h⟩ − ‖m‖²/2 is largest for the nearest mean.
    bias = -weight.square().sum(2, keepdim=True) / 2
    _learn_all([weight, bias], lambda: torch.baddbmm(bias, weight, x.transpose(1, 2)), y)
    with torch.no_grad():
        return [
            (rows @ weight[top].t() + bias[top, :, 0]).argmax(1) for top, rows in enumerate(targets)
        ]


def complete_deep_each(
    leaks: Sequence[Tensor],
    labels: Sequence[Tensor],
    targets: Sequence[Tensor],
    *,
    classes: int,
    hidden: int,
    generator: torch.Generator,
) -> list[Tensor]:
    """Do the same with tops of two layers and random first weights, as the label owner's own.

    Args:
        leaks: of every top, (few, width) values whose labels leaked; all of one shape.
        labels: of every top, (few,) those labels.
        targets: of every top, (rows, width) values to guess the labels of.
        classes: how many there are.
        hidden: width of the layer between.
        generator: of the first weights.
    """
    x, y = torch.stack(tuple(leaks)), torch.stack(tuple(labels))
    # Rows have length 1; at the spread that a layer is built for, they have √width.
    scale = sqrt(x.shape[2])
    first, second = (
        torch.empty(len(x), out, inside).uniform_(-1, 1, generator=generator).to(x) / sqrt(inside)
        for out, inside in ((hidden, x.shape[2]), (classes, hidden))
    )
    bend, last = x.new_zeros(len(x), hidden, 1), x.new_zeros(len(x), classes, 1)

    def answer(which: slice, rows: Tensor) -> Tensor:
        inner = torch.relu(first[which] @ (scale * rows).transpose(1, 2) + bend[which])
        return second[which] @ inner + last[which]  # (tops, classes, rows)

    _learn_all([first, second, bend, last], lambda: answer(slice(None), x), y)
    with torch.no_grad():
        return [
            answer(slice(top, top + 1), rows[None])[0].argmax(0) for top, rows in enumerate(targets)
        ]


def _learn_all(weights: Sequence[Tensor], answer: Callable[[], Tensor], y: Tensor) -> None:
    """Teach all tops their leaked rows; `answer` returns (tops, classes, few) logits."""
    for weight in weights:
        weight.requires_grad_()
    optimiser = torch.optim.Adam(weights, lr=_RATE, weight_decay=_DECAY)
    for _ in range(STEPS):
        optimiser.zero_grad(set_to_none=True)
        loss = nn.functional.cross_entropy(answer(), y, reduction="sum") / y.shape[1]
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()


def _class_means(x: Tensor, y: Tensor, classes: int) -> Tensor:
    """Return (tops, classes, width); the mean of a class without rows is zero."""
    members = nn.functional.one_hot(y, classes).to(x.dtype)  # (tops, few, classes)
    counts = members.sum(1).clamp(min=1)
    return members.transpose(1, 2) @ x / counts[:, :, None]


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
