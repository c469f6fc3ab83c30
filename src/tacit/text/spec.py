"""What a user says of a private tuning: the tables of a job file, and the words of Python."""

import math
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Literal

from annotated_types import Ge, Le, MultipleOf

from tacit.dp import Book
from tacit.dp.event import (
    ADD_REMOVE_CLIENT,
    ADD_REMOVE_CLIENT_MARKS,
    ADD_REMOVE_MARKS,
    ADD_REMOVE_RECORD,
    Relation,
)
from tacit.dp.policy import Policy, by_pattern, by_terms, read_terms, union
from tacit.errors import ConfigError, check_word
from tacit.spec import LOCAL, Count, Positive, Share, refuse
from tacit.text.tune import Course
from tacit.text.vote import Ballot

Method = Literal["none", "all-dp", "jft", "vote"]
"""No protection; DP-SGD on whole texts; redacted texts, then DP-SGD; a writer and voters.

"jft" is "just fine-tune twice" of Shi et al. 2022 (selective privacy by a policy).
"""
Unit = Literal["owner", "text"]
SPELLED = ("digits", "full-width digits", "Chinese digits")
"""Forms of which a canary is made: six signs, all alike likely."""


@dataclass(frozen=True, kw_only=True)
class TextData:
    """[data]: the texts.

    Attributes:
        texts: JSON lines with text and, if owners are the unit, owner; without one a line is its
            own.
        public: passages that anybody may know, one in a line: textbooks, say; the model is tuned on
            them first.
        terms: words of the field, one in a line, for scientificity.
        test_share: of the owners, held back to measure on.
        length: most tokens that the model is given in a row; longer texts are cut.
    """

    texts: Path = field(metadata=LOCAL)
    public: Path | None = field(default=None, metadata=LOCAL)
    terms: Path | None = field(default=None, metadata=LOCAL)
    test_share: Share = 0.1
    length: Annotated[int, Ge(8)] = 128


@dataclass(frozen=True, kw_only=True)
class TextModel:
    """[model]: what is tuned.

    Attributes:
        path: a folder or a GGUF file; a small new model is made from the public texts if not given.
        layers: of the new model.
        width: of the new model.
        vocabulary: tokens of the new model.
    """

    path: Path | None = field(default=None, metadata=LOCAL)
    layers: Count = 2
    width: Annotated[int, Ge(16), MultipleOf(8)] = 64
    vocabulary: Annotated[int, Ge(300)] = 800


@dataclass(frozen=True, kw_only=True)
class TextPolicy:
    """[policy]: what is private.

    Attributes:
        patterns: kinds of numbers, dates and addresses: email, id, phone, date, age, dose, digits,
            numerals; all of them if empty.
        terms: a file of words, one in a line: names, say.
    """

    patterns: tuple[str, ...] = ()
    terms: Path | None = field(default=None, metadata=LOCAL)

    def __post_init__(self) -> None:
        try:
            by_pattern(*self.patterns)
        except ConfigError as error:
            refuse("patterns", str(error))

    def policy(self) -> Policy:
        """Return what marks texts."""
        found = by_pattern(*self.patterns)
        return found if self.terms is None else union(found, by_terms(read_terms(self.terms)))


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """How a model is tuned, and what protects the texts.

    Attributes:
        method: privacy: "jft" (redacted texts, then noise), "all-dp", "vote" (redacted, with
            numbers from a budget), or "none".
        epsilon: that the training with noise spends.
        delta: of it; a tenth of one in the number of units if not given.
        unit: privacy: what is protected as one.
        epochs: without noise, on redacted texts or all.
        rate: of that; 0.003 for a new model and 0.0002 for one that is given, which would forget
            what it knows at more, if not given.
        private_epochs: with noise, or of the voters.
        private_rate: of that; 0.003 for a new model and 0.001 for one that is given.
        batch: rows at a time without noise.
        private_batch: units at a time with noise, in the mean.
        clip: largest norm of a unit's gradient.
        rank: of adapters that learn with noise; 0 trains all weights.
    """

    method: Method = "jft"
    epsilon: Positive = 2.0
    delta: Share | None = None
    unit: Unit = "owner"
    epochs: Count = 3
    rate: Positive | None = None
    private_epochs: Count = 3
    private_rate: Positive | None = None
    batch: Count = 16
    private_batch: Count = 64
    clip: Positive = 0.5
    rank: Annotated[int, Ge(0)] = 4

    def __post_init__(self) -> None:
        check_word("method", self.method, Method)
        check_word("unit", self.unit, Unit)
        if self.method == "vote" and not self.rank:
            raise ConfigError("voters are adapters beside one writer: wanted a rank above 0, got 0")


