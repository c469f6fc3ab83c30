"""What is attacked: classifiers behind one interface, and the trainers that make more of them."""

import hashlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any, Protocol, final, runtime_checkable

import numpy as np
import torch
from torch import Tensor, nn

from tacit.audit.views import fresh
from tacit.errors import ConfigError, DataError
from tacit.spec import LOCAL, Count, Positive

_BLOCK = 1024
_FLOOR = 1e-12


class Classifier(Protocol):
    """A trained model, as everyone who may ask it sees it."""

    def log_probs(self, x: Tensor) -> Tensor:
        """Return (rows, classes) logarithms of probabilities."""
        ...


class Trainer(Protocol):
    """Something that trains a classifier on rows and labels, the same from the same seed."""

    @property
    def recipe(self) -> str:
        """Everything besides data and seed that decides what comes out, code included."""
        ...

    def __call__(self, x: Tensor, y: Tensor, *, seed: int) -> Classifier:
        """Return a classifier trained on these rows alone."""
        ...


@runtime_checkable
class Builds(Protocol):
    """A trainer of torch modules: it can make one with fresh weights."""

    @property
    def build(self) -> Callable[[], nn.Module]:
        """Return the function that makes the module."""
        ...


@final
@dataclass(frozen=True, eq=False)
class TorchClassifier:
    """A torch module whose outputs are logits; the module is there for white-box views."""

    module: nn.Module

    def log_probs(self, x: Tensor) -> Tensor:
        """Return (rows, classes) logarithms of probabilities."""
        self.module.eval()
        place = next(self.module.parameters(), torch.empty(0)).device
        with torch.no_grad():
            parts = [self.module(rows.to(place)).cpu() for rows in torch.split(x, _BLOCK)]
        logits = torch.cat(parts).double()
        if logits.dim() != 2 or logits.shape[1] < 2:
            raise DataError(
                f"wanted a model with a logit per class, got outputs of shape {tuple(logits.shape)}"
            )
        return torch.log_softmax(logits, dim=1)


@final
@dataclass(frozen=True, eq=False)
class SklearnClassifier:
    """A scikit-learn classifier with `predict_proba`; it has no gradients to look at."""

    estimator: Any  # scikit-learn is untyped
    classes: int

    def log_probs(self, x: Tensor) -> Tensor:
        """Return (rows, classes) logarithms of probabilities; unseen classes get almost none."""
        found = self.estimator.predict_proba(x.flatten(1).double().numpy())
        columns = np.asarray(self.estimator.classes_, np.int64)
        if columns.min() < 0 or columns.max() >= self.classes:
            raise DataError(f"wanted classes 0 to {self.classes - 1}, got {columns.tolist()}")
        probabilities = np.full((len(x), self.classes), _FLOOR)
        probabilities[:, columns] = np.maximum(found, _FLOOR)
        return torch.from_numpy(np.log(probabilities))


def as_classifier(model: object, *, classes: int) -> Classifier:
    """Wrap a torch module or a scikit-learn estimator; what is one already is returned.

    Raises:
        ConfigError: it is neither.
    """
    if isinstance(model, nn.Module):
        return TorchClassifier(model)
    if hasattr(model, "predict_proba") and hasattr(model, "classes_"):
        return SklearnClassifier(model, classes)
    if hasattr(model, "log_probs"):
        return model
    raise ConfigError(
        "wanted a torch module, a fitted scikit-learn classifier with predict_proba, "
        f"or an object with log_probs, got {type(model).__name__}"
    )


@dataclass(frozen=True, kw_only=True)
class Descent:
    """[train]: how target and shadow models are trained, unless [privacy] says otherwise.

    Attributes:
        epochs: times that every row is seen.
        batch: rows in a step.
        rate: the learning rate, falling to 0 along a cosine.
        momentum: of the steps.
        weight_decay: of all parameters.
        device: where it trains.
    """

    epochs: Count = 50
    batch: Count = 64
    rate: Positive = 0.05
    momentum: float = 0.9
    weight_decay: float = 0.0
    device: str = field(default="cpu", metadata=LOCAL)

    def __post_init__(self) -> None:
        if self.epochs < 1 or self.batch < 1 or not self.rate > 0:
            raise ConfigError(f"epochs, batch and rate must be positive, got {self}")


