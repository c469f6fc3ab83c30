"""A frame: the typed, shaped block of bytes that travels on a link."""

from dataclasses import dataclass
from math import prod

DTYPE_BYTES: dict[str, int] = {"u8": 1, "i32": 4, "i64": 8, "f32": 4, "f64": 8}
MAX_DIMS = 8
MAX_TAG_BYTES = 64


@dataclass(frozen=True, slots=True)
class Frame:
    """Bytes with a type and a shape. ``data`` is contiguous and is not copied by a link.

    The sender must not change the memory behind ``data`` after handing it to a link. The receiver
    owns what it gets and may write into it. Numbers are little-endian.
    """

    dtype: str
    shape: tuple[int, ...]
    data: memoryview

    @property
    def payload_bytes(self) -> int:
        """Return the size of the payload, by type and shape."""
        return prod(self.shape) * DTYPE_BYTES[self.dtype]


def frame_bytes(data: bytes | bytearray | memoryview) -> Frame:
    """Wrap plain bytes, without copying them, as a one-dimensional ``u8`` frame."""
    view = memoryview(data)
    return Frame("u8", (view.nbytes,), view)


def channel_of(tag: str) -> str:
    """Return the part of a tag before the first slash; frames keep their order within it."""
    return tag.partition("/")[0]
