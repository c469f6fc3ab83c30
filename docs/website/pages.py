"""Read Markdown pages: headings with their anchors, links, and where a link leads.

Anchors are those of GitHub and of the site (`make docs`): lower case, words joined by hyphens. A
page in another language (`NAME.zh.md`) has the anchors of the English one, so that a
link to a section is the same in every language.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

ROOT = Path(__file__).parents[2]
_FENCED = re.compile(r"^(```|~~~).*?^\1[ \t]*$", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^(#{1,6}) +(.*?)(?: +#+)?$", re.MULTILINE)
_LINK = re.compile(r"(?P<head>!?\[(?:[^\[\]]|\[[^\]]*\])*\]\()(?P<to>[^()\s]+)(?P<tail>\))")
_OTHER = re.compile(r"\.zh(?=\.\w+$)")


@dataclass(frozen=True)
class Link:
    """A link of a page: the file that it leads to, and the section, if it names one."""

    written: str
    file: Path
    anchor: str


def list_pages() -> list[Path]:
    """Return every page that people read: those at the root, in docs and beside the examples."""
    found = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")]
    return sorted(found)


def is_translation(path: Path) -> bool:
    """Say whether a page is in another language than English."""
    return _OTHER.search(path.name) is not None


def find_english(path: Path) -> Path:
    """Return the English page of a page."""
    return path.with_name(_OTHER.sub("", path.name))


def drop_code(text: str) -> str:
    """Blank out fenced blocks, keeping every line where it is."""
    return _FENCED.sub(lambda found: "\n" * found[0].count("\n"), text)


def read_headings(text: str) -> list[tuple[int, str]]:
    """Return level and text of every heading."""
    return [(len(one[1]), one[2]) for one in _HEADING.finditer(drop_code(text))]


def name_anchors(text: str) -> list[str]:
    """Return the anchor of every heading, numbered where two are alike."""
    found: list[str] = []
    for _, title in read_headings(text):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title).replace("`", "").replace("*", "")
        anchor = re.sub(r"[^\w\- ]", "", plain).strip().lower().replace(" ", "-")
        found.append(f"{anchor}_{found.count(anchor)}" if anchor in found else anchor)
    return found


def read_anchors(path: Path) -> set[str]:
    """Return the anchors of a page."""
    return set(name_anchors(find_english(path).read_text(encoding="utf-8")))


def read_links(path: Path) -> Iterator[Link]:
    """Return the links of a page that stay in the repository."""
    text = re.sub(r"`[^`\n]*`", "", drop_code(path.read_text(encoding="utf-8")))
    for one in _LINK.finditer(text):
        if not is_outside(one["to"]):
            yield resolve(one["to"], path)


def is_outside(written: str) -> bool:
    """Say whether a link leaves the repository."""
    return re.match(r"[a-z]+:", written) is not None


def resolve(written: str, path: Path) -> Link:
    """Return where a link that stands on a page leads."""
    name, _, anchor = unquote(written).partition("#")
    return Link(written, (path.parent / name).resolve() if name else path, anchor)


def replace_links(text: str, change: Callable[[str], str]) -> str:
    """Return the text with every link that stays in the repository changed; code stays as it is."""

    def one(found: re.Match[str]) -> str:
        to = found["to"]
        return found["head"] + (to if is_outside(to) else change(to)) + found["tail"]

    parts, at = [], 0
    for block in _FENCED.finditer(text):
        parts += [_LINK.sub(one, text[at : block.start()]), block[0]]
        at = block.end()
    return "".join([*parts, _LINK.sub(one, text[at:])])
