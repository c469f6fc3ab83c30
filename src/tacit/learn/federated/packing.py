"""Messages of the aggregation protocols as bytes: a kind, whole numbers and byte strings."""

import struct

from tacit.errors import FrameError, PartyError

_HEAD = struct.Struct("<4sB")
_MAGIC = b"tfl1"
_NUMBER = struct.Struct("<Q")
_LENGTH = struct.Struct("<I")

Field = int | bytes | memoryview


class VoidRound(PartyError):
    """The round gives no result, because too few took part or a party cheated; says why."""


class RunOver(VoidRound):
    """No round follows: a party cheated, and what it did cannot be undone; says why."""


def pack(kind: int, *fields: Field) -> bytes:
    """Write a message: numbers below 2^64 and byte strings, in the order given."""
    parts: list[bytes | memoryview] = [_HEAD.pack(_MAGIC, kind)]
    for field in fields:
        if isinstance(field, int):
            parts.append(_NUMBER.pack(field))
        else:
            parts += [_LENGTH.pack(len(field)), field]
    return b"".join(parts)


def unpack(message: bytes, kind: int, layout: str, *, sender: str) -> list[Field]:
    """Read a message that `pack` made: ``layout`` has an "i" per number, a "b" per byte string.

    A "v" is a byte string that is not copied but viewed.

    Raises:
        FrameError: another kind, or not as long as it says.
    """
    if len(message) < _HEAD.size or _HEAD.unpack_from(message) != (_MAGIC, kind):
        raise FrameError(sender, f"wanted a message of kind {kind}, got {len(message)} other bytes")
    at, fields = _HEAD.size, list[Field]()
    view = memoryview(message)
    for letter in layout:
        size, at = _read_size(view, at, letter, sender)
        taken = view[at : at + size]
        if len(taken) != size:
            raise FrameError(sender, f"a field of {size} bytes is cut off after {len(taken)}")
        if letter == "i":
            fields.append(_NUMBER.unpack(taken)[0])
        else:
            fields.append(taken if letter == "v" else bytes(taken))
        at += size
    if at != len(message):
        raise FrameError(sender, f"{len(message) - at} bytes too many in a message of kind {kind}")
    return fields


def records(body: bytes, size: int, *, sender: str) -> list[bytes]:
    """Cut a byte string into records of one size.

    Raises:
        FrameError: its length is no multiple of the size.
    """
    if len(body) % size:
        raise FrameError(sender, f"wanted records of {size} bytes, got {len(body)} bytes")
    return [body[at : at + size] for at in range(0, len(body), size)]


def _read_size(view: memoryview, at: int, letter: str, sender: str) -> tuple[int, int]:
    if letter == "i":
        return _NUMBER.size, at
    if at + _LENGTH.size > len(view):
        raise FrameError(sender, "the message ends inside the length of a field")
    return _LENGTH.unpack_from(view, at)[0], at + _LENGTH.size


def kind_of(message: bytes, *, sender: str) -> int:
    """Return the kind of a message.

    Raises:
        FrameError: it is none of ours.
    """
    if len(message) < _HEAD.size or message[:4] != _MAGIC:
        raise FrameError(sender, f"wanted a message of an aggregation, got {len(message)} bytes")
    return message[4]
