"""What the parties of a split model can see of each other."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from tacit.audit.views import seeded
from tacit.errors import DataError
from tacit.split import Defence, Returned, TrainingPace, cut, steps_per_epoch
from tacit.split.checkpoint import load_returned, save_returned

Make = Callable[[], nn.Module]
"""Builds a model with fresh weights; an attacker knows the architecture, not the weights."""


@dataclass(frozen=True, kw_only=True, eq=False)
class SeenLayer:
    """A feature owner with its bottom model: a layer's values on rows, few of them labelled.

    Attributes:
        leaked: (few, width) values of the rows whose labels leaked.
        leaked_labels: (few,) those labels.
        targets: (rows, width) values of the rows whose labels are to be guessed.
        classes: how many there are.
    """

    leaked: Tensor
    leaked_labels: Tensor
    targets: Tensor
    classes: int


@dataclass(frozen=True, kw_only=True, eq=False)
class SeenRows:
    """The same leak without any bottom model: the rows themselves, and the architecture."""

    leaked: Tensor
    leaked_labels: Tensor
    targets: Tensor
    classes: int
    make_model: Make


@dataclass(frozen=True, kw_only=True, eq=False)
class SeenReturned:
    """A feature owner while training: one gradient row per sample, (rows, width)."""

    gradients: Tensor


@dataclass(frozen=True, kw_only=True, eq=False)
class SeenCut:
    """A label owner: the cut layer of rows it does not know, and of a few that leaked."""

    leaked: Tensor
    leaked_inputs: Tensor
    targets: Tensor


def see_layer(
    bottom: nn.Module,
    *,
    leaked: tuple[Tensor, Tensor],
    targets: Tensor,
    classes: int,
    before: str | None = None,
) -> SeenLayer:
    """Look through a bottom model, at its end or, with `before`, after an earlier layer of it.

    Raises:
        DataError: nothing leaked, or not one label per leaked row.
    """
    rows, labels = leaked
    if len(rows) < 1 or rows.shape[0] != labels.shape[0]:
        raise DataError(f"wanted leaked rows with a label each, got {len(rows)} and {len(labels)}")
    part = bottom if before is None else cut(bottom, before)[0]
    return SeenLayer(
        leaked=_run(part, rows),
        leaked_labels=labels,
        targets=_run(part, targets),
        classes=classes,
    )


def see_cut(
    bottom: nn.Module, *, leaked: Tensor, targets: Tensor, as_sent: Callable[[Tensor], Tensor]
) -> SeenCut:
    """Look at a cut layer from the label owner's side, as the compressor lets it through."""
    return SeenCut(
        leaked=as_sent(_run(bottom, leaked)),
        leaked_inputs=leaked,
        targets=as_sent(_run(bottom, targets)),
    )


def pick_leak(labels: Tensor, per_class: int, *, generator: torch.Generator) -> Tensor:
    """Return the positions of `per_class` rows of every class, chosen at random."""
    keys = torch.empty(len(labels)).uniform_(generator=generator)
    found = []
    for one in sorted(set(labels.tolist())):
        members = (labels == one).nonzero()[:, 0].cpu()
        found.append(members[keys[members].argsort()][:per_class])
    return torch.cat(found)


def _run(part: nn.Module, rows: Tensor) -> Tensor:
    was_training = part.training
    part.eval()
    with torch.no_grad():
        values = [part(batch).flatten(1) for batch in torch.split(rows, 1024)]
    part.train(was_training)
    return torch.cat(values)


_MOST_ROWS = 5000
_MOST_VALUES = 1 << 25
"""Of gradients that are kept: 128 MB, and as much for the cut layers."""


@dataclass(frozen=True, kw_only=True, eq=False)
class SeenTraining:
    """A feature owner after training, with every message that came back.

    Attributes:
        epochs: the messages of every pass; rows are numbered among those watched.
        rows: how many are watched.
        is_whole: whether these are all rows of every batch.
        classes: how many there are.
        defences: those of the job, which every party knows.
        inputs: (rows, columns) its own rows, where whoever audits has them.
        leaked: (few,) the watched rows whose labels leaked.
        leaked_labels: (few,) those labels.
    """

    epochs: tuple[tuple[Returned, ...], ...]
    rows: int
    is_whole: bool
    classes: int
    defences: tuple[Defence, ...]
    inputs: Tensor | None
    leaked: Tensor
    leaked_labels: Tensor


