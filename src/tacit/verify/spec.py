"""What is said about a verification: a model, rows, a radius, and what is claimed about them."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from annotated_types import Ge, Le

from tacit.errors import ConfigError
from tacit.spec import LOCAL, Count, Positive


@dataclass(frozen=True, kw_only=True)
class VerifyModel:
    """[model]: the tree ensemble.

    Attributes:
        file: XGBoost's .json or .ubj, LightGBM's text, or what `tacit.verify.save_ensemble` wrote.
        beside: models of other sizes to put beside it, for the effect of trees × depth.
    """

    file: Path = field(metadata=LOCAL)
    beside: tuple[Path, ...] = field(default=(), metadata=LOCAL)


@dataclass(frozen=True, kw_only=True)
class VerifyData:
    """[data]: the rows.

    Attributes:
        file: a CSV, Parquet or NumPy file.
        label: the column with the true classes. An empty cell is a missing value, if the model
            knows them.
        rows: only the first so many.
        shape: HEIGHTxWIDTH, as "28x28", if the features are the pixels of an image.
    """

    file: Path = field(metadata=LOCAL)
    label: str | None = None
    rows: Count | None = None
    shape: str | None = None


@dataclass(frozen=True, kw_only=True)
class Question:
    """[verify]: what is asked about every row.

    Attributes:
        eps: how far every feature may move that is there and is no category.
        rho: for a regression, how far the output may move.
        claim: the verified robust accuracy that is claimed; less ends the job with exit code 3.
        seconds: budget per row.
        importance: rows to find robust feature sets for.
        workers: rows verified at once.
        ray: the address of a Ray cluster that does the work, "local" for this machine's cores.
    """

    eps: float
    rho: float | None = None
    claim: Annotated[float, Ge(0), Le(1)] | None = None
    seconds: Positive = 60.0
    importance: Annotated[int, Ge(0)] = 0
    workers: Count = field(default=1, metadata=LOCAL)
    ray: str | None = field(default=None, metadata=LOCAL)

    def __post_init__(self) -> None:
        if not self.eps >= 0:
            raise ConfigError(f"--eps must be at least 0, got {self.eps}")
        if self.rho is not None and self.importance:
            raise ConfigError("--importance is counted per class; a regression has none")


@dataclass(frozen=True, kw_only=True)
class VerifySpec:
    """Decide for every row of a file whether a tree ensemble keeps its answer around it."""

    model: VerifyModel
    data: VerifyData
    verify: Question
