"""Pixels to PNG, so that a page can carry its pictures."""

import base64
import struct
import zlib

from tacit.errors import DataError
from tacit.result import Picture

_CHANNELS = {"gray": 1, "rgb": 3}
_COLOUR_TYPES = {"gray": 0, "rgb": 2}
_MOST_PIXELS = 1 << 24


def to_data_url(picture: Picture) -> str:
    """Write a picture as the source of an image element.

    Raises:
        DataError: the pixels are not as many as the size says.
    """
    return "data:image/png;base64," + base64.b64encode(_encode(picture)).decode()


def _encode(picture: Picture) -> bytes:
    row = picture.width * _CHANNELS[picture.mode]
    raw = _read_pixels(picture, row)
    # Filter type 0 before every row: the bytes as they are.
    lines = b"".join(b"\0" + raw[at : at + row] for at in range(0, len(raw), row))
    head = struct.pack(
        ">IIBBBBB", picture.width, picture.height, 8, _COLOUR_TYPES[picture.mode], 0, 0, 0
    )
    chunks = ((b"IHDR", head), (b"IDAT", zlib.compress(lines, 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, body) for kind, body in chunks)


def _read_pixels(picture: Picture, row: int) -> bytes:
    place = f"picture {picture.caption!r}"
    if picture.width < 1 or picture.height < 1 or picture.width * picture.height > _MOST_PIXELS:
        raise DataError(
            f"{place}: wanted 1 to {_MOST_PIXELS} pixels, got {picture.width} × {picture.height}"
        )
    try:
        raw = base64.b64decode(picture.pixels, validate=True)
    except ValueError as error:  # binascii.Error is one; so is text beyond ASCII
        raise DataError(f"{place}: wanted pixels in base64, got something else") from error
    if len(raw) != row * picture.height:
        raise DataError(f"{place}: wanted {row * picture.height} bytes of pixels, got {len(raw)}")
    return raw


def _chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
