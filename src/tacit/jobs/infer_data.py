"""What an infer job names: its rows, and the model of its owner."""

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from torch import Tensor, nn

from tacit.data import Rows, Source
from tacit.data.rows import rescaled
from tacit.data.source import NOTHING, Given
from tacit.errors import ConfigError
from tacit.inference import Forest, load_logistic, logistic_of, make_forest, train_logistic
from tacit.jobs.infer_job import SEALED, InferJob
from tacit.nn.code import OwnModel
from tacit.nn.weights import load_weights, put_weights
from tacit.party import Enclave, unseal_file

if TYPE_CHECKING:
    from tacit.verify import Ensemble


def load_forest(job: InferJob) -> Forest:
    """Load the trees, as their owner alone can."""
    if job.model.file is None:
        raise ConfigError("the job names no forest; wanted model.file")
    return make_forest(load_trees(job.model.file), is_class=True)


def load_trees(path: Path) -> "Ensemble":
    """Read an ensemble of trees from its file."""
    from tacit.verify import load_ensemble  # brings a compiler along

    return load_ensemble(path)


def load_part(
    job: InferJob, source: Source, search: Sequence[Path], given: Given = NOTHING
) -> Rows:
    """Load the rows that a source names, in the scale that all parties have agreed on."""
    rows = source.load(search, given)
    if job.data.scale is None or source.set is not None:
        return rows
    scaled = rescaled(rows, job.data.scale, key=f"{rows.name}: data.scale")
    return rows if job.model.is_forest else scaled  # thresholds are in the units of the rows


def load_linear(job: InferJob, search: Sequence[Path], given: Given = NOTHING) -> dict[str, Tensor]:
    """Load or train a model of one linear layer."""
    if given.weights is not None:
        return logistic_of(given.weights, source="the model given")
    if job.model.file is not None:
        return load_logistic(job.model.file)
    if job.model.code is not None:
        state = OwnModel.read(job.model.code)().state_dict()
        return logistic_of(state, source=f"model.code: {job.model.code}")
    if job.model.train is None:
        raise ConfigError("the job names no model; wanted model.train, model.file or model.code")
    return train_logistic(load_part(job, job.model.train.source("model.train"), search))


def load_owned(
    module: nn.Module, job: InferJob, given: Given = NOTHING, inside: Enclave | None = None
) -> None:
    """Put the owner's weights into the network; a sealed file opens inside alone."""
    path = job.model.file
    if given.weights is not None:
        put_weights(module, given.weights, source="the model given")
    elif path is None:
        raise ConfigError("the job names no model; wanted model.file")
    elif path.suffix != SEALED:
        load_weights(module, path)
    elif inside is None:
        raise ConfigError(f"model.file: {path} is sealed; it opens in the enclave of its job alone")
    else:
        with TemporaryDirectory() as folder:  # of the owner alone; within an enclave its memory
            plain = Path(folder) / path.stem
            plain.write_bytes(unseal_file(inside, path))
            load_weights(module, plain)
