"""What the columns of a fit are called and in which units they are: so coefficients can be read.

Owners of columns tell those who are shown coefficients what their columns are called and what they
divided them by. Means and deviations are not told: a party knows those of its own columns, and
those of others where ``reveal.scaling`` names it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tacit.data.rows import Floats, Rows
from tacit.learners.linear import ExtremeLearning, LinearClassifier, Ridge
from tacit.learners.scaling import LARGEST_SCALED
from tacit.learners.spec import FitSpec, LearnerTable
from tacit.learners.tables import Table
from tacit.party import Fact, Session
from tacit.result import Leak

NAME_BYTES = 64
"""Of a name so many are told: a message says nothing by its length."""
_WORDS = NAME_BYTES // 8 + 1
"""Of a column: its name, and the bits of its divisor."""
INTERCEPT = "intercept"
IN_UNITS = "_in_units"
BESIDE = ("columns", "column_means", "column_deviations")
"""What is added to what was learned, and laid out with it, if at all."""


@dataclass(frozen=True, kw_only=True)
class Column:
    """A column of the whole table, as far as somebody knows it.

    Attributes:
        owner: who has it, or of owners of rows the one who tells.
        name: what it is called.
        divisor: what its owner divided it by; NaN where that is not known, as with the others.
        mean: of what is left, taken off before the fit.
        factor: the inverse of its deviation, which it was multiplied with then.
    """

    owner: str
    name: str
    divisor: float = np.nan
    mean: float = np.nan
    factor: float = np.nan


def tell_columns(
    session: Session, spec: FitSpec, data: Table, mine: Rows | None
) -> tuple[Column, ...]:
    """Tell those who are shown coefficients about my columns; return what I was told, or nothing.

    Guarantee: names, cut to 64 bytes, and divisors go to these alone, and are in the ledger.
    Cost: 72 bytes for every column and receiver.
    """
    found: list[Column] = []
    for owner, fact, receivers in _facts(spec, data):
        if session.me == owner and mine is not None and receivers:
            words = [word for one in columns_of(owner, mine) for word in _to_words(one)]
            session.publish(fact, words, to=receivers)
        if session.me not in spec.reveal.coefficients:
            continue
        if session.me in receivers:
            told = session.learn(owner, fact, to=(session.me,))
            parts = (told[at : at + _WORDS] for at in range(0, len(told), _WORDS))
            found += [_from_words(owner, at, part) for at, part in enumerate(parts)]
        elif mine is not None:
            found += columns_of(owner, mine)
    return tuple(found)


def leaks_of_columns(spec: FitSpec, data: Table) -> tuple[Leak, ...]:
    """List who is told names and divisors."""
    return tuple(
        leak
        for owner, fact, receivers in _facts(spec, data)
        for leak in fact.leaks(owner, receivers)
    )


def _facts(spec: FitSpec, data: Table) -> Iterator[tuple[str, Fact, tuple[str, ...]]]:
    """Yield who tells what to whom. Owners of rows know the names of their own columns."""
    if issubclass(spec.learner.type, ExtremeLearning):
        return  # coefficients are those of random features
    for owner, columns in _tellers(data):
        know = data.owners if data.split == "rows" else (owner,)
        fact = Fact(
            tag="names",
            count=columns * _WORDS,
            what="names of the columns of {owner}, and what it divided them by",
            why="coefficients are read by them",
            elements=columns,
        )
        yield owner, fact, tuple(one for one in spec.reveal.coefficients if one not in know)


def _tellers(data: Table) -> list[tuple[str, int]]:
    """Return who tells about how many columns, in the order of the whole table."""
    holdings = data.pieces[0].holdings
    if data.split == "rows":
        holdings = holdings[:1]
    return [(one.owner, one.columns) for one in holdings if one.columns]


def columns_of(owner: str, mine: Rows) -> list[Column]:
    """Return what an owner knows of its columns; those of a known set have numbers for names."""
    wide = mine.features.shape[1]
    names: Sequence[str] = mine.columns or [str(at) for at in range(wide)]
    divisors = np.broadcast_to(mine.scale, (wide,)).tolist()
    return [
        Column(owner=owner, name=name, divisor=divisor)
        for name, divisor in zip(names, divisors, strict=True)
    ]


def _to_words(column: Column) -> list[int]:
    # Cut between characters, not within one.
    name = column.name.encode()[:NAME_BYTES].decode(errors="ignore").encode()
    content = name.ljust(NAME_BYTES, b"\0") + np.float64(column.divisor).tobytes()
    found: list[int] = np.frombuffer(content, dtype=np.int64).tolist()
    return found


def _from_words(owner: str, at: int, words: Sequence[int]) -> Column:
    """Read what a peer tells, which is input: a name is shown, so that it must be fit to be."""
    content = np.array(words, dtype=np.int64).tobytes()
    name = content[:NAME_BYTES].rstrip(b"\0").decode(errors="replace")
    divisor = float(np.frombuffer(content[NAME_BYTES:], dtype=np.float64)[0])
    shown = "".join(one for one in name if one.isprintable()).strip()
    is_number = bool(np.isfinite(divisor)) and divisor > 0
    return Column(owner=owner, name=shown or str(at), divisor=divisor if is_number else np.nan)


def scaled(
    spec: FitSpec,
    columns: Sequence[Column],
    *,
    own: Mapping[str, Floats],
    opened: Mapping[str, Floats] | None,
) -> tuple[Column, ...]:
    """Add means and deviations, as far as I know them.

    Args:
        spec: says whether columns are standardised.
        columns: of the whole table.
        own: the rows that are learned from by me, where nobody else has rows of these columns.
        opened: mean and inverse deviation of all columns, if they were opened to me.
    """
    if not spec.learner.standardise:
        return tuple(replace(one, mean=0.0, factor=1.0) for one in columns)
    if opened is not None:
        both = zip(opened["mean"].reshape(-1), opened["scale"].reshape(-1), strict=True)
        return tuple(
            replace(one, mean=float(m), factor=float(d))
            for one, (m, d) in zip(columns, both, strict=True)
        )
    found, at = [], dict.fromkeys(own, 0)
    for one in columns:
        if one.owner in own:
            x = own[one.owner][:, at[one.owner]]
            at[one.owner] += 1
            # As `StandardScaler` does it on shares.
            factor = min(1 / max(float(x.std()), 1e-9), LARGEST_SCALED)
            one = replace(one, mean=float(x.mean()), factor=factor)
        found.append(one)
    return tuple(found)


def labelled(
    learner: LearnerTable, found: Mapping[str, Any], columns: Sequence[Column]
) -> dict[str, Any]:
    """Put the names of columns beside what was learned, and what it is in the units of the rows.

    Of a linear model x·w + b the rows before any division have w·factor/divisor, and
    b − Σ w·factor·mean as intercept; NaN where something of that is not known.
    """
    known: dict[str, Any] = dict(found)
    if not columns:
        return known
    is_one = len({one.owner for one in columns}) == 1
    labels = [one.name if is_one else f"{one.owner} {one.name}" for one in columns]
    factors = np.array([one.factor for one in columns])
    if issubclass(learner.type, LinearClassifier | Ridge):
        labels.append(INTERCEPT)
        coef = found["coef"].reshape(len(found["coef"]), -1)
        slopes = coef[: len(columns)]
        each = np.array([one.divisor for one in columns])
        shift = (factors * [one.mean for one in columns]) @ slopes
        units = [slopes * (factors / each).reshape(-1, 1)]
        if "intercept" in found:
            known[f"intercept{IN_UNITS}"] = found["intercept"].reshape(-1) - shift
        elif len(coef) > len(columns):
            units.append((coef[-1] - shift).reshape(1, -1))
        known[f"coef{IN_UNITS}"] = np.concatenate(units).reshape(-1, *found["coef"].shape[1:])
    known["columns"] = np.array(labels)
    if learner.standardise:
        known["column_means"] = np.array([one.mean * one.divisor for one in columns])
        known["column_deviations"] = np.array([one.divisor / one.factor for one in columns])
    return known


def most_known(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """Put together what two parties are shown of one fit: where one has NaN the other may know."""
    found = dict(first)
    for name, value in second.items():
        known = found.get(name, value)
        found[name] = known if known.dtype.kind != "f" else np.where(np.isnan(known), value, known)
    return found
