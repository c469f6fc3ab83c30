"""A user's own model: a Python file with a function that makes it, which is run."""

import importlib.abc
import importlib.util
import sys
from dataclasses import dataclass, field
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any, final

from torch import Tensor, nn

from tacit.audit import SklearnTrainer
from tacit.audit.target import SklearnClassifier
from tacit.errors import ConfigError

MAKE = "make"
"""The function of a user's file that makes a model."""


@final
@dataclass(frozen=True)
class OwnModel:
    """Makes a user's own model: runs a Python file and calls its function `make`.

    It holds the text of the file, so that workers on other machines, which do not have the file,
    make the same model.
    """

    path: Path
    source: str = field(repr=False)

    @classmethod
    def read(cls, path: Path) -> "OwnModel":
        """Read the file.

        Raises:
            ConfigError: it cannot be read as text.
        """
        try:
            return cls(path.resolve(), path.read_text(encoding="utf8"))
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"model.code: {path}: wanted Python: {error}") from error

    def __call__(self) -> nn.Module:
        """Return a fresh module."""
        module: nn.Module = self.make()
        return module

    # Any: a torch module or a scikit-learn classifier; the file decides.
    def make(self) -> Any:
        """Run the file and return what its function makes.

        Raises:
            ConfigError: the file cannot be run, or has no such function.
        """
        name = f"tacit_audited_{self.path.stem}"
        loader = _Text(self)
        module = importlib.util.module_from_spec(ModuleSpec(name, loader, origin=str(self.path)))
        module.__file__ = str(self.path)
        # Where the source of its classes is looked up, which decides what may come from the cache.
        sys.modules[name] = module
        try:
            loader.exec_module(module)
            function = getattr(module, MAKE)
        except (OSError, SyntaxError, ImportError, AttributeError) as error:
            raise ConfigError(
                f"model.code: {self.path}: wanted Python with a function {MAKE}(): {error}"
            ) from error
        return function()


@final
@dataclass(frozen=True, kw_only=True)
class OwnTrainer:
    """Fits a user's own scikit-learn classifier.

    It travels as the file's text: a worker could not look up a class that the file defines.
    """

    own: OwnModel
    classes: int

    @property
    def recipe(self) -> str:
        """Return the estimator with all its settings, and the code."""
        return self._trainer().recipe

    def __call__(self, x: Tensor, y: Tensor, *, seed: int) -> SklearnClassifier:
        """Return a copy fitted to these rows alone."""
        return self._trainer()(x, y, seed=seed)

    def _trainer(self) -> SklearnTrainer:
        return SklearnTrainer(estimator=self.own.make(), classes=self.classes)


class _Text(importlib.abc.InspectLoader):
    """Loads a module from text that is at hand."""

    def __init__(self, own: OwnModel) -> None:
        self._own = own

    def get_source(self, fullname: str) -> str:
        """Return the text of the file."""
        return self._own.source
