"""Read the GGUF container: settings, and where each tensor lies. Every length is checked first."""

import mmap
import struct
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.errors import DataError
from tacit.llm.extras import extra

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_NUMBERS = {
    0: "B",
    1: "b",
    2: "H",
    3: "h",
    4: "I",
    5: "i",
    6: "f",
    7: "?",
    10: "Q",
    11: "q",
    12: "d",
}
_TEXT, _LIST = 8, 9
_LARGEST_COUNT = 1 << 24
_LARGEST_DEPTH = 4
_ALIGNMENT = 32


@dataclass(frozen=True, eq=False)
class Stored:
    """A tensor in a container, quantised: rows of bytes, and the number that names their kind."""

    name: str
    kind: int
    data: NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class Container:
    """What a GGUF file holds; tensors are views of the mapped file."""

    settings: dict[str, Any]  # as the file has them; checked where they are used
    tensors: dict[str, Stored]


def read_container(path: Path) -> Container:
    """Map a GGUF file and read everything but the tensors.

    Raises:
        DataError: it is not a GGUF file, is cut short, or names impossible sizes.
    """
    try:
        with path.open("rb") as file:
            view = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        return _Reader(view).container()
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from error
    # An empty file cannot be mapped; a cut one ends in the middle of a number.
    except (struct.error, ValueError) as error:
        raise DataError(f"{path}: not a whole GGUF file: {error}") from error


class _Reader:
    """A place in a mapped file that moves on."""

    def __init__(self, view: memoryview) -> None:
        self._view = view
        self._at = 0

    def container(self) -> Container:
        if bytes(self._view[:4]) != _MAGIC:
            raise ValueError("it does not begin with GGUF")
        self._at = 4
        version = self._number("I")
        if version not in _VERSIONS:
            raise ValueError(f"wanted version {_VERSIONS}, little-endian, got {version}")
        tensors, pairs = self._count(), self._count()
        settings = {self._text(): self._value(self._number("I")) for _ in range(pairs)}
        places = [self._place() for _ in range(tensors)]
        step = settings.get("general.alignment", _ALIGNMENT)
        if not isinstance(step, int) or step < 1:
            raise ValueError(f"impossible alignment {step!r}")
        start = -(-self._at // step) * step
        found = [self._tensor(start, *place) for place in places]
        return Container(settings, {tensor.name: tensor for tensor in found})

    def _number(self, code: str) -> Any:  # int, float or bool by its code
        (value,) = struct.unpack_from(f"<{code}", self._view, self._at)
        self._at += struct.calcsize(f"<{code}")
        return value

    def _count(self) -> int:
        count: int = self._number("Q")
        if count > _LARGEST_COUNT:
            raise ValueError(f"impossible count {count}")
        return count

    def _text(self) -> str:
        return self._take(self._number("Q")).decode("utf-8", errors="replace")

    def _take(self, size: int) -> bytes:
        if size > len(self._view) - self._at:
            raise ValueError("it ends too early")
        self._at += size
        return bytes(self._view[self._at - size : self._at])

    def _value(self, kind: int, depth: int = 0) -> Any:  # whatever the file holds
        if kind == _TEXT:
            return self._text()
        if kind in _NUMBERS:
            return self._number(_NUMBERS[kind])
        if kind != _LIST or depth == _LARGEST_DEPTH:
            raise ValueError(f"impossible kind of value {kind}")
        inner, count = self._number("I"), self._count()
        if inner in _NUMBERS:
            code = f"<{count}{_NUMBERS[inner]}"
            return list(struct.unpack(code, self._take(struct.calcsize(code))))
        return [self._value(inner, depth + 1) for _ in range(count)]

    def _place(self) -> tuple[str, int, tuple[int, ...], int]:
        """Read name, kind, sizes (outermost first) and offset of a tensor."""
        name, axes = self._text(), self._number("I")
        if not 1 <= axes <= 4:
            raise ValueError(f"tensor {name!r} has {axes} axes")
        sizes = tuple(self._number("Q") for _ in range(axes))[::-1]
        return name, self._number("I"), sizes, self._number("Q")

    def _tensor(
        self, start: int, name: str, kind: int, sizes: tuple[int, ...], offset: int
    ) -> Stored:
        library = extra("gguf")
        per_block, block_bytes = library.GGML_QUANT_SIZES[library.GGMLQuantizationType(kind)]
        if sizes[-1] % per_block:
            raise ValueError(f"tensor {name!r} of rows of {sizes[-1]} is not made of whole blocks")
        shape = (*sizes[:-1], sizes[-1] // per_block * block_bytes)
        begin, size = start + offset, prod(shape)
        if not size or begin + size > len(self._view):
            raise ValueError(f"tensor {name!r} lies outside the file")
        data = np.frombuffer(self._view, np.uint8, size, begin).reshape(shape)
        return Stored(name, kind, data)
