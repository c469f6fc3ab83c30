"""The job file of kind "audit": what is attacked, how it is trained, what is claimed and tried.

Nothing here is promised to anyone: an audit plays games with the data of whoever runs it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Literal, Self

from annotated_types import Ge, Lt

from tacit.audit.membership import SETTINGS, Plan
from tacit.audit.privacy.claims import Trials
from tacit.dp import DpSgd, GaussianKind
from tacit.errors import ConfigError
from tacit.federated import ModelName
from tacit.jobs.config import Job, PartyEntry
from tacit.spec import LOCAL, Count, Positive, Share, refuse

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


@dataclass(frozen=True, kw_only=True)
class AuditData:
    """[data]: rows that the model was trained on, the members, and others, the strangers.

    Of a known set, or a file without `member`, the members are drawn here: that is right for a
    model that is trained here, and for no other.

    Attributes:
        set: a known data set.
        file: a CSV, Parquet or NumPy file instead.
        members: a file with rows that the model was trained on, and
        strangers: one with rows of the same kind that it was not trained on.
        label: the column with the classes in the files.
        member: a column of `file` that is 1 for members and 0 for strangers.
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
        """Tell whether the job says which rows are members."""
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
class AuditTrain:
    """[train]: how target and shadow models are trained, unless [privacy] says otherwise."""

    epochs: Count = 50
    batch: Count = 64
    rate: Positive = 0.05
    momentum: float = 0.9
    weight_decay: float = 0.0
    device: str = field(default="cpu", metadata=LOCAL)


@dataclass(frozen=True, kw_only=True)
class AuditPrivacy:
    """[privacy]: DP-SGD, and the claim that is put to the test.

    Attributes:
        steps, sample_rate, clip, multiplier, learning_rate, noise: of DP-SGD.
        delta: of the claim.
        claimed_epsilon: what is claimed; what the accountant says if not given.
    """

    steps: int
    sample_rate: float
    clip: float
    multiplier: float
    learning_rate: float = 0.5
    delta: Share = 1e-5
    claimed_epsilon: Annotated[float, Ge(0)] | None = None
    noise: GaussianKind = "continuous"

    def __post_init__(self) -> None:
        self.settings()

    def settings(self) -> DpSgd:
        """Return how the model is trained."""
        return DpSgd(
            steps=self.steps,
            rate=self.sample_rate,
            clip=self.clip,
            multiplier=self.multiplier,
            learning_rate=self.learning_rate,
            noise=self.noise,
        )


@dataclass(frozen=True, kw_only=True)
class AuditTable:
    """[audit]: what is tried, and with how much effort.

    Attributes:
        threats: some of the membership threats; all that the target allows if empty.
        shadows: shadow models; even.
        canaries: in the one run that bounds ε.
        rounds: trials of a single round.
        confidence: of the ε lower bounds from one run; rounds are tried at 1 − 1e-6, or at this
            if it is larger.
        seed: of coins, models and attacks.
        workers: processes that train shadow models.
        cache: a folder for shadow models' outputs; beside the result if not given.
        sweep: values of a defence to train and attack with, one after the other.
        sweep_setting: "epochs", "weight_decay" or "dropout"; with [privacy], "multiplier".
    """

    threats: tuple[str, ...] = ()
    shadows: int = 16
    canaries: Annotated[int, Ge(2)] = 400
    rounds: Annotated[int, Ge(100)] = 4000
    confidence: Annotated[float, Ge(0.5), Lt(1)] = 0.95
    seed: int = 0
    workers: Count = field(default=1, metadata=LOCAL)
    cache: Path | None = field(default=None, metadata=LOCAL)
    sweep: tuple[float, ...] = ()
    sweep_setting: Literal["epochs", "weight_decay", "dropout", "multiplier"] = "weight_decay"

    def __post_init__(self) -> None:
        strange = [name for name in self.threats if name not in SETTINGS]
        if strange:
            refuse("threats", f"wanted some of {', '.join(SETTINGS)}, got {strange[0]!r}")
        try:
            self.plan()
        except ConfigError as error:
            refuse("shadows", str(error))

    def plan(self) -> Plan:
        """Return what is tried against membership."""
        return Plan(threats=self.threats, shadows=self.shadows, seed=self.seed)

    def trials(self) -> Trials:
        """Return how claims are put to the test."""
        names = ("canaries", "rounds", "confidence", "seed")
        return Trials(**{name: getattr(self, name) for name in names})


@dataclass(frozen=True, kw_only=True)
class AuditJob(Job):
    """A job of kind "audit"."""

    data: AuditData
    parties: Mapping[str, PartyEntry] = field(default_factory=dict)
    model: AuditModel = field(default_factory=AuditModel)
    train: AuditTrain = field(default_factory=AuditTrain)
    privacy: AuditPrivacy | None = None
    audit: AuditTable = field(default_factory=AuditTable)

    def __post_init__(self) -> None:
        if self.parties:
            refuse("parties", "an audit has no parties: it runs here, alone")
        if self.model.file is not None and not self.data.names_members:
            refuse("data.members", _WHO_IS_A_MEMBER)
        if self.audit.sweep and (self.audit.sweep_setting == "multiplier") != bool(self.privacy):
            text = "'multiplier' is swept with [privacy], the other settings without"
            refuse("audit.sweep_setting", text)
        if self.audit.sweep_setting == "epochs" and any(value < 1 for value in self.audit.sweep):
            refuse("audit.sweep", f"wanted epochs of at least 1, got {list(self.audit.sweep)}")
        for value in self.audit.sweep:
            self.swept(value)

    def role(self, party: str) -> str:
        """Say what a party does."""
        return "attacks"

    def swept(self, value: float) -> Self:
        """Return the same job with the swept setting at a value."""
        setting = self.audit.sweep_setting
        table = replace(self.audit, sweep=())
        if setting == "multiplier" and self.privacy is not None:
            return replace(self, audit=table, privacy=replace(self.privacy, multiplier=value))
        if setting == "dropout":
            return replace(self, audit=table, model=replace(self.model, dropout=value))
        if setting == "epochs":
            return replace(self, audit=table, train=replace(self.train, epochs=int(value)))
        return replace(self, audit=table, train=replace(self.train, weight_decay=value))

    def quickened(self) -> Self:
        """Return the same job with less effort, for a first answer."""
        rows = min(self.data.rows or _QUICK_ROWS, _QUICK_ROWS)
        table = replace(
            self.audit,
            shadows=min(self.audit.shadows, _QUICK_SHADOWS),
            canaries=min(self.audit.canaries, _QUICK_TRIALS),
            rounds=min(self.audit.rounds, _QUICK_ROUNDS),
        )
        return replace(self, data=replace(self.data, rows=rows), audit=table)
