"""Pictures and tables that a run brought along."""

import base64
import struct
import zlib
from collections.abc import Sequence

from tacit.errors import DataError
from tacit.report.markup import Markup, concat, lay_table, tag
from tacit.result import Picture, Result, Sheet

_CHANNELS = {"gray": 1, "rgb": 3}
_COLOUR_TYPES = {"gray": 0, "rgb": 2}
_MOST_PIXELS = 1 << 24


def lay_pictures(result: Result) -> Markup:
    """Lay out the pictures, those of one title side by side."""
    groups: dict[str, list[Picture]] = {}
    for picture in result.pictures:
        groups.setdefault(picture.title, []).append(picture)
    return concat(_lay_group(title, tuple(group)) for title, group in groups.items())


def lay_sheets(sheets: Sequence[Sheet]) -> Markup:
    """Lay out tables, each under its title; one alone has that of its section."""
    return concat(_lay_sheet(sheet, has_title=len(sheets) > 1) for sheet in sheets)


def _lay_group(title: str, pictures: tuple[Picture, ...]) -> Markup:
    return concat(
        [tag("h3", title), tag("div", *(_lay_picture(one) for one in pictures), class_="gallery")]
    )


def _lay_picture(picture: Picture) -> Markup:
    try:
        source = to_data_url(picture)
    except DataError as error:  # the rest of the page is still worth reading
        return tag("p", f"Not shown: {error}.", class_="picture")
    # Small pictures are shown large: their pixels are what one wants to see.
    zoom = max(1, 112 // max(picture.width, picture.height))
    image = tag(
        "img",
        src=source,
        alt=picture.caption,
        width=picture.width * zoom,
        height=picture.height * zoom,
        class_="pixels",
    )
    return tag("figure", image, tag("figcaption", picture.caption), class_="picture")


def _lay_sheet(sheet: Sheet, *, has_title: bool) -> Markup:
    width = len(sheet.heads)
    padded = [(*row, *("",) * (width - len(row)))[:width] for row in sheet.rows]
    rows = [tuple(map(_lay_marks, row)) for row in padded]
    table = lay_table(sheet.heads, rows, caption=sheet.caption or None)
    return concat([tag("h3", sheet.title), table]) if has_title else table


def _lay_marks(cell: str) -> str:
    """Colour what stands between ⟦ and ⟧."""
    first, *rest = cell.split("⟦")
    if not rest:
        return cell
    pairs = (piece.partition("⟧") for piece in rest)
    return concat([first, *(concat([tag("mark", inside), after]) for inside, _, after in pairs)])


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
