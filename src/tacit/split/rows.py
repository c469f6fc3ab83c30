"""What parties of a split model bring: columns or labels, to train on and to test on."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from tacit.data.partition import PUBLIC_SEED, USUAL_TEST_SHARE, split
from tacit.data.rows import Rows
from tacit.data.source import NOTHING, Given, Source
from tacit.errors import ConfigError, DataError
from tacit.split.local import make_top
from tacit.split.models import CUT
from tacit.split.spec import SplitSpec


@dataclass(frozen=True, kw_only=True, eq=False)
class Divided:
    """What one party brings, divided into rows to train on and rows to test on.

    `columns` is what brought them to mean 0 and deviation 1, if anything did.
    """

    train: Tensor
    test: Tensor
    test_ids: tuple[str, ...] = ()
    columns: nn.Module | None = None

    def digest(self) -> bytes:
        """Hash the rows to train on."""
        return hashlib.sha256(self.train.numpy().tobytes()).digest()


@dataclass(frozen=True, kw_only=True, eq=False)
class WholeData:
    """All rows, with their labels, for someone who may see both sides."""

    train_x: Tensor
    train_y: Tensor
    test_x: Tensor
    test_y: Tensor
    classes: int


@dataclass(frozen=True, kw_only=True, eq=False)
class Brought:
    """What one party brings, divided into rows to train on and rows to test on."""

    features: Divided | None
    labels: Divided | None
    classes: int

    @property
    def counts(self) -> tuple[int, int]:
        """Return how many rows there are to train on, and to test on."""
        one = self.features or self.labels
        return (len(one.train), len(one.test)) if one is not None else (0, 0)

    def digest(self) -> bytes:
        """Hash the rows to train on."""
        parts = [one.digest() for one in (self.features, self.labels) if one is not None]
        return hashlib.sha256(b"".join(parts)).digest()


class Columns(nn.Module):
    """Gives the columns of a table mean 0 and deviation 1, as the rows trained on had them."""

    mean: Tensor
    spread: Tensor

    def __init__(self, train: Tensor) -> None:
        super().__init__()
        self.register_buffer("mean", train.mean(0))
        self.register_buffer("spread", train.std(0).clamp(min=1e-6))

    def forward(self, x: Tensor) -> Tensor:
        """Return rows in the scale of those trained on."""
        return (x - self.mean) / self.spread


def divide_whole(whole: Rows, *, test_share: float | None, rows: int | None) -> WholeData:
    """Divide a data set whose every row is known to all.

    Args:
        whole: with classes.
        test_share: of the rows, to test on; as published if not given.
        rows: take only so many to train on.
    """
    train, test = (split(whole, part=part, test_share=test_share) for part in ("train", "test"))
    if train.labels is None or test.labels is None:
        raise DataError(f"{whole.name}: wanted a set with classes")
    train_x, test_x = to_tensor(train)[:rows], to_tensor(test)
    columns = columns_of(train_x)
    if columns is not None:
        train_x, test_x = columns(train_x), columns(test_x)
    return WholeData(
        train_x=train_x,
        train_y=torch.from_numpy(train.labels)[:rows],
        test_x=test_x,
        test_y=torch.from_numpy(test.labels),
        classes=len(whole.classes),
    )


def divide_rows(
    values: Tensor,
    ids: Sequence[str] = (),
    *,
    test_share: float | None = None,
    rows: int | None = None,
    is_scaled: bool,
) -> Divided:
    """Divide one party's rows as the others divide theirs.

    Args:
        values: columns or labels, in the order that all parties have.
        ids: of the rows, if they have any.
        test_share: of the rows, to test on.
        rows: take only so many to train on.
        is_scaled: whether columns are brought to mean 0 and deviation 1.

    Raises:
        DataError: there are too few.
    """
    # By position alone: a feature owner has no classes to divide evenly.
    total = len(values)
    order = torch.from_numpy(np.random.default_rng(PUBLIC_SEED).permutation(total))
    count = max(1, round(total * (test_share or USUAL_TEST_SHARE)))
    if total <= count:
        raise DataError(f"wanted rows to train on and rows to test on, got {total} in all")
    train, test = values[order[count:]][:rows], values[order[:count]]
    columns = columns_of(train) if is_scaled else None
    if columns is not None:
        train, test = columns(train), columns(test)
    test_ids = tuple(ids[at] for at in order[:count].tolist()) if ids else ()
    return Divided(train=train, test=test, test_ids=test_ids, columns=columns)


def columns_of(train: Tensor) -> Columns | None:
    """Return what scales the columns of a table; None for pictures, tokens, or a single row."""
    is_table = train.dim() == 2 and len(train) > 1 and train.is_floating_point()
    return Columns(train) if is_table else None


def to_tensor(rows: Rows) -> Tensor:
    """Return features in the precision of a network."""
    return torch.from_numpy(rows.features.astype(np.float32))


def read_tokens(values: Tensor, vocabulary: int, name: str) -> Tensor:
    """Read columns as tokens.

    Raises:
        DataError: they are no whole numbers, or beyond the vocabulary.
    """
    tokens = values.long()
    if not torch.equal(tokens.to(values.dtype), values):
        raise DataError(f"{name}: wanted tokens, which are whole numbers, in every column")
    low, high = int(tokens.min()), int(tokens.max())
    if low < 0 or high >= vocabulary:
        raise DataError(
            f"{name}: wanted tokens from 0 to {vocabulary - 1}, below model.vocabulary, "
            f"got {low} to {high}"
        )
    return tokens


def load_whole(spec: SplitSpec, search: Sequence[Path]) -> WholeData:
    """Load all of a known set."""
    if spec.data.set is None:
        raise ConfigError("wanted data.set: the parties' files are not in one place")
    whole = Source(set=spec.data.set).whole(search)
    return divide_whole(whole, test_share=spec.data.test_share, rows=spec.data.rows)


def load_part(
    spec: SplitSpec, party: str, search: Sequence[Path], given: Given = NOTHING
) -> Brought:
    """Load what one party brings; its own file must have the rows of the others, in their order."""
    if spec.data.set is None:
        return divide_own(spec, load_own(spec, party, given))
    Source(set=spec.data.set).refuse_given(given)
    whole = load_whole(spec, search)
    features = labels = None
    if party == spec.data.labels:
        labels = Divided(train=whole.train_y, test=whole.test_y)
    if party in spec.data.features:
        place, count = spec.data.blocks.index(party), len(spec.data.blocks)
        train, test = (
            torch.tensor_split(x, count, dim=-1)[place].contiguous()
            for x in (whole.train_x, whole.test_x)
        )
        features = Divided(train=train, test=test)
    return Brought(features=features, labels=labels, classes=whole.classes)


def load_own(spec: SplitSpec, party: str, given: Given = NOTHING) -> Rows:
    """Load a party's own file, or take what it gives in its place: columns, labels or both.

    Raises:
        DataError: it cannot be read, has no column to match by, or nothing besides it.
    """
    data, has_labels = spec.data, party == spec.data.labels and spec.serve is None
    source = Source(
        file=data.files.get(party),
        label=data.label if has_labels else None,
        id=data.match,
        key=f"data.files.{party}",
    )
    rows = source.load(given=given)
    if data.match is None:
        rows = replace(rows, ids=())
    if has_labels:
        found, wanted = 0 if rows.labels is None else int(rows.labels.max()), data.classes or 0
        if found >= wanted:
            raise DataError(
                f"{source.key}: a label is {found}, wanted labels below data.classes = {wanted}"
            )
    if party not in data.features:
        return replace(rows, features=np.empty((len(rows), 0)), columns=())
    own_label = data.label if party == data.labels else None
    rows = rows.without(own_label)  # also of one that only asks
    if not rows.features.size:
        besides = " and ".join(sorted(repr(one) for one in (*(data.match or ()), own_label) if one))
        raise DataError(f"{rows.name}: wanted a column besides {besides}, got none")
    values_of(spec, rows)
    return rows


def values_of(spec: SplitSpec, rows: Rows) -> Tensor | None:
    """Return features as a network takes them; None for an owner of labels alone.

    Raises:
        DataError: tokens are wanted, and they are something else.
    """
    if not rows.features.size:
        return None
    if spec.model.vocabulary is None:
        return to_tensor(rows)
    return read_tokens(to_tensor(rows), spec.model.vocabulary, rows.name)


def divide_own(spec: SplitSpec, rows: Rows) -> Brought:
    """Divide a party's rows into those to train on and those to test on, as the others do.

    Raises:
        DataError: there are too few.
    """

    def divide(values: Tensor | None, is_scaled: bool) -> Divided | None:
        if values is None:
            return None
        share, most = spec.data.test_share, spec.data.rows
        return divide_rows(values, rows.ids, test_share=share, rows=most, is_scaled=is_scaled)

    return Brought(
        features=divide(values_of(spec, rows), True),
        labels=divide(None if rows.labels is None else torch.from_numpy(rows.labels), False),
        classes=spec.data.classes or 0,
    )


def top_of(spec: SplitSpec, search: Sequence[Path]) -> tuple[nn.Module, dict[str, int]]:
    """Build the label owner's part; a cut elsewhere than at "cut" looks at the known set."""
    shape = None if spec.model.cut == CUT else load_whole(spec, search).train_x.shape[1:]
    return make_top(spec, shape)
