"""A user's own model: a Python file with a function that makes it, which is run."""

import hashlib
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
from tacit.exclusive import TORCH_LOCK, seeded
from tacit.files import refuse_endless
from tacit.nn.described import as_input, parse_layers

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
        """Read ``file.py`` or ``file.py:function``, if its user has said that it may be run.

        A job may come from somebody else, and is planned before it is trusted: what is run later
        is the text that was asked about here.

        Raises:
            ConfigError: it cannot be read as text, or was not allowed as it is.
        """
        path, function = split_code(code)
        try:
            refuse_endless(path)
            own = cls(path.resolve(), path.read_text(encoding="utf8"), function)
        except FileNotFoundError as error:
            message = f"model.code: no such file: {path} (looked for from {Path.cwd()})"
            raise ConfigError(message) from error
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"model.code: {path}: wanted Python: {error}") from error
        if own.digest not in _allowed():
            raise ConfigError(
                f"model.code: {path} (sha256 {own.digest[:16]}) is a program, and would run with "
                f"all your rights: read it, then say: tacit allow {path}"
            )
        return own

    @property
    def digest(self) -> str:
        """Return what the text is known by."""
        return hashlib.sha256(self.source.encode()).hexdigest()

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
        with TORCH_LOCK:
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


def allow(path: Path) -> str:
    """Note that jobs of this user may run a file as it is now, and return its SHA-256.

    Raises:
        ConfigError: it cannot be read as text.
    """
    try:
        own = OwnModel(path.resolve(), path.read_text(encoding="utf8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: wanted a file of Python: {error}") from error
    if own.digest not in _allowed():
        consents().parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with consents().open("a", encoding="utf8") as file:
            file.write(f"{own.digest}  {own.path}\n")
    return own.digest


def consents() -> Path:
    """Return the file that lists what may be run: a hash a line, and where it lay."""
    return Path.home() / ".local" / "state" / "tacit" / "allowed"


def _allowed() -> set[str]:
    try:
        return {line.partition(" ")[0] for line in consents().read_text("utf8").splitlines()}
    except FileNotFoundError:
        return set()


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
