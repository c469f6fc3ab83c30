"""The job file of kind "text": a language model tuned on texts whose marked parts stay private."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from annotated_types import Ge, Le, MultipleOf

from tacit.dp import Book
from tacit.dp.policy import Policy, by_pattern, by_terms, read_terms, union
from tacit.errors import ConfigError, DataError
from tacit.jobs.config import Job, PartyEntry
from tacit.spec import LOCAL, Count, Positive, Share, refuse
from tacit.text.front import Method, TextPlan
from tacit.text.tune import Course
from tacit.text.vote import Ballot

SPELLED = ("digits", "full-width digits", "Chinese digits")
"""Forms of which a canary is made: six signs, all alike likely."""


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
class TextData:
    """[data]: the texts.

    Attributes:
        texts: JSON lines with ``text`` and, if owners are the unit, ``owner``.
        public: passages that anybody may know, one in a line: textbooks, say.
        terms: words of the field, one in a line, for scientificity.
        test_share: of the owners, held back to measure on.
        length: most tokens that the model is given in a row.
    """

    texts: Path = field(metadata=LOCAL)
    public: Path | None = field(default=None, metadata=LOCAL)
    terms: Path | None = field(default=None, metadata=LOCAL)
    test_share: Share = 0.1
    length: Annotated[int, Ge(8)] = 128


@dataclass(frozen=True, kw_only=True)
class TextPolicy:
    """[policy]: what is private.

    Attributes:
        patterns: kinds of numbers, dates and addresses; all that there are if empty.
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
class TextTrain:
    """[train]: how.

    Attributes:
        method: "jft" (redacted texts, then noise), "all-dp", "vote", or "none".
        epsilon: that the training with noise spends.
        delta: of it; a tenth of one in the number of units if not given.
        unit: what is protected as one.
        epochs: without noise, on redacted texts or all.
        rate: of that; 0.003 for a new model and 0.0002 for one that is given, which would forget
            what it knows at more, if not given.
        public_epochs: on the public texts, before.
        private_epochs: with noise, or of the voters.
        private_rate: of that; 0.003 for a new model and 0.001 for one that is given.
        batch: rows at a time without noise.
        private_batch: units at a time with noise, in the mean.
        clip: largest norm of a unit's gradient.
        rank: of adapters that learn with noise; 0 trains all weights.
        seed: of the order of rows; noise has none.
        most_epsilon: that all trainings on these texts may spend together; they are counted in a
            file beside the texts, whether this is given or not.
    """

    method: Method = "jft"
    epsilon: Positive = 2.0
    delta: Share | None = None
    unit: Literal["owner", "text"] = "owner"
    epochs: Count = 3
    rate: Positive | None = None
    public_epochs: Count = 3
    private_epochs: Count = 3
    private_rate: Positive | None = None
    batch: Count = 16
    private_batch: Count = 64
    clip: Positive = 0.5
    rank: Annotated[int, Ge(0)] = 4
    seed: Annotated[int, Ge(0)] = 0
    most_epsilon: Positive | None = None


@dataclass(frozen=True, kw_only=True)
class TextDecode:
    """[decode]: of the method "vote", how placeholders are filled, and what that may cost.

    Attributes:
        voters: models of shards of owners.
        clip: how far a voter may move a score.
        temperature: by which scores are divided.
        conversation: ε of one conversation.
        total: ε of all conversations together.
    """

    voters: Annotated[int, Ge(2)] = 16
    clip: Positive = 3.0
    temperature: Positive = 1.0
    conversation: Positive = 4.0
    total: Positive = 20.0


@dataclass(frozen=True, kw_only=True)
class TextCanaries:
    """[canaries]: invented numbers that are planted, to see whether the model learned them.

    Attributes:
        count: numbers of each form.
        copies: of each, all of one owner's.
        signs: of a number.
        forms: how they are written.
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
class TextJob(Job):
    """A job of kind "text"."""

    data: TextData
    model: TextModel = field(default_factory=TextModel)
    policy: TextPolicy = field(default_factory=TextPolicy)
    train: TextTrain = field(default_factory=TextTrain)
    decode: TextDecode | None = None
    canaries: TextCanaries | None = None
    parties: Mapping[str, PartyEntry] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.parties:
            refuse("parties", "texts stay with their owner: this job runs here, alone")
        if self.model.path is None and self.data.public is None:
            refuse("data.public", "a new model learns its words from public texts: name a file")
        if (self.decode is not None) != (self.train.method == "vote"):
            refuse("decode", 'belongs to train.method = "vote", and is needed there')
        is_open = self.train.method == "none" or self.report.compare == "plain"
        if self.train.most_epsilon is not None and is_open:
            refuse(
                "train.most_epsilon",
                "an open model has no ε, and its figures are in the report: set another method, "
                'and report.compare = "none"',
            )
        try:
            self.plan()
        except ConfigError as error:
            refuse("train", str(error))

    def role(self, party: str) -> str:
        """Say what a party does."""
        return "trains"

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

    def plan(self) -> TextPlan:
        """Return how the model is tuned."""
        t, d = self.train, self.decode or TextDecode()
        rates = (3e-3, 3e-3) if self.model.path is None else (2e-4, 1e-3)
        rate, private_rate = t.rate or rates[0], t.private_rate or rates[1]
        return TextPlan(
            method=t.method,
            course=Course(epochs=t.epochs, rate=rate, batch=t.batch),
            private=Course(epochs=t.private_epochs, rate=private_rate, batch=t.private_batch),
            epsilon=t.epsilon,
            delta=t.delta,
            unit=t.unit,
            clip=t.clip,
            rank=t.rank,
            length=self.data.length,
            ballot=Ballot(voters=d.voters, clip=d.clip, temperature=d.temperature),
        )


def check_inputs(job: TextJob, parties: Sequence[str]) -> None:
    """Make sure that the files of the job are there."""
    named = {
        "data.texts": job.data.texts,
        "data.public": job.data.public,
        "data.terms": job.data.terms,
        "policy.terms": job.policy.terms,
        "model.path": job.model.path,
    }
    for key, path in named.items():
        if path is not None and not path.exists():
            raise DataError(f"{key}: no such file or folder: {path} (from {Path.cwd()})")
