"""What is said about an audit: what is attacked, how it is trained, what is claimed and tried.

Nothing here is promised to anyone: an audit plays games with the data of whoever runs it.
"""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Self

from annotated_types import Ge

from tacit.audit.membership import Effort
from tacit.audit.target import Descent
from tacit.dp import DpSgd
from tacit.errors import ConfigError
from tacit.federated import ModelName
from tacit.spec import LOCAL, Count, Share, refuse

_WHO_IS_A_MEMBER = (
    "the weights of model.file were trained elsewhere, and only you know on which rows; an audit "
    "that guesses finds nothing. Wanted a file with rows they were trained on in data.members and "
    "one with rows they were not in data.strangers, or in data.member a column of data.file with "
    "1 and 0"
)
_QUICK_ROWS = 1000
_QUICK_SHADOWS = 8
_QUICK_TRIALS = 100
_QUICK_ROUNDS = 1000  # many share a run
_QUICK_TEXTS, _QUICK_DRAWS = 4, 10


@dataclass(frozen=True, kw_only=True)
class AuditData:
    """[data]: rows that the model was trained on, the members, and others, the strangers.

    Of a known set, or a file without `member`, the members are drawn here: that is right for a
    model that is trained here, and for no other.

    Attributes:
        set: a known data set.
        file: a CSV, Parquet or NumPy file instead.
        members: a file with rows that the model was trained on; goes with ``strangers``.
        strangers: a file with rows of the same kind that it was not trained on.
        label: the column with the classes in the files.
        member: a column of ``file`` that is 1 for members and 0 for strangers.
        test_share: of the rows, that are strangers, where they are drawn here.
        rows: take only so many rows in all.
    """

    set: str | None = None
    file: Path | None = field(default=None, metadata=LOCAL)
    members: Path | None = field(default=None, metadata=LOCAL)
    strangers: Path | None = field(default=None, metadata=LOCAL)
    label: str | None = None
    member: str | None = None
    test_share: Share = 0.5
    rows: Count | None = None

    def __post_init__(self) -> None:
        if (self.members is None) != (self.strangers is None):
            refuse("members", "wanted both 'members' and 'strangers'")
        if sum(one is not None for one in (self.set, self.file, self.members)) != 1:
            refuse("set", "wanted one of 'set', 'file', or 'members' with 'strangers'")
        if self.member is not None and (self.file is None or self.member == self.label):
            refuse("member", "wanted a column of its own of 'file'")

    @property
    def names_members(self) -> bool:
        """Tell whether it is said which rows are members."""
        return self.members is not None or self.member is not None


@dataclass(frozen=True, kw_only=True)
class AuditModel:
    """[model]: the architecture, and the weights of a trained one if there are any.

    Attributes:
        name: a model of the table.
        dropout: while training.
        file: weights by name, .safetensors, .pt or .npz, that were trained elsewhere on the members
            that [data] names; without it the target is trained here as [train] says.
        code: a Python file of one's own instead of `name`, as file.py:function: the function
            (make_model() or make() if none is named) returns an untrained torch module with a
            logit per class, or a scikit-learn classifier. It is run.
    """

    name: ModelName = "mlp"
    dropout: float = 0.0
    file: Path | None = field(default=None, metadata=LOCAL)
    code: Path | None = field(default=None, metadata=LOCAL)


@dataclass(frozen=True, kw_only=True)
class AuditPrivacy(DpSgd):
    """[privacy]: DP-SGD, and the claim that is put to the test.

    Attributes:
        delta: of the claim.
        claimed_epsilon: what is claimed; what the accountant says if not given.
    """

    rate: float = 0.5
    delta: Share = 1e-5
    claimed_epsilon: Annotated[float, Ge(0)] | None = None


