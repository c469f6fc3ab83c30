"""The rows of a training: what each owner's table names, and what is told of them."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from tacit.data.memory import mark_of
from tacit.data.rows import Holding, Rows, Target, check_bound, check_features, prepare_labels
from tacit.data.source import FLAT, NOTHING, Given, OwnerTable, stretch
from tacit.data.tables import read_texts
from tacit.errors import ConfigError, DataError
from tacit.matching import align_in_the_clear, align_rows, announce_ids
from tacit.nn.code import OwnModel
from tacit.nn.features import TEXTS, TextNetwork, cut_out
from tacit.party import Fact, Session
from tacit.training.plan import trainable
from tacit.training.spec import TrainSpec

_MOST_DIMENSIONS = 4
"""Of the shape of an owner's rows, which is told in a message of one size: pictures have these."""
HOLDING = Fact(
    tag="data",
    count=_MOST_DIMENSIONS + 2,
    what="how many rows {owner} has, their shape, a hash of its columns' names where rows are "
    "divided, and whether it has labels",
)


def exchange_holdings(
    session: Session, owners: Sequence[str], mine: Rows | None, *, split: str
) -> tuple[Holding, ...]:
    """Tell everyone how much data I have, and hear it from the others.

    Args:
        session: with the others.
        owners: who has data.
        mine: my own, if I have some.
        split: owners of rows say what their columns are called, by a hash.

    Raises:
        DataError: an owner announces an impossible shape.
    """
    if mine is not None:
        own = tuple(mine.features.shape)
        padded = (*own, *(0,) * (_MOST_DIMENSIONS - len(own)))
        known = holding_of(session.me, mine, split=split)
        session.publish(HOLDING, (*padded, int(known.has_labels), known.names))
    holdings = []
    for owner in owners:
        if owner == session.me and mine is not None:
            holdings.append(known)
            continue
        rows, *shape, has_labels, names = session.learn(owner, HOLDING)
        # An owner of labels may have no columns.
        sizes = tuple(size for size in shape if size) or (0,)
        if rows < 1 or any(size < 0 for size in sizes):
            raise DataError(f"{owner!r} says its data has the shape {(rows, *shape)}")
        holdings.append(
            Holding(owner, rows, sizes, "classes" if has_labels else "none", names=names)
        )
    return tuple(holdings)


def holding_of(owner: str, rows: Rows, *, split: str) -> Holding:
    """Say how much data an owner has."""
    shape = tuple(rows.features.shape)
    names = mark_of(rows.columns) if split == "rows" else 0
    labels: Target = "none" if rows.labels is None else "classes"
    return Holding(owner, shape[0], shape[1:], labels, names=names)


def load_rows(
    spec: TrainSpec,
    owner: str,
    search: Sequence[Path],
    given: Given = NOTHING,
    module: nn.Module | None = None,
) -> Rows:
    """Load an owner's part of the data, with labels as a training wants them.

    Args:
        spec: of the training.
        owner: whose part.
        search: the folders that may hold known sets.
        given: what the owner hands over in Python, in place of its file.
        module: the network itself, where a program gives it.

    Raises:
        DataError: it cannot be read, holds NaN, a constant column, or labels out of range.
        RangeError: features are beyond the bound that the spec names.
    """
    table, rule = spec.data.owners[owner], spec.data.features
    if rule is not None and rule.startswith(TEXTS):
        rows = _encoded(table, owner, Path(rule.removeprefix(TEXTS)))
    else:
        rows = table.source(owner, prepare=spec.data.prepare, shape=spec.data.shape or FLAT).load(
            search, given
        )
    if rule is not None and not rule.startswith(TEXTS):
        rows = replace(rows, features=cut_out(rule, rows.features), columns=())
    wants_labels, is_columns = spec.data.labels in (None, owner), spec.data.split == "columns"
    if spec.reads_text:
        texts = _texts(rows, owner, _classes(spec, module))
        reads = tuple(texts.features.shape[1:])
        known = None if spec.model.table is None else trainable(spec.model, reads, module).table
        if known is None:
            return texts
        return replace(texts, features=known.numpy()[texts.features.astype(np.int64)])
    check_features(rows, owner, may_be_none=is_columns and wants_labels)
    labels = None
    if wants_labels:
        classes = _classes(spec, module)
        labels = prepare_labels(rows, owner, classes=classes, loss=spec.loss)
    if is_columns:
        rows.check_columns(owner)
    check_bound(rows, owner, spec.data.bound)
    return replace(rows, labels=labels)


