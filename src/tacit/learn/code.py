"""A user's own model: a Python file with a function that makes it, which is run."""

import importlib.abc
import importlib.util
import sys
from dataclasses import dataclass, field
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any, final

import torch
from torch import nn

from tacit.errors import ConfigError, DataError
from tacit.learn.training import parse_layers
from tacit.learn.training.model import as_input
from tacit.nn.tracing import TRACING, seeded

MAKERS = ("make_model", "make")
"""The functions of a user's file that make a model, where none is named."""


@final
@dataclass(frozen=True)
class OwnModel:
    """Makes a user's own model: runs a Python file and calls one of its functions.

    It holds the text of the file, so that workers on other machines, which do not have the file,
    make the same model.
    """

    path: Path
    source: str = field(repr=False)
    function: str | None = None

    @classmethod
    def read(cls, code: Path) -> "OwnModel":
        """Read ``file.py`` or ``file.py:function``.

        Raises:
            ConfigError: it cannot be read as text.
        """
        path, function = split_code(code)
        try:
            return cls(path.resolve(), path.read_text(encoding="utf8"), function)
        except FileNotFoundError as error:
            message = f"model.code: no such file: {path} (looked for from {Path.cwd()})"
            raise ConfigError(message) from error
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"model.code: {path}: wanted Python: {error}") from error

    def __call__(self) -> nn.Module:
        """Return a fresh module.

        Raises:
            ConfigError: the file makes something else.
        """
        module = self.make()
        if not isinstance(module, nn.Module):
            raise ConfigError(
                f"model.code: {self.path}: wanted a torch module, got {type(module).__name__}"
            )
        return module

    # Any: a torch module or a scikit-learn classifier; the file decides.
    def make(self) -> Any:
        """Run the file and return what its function makes.

        Raises:
            ConfigError: the file cannot be run, or has no such function.
        """
        name = f"tacit_model_{self.path.stem}"
        loader = _Text(self)
        module = importlib.util.module_from_spec(ModuleSpec(name, loader, origin=str(self.path)))
        module.__file__ = str(self.path)
        # Where the source of its classes is looked up, which decides what may come from the cache.
        sys.modules[name] = module
        wanted = MAKERS if self.function is None else (self.function,)
        # One thread at a time: torch has one generator for all, and parties may be threads, of
        # which another draws weights that must follow its seed.
        with TRACING:
            try:
                loader.exec_module(module)
            except (OSError, SyntaxError, ImportError, AttributeError, NameError) as error:
                raise ConfigError(
                    f"model.code: {self.path}: wanted Python with a function {wanted[0]}(): {error}"
                ) from error
            for one in wanted:
                if callable(function := getattr(module, one, None)):
                    return function()
        raise ConfigError(
            f"model.code: {self.path}: wanted a function {wanted[0]}() that makes a model, got none"
        )


def split_code(code: Path) -> tuple[Path, str | None]:
    """Split ``file.py:function``; the function may be left out."""
    text, _, name = str(code).rpartition(":")
    return (Path(text), name) if text and name.isidentifier() else (code, None)


def build_network(
    layers: tuple[str, ...], code: Path | None, inputs: tuple[int, ...], *, seed: int
) -> nn.Module:
    """Build the network of a job: from words, or by a user's own code; weights follow the seed."""
    if code is None:
        return parse_layers(layers, inputs, seed=seed)
    with seeded(seed):
        module = OwnModel.read(code)().float()
        try:
            with torch.no_grad():
                module.eval()(as_input(module, torch.zeros(1, *inputs)))
        except (RuntimeError, ValueError, TypeError, IndexError) as error:
            first = (str(error).splitlines() or [""])[0]
            raise DataError(
                f"model.code: {code}: the model does not take rows of shape {inputs}: {first}"
            ) from error
    return module


def check_network(layers: tuple[str, ...], code: Path | None) -> str | None:
    """Say what is wrong if a job does not name its network in exactly one way."""
    if layers and code is not None:
        return "wanted either 'layers' or 'code', got both"
    if not layers and code is None:
        return "wanted at least one layer, or 'code' (file.py:make_model), got neither"
    return None


class _Text(importlib.abc.InspectLoader):
    """Loads a module from text that is at hand."""

    def __init__(self, own: OwnModel) -> None:
        self._own = own

    def get_source(self, fullname: str) -> str:
        """Return the text of the file."""
        return self._own.source
