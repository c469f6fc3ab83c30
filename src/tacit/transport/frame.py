"""A frame, the typed block of bytes that travels on a link, and the packet that it travels in.

On the wire a packet is a fixed header, then the tag, the shape and the payload. Header,
little-endian: magic and version (3 bytes); kind, dtype, number of dimensions, tag length, phase
(1 byte each); chain depth (u32); sequence number (u64); payload length (u64).

Programs send few distinct heads many times, so encoding and decoding them is remembered.
"""

import struct
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import NamedTuple, NoReturn

from tacit.errors import InputError
from tacit.result import PHASES, Phase

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


MAGIC = b"TF\x01"
HEADER = struct.Struct("<8sIQQ")
DATA, HEARTBEAT, BYE, FAIL = 1, 2, 3, 4
MAX_FAIL_BYTES = 4096

_STATIC = struct.Struct("<3sBBBBB")
_DTYPES = tuple(DTYPE_BYTES)
_REMEMBERED = 2048


class FrameHead(NamedTuple):
    """A checked head, with its encoding."""

    kind: int
    phase: Phase
    tag: str
    channel: str
    dtype: str
    shape: tuple[int, ...]
    payload_bytes: int
    static: bytes  # the first field of the header
    label: bytes  # the tag and the shape


class BadHeadError(Exception):
    """These bytes are not a head; says why and never leaves this room."""


@lru_cache(_REMEMBERED)
def make_head(kind: int, phase: Phase, tag: str, dtype: str, shape: tuple[int, ...]) -> FrameHead:
    """Make the head of something to send, or raise InputError."""
    if phase not in PHASES:
        raise InputError(f"phase must be one of {', '.join(PHASES)}, got {phase!r}")
    if dtype not in DTYPE_BYTES:
        raise InputError(f"dtype must be one of {', '.join(DTYPE_BYTES)}, got {dtype!r}")
    if len(shape) > MAX_DIMS or not all(0 <= n < 1 << 64 for n in shape):
        raise InputError(f"a shape has at most {MAX_DIMS} dimensions, none negative, got {shape}")
    if kind == DATA and not _is_tag(tag):
        raise InputError(f"a tag is 1 to {MAX_TAG_BYTES} printable ASCII characters, got {tag!r}")
    static = _STATIC.pack(
        MAGIC, kind, _DTYPES.index(dtype), len(shape), len(tag), PHASES.index(phase)
    )
    return decode_head(static, tag.encode("ascii") + struct.pack(f"<{len(shape)}Q", *shape))


@lru_cache(_REMEMBERED)
def label_bytes(static: bytes) -> int:
    """Check the first field of a header and return how long the label is.

    Raises:
        BadHeadError: nothing valid starts like this.
    """
    magic, kind, dtype, dims, tag_bytes, phase = _STATIC.unpack(static)
    if magic != MAGIC:
        raise BadHeadError(f"wanted a frame starting with {MAGIC.hex()}, got {magic.hex()}")
    if kind not in (DATA, HEARTBEAT, BYE, FAIL):
        raise BadHeadError(f"a frame of unknown kind {kind}")
    if dtype >= len(_DTYPES) or phase >= len(PHASES) or dims > MAX_DIMS:
        raise BadHeadError(f"a frame with dtype {dtype}, phase {phase} and {dims} dimensions")
    is_control = (dtype, dims, tag_bytes, phase) == (0, 1, 0, 0)
    if not (0 < tag_bytes <= MAX_TAG_BYTES if kind == DATA else is_control):
        raise BadHeadError(f"a frame of kind {kind} with a tag of {tag_bytes} bytes")
    return int(tag_bytes + 8 * dims)


