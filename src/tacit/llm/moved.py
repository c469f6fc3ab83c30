"""Where modules and names of version 0.1 are now; the old ones warn for one release."""

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

from tacit.renamed import find_renamed, warn_renamed

_MODULES = {
    "announce": "backend.announce",
    "architecture": "model.architecture",
    "catalogue": "model.catalogue",
    "checkpoint": "model.checkpoint",
    "clear": "backend.plain",
    "container": "model.gguf",
    "described": "model.hf_config",
    "dialogue": "backend.dialogue",
    "hushed": "backend.stepwise",
    "layout": "model.tensor_names",
    "loose": "model.safetensors",
    "packed": "model.gguf",
    "plain": "model.plain",
    "private": "permuted",
    "rotary": "model.rotary",
    "sampling": "backend.sampling",
    "steady": "backend.reconnecting",
    "template": "model.template",
    "tokenizer": "model.tokenizer",
    "veiled": "backend.permuted",
    "vocabulary": "model.vocabulary",
}
NAMES = {
    "PlainVoice": "PlainBackend",
    "PrivateVoice": "PermutedBackend",
    "SessionVoice": "SessionBackend",
    "SteadyVoice": "ReconnectingBackend",
    "StepVoice": "StepwiseBackend",
    "Voice": "Backend",
}
_ROOM = "tacit.llm"


class _Moved(ModuleType):
    """A module under its old name: looks everything up in the new one."""

    def __init__(self, name: str, home: ModuleType) -> None:
        super().__init__(name, home.__doc__)
        self._home = home
        self.__all__ = [word for word in vars(home) if word[0] != "_"]

    def __getattr__(self, name: str) -> object:
        if name.startswith("__") or hasattr(self._home, name):
            return getattr(self._home, name)
        return find_renamed(vars(self._home), NAMES, name)


class _Finder(MetaPathFinder, Loader):
    """Finds modules under their old names."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Answer for old names only."""
        room, _, name = fullname.rpartition(".")
        return ModuleSpec(fullname, self) if room == _ROOM and name in _MODULES else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Warn, and stand in for the module that it is now."""
        new = f"{_ROOM}.{_MODULES[spec.name.rpartition('.')[2]]}"
        warn_renamed(spec.name, new)  # the import machinery is not counted
        return _Moved(spec.name, import_module(new))

    def exec_module(self, module: ModuleType) -> None:
        """Do nothing: the new module has run."""


def redirect() -> None:
    """Let imports of old names find the new modules."""
    if not any(isinstance(one, _Finder) for one in sys.meta_path):
        sys.meta_path.append(_Finder())