@final
@dataclass(frozen=True, kw_only=True)
class TorchTrainer(Descent):
    """Trains a fresh module by stochastic gradient descent on cross entropy.

    Attributes:
        build: makes the module; a function with a name if shadows are to train in processes.
    """

    build: Callable[[], nn.Module]

    @property
    def recipe(self) -> str:
        """Return the architecture, the settings and this code, as text."""
        module = fresh(self.build, 0)
        weights = hashlib.sha256()
        for value in module.state_dict().values():
            weights.update(value.detach().cpu().numpy().tobytes())
        return "\n".join(
            [code_of_module(module), weights.hexdigest(), describe(self), code_of(type(self))]
        )

    def __call__(self, x: Tensor, y: Tensor, *, seed: int) -> TorchClassifier:
        """Return a module trained on these rows alone."""
        model = fresh(self.build, seed).to(self.device)
        x, y = x.to(self.device), y.to(self.device)
        optimiser = torch.optim.SGD(
            model.parameters(), self.rate, self.momentum, weight_decay=self.weight_decay
        )
        steps = self.epochs * -(-len(x) // self.batch)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
        generator = torch.Generator().manual_seed(seed)
        model.train()
        for _ in range(self.epochs):
            order = torch.empty(len(x)).uniform_(generator=generator).argsort()
            for rows in torch.split(order.to(self.device), self.batch):
                optimiser.zero_grad(set_to_none=True)
                torch.autograd.backward(nn.functional.cross_entropy(model(x[rows]), y[rows]))
                optimiser.step()
                schedule.step()
        model.eval()
        return TorchClassifier(model)


@final
@dataclass(frozen=True, kw_only=True)
class SklearnTrainer:
    """Fits a copy of a scikit-learn classifier; one with `random_state` gets the seed."""

    estimator: Any  # scikit-learn is untyped
    classes: int

    @property
    def recipe(self) -> str:
        """Return the estimator with all its settings, and this code, as text."""
        settings, kind = sorted(self.estimator.get_params().items()), type(self.estimator)
        return "\n".join(
            [kind.__name__, code_of(kind), repr(settings), str(self.classes), code_of(type(self))]
        )

    def __call__(self, x: Tensor, y: Tensor, *, seed: int) -> SklearnClassifier:
        """Return a copy fitted to these rows alone."""
        copy = type(self.estimator)(**self.estimator.get_params())
        if "random_state" in copy.get_params():
            copy.set_params(random_state=seed)
        copy.fit(x.flatten(1).double().numpy(), y.numpy())
        return SklearnClassifier(copy, self.classes)


def builder_of(trainer: object) -> Callable[[], nn.Module] | None:
    """Return what makes a trainer's fresh modules, or None if it trains no modules."""
    return trainer.build if isinstance(trainer, Builds) else None


def describe(settings: object) -> str:
    """Write the plain settings of a dataclass as one line; functions are left out."""
    # Any: dataclass instances have no common type.
    plain: Any = settings
    values = {one.name: getattr(plain, one.name) for one in fields(plain)}
    return repr({name: value for name, value in sorted(values.items()) if not callable(value)})


def code_of(thing: type | Callable[..., object]) -> str:
    """Return a hash of the source file of a class or function, or its name where there is none."""
    try:
        text = inspect.getsource(inspect.getmodule(thing) or thing)
    except (OSError, TypeError):
        return f"{thing.__module__}.{thing.__qualname__}"
    return hashlib.sha256(text.encode()).hexdigest()


def code_of_module(module: nn.Module) -> str:
    """Return the layers of a module and hashes of the source files of their classes.

    What a module computes stands in its class: names of layers and weights do not tell it.
    """
    return "\n".join([repr(module), *sorted({code_of(type(part)) for part in module.modules()})])