class Watch:
    """Keeps the messages that come back to each feature owner, of some thousand rows.

    It belongs to an audit: the label owner, who sends them, may hold it, or whoever trains both
    parts in one place.

    Args:
        rows: how many are trained on.
        pace: of the training.
        folder: where every whole pass is kept, so that a training that goes on there, even from its
            very end, is measured by all that was sent; None to keep it in memory alone.
    """

    def __init__(self, rows: int, pace: TrainingPace, *, folder: Path | None = None) -> None:
        self._rows, self._pace, self._folder = rows, pace, folder
        self._kept: dict[str, dict[int, list[Returned]]] = defaultdict(lambda: defaultdict(list))
        self._places: Tensor | None = None
        self._count = 0
        self._before: set[tuple[str, int]] = set()  # passes of an earlier start
        for owner, number, messages in () if folder is None else load_returned(folder):
            self._number(sum(len(one.rows) for one in messages))
            self._kept[owner][number] = messages
            self._before.add((owner, number))

    def __call__(self, owner: str, one: Returned) -> None:
        """Keep a message."""
        places = self._choose(one.gradient.shape[1])[one.rows.cpu()]
        wanted = places >= 0
        kept = Returned(
            step=one.step,
            share=one.share,
            rows=places[wanted],
            cut=one.cut.cpu()[wanted],
            gradient=one.gradient.cpu()[wanted],
        )
        number = one.step // steps_per_epoch(self._rows, self._pace)
        for again in [at for at in self._before if at[0] == owner and at[1] >= number]:
            self._before.remove(again)  # it is done once more, from here on
            del self._kept[owner][again[1]]
        messages = self._kept[owner][number]
        messages.append(kept)
        if self._folder is not None and self._is_whole(messages):
            save_returned(self._folder, owner, number, messages)

    def see(
        self,
        owner: str,
        labels: Tensor,
        *,
        per_class: int,
        classes: int,
        defences: tuple[Defence, ...],
        inputs: Tensor | None = None,
        seed: int = 0,
    ) -> tuple[SeenTraining, Tensor]:
        """Return an owner's view of the watched rows, and the truth about them.

        Args:
            owner: who receives the messages.
            labels: of all rows trained on.
            per_class: how many of every class leak.
            classes: how many there are.
            defences: those of the job.
            inputs: the owner's rows, all that are trained on.
            seed: of the leak.

        Raises:
            DataError: no pass over the rows was watched from its beginning to its end, or there
                are too few rows to find groups among.
        """
        if self._places is None:
            raise DataError("no gradient was watched; wanted at least one whole epoch")
        watched = (self._places >= 0).nonzero()[:, 0]
        whole = [
            tuple(messages)
            for _, messages in sorted(self._kept[owner].items())
            if self._is_whole(messages)
        ]
        if not whole:
            raise DataError("no epoch was watched from its beginning to its end")
        if len(watched) < 2 * classes:
            text = f"wanted {2 * classes} rows or more for {classes} classes, got {len(watched)}"
            raise DataError(f"gradients cannot be grouped: {text}")
        truth = labels.cpu()[watched]
        leaked = pick_leak(truth, per_class, generator=seeded(seed))
        seen = SeenTraining(
            epochs=tuple(whole),
            rows=len(watched),
            is_whole=len(watched) == self._rows,
            classes=classes,
            defences=defences,
            inputs=None if inputs is None else inputs.cpu()[watched].flatten(1).float(),
            leaked=leaked,
            leaked_labels=truth[leaked],
        )
        return seen, truth

    def _is_whole(self, messages: Sequence[Returned]) -> bool:
        return sum(len(one.rows) for one in messages) == self._count

    def _choose(self, width: int) -> Tensor:
        """Number the rows that are watched, and give −1 to the others."""
        if self._places is None:
            most = min(_MOST_ROWS, _MOST_VALUES // (width * self._pace.epochs))
            return self._number(max(most, 1))
        return self._places

    def _number(self, most: int) -> Tensor:
        keys = torch.empty(self._rows).uniform_(generator=seeded(0))
        chosen = keys.argsort()[:most].sort().values
        places = torch.full((self._rows,), -1)
        places[chosen] = torch.arange(len(chosen))
        self._places, self._count = places, len(chosen)
        return places
