"""A reader of Universal Binary JSON, as far as XGBoost writes it."""

import struct

import numpy as np

from tacit.errors import DataError, foreign
from tacit.verify.kernels.arrays import Outputs

NUMBERS = {"i": "b", "U": "B", "I": "h", "l": "i", "L": "q", "d": "f", "D": "d"}
ARRAYS = {"i": ">i1", "U": ">u1", "I": ">i2", "l": ">i4", "L": ">i8", "d": ">f4", "D": ">f8"}
DEEPEST = 100


def read_ubjson(data: bytes) -> object:
    """Decode one value; typed arrays come back as numpy arrays.

    Raises:
        DataError: the bytes end early, nest too deep or hold an unknown type.
    """
    reader = _Reader(data)
    with foreign("not a valid UBJSON model", struct.error):
        return reader.value(reader.tag(), 0)


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def take(self, count: int) -> bytes:
        if count < 0 or self.at + count > len(self.data):
            raise DataError(
                f"the UBJSON model wants {count} bytes at {self.at}, but has only {len(self.data)}"
            )
        part = self.data[self.at : self.at + count]
        self.at += count
        return part

    def tag(self) -> str:
        tag = "N"
        while tag == "N":
            tag = chr(self.take(1)[0])
        return tag

    def number(self, tag: str) -> int | float:
        if tag not in NUMBERS:
            raise DataError(f"the UBJSON model has an unknown type {tag!r} at byte {self.at}")
        form = ">" + NUMBERS[tag]
        found: int | float = struct.unpack(form, self.take(struct.calcsize(form)))[0]
        return found

    def text(self) -> str:
        return self.take(int(self.number(self.tag()))).decode()

    def value(self, tag: str, depth: int) -> object:
        if depth > DEEPEST:
            raise DataError(f"the UBJSON model nests deeper than {DEEPEST} levels")
        if tag == "{":
            return self.mapping(depth)
        if tag == "[":
            return self.array(depth)
        if tag == "S":
            return self.text()
        if tag == "C":
            return chr(self.take(1)[0])
        if tag in "ZTF":
            return {"Z": None, "T": True, "F": False}[tag]
        return self.number(tag)

    def mapping(self, depth: int) -> dict[str, object]:
        found: dict[str, object] = {}
        while self.data[self.at : self.at + 1] != b"}":
            key = self.text()
            found[key] = self.value(self.tag(), depth + 1)
        self.take(1)
        return found

    def array(self, depth: int) -> list[object] | Outputs:
        kind = None
        if self.data[self.at : self.at + 1] == b"$":
            self.take(1)
            kind = chr(self.take(1)[0])
        if self.data[self.at : self.at + 1] == b"#":
            self.take(1)
            count = int(self.number(self.tag()))
            return self.counted(kind, count, depth)
        found = []
        while self.data[self.at : self.at + 1] != b"]":
            found.append(self.value(self.tag(), depth + 1))
        self.take(1)
        return found

    def counted(self, kind: str | None, count: int, depth: int) -> list[object] | Outputs:
        if kind in ARRAYS:
            form = np.dtype(ARRAYS[kind])
            return np.frombuffer(self.take(count * form.itemsize), form).astype(form.newbyteorder())
        if count > len(self.data):
            raise DataError(f"the UBJSON model announces {count} values, more than it has bytes")
        return [self.value(kind or self.tag(), depth + 1) for _ in range(count)]
