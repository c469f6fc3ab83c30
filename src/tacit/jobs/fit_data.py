"""The rows of a fit: what each owner's table of a job names, with labels as the learner wants."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from tacit.crypto.tags import make_filters, match_filters
from tacit.data.rows import Floats, Rows
from tacit.data.source import NOTHING, Given
from tacit.errors import DataError
from tacit.jobs.fit_job import FitJob
from tacit.learners import Parties, Planned, Table, divide
from tacit.learners.tables import Split, facts_of, holding_of
from tacit.learners.validation import held_out
from tacit.matching import align_in_the_clear


def load_rows(job: FitJob, owner: str, search: Sequence[Path], given: Given = NOTHING) -> Rows:
    """Load an owner's part of the data; labels are there if the job wants them of this owner.

    Raises:
        DataError: it cannot be read, holds NaN, or labels are missing.
    """
    wanted = job.wants_labels(owner)
    source = replace(
        job.data.owners[owner].source(owner),
        has_names=job.data.is_named,
        has_numbers=wanted and job.learner.target == "numbers",
    )
    rows = source.load(search, given)
    if wanted and rows.labels is None:
        raise DataError(
            f"the data of {owner!r} has no labels; name the column with {source.key}.label"
        )
    return rows if wanted else replace(rows, labels=None)


def joined(job: FitJob, loaded: Mapping[str, Rows]) -> tuple[Planned, Table, dict[str, int]]:
    """Put the rows of all owners into one table, for someone who may see them.

    Returns:
        Stand-ins for the parties, the table, and how many ids every owner has to match.

    Raises:
        DataError: they cannot be matched.
    """
    parts = dict(loaded)
    counts: dict[str, int] = {}
    for owners in job.matched:
        group = {owner: parts[owner] for owner in owners}
        counts |= {owner: len(one.ids) for owner, one in group.items()}
        is_named = job.data.is_named
        parts |= paired_in_the_clear(job, group) if is_named else align_in_the_clear(group)
    planned = stand_ins(job)
    if job.data.split != "both":
        return planned, _joined(job, planned, job.data.split, parts), counts
    tables = [
        _joined(job, planned, "columns", {owner: parts[owner] for owner in block.owners})
        for _, block in job.blocks
    ]
    return planned, put_below(job, planned, tables), counts


def _joined(job: FitJob, planned: Planned, split: Split, parts: Mapping[str, Rows]) -> Table:
    values = {o: torch.from_numpy(one.features) for o, one in parts.items() if one.features.size}
    labels = {
        o: torch.from_numpy(one.labels).double()
        for o, one in parts.items()
        if one.labels is not None
    }
    holdings = [
        holding_of(
            owner,
            facts_of(
                values.get(owner),
                labels.get(owner),
                job.classes,
                one.columns if split == "rows" else (),
            ),
        )
        for owner, one in parts.items()
    ]
    return replace(planned.planned_table(split, holdings), values=values, labels=labels)


def paired_in_the_clear(job: FitJob, parts: Mapping[str, Rows]) -> dict[str, Rows]:
    """Pair rows by their names as a helper does, for someone who may see them."""
    first, second = parts
    filters = [make_filters(one.ids, bytes(32)) for one in parts.values()]
    pairs = match_filters(*filters, least=job.data.likeness)
    if not pairs:
        raise DataError(f"{first!r} and {second!r} have no names in common")
    return {
        name: one.take([pair[at] for pair in pairs]) for at, (name, one) in enumerate(parts.items())
    }


def stand_ins(job: FitJob) -> Planned:
    """Return parties that plan what those of a job would do."""
    return Planned(
        job.owners,
        dealer=job.roles.dealer or "nobody",
        protocol="sealed" if job.is_by_cipher else job.protocol.kind,  # only sizes count there
        frac_bits=job.ring.frac_bits,
    )


def divided(job: FitJob, data: Table, parties: Parties) -> tuple[Table, Table]:
    """Return the rows to learn from and those to measure on."""
    if not job.data.test_share:
        return data, data
    return divide(data, parties, test_share=job.data.test_share, random_state=job.data.seed)


def names_of_rows(job: FitJob, data: Table, mine: Rows | None) -> list[str]:
    """Name the rows that are measured on: mine by their ids, those of other blocks by numbers."""
    if job.data.split == "rows" or mine is None:
        return []
    share, seed, names = job.data.test_share, job.data.seed, []
    for at, one in enumerate(data.pieces):
        places: Sequence[int] = range(one.shape[0])
        if share:
            places = held_out(one, test_share=share, random_state=seed)[one.owners[0]]
        if one.values or one.labels:
            names += [mine.ids[place] for place in places]
        else:
            names += [f"{job.blocks[at][0]} {place + 1}" for place in places]
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


def put_below(job: FitJob, parties: Parties, tables: Sequence[Table]) -> Table:
    """Put the tables of all blocks below each other, columns in the order that the job says.

    Raises:
        DataError: an owner brings more or fewer columns than the job says.
    """
    ordered = []
    for (name, block), table in zip(job.blocks, tables, strict=True):
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
