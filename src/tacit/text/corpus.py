"""Texts as tokens: what is private in them, and how they are cut into what a training takes."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

import torch
from torch import Tensor
from torch.utils.data import Dataset

from tacit.dp.policy import MarkedSpan, Policy, mark_tokens, redact
from tacit.errors import ConfigError
from tacit.ring import Prg

PLACEHOLDER = "□"
"""Stands for a run of marked characters, however long it is."""
_SIGNS = "0123456789一二三四五六七八九十"
_LENGTHS = (1, 1, 2, 3)
"""Of a random number, all alike likely: short ones are the most frequent in any text."""


class Speller(Protocol):
    """A tokenizer that knows where in a text its tokens lie."""

    def pieces(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """Return ids, and the first character of each token and the one behind its last."""
        ...


@dataclass(frozen=True, kw_only=True)
class Text:
    """A text of somebody's; all texts of one owner are protected together, if owners are."""

    text: str
    owner: str


@dataclass(frozen=True)
class Tokens:
    """A text in ids; `is_private` says which of them touch a marked character."""

    ids: tuple[int, ...]
    offsets: tuple[tuple[int, int], ...]
    is_private: tuple[bool, ...]


def tokenise(speller: Speller, text: str, spans: Sequence[MarkedSpan] = ()) -> Tokens:
    """Spell a text, what is marked character by character.

    A number is then one of few tokens after the other, whatever the vocabulary has joined, and what
    stands around it is spelled as if it were not there.
    """
    ids: list[int] = []
    offsets: list[tuple[int, int]] = []
    cuts = {0, len(text)}
    for start, end, _ in spans:
        cuts.update(range(start, end + 1))
    ordered = sorted(cuts)
    for start, end in pairwise(ordered):
        found, places = speller.pieces(text[start:end])
        ids += found
        offsets += [(start + a, start + b) for a, b in places]
    return Tokens(tuple(ids), tuple(offsets), tuple(mark_tokens(spans, offsets)))


def redacted(speller: Speller, text: str, spans: Sequence[MarkedSpan]) -> Tokens:
    """Spell a text with placeholders in the place of what is marked; those are the private ones."""
    short = redact(text, spans, PLACEHOLDER)
    places = [
        MarkedSpan(at, at + len(PLACEHOLDER), "placeholder")
        for at in range(len(short))
        if short.startswith(PLACEHOLDER, at)
    ]
    return tokenise(speller, short, places)


@dataclass(frozen=True, eq=False)
class Row:
    """Some tokens in a row, and how much each of them counts as something to predict."""

    ids: Tensor  # (tokens,)
    weights: Tensor  # (tokens,); 0 for the first, which nothing predicts


def cut(ids: Sequence[int], weights: Sequence[float], *, length: int) -> list[Row]:
    """Cut a text into rows of up to `length` tokens; each token but the first is predicted once."""
    if length < 2:
        raise ConfigError(f"a row has 2 tokens or more, got a length of {length}")
    rows = []
    for at in range(0, max(len(ids) - 1, 1), length - 1):
        piece = torch.tensor(ids[at : at + length])
        counted = torch.tensor(weights[at : at + length], dtype=torch.float32)
        if len(piece) > 1:
            counted[0] = 0
            rows.append(Row(piece, counted))
    return rows


class Units(Dataset[list[Row]]):
    """What is drawn by one coin each: a record with all its rows, or an owner with all its texts.

    They lie in order of size, so that those that are drawn together need little padding.
    """

    def __init__(self, units: Iterable[list[Row]]) -> None:
        self._units = sorted(
            (unit for unit in units if unit),
            key=lambda unit: (len(unit), max(len(row.ids) for row in unit)),
        )
        if not self._units:
            raise ConfigError(
                "there is nothing to train on: every text is empty, or one token long"
            )

    def __len__(self) -> int:
        return len(self._units)

    def __getitem__(self, index: int) -> list[Row]:
        return self._units[index]

    def cut(self, numbers: list[int], *, most: int) -> list[list[int]]:
        """Cut units into parts of one number of rows and of `most` padded tokens, or one unit."""
        parts: list[list[int]] = []
        for number in sorted(numbers):
            rows = len(self[number])
            size = rows * max(len(row.ids) for row in self[number])
            if not parts or len(self[parts[-1][0]]) != rows or (len(parts[-1]) + 1) * size > most:
                parts.append([])
            parts[-1].append(number)
        return parts

    @property
    def counted(self) -> int:
        """Return how many tokens count."""
        return sum(int((row.weights > 0).sum()) for unit in self._units for row in unit)

    @property
    def rows(self) -> list[list[Row]]:
        """Return every row as a unit of its own, for trainings that protect nobody."""
        return [[row] for unit in self._units for row in unit]


def collate(units: Sequence[list[Row]]) -> tuple[Tensor, Tensor]:
    """Pad units to one size: ids and weights, (units, rows, tokens) each."""
    rows = max(len(unit) for unit in units)
    tokens = max(len(row.ids) for unit in units for row in unit)
    ids = torch.zeros(len(units), rows, tokens, dtype=torch.long)
    weights = torch.zeros(len(units), rows, tokens)
    for i, unit in enumerate(units):
        for j, row in enumerate(unit):
            ids[i, j, : len(row.ids)] = row.ids
            weights[i, j, : len(row.ids)] = row.weights
    return ids, weights


