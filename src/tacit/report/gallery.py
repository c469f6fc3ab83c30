"""Pictures and tables that a run brought along."""

from collections.abc import Sequence

from tacit.errors import DataError
from tacit.report.layout import lay_table
from tacit.report.markup import Markup, concat, tag
from tacit.report.png import to_data_url
from tacit.result import Picture, Result, Sheet


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