def _encoded(table: OwnerTable, owner: str, network: Path) -> Rows:
    """Read texts, and turn them into features by a public network."""
    if table.file is None or table.set is not None:
        raise ConfigError(f"data.owners.{owner}: texts come from a 'file' with lines of JSON")
    texts, classes = read_texts(table.file, label=table.label)
    part = stretch(table.rows, len(texts), f"data.owners.{owner}.rows")
    return Rows(features=TextNetwork(network)(texts[part]), labels=classes[part])


def _texts(rows: Rows, owner: str, vocabulary: int) -> Rows:
    """Cut rows of ids into what is read and what is to be told at every token."""
    ids = rows.features
    if ids.ndim != 2 or ids.shape[1] < 2:
        raise DataError(f"{owner!r}: wanted rows of two ids or more, got {ids.shape[1:]}")
    if not ((ids >= 0) & (ids < vocabulary) & (ids == ids.round())).all():
        raise DataError(f"{owner!r}: wanted ids, whole numbers from 0 to {vocabulary - 1}")
    hot = np.eye(vocabulary)[ids[:, 1:].astype(np.int64)]
    return replace(rows, features=np.ascontiguousarray(ids[:, :-1]), labels=hot, columns=())


def match_rows(
    session: Session, spec: TrainSpec, mine: Rows | None
) -> tuple[Rows | None, dict[str, int]]:
    """Keep the rows that all owners of columns have; also how many ids each had."""
    if spec.data.split != "columns":
        return mine, {}
    owners = tuple(spec.data.owners)
    counts = announce_ids(session, owners, () if mine is None else mine.ids)
    if mine is not None:
        mine = mine.take(align_rows(session, owners, mine.ids, counts))
        mine.check_columns(session.me)
    return mine, counts


def join_owners(
    spec: TrainSpec, search: Sequence[Path]
) -> tuple[Tensor, Tensor, tuple[Holding, ...]]:
    """Put the rows of all owners together, for someone who may see them: rows, labels, and whose.

    Labels are as a training wants them: one-hot, or a column of zeros and ones.
    """
    parts = {owner: load_rows(spec, owner, search) for owner in spec.data.owners}
    if spec.data.split == "columns":
        parts = align_in_the_clear(parts)
    holdings = tuple(holding_of(owner, one, split=spec.data.split) for owner, one in parts.items())
    along = 0 if spec.data.split == "rows" else 1
    features = np.concatenate([one.features for one in parts.values()], axis=along)
    labels = np.concatenate([one.labels for one in parts.values() if one.labels is not None])
    return torch.from_numpy(features), torch.from_numpy(labels), holdings


def _classes(spec: TrainSpec, module: nn.Module | None) -> int:
    """Return how many classes the last layer of the network tells apart."""
    if spec.training.loss == "logistic":
        return 2
    if module is None and spec.model.code is not None:
        module = OwnModel.read(spec.model.code)()
    if module is not None:
        layers = reversed(list(module.modules()))
        last = next((one for one in layers if isinstance(one, nn.Linear)), None)
        if last is None:
            raise DataError("model.code: wanted a model that ends in an nn.Linear, a class each")
        return last.out_features
    dense = next((one for one in reversed(spec.model.layers) if one.split()[0] == "dense"), None)
    if dense is None:
        raise ConfigError("model.layers: wanted layers that end in 'dense CLASSES', got no 'dense'")
    return int(dense.split()[1])