@dataclass(frozen=True, kw_only=True, eq=False)
class Marked:
    """A corpus with its marks, spelled once for all trainings on it.

    Attributes:
        texts: as they are; of each, what is private.
        short: the same texts with placeholders.
        owners: whose each text is.
        left_out: how many texts were empty.
        repeated: how many texts stand under more than one owner.
        signs: ids of ten digits and ten numerals, which random numbers are made of.
    """

    texts: tuple[Tokens, ...]
    short: tuple[Tokens, ...]
    owners: tuple[str, ...]
    left_out: int = 0
    repeated: int = 0
    signs: tuple[tuple[int, ...], ...] = ()

    def __add__(self, other: "Marked") -> "Marked":
        return Marked(
            texts=self.texts + other.texts,
            short=self.short + other.short,
            owners=self.owners + other.owners,
            left_out=self.left_out + other.left_out,
            repeated=self.repeated + other.repeated,
            signs=self.signs,
        )

    @property
    def marks(self) -> int:
        """Return how many tokens are marked."""
        return sum(sum(one.is_private) for one in self.texts)

    def originals(
        self,
        *,
        length: int,
        by_owner: bool,
        stresses_marks: bool = False,
        among: set[str] | None = None,
    ) -> Units:
        """Return the texts as they are, to be trained on under a guarantee, or under none.

        Args:
            length: most tokens of a row.
            by_owner: all texts of an owner are one unit; else every text is.
            stresses_marks: what is marked counts ten times as much as the rest, as does the token
                behind, by which a number ends.
            among: only these owners.
        """
        least = 0.1 if stresses_marks else 1.0
        counted = (
            [
                1.0 if marked or behind else least
                for marked, behind in zip(one.is_private, (False, *one.is_private), strict=False)
            ]
            for one in self.texts
        )
        return self._units(self.texts, counted, length, by_owner, among)

    def redactions(self, *, length: int, stand_ins: Prg | None = None) -> Units:
        """Return the texts with placeholders or, given a generator, with random numbers instead.

        Random numbers keep a model used to numbers: tokens that never come are soon thought
        impossible. They are drawn without a look at what they stand for, nor at its length.

        Raises:
            ConfigError: the policy marks nothing, or leaves nothing.
        """
        if not self.marks:
            raise ConfigError(
                f"the policy marks nothing in {len(self.texts)} texts: all of them would be "
                "trained on as they are; choose patterns that occur, or the method 'all-dp'"
            )
        if all(all(one.is_private[1:-1]) for one in self.texts):
            raise ConfigError(
                f"the policy marks every token of {len(self.texts)} texts: nothing is left for "
                "the first phase; choose narrower patterns or terms, or the method 'all-dp'"
            )
        texts = self.short
        if stand_ins is not None:
            texts = tuple(self._filled(one, stand_ins) for one in texts)
        counted = ([1.0] * len(one.ids) for one in texts)
        return self._units(texts, counted, length, by_owner=False, among=None)

    def _filled(self, short: Tokens, prg: Prg) -> Tokens:
        """Put a random number in the place of every placeholder."""
        ids: list[int] = []
        for one, is_private, before in zip(
            short.ids, short.is_private, (False, *short.is_private), strict=False
        ):
            if not is_private:
                ids.append(one)
            elif not before:
                count = _LENGTHS[int(prg.below(len(_LENGTHS), 1))]
                script = 10 * int(prg.below(2, 1))
                for digit in prg.below(10, count).tolist():
                    ids += self.signs[script + digit]
        return Tokens(tuple(ids), (), ())

    def _units(
        self,
        texts: Sequence[Tokens],
        counted: Iterable[Sequence[float]],
        length: int,
        by_owner: bool,
        among: set[str] | None,
    ) -> Units:
        found: dict[str, list[Row]] = {}
        for i, (one, weights) in enumerate(zip(texts, counted, strict=True)):
            if among is None or self.owners[i] in among:
                rows = cut(one.ids, weights, length=length)
                found.setdefault(self.owners[i] if by_owner else str(i), []).extend(rows)
        return Units(found.values())


def mark_corpus(
    texts: Iterable[Text],
    speller: Speller,
    policy: Policy,
    *,
    starts: Sequence[int] = (),
    ends: Sequence[int] = (),
) -> Marked:
    """Mark and spell a corpus, with ids before and behind every text. Empty texts are left out.

    `repeated` counts texts that stand under more than one owner: what is promised to each of these
    owners is half of what is said, or less, as their text is in more than one place.
    """
    found = list(texts)
    kept = [(one, policy(one.text)) for one in found if one.text.strip()]
    holders: dict[str, set[str]] = {}
    for one, _ in kept:
        holders.setdefault(one.text.strip(), set()).add(one.owner)
    return Marked(
        texts=tuple(
            enclose(tokenise(speller, one.text, spans), starts, ends) for one, spans in kept
        ),
        short=tuple(
            enclose(redacted(speller, one.text, spans), starts, ends) for one, spans in kept
        ),
        owners=tuple(one.owner for one, _ in kept),
        left_out=len(found) - len(kept),
        repeated=sum(len(one) > 1 for one in holders.values()),
        signs=tuple(tuple(speller.pieces(one)[0]) for one in _SIGNS),
    )


def enclose(tokens: Tokens, starts: Sequence[int], ends: Sequence[int]) -> Tokens:
    """Put ids before and behind a text, none of them private."""
    last = tokens.offsets[-1][1] if tokens.offsets else 0
    return Tokens(
        (*starts, *tokens.ids, *ends),
        (*((0, 0) for _ in starts), *tokens.offsets, *((last, last) for _ in ends)),
        (*(False for _ in starts), *tokens.is_private, *(False for _ in ends)),
    )
