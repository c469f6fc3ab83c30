"""A packet: a frame with what travels beside it, or a word from one link end to the other."""

from dataclasses import dataclass

from tacit.errors import InputError
from tacit.result import Phase
from tacit.transport.frame import Frame, frame_bytes
from tacit.transport.head import DATA, FAIL, FrameHead, make_head

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
