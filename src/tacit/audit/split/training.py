"""What a feature owner sees while training: its cut layer and the gradients that come back."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from tacit.audit.split.views import pick_leak
from tacit.audit.views import seeded
from tacit.errors import DataError
from tacit.split import Defence, Returned, TrainingPace, steps_per_epoch
from tacit.split.checkpoint import load_returned, save_returned

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
