"""A model on disk: a GGUF file, or a folder with one or with config.json and safetensors."""

from dataclasses import dataclass
from pathlib import Path

from tacit.errors import DataError
from tacit.llm.model.architecture import Architecture, LanguageModel, parameters
from tacit.llm.model.gguf import Packed
from tacit.llm.model.hf_config import describe
from tacit.llm.model.safetensors import read_json, tensor_readers, without_prefix
from tacit.llm.model.tensor_names import GPT2, Layout, gather
from tacit.llm.model.tokenizer import Tokenizer, check_vocabulary, from_folder, from_settings

FLOAT_BYTES = 4
OWNER_BYTES = 4
"""A weight as a ring word, narrow: 4 bytes, sometimes 2 or, of an embedding, 8."""
USER_BYTES = 8
"""A masked weight."""
DEALER_BYTES = 0
"""Masks are drawn when they are used; those that are kept are few, and counted beside."""
_PROCESS_BYTES, _WORKING_BYTES = 1 << 28, 3 << 28
"""What each party takes beside its weights: itself, and up to 8 bytes per weight to work with."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Checkpoint:
    """A model that was found on disk; its weights are read by `load`.

    The user of a private chat needs no weights, so a folder without them is good enough to open.
    """

    path: Path
    architecture: Architecture
    _layout: Layout
    _packed: Packed | None

    @property
    def name(self) -> str:
        """Return the name of the file or folder, without its ending if it is a file."""
        return self.path.stem if self.path.is_file() else self.path.name

    def load(self) -> LanguageModel:
        """Read and check every weight.

        Raises:
            DataError: a tensor is missing, strange or of another shape.
        """
        return self._gather(is_lazy=False)

    def read(self) -> LanguageModel:
        """Check every weight as `load` does, and keep none: a layer is read when it is wanted.

        For whoever goes through the model once or twice, with memory for a layer.
        """
        return self._gather(is_lazy=True)

    def _gather(self, *, is_lazy: bool) -> LanguageModel:
        if self._packed is not None:
            readers = self._packed.readers()
        else:
            readers = tensor_readers(self.path)
            if self._layout is GPT2:
                readers = without_prefix(readers, "transformer.")
        try:
            return gather(self.architecture, self._layout, readers, is_lazy=is_lazy)
        except DataError as error:
            raise DataError(f"{self.path}: {error}") from error

    def tokenizer(self) -> Tokenizer:
        """Read the tokenizer that lies with the model.

        Raises:
            DataError: there is none, or it is that of another model.
        """
        if self._packed is not None:
            found = from_settings(self._packed.settings)
        else:
            found = from_folder(self.path)
        try:
            check_vocabulary(found, self.architecture.vocab)
        except DataError as error:
            raise DataError(f"{self.path}: {error}") from error
        return found

    def check_memory(
        self, free_bytes: int, *, bytes_per_weight: int = FLOAT_BYTES, parties: int = 0
    ) -> None:
        """Refuse a model that does not fit, before it is read.

        Args:
            free_bytes: how much memory there is.
            bytes_per_weight: how much each weight takes, at all parties on this machine.
            parties: how many parties of a private chat are on this machine; 0 is a plain one.

        Raises:
            DataError: it does not fit.
        """
        a = self.architecture
        weights = parameters(a)
        if parties and a.tied_output:  # they are two matrices there
            weights += a.vocab * a.width
        beside = _PROCESS_BYTES + min(8 * weights, _WORKING_BYTES)
        need = weights * bytes_per_weight + parties * beside
        if need > free_bytes:
            raise DataError(
                f"{self.path}: the model does not fit: it needs {need / 2**30:.1f} GiB of memory, "
                f"and {free_bytes / 2**30:.1f} GiB are free"
            )


def open_checkpoint(path: Path) -> Checkpoint:
    """Find out what model lies at a path, reading only its description.

    Raises:
        DataError: there is no model, or it is of an architecture that is not known here.
    """
    if not path.exists():
        raise DataError(f"no model at {path}; get one with: tacit model get smollm2-135m")
    packed = _find_packed(path)
    try:
        if packed is not None:
            opened = Packed(packed)
            architecture, layout = opened.describe()
            return Checkpoint(path=path, architecture=architecture, _layout=layout, _packed=opened)
        architecture, layout = describe(_config(path))
    except DataError as error:
        if str(error).startswith(str(path)):
            raise
        raise DataError(f"{packed or path}: {error}") from error
    return Checkpoint(path=path, architecture=architecture, _layout=layout, _packed=None)


def _find_packed(path: Path) -> Path | None:
    """Return the GGUF file that a path means, if it means one."""
    if path.is_file():
        return path
    if (path / "config.json").is_file():
        return None
    found = sorted(path.glob("*.gguf"))
    if len(found) > 1:
        raise DataError(f"{path}: wanted one GGUF file, found {len(found)}; name the one you mean")
    if not found:
        raise DataError(f"{path}: wanted a GGUF file, or config.json and safetensors; found none")
    return found[0]


def _config(folder: Path) -> dict[str, object]:
    config = read_json(folder / "config.json")
    if not isinstance(config, dict):
        raise DataError(f"{folder / 'config.json'}: wanted a table")
    return config
