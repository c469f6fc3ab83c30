"""What a question names, read where it lies: rows, models of every kind, and shares of them."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from torch import Tensor, nn

import tacit  # for `tacit.verify`, which is loaded when it is used: it brings a compiler
from tacit import ring
from tacit.data import Rows, Source
from tacit.data.prepare import check_prepare, state_prepare
from tacit.data.source import NOTHING, Given, shaped
from tacit.errors import ConfigError, DataError
from tacit.files import check_file
from tacit.inference.answers import Labels
from tacit.inference.forest import Forest, make_forest
from tacit.inference.models import load_logistic, logistic_of, table_of, train_logistic
from tacit.inference.predict import predict_plain
from tacit.inference.service import load_share
from tacit.inference.service.spec import ServeSpec
from tacit.inference.spec import SEALED, InferModel, InferSpec
from tacit.matching import align_in_the_clear
from tacit.nn import as_input, import_module, make_model
from tacit.nn.code import OwnModel
from tacit.nn.weights import load_weights, put_weights, read_facts
from tacit.party import Enclave, unseal_file


def load_rows(
    spec: InferSpec, search: Sequence[Path], given: Given = NOTHING
) -> tuple[Tensor, Labels]:
    """Load the rows, and their classes where they are known."""
    if spec.data.owners:
        return _join_columns(spec, search)
    rows = load_part(spec, spec.data.source, search, given)
    if spec.model.is_forest:  # thresholds are in the units of the rows, or of what is stated
        x = rows.features if spec.data.prepare else rows.unscaled()
        return torch.from_numpy(x), rows.labels
    if spec.is_linear:
        return table_of(rows), rows.labels
    key, shape = "data.shape", spec.data.shape
    if shape is None:
        key, shape = "model.inputs", spec.model.inputs
    return torch.from_numpy(shaped(rows.features, shape, key)), rows.labels


Asked = InferSpec | ServeSpec
"""What names a model: a question, or a service that answers many."""


def check_model(model: InferModel) -> None:
    """Make sure, cheaply, that the owner of a model says where it is.

    Raises:
        ConfigError: it does not.
        DataError: a file is not there.
    """
    if model.is_forest and model.file is None:
        raise ConfigError(f"model.file: missing; {model.owner!r} owns the forest")
    if model.is_linear and model.train is not None:
        model.train.source("model.train").check()
    elif model.file is not None:
        check_file(model.file, "model.file")
    elif model.is_linear and model.code is None:
        raise ConfigError(
            f"{model.owner!r} owns the model, but the job names none; "
            "wanted model.train, model.file or model.code"
        )
    elif not model.is_linear:
        raise ConfigError(f"model.file: missing; {model.owner!r} owns the model")


def load_model(spec: Asked, search: Sequence[Path] = ()) -> Forest | dict[str, Tensor]:
    """Load the model of its owner: trees, or weights by the names that are computed with."""
    if spec.model.is_forest:
        return load_forest(spec)
    if spec.model.is_linear:
        return load_linear(spec, search)
    module = spec.model.module()
    load_owned(module, spec)
    return dict(make_model(module, spec.model.inputs).initial)


def load_forest(spec: Asked) -> Forest:
    """Load the trees, as their owner alone can."""
    if spec.model.file is None:
        raise ConfigError("the job names no forest; wanted model.file")
    return make_forest(load_trees(spec.model.file), is_class=True)


def load_trees(path: Path) -> "tacit.verify.Ensemble":
    """Read an ensemble of trees from its file."""
    return tacit.verify.load_ensemble(path)


def load_part(spec: Asked, source: Source, search: Sequence[Path], given: Given = NOTHING) -> Rows:
    """Load the rows that a source names, prepared as all parties have agreed."""
    return replace(source, prepare=spec.prepare).load(search, given)


def load_linear(spec: Asked, search: Sequence[Path], given: Given = NOTHING) -> dict[str, Tensor]:
    """Load or train a model of one linear layer."""
    if given.weights is not None:
        return logistic_of(given.weights, source="the model given")
    if spec.model.file is not None:
        _check_trained(spec.model.file, spec)
        return load_logistic(spec.model.file)
    if spec.model.code is not None:
        state = OwnModel.read(spec.model.code)().state_dict()
        return logistic_of(state, source=f"model.code: {spec.model.code}")
    if spec.model.train is None:
        raise ConfigError("the job names no model; wanted model.train, model.file or model.code")
    return train_logistic(load_part(spec, spec.model.train.source("model.train"), search))


def load_owned(
    module: nn.Module, spec: Asked, given: Given = NOTHING, inside: Enclave | None = None
) -> None:
    """Put the owner's weights into the network; a sealed file opens inside alone."""
    path = spec.model.file
    if given.weights is not None:
        put_weights(module, given.weights, source="the model given")
    elif path is None:
        raise ConfigError("the job names no model; wanted model.file")
    elif path.suffix != SEALED:
        _check_trained(path, spec)
        load_weights(module, path)
    elif inside is None:
        raise ConfigError(f"model.file: {path} is sealed; it opens in the enclave of its job alone")
    else:
        with TemporaryDirectory() as folder:  # of the owner alone; within an enclave its memory
            plain = Path(folder) / path.stem
            plain.write_bytes(unseal_file(inside, path))
            _check_trained(plain, spec)
            load_weights(module, plain)


def _check_trained(path: Path, spec: Asked) -> None:
    """Refuse a model that was trained on rows prepared otherwise, where its file says how."""
    if path.suffix != ".safetensors" or not path.is_file():
        return
    try:
        trained = read_facts(path).get("prepare")
    except DataError:  # of others, who may write beside weights what they like
        return
    if trained is not None:
        check_prepare(state_prepare(spec.prepare), trained, "data.prepare")


def _join_columns(spec: InferSpec, search: Sequence[Path]) -> tuple[Tensor, Labels]:
    """Put columns side by side, as only whoever tries a job with all files can."""
    rows = align_in_the_clear(
        {name: table.source(name).load(search) for name, table in spec.data.owners.items()}
    )
    labels = rows[spec.data.owner].labels
    x = np.concatenate([one.features for one in rows.values()], axis=1)
    return torch.from_numpy(x), labels


def _join_shares(module: nn.Module, spec: InferSpec) -> None:
    """Put both shares together, as only whoever tries a job with all files can."""
    frac_bits = spec.frac_bits
    first, second = (load_held(spec, name) for name in spec.holders)
    weights = {name: ring.decode(first[name] + second[name], frac_bits=frac_bits) for name in first}
    module.load_state_dict(import_module(module).state(weights))


def load_held(spec: InferSpec, name: str, given: Given = NOTHING) -> dict[str, Tensor]:
    """Load one party's share of a network that nobody owns."""
    if given.weights is not None:
        return dict(given.weights)
    path = spec.model.shares[name]
    return load_share(path, frac_bits=spec.frac_bits, bound=spec.model.weight_bound)


def answer_plain(spec: InferSpec, x: Tensor, search: Sequence[Path]) -> Tensor:
    """Answer in the clear, as only whoever tries a job with all files can."""
    if spec.is_linear:
        return predict_plain(x, load_linear(spec, search), reveal=spec.reveal)
    if spec.model.is_forest and spec.model.file is not None:
        return torch.from_numpy(load_trees(spec.model.file).predict(x.numpy()))
    module = spec.model.module().double()
    if spec.is_shared:
        _join_shares(module, spec)
    else:
        load_owned(module, spec)
    with torch.no_grad():
        answers: Tensor = module.eval()(as_input(module, x))
    return answers