@dataclass(frozen=True, kw_only=True)
class AuditSpec:
    """Attack a classifier that is trained here, or was elsewhere, and put its ε to the test."""

    data: AuditData
    model: AuditModel = AuditModel()
    train: Descent = Descent()  # noqa: RUF009  it is frozen
    privacy: AuditPrivacy | None = None
    audit: Effort = Effort()  # noqa: RUF009  it is frozen

    def __post_init__(self) -> None:
        if self.model.file is not None and not self.data.names_members:
            refuse("data.members", _WHO_IS_A_MEMBER)
        if self.audit.sweep and (self.audit.sweep_setting == "multiplier") != bool(self.privacy):
            text = "'multiplier' is swept with [privacy], the other settings without"
            refuse("audit.sweep_setting", text)
        if self.audit.sweep_setting == "epochs" and any(value < 1 for value in self.audit.sweep):
            refuse("audit.sweep", f"wanted epochs of at least 1, got {list(self.audit.sweep)}")
        for value in self.audit.sweep:
            self.swept(value)

    def swept(self, value: float) -> Self:
        """Return the same audit with the swept setting at a value."""
        setting = self.audit.sweep_setting
        effort = replace(self.audit, sweep=())
        if setting == "multiplier" and self.privacy is not None:
            return replace(self, audit=effort, privacy=replace(self.privacy, multiplier=value))
        if setting == "dropout":
            return replace(self, audit=effort, model=replace(self.model, dropout=value))
        if setting == "epochs":
            return replace(self, audit=effort, train=replace(self.train, epochs=int(value)))
        return replace(self, audit=effort, train=replace(self.train, weight_decay=value))

    def quickened(self) -> Self:
        """Return the same audit with less effort, for a first answer."""
        rows = min(self.data.rows or _QUICK_ROWS, _QUICK_ROWS)
        effort = replace(
            self.audit,
            shadows=min(self.audit.shadows, _QUICK_SHADOWS),
            canaries=min(self.audit.canaries, _QUICK_TRIALS),
            rounds=min(self.audit.rounds, _QUICK_ROUNDS),
        )
        return replace(self, data=replace(self.data, rows=rows), audit=effort)


@dataclass(frozen=True, kw_only=True)
class LlmModel:
    """[model]: what is attacked.

    Attributes:
        path: a folder with config.json, weights and tokenizer, or a GGUF file.
        second: another model with the same tokenizer that was not trained on the texts, for one of
            the rankings.
    """

    path: Path = field(metadata=LOCAL)
    second: Path | None = field(default=None, metadata=LOCAL)


@dataclass(frozen=True, kw_only=True)
class Excerpts:
    """Which beginnings of texts are attacked.

    Attributes:
        count: how many are attacked: the first that are long enough.
        prefix: tokens that the attacker knows.
        tokens: tokens after them, that it wants.
    """

    count: Count = 20
    prefix: Count = 8
    tokens: Count = 16


@dataclass(frozen=True, kw_only=True)
class LlmTexts(Excerpts):
    """[texts]: what the model was trained on.

    Attributes:
        file: one text per line.
    """

    file: Path = field(metadata=LOCAL)


@dataclass(frozen=True, kw_only=True)
class Canaries:
    """[canaries]: secrets of one form that were planted before training.

    Attributes:
        sentence: what stands before the secret, up to its first character.
        planted: the secrets, all of one length, drawn at random.
        alphabet: the characters that they are made of, a token each.
    """

    sentence: str
    planted: tuple[str, ...]
    alphabet: str = "0123456789"

    def __post_init__(self) -> None:
        if not self.planted or len({len(one) for one in self.planted}) != 1 or not self.planted[0]:
            raise ConfigError(f"planted: wanted secrets of one length, got {len(self.planted)}")
        if not all(set(one) <= set(self.alphabet) for one in self.planted):
            raise ConfigError(f"planted: wanted secrets out of the characters {self.alphabet!r}")


@dataclass(frozen=True, kw_only=True)
class LlmEffort:
    """[audit]: with how much effort a language model is attacked.

    Attributes:
        draws: texts that the model says after every prefix.
        depths: how many layers a user runs where the model is cut; first, middle and last if empty.
        noise: at the middle cut, in standard deviations of the hidden states.
        beams: beginnings that are kept while a text is rebuilt.
        seed: of draws and noise.
    """

    draws: Count = 20
    depths: tuple[int, ...] = ()
    noise: tuple[Annotated[float, Ge(0)], ...] = ()
    beams: Count = 2
    seed: int = 0


@dataclass(frozen=True, kw_only=True)
class AuditLlmSpec:
    """Attack a language model: texts it was trained on, planted canaries, its hidden states."""

    model: LlmModel
    texts: LlmTexts
    canaries: Canaries | None = None
    audit: LlmEffort = LlmEffort()

    def quickened(self) -> Self:
        """Return the same audit with fewer texts, draws and cuts."""
        few = replace(self.texts, count=min(self.texts.count, _QUICK_TEXTS))
        less = replace(
            self.audit, draws=min(self.audit.draws, _QUICK_DRAWS), beams=1, noise=(), depths=(1,)
        )
        return replace(self, texts=few, audit=less)