@dataclass(frozen=True, kw_only=True)
class TextPlan(Tuning):
    """A tuning with all that it needs: what `fine_tune` takes.

    Attributes:
        length: most tokens of a row.
        layers: names of the layers that get adapters.
        ballot: how voters are counted; their number.
    """

    length: Annotated[int, Ge(2)] = 256
    layers: tuple[str, ...] = ("q", "v")
    ballot: Ballot = field(default_factory=Ballot)

    @property
    def course(self) -> Course:
        """Return how the training without noise goes."""
        return Course(epochs=self.epochs, rate=self.rate or 2e-4, batch=self.batch)

    @property
    def private(self) -> Course:
        """Return how the training with noise goes, or that of the voters."""
        rate = self.private_rate or 1e-3
        return Course(epochs=self.private_epochs, rate=rate, batch=self.private_batch)

    @property
    def relation(self) -> Relation:
        """Return what the noisy training speaks about."""
        if self.method == "jft":
            return ADD_REMOVE_CLIENT_MARKS if self.unit == "owner" else ADD_REMOVE_MARKS
        return ADD_REMOVE_CLIENT if self.unit == "owner" else ADD_REMOVE_RECORD


@dataclass(frozen=True, kw_only=True)
class TextTrain(Tuning):
    """[train]: how the model is tuned, and what protects the texts.

    Attributes:
        public_epochs: on the public texts, before.
        seed: of the order of rows; noise has none.
        most_epsilon: that all trainings on these texts may spend together; they are counted in
            TEXTS.owners.spent.json (or .texts.) beside the texts, whether this is given or not.
            Needs ``report.compare = "none"``.
    """

    public_epochs: Count = 3
    seed: Annotated[int, Ge(0)] = 0
    most_epsilon: Positive | None = None


@dataclass(frozen=True, kw_only=True)
class TextDecode(Ballot):
    """[decode]: of the method "vote", how placeholders are filled, and what that may cost.

    Attributes:
        conversation: ε of one conversation.
        total: ε of all conversations together.
    """

    conversation: Positive = 4.0
    total: Positive = 20.0


@dataclass(frozen=True, kw_only=True)
class TextCanaries:
    """[canaries]: invented numbers that are planted, to see whether the model learned them.

    Attributes:
        count: numbers of each form.
        copies: of each, all of one owner's.
        signs: of a number.
        forms: how they are written: digits, full-width digits, Chinese digits.
    """

    count: Count = 4
    copies: Count = 10
    signs: Annotated[int, Ge(1), Le(6)] = 4
    forms: tuple[str, ...] = SPELLED

    def __post_init__(self) -> None:
        for form in self.forms:
            if form not in SPELLED:
                refuse("forms", f"wanted some of {', '.join(SPELLED)}, got {form!r}")


@dataclass(frozen=True, kw_only=True)
class TextSpec:
    """A language model that is tuned on texts whose marked parts stay private."""

    data: TextData
    model: TextModel = field(default_factory=TextModel)
    policy: TextPolicy = field(default_factory=TextPolicy)
    train: TextTrain = field(default_factory=TextTrain)
    decode: TextDecode | None = None
    canaries: TextCanaries | None = None

    def __post_init__(self) -> None:
        if self.model.path is None and self.data.public is None:
            refuse("data.public", "a new model learns its words from public texts: name a file")
        if (self.decode is not None) != (self.train.method == "vote"):
            refuse("decode", 'belongs to train.method = "vote", and is needed there')

    def plan(self) -> TextPlan:
        """Return how the model is tuned: a new one learns faster than one that knows something."""
        told = {one.name: getattr(self.train, one.name) for one in fields(Tuning)}
        if self.model.path is None:
            told |= {name: told[name] or 3e-3 for name in ("rate", "private_rate")}
        return TextPlan(**told, length=self.data.length, ballot=self.decode or Ballot())

    def book(self) -> Book:
        """Return where trainings on these texts are counted: beside them, under their name.

        Raises:
            ConfigError: there is a limit, and trainings that protect another unit were counted.
        """
        texts = self.data.texts.resolve()  # another name for the same file is no other file
        here, other = ("owners", "texts") if self.train.unit == "owner" else ("texts", "owners")
        paths = [texts.with_name(f"{texts.name}.{unit}.spent.json") for unit in (here, other)]
        if self.train.most_epsilon is not None and paths[1].exists():
            raise ConfigError(
                f"{paths[1]}: trainings on these texts protect {other}, and this one {here}: they "
                "cannot be added up to a limit; take the same unit, or no most_epsilon"
            )
        return Book(paths[0], self.train.most_epsilon or math.inf)
