"""The rows of a fit: loaded, matched with those of others, and joined by who may see them all."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path

import numpy as np
import torch

from tacit.crypto.cipher import Numbers
from tacit.crypto.matching import make_filters, match_filters
from tacit.data.rows import Floats, Holding, Rows
from tacit.data.source import NOTHING, Given
from tacit.errors import ConfigError, DataError
from tacit.learners.base import divide, held_out
from tacit.learners.cipher.exchange import MatchStore
from tacit.learners.parties import Parties, Planned
from tacit.learners.spec import FitSpec
from tacit.learners.tables import Split, Table, facts_of, holding_of
from tacit.matching import (
    align_in_the_clear,
    align_rows,
    announce_ids,
    claims_of_matching,
    declare_matching,
    leaks_of_matching,
)
from tacit.matching.align import IDS, check_all_ids
from tacit.matching.helped import (
    align_by_helper,
    claims_of_helped,
    declare_helped,
    leaks_of_helped,
)
from tacit.party import Session
from tacit.party.cost import Round
from tacit.result import Claim, Leak


def load_rows(spec: FitSpec, owner: str, search: Sequence[Path], given: Given = NOTHING) -> Rows:
    """Load an owner's part of the data; labels are there if the fit wants them of this owner.

    Raises:
        DataError: it cannot be read, holds NaN, or labels are missing.
    """
    wanted = spec.wants_labels(owner)
    source = replace(
        spec.data.owners[owner].source(owner, prepare=spec.data.prepare),
        has_numbers=wanted and spec.learner.target == "numbers",
    )
    rows = source.load(search, given)
    if wanted and rows.labels is None:
        raise DataError(
            f"the data of {owner!r} has no labels; name the column with {source.key}.label"
        )
    return rows if wanted else replace(rows, labels=None)


def match_rows(
    session: Session, spec: FitSpec, mine: Rows | None, kept: MatchStore | None = None
) -> tuple[dict[str, int], Rows | None, Numbers | None]:
    """Match ids, and return how many each owner had, my rows, and the helper's matches.

    Args:
        session: my end of the job.
        spec: says who matches, and how.
        mine: my rows, as I have them.
        kept: where hidden matches are kept: they are taken up if the fit was begun before.
    """
    ids = () if mine is None else mine.ids
    counts: dict[str, int] = {}
    for owners in spec.matched:
        counts |= announce_ids(session, owners, ids if session.me in owners else ())
    if spec.helped is None:
        for owners in spec.matched:
            if mine is not None and session.me in owners:
                mine = mine.take(align_rows(session, owners, ids, _within(counts, owners)))
        return counts, mine, None
    helper, kind = spec.helped
    if session.me != helper and mine is None:
        return counts, None, None
    if kept is not None and kept.places is not None:
        found = kept.places
        common = int(found.sum()) if mine is None else len(found)
        session.ledger.record(*leaks_of_helped(counts, common, helper, kind, to=session.me))
    else:
        found = align_by_helper(
            session, spec.owners, helper, counts, ids, kind=kind, least=spec.data.likeness
        )
        if kept is not None:
            kept.keep_places(found)
    if mine is None:
        return counts, None, found
    return counts, mine.take(found.tolist()), None


def matching_rounds(spec: FitSpec, counts: Mapping[str, int]) -> tuple[Round, ...]:
    """Say what matching sends."""
    if not counts:
        return ()
    if spec.helped is not None:
        return declare_helped(counts, *spec.helped)
    groups = [declare_matching(_within(counts, owners)) for owners in spec.matched]
    # Blocks are matched at the same time.
    return tuple(sum(rounds, ()) for rounds in zip_longest(*groups, fillvalue=()))


def matching_claims(spec: FitSpec, counts: Mapping[str, int]) -> tuple[Claim, ...]:
    """Say what matching promises."""
    if not counts:
        return ()
    if spec.helped is not None:
        return claims_of_helped(*spec.helped)
    groups = [claims_of_matching(_within(counts, owners)) for owners in spec.matched]
    return tuple(dict.fromkeys(claim for claims in groups for claim in claims))


def matching_leaks(
    spec: FitSpec, counts: Mapping[str, int], data: Table, parties: Sequence[str]
) -> tuple[Leak, ...]:
    """Say what matching shows these parties."""
    if not counts:
        return ()
    if spec.helped is not None:
        shown = leaks_of_helped(counts, data.shape[0], *spec.helped)
        return (*IDS.leaks_of_all(counts, parties), *shown)
    common = {one.owner: one.rows for one in data.holdings}
    groups = [(_within(counts, owners), common[owners[0]]) for owners in spec.matched]
    return tuple(leak for group in groups for leak in leaks_of_matching(*group, parties))


def _within(counts: Mapping[str, int], owners: Sequence[str]) -> dict[str, int]:
    return {owner: counts[owner] for owner in owners}


def stand_ins(spec: FitSpec) -> Planned:
    """Return parties that plan what those of a fit would do."""
    return Planned(
        spec.owners,
        dealer=spec.roles.dealer or "nobody",
        protocol="sealed" if spec.is_by_cipher else spec.protocol.kind,  # only sizes count there
        frac_bits=spec.ring.frac_bits,
    )


def joined(spec: FitSpec, loaded: Mapping[str, Rows]) -> tuple[Planned, Table, dict[str, int]]:
    """Put the rows of all owners into one table, for someone who may see them.

    Returns:
        Stand-ins for the parties, the table, and how many ids every owner has to match.

    Raises:
        DataError: they cannot be matched.
    """
    parts = dict(loaded)
    counts: dict[str, int] = {}
    for owners in spec.matched:
        group = {owner: parts[owner] for owner in owners}
        counts |= {owner: len(one.ids) for owner, one in group.items()}
        parts |= _paired(spec, group) if spec.data.is_named else align_in_the_clear(group)
    planned = stand_ins(spec)

    def table(split: Split, owners: Sequence[str]) -> Table:
        values = {o: torch.from_numpy(x) for o in owners if (x := parts[o].features).size}
        labels = {
            o: torch.from_numpy(y).double() for o in owners if (y := parts[o].labels) is not None
        }
        holdings = []
        for owner in owners:
            names = parts[owner].columns if split == "rows" else ()
            facts = facts_of(values.get(owner), labels.get(owner), spec.classes, names)
            holdings.append(holding_of(owner, facts))
        return replace(planned.planned_table(split, holdings), values=values, labels=labels)

    if spec.data.split != "both":
        return planned, table(spec.data.split, tuple(parts)), counts
    tables = [table("columns", block.owners) for _, block in spec.blocks]
    return planned, put_below(spec, planned, tables), counts


def assumed(spec: FitSpec, rows: int, features: int) -> tuple[Planned, Table, dict[str, int]]:
    """Return what `joined` does of rows that are elsewhere: divided evenly, values within ±1.

    Args:
        spec: says who has which part.
        rows: of all owners together.
        features: likewise.
    """
    planned = stand_ins(spec)

    def table(split: Split, sizes: Mapping[str, tuple[int, int]]) -> Table:
        return planned.planned_table(split, [_assumed(spec, o, *size) for o, size in sizes.items()])

    if spec.data.split == "rows":
        many = _evenly(rows, len(spec.owners))
        parts = {owner: (many[at], features) for at, owner in enumerate(spec.owners)}
        return planned, table("rows", parts), {}
    if spec.data.split == "columns":
        wide = _evenly(features, len(spec.owners))
        parts = {owner: (rows, wide[at]) for at, owner in enumerate(spec.owners)}
        return planned, table("columns", parts), dict.fromkeys(spec.owners, rows)
    width = spec.blocks[0][1].width
    if features != width:
        raise ConfigError(f"--features: data.blocks have {width} columns, got {features}")
    tables = []
    counts: dict[str, int] = {}
    for (_, block), count in zip(spec.blocks, _evenly(rows, len(spec.blocks)), strict=True):
        spans = {owner: block.columns.get(owner, (0, 0)) for owner in block.owners}
        tables.append(table("columns", {o: (count, end - at) for o, (at, end) in spans.items()}))
        if block.owners in spec.matched:
            counts |= dict.fromkeys(block.owners, count)
    return planned, put_below(spec, planned, tables), counts


def _assumed(spec: FitSpec, owner: str, rows: int, columns: int) -> Holding:
    labels = spec.learner.target if spec.wants_labels(owner) else "none"
    return Holding(
        owner=owner,
        rows=rows,
        features=(columns,),
        labels=labels,
        classes=(spec.data.classes or 2) if labels == "classes" else 0,
    )


def _evenly(total: int, parts: int) -> list[int]:
    each, more = divmod(total, parts)
    return [each + (at < more) for at in range(parts)]


def _paired(spec: FitSpec, parts: Mapping[str, Rows]) -> dict[str, Rows]:
    """Pair rows by their names as a helper does, for someone who may see them."""
    check_all_ids(parts)
    first, second = parts
    filters = [make_filters(one.ids, bytes(32)) for one in parts.values()]
    pairs = match_filters(*filters, least=spec.data.likeness)
    if not pairs:
        raise DataError(f"{first!r} and {second!r} have no names in common")
    return {
        name: one.take([pair[at] for pair in pairs]) for at, (name, one) in enumerate(parts.items())
    }


def put_below(spec: FitSpec, parties: Parties, tables: Sequence[Table]) -> Table:
    """Put the tables of all blocks below each other, columns in the order that the spec says.

    Raises:
        DataError: an owner brings more or fewer columns than the spec says.
    """
    ordered = []
    for (name, block), table in zip(spec.blocks, tables, strict=True):
        held = {one.owner: one for one in table.holdings}
        for owner in block.owners:
            start, end = block.columns.get(owner, (0, 0))
            found = held[owner].columns if owner in held else 0
            if found != end - start:
                raise DataError(
                    f"{owner!r} has {end - start} columns by data.blocks.{name}.columns and brings "
                    f"{found}; mend the job file, or choose with data.owners.{owner}.columns"
                )
        ordered.append(replace(table, holdings=tuple(held[one] for one in block.owners)))
    return parties.stack(ordered)


def divided(spec: FitSpec, data: Table, parties: Parties) -> tuple[Table, Table]:
    """Return the rows to learn from and those to measure on."""
    if not spec.data.test_share:
        return data, data
    return divide(data, parties, test_share=spec.data.test_share, random_state=spec.data.seed)


def names_of_rows(spec: FitSpec, data: Table, mine: Rows | None) -> list[str]:
    """Name the rows that are measured on: mine by their ids, those of other blocks by numbers."""
    if spec.data.split == "rows" or mine is None:
        return []
    share, seed, names = spec.data.test_share, spec.data.seed, []
    for at, one in enumerate(data.pieces):
        places: Sequence[int] = range(one.shape[0])
        if share:
            places = held_out(one, test_share=share, random_state=seed)[one.owners[0]]
        if one.values or one.labels:
            names += [mine.ids[place] for place in places]
        else:
            names += [f"{spec.blocks[at][0]} {place + 1}" for place in places]
    return names


def whole(data: Table) -> tuple[Floats, Floats | None]:
    """Put all parts of a table together, for someone who holds them: features and labels."""
    if data.split == "both":
        parts = [whole(one) for one in data.pieces]
        truths = [y for _, y in parts if y is not None]
        return np.concatenate([x for x, _ in parts]), np.concatenate(truths) if truths else None
    along = 0 if data.split == "rows" else 1
    x = torch.cat([data.values[one] for one in data.owners if one in data.values], dim=along)
    labels = [data.labels[one] for one in data.owners if one in data.labels]
    return x.numpy(), torch.cat(labels).numpy() if labels else None