@lru_cache(_REMEMBERED)
def decode_head(static: bytes, label: bytes) -> FrameHead:
    """Decode a head whose first field has been checked, or raise BadHeadError."""
    _, kind, dtype, dims, tag_bytes, phase = _STATIC.unpack(static)
    tag = label[:tag_bytes].decode("ascii", errors="replace")
    if kind == DATA and not _is_tag(tag):
        raise BadHeadError(f"a tag must be printable ASCII, got {label[:tag_bytes]!r}")
    shape = struct.unpack_from(f"<{dims}Q", label, tag_bytes)
    size = prod(shape) * DTYPE_BYTES[_DTYPES[dtype]]
    if kind != DATA and size > (MAX_FAIL_BYTES if kind == FAIL else 0):
        raise BadHeadError(f"a control frame of kind {kind} with {size} bytes")
    return FrameHead(
        kind, PHASES[phase], tag, channel_of(tag), _DTYPES[dtype], shape, size, static, label
    )


def explain_refusal(
    head: FrameHead, depth: int, sequence: int, size: int, *, due: int, most: int
) -> NoReturn:
    """Raise BadHeadError, saying what is wrong with a header that may not come now."""
    if sequence > due:
        lost = sequence - due
        raise BadHeadError(f"frame {sequence} came where {due} was due: {lost} were lost")
    if sequence < due:
        raise BadHeadError(f"frame {sequence} came where {due} was due: repeated or out of order")
    if size != head.payload_bytes:
        raise BadHeadError(f"frame {sequence} announces {size} bytes for {head.dtype} {head.shape}")
    if (depth == 0) != (head.phase == "setup"):
        raise BadHeadError(f"frame {sequence} has chain depth {depth} in phase {head.phase}")
    raise BadHeadError(
        f"frame {sequence} announces {size} bytes, more than the {most} that one frame may have"
        " here (max_frame_bytes, stash_bytes); raise them if it is meant"
    )


def _is_tag(tag: str) -> bool:
    return 0 < len(tag) <= MAX_TAG_BYTES and tag.isascii() and tag.isprintable()


MAX_PARTY_CHARS = 64
MAX_REASON_CHARS = 900  # at most 4 bytes each, so a FAIL always fits


@dataclass(slots=True)
class Packet:
    """What two link ends exchange. Only ``DATA`` reaches the user of a link."""

    head: FrameHead
    depth: int
    frame: Frame


def head_of(tag: str, frame: Frame, phase: Phase, *, limit: int) -> FrameHead:
    """Return the head of a frame that may be sent, or raise InputError."""
    head = make_head(DATA, phase, tag, frame.dtype, frame.shape)
    nbytes = frame.data.nbytes
    if head.payload_bytes != nbytes:
        raise InputError(f"{frame.dtype} {frame.shape} does not fit {nbytes} bytes of data")
    if nbytes > limit:
        raise InputError(f"a frame of {nbytes} bytes passes the limit of {limit}; split it")
    if not frame.data.c_contiguous:
        raise InputError(f"the data of a frame must be contiguous; {frame.shape} is strided")
    return head


def control(kind: int, payload: bytes = b"") -> Packet:
    """Make a heart-beat or a goodbye, or another word to the other end."""
    frame = frame_bytes(payload)
    return Packet(make_head(kind, "setup", "", frame.dtype, frame.shape), 0, frame)


def fail(party: str, reason: str) -> Packet:
    """Make the packet that says which party failed and why."""
    text = f"{clean(party, MAX_PARTY_CHARS)}\0{clean(reason, MAX_REASON_CHARS)}"
    return control(FAIL, text.encode())


def read_fail(packet: Packet) -> tuple[str, str]:
    """Return the party and the reason; whatever a peer wrote there, the text is printable."""
    party, _, reason = bytes(packet.frame.data).decode(errors="replace").partition("\0")
    return clean(party, MAX_PARTY_CHARS) or "?", clean(reason, MAX_REASON_CHARS) or "no reason"


def clean(text: str, max_chars: int) -> str:
    """Make text from elsewhere safe to show: one line, printable, short."""
    line = " ".join(text.split())
    shown = "".join(c if c.isprintable() else "?" for c in line)
    return shown if len(shown) <= max_chars else shown[: max_chars - 1] + "…"
