"""What every page has: head, navigation, a language switch; and pieces that several pages share."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import HTMLResponse

from tacit import __version__
from tacit.cli.studio.words import LANGUAGES, Words, choose
from tacit.report.markup import Markup, concat, tag

PAGES = (
    ("./", "Results"),
    ("start", "Start a job"),
    ("watch", "Watch"),
    ("ledger", "Ledger"),
    ("chat", "Chat"),
)


@dataclass(frozen=True)
class View:
    """A request as pages see it: the folder of results, and the language."""

    folder: Path
    words: Words
    address: str

    def page(
        self, title: str, *content: str, status: int = 200, is_wide: bool = False
    ) -> HTMLResponse:
        """Make a whole page."""
        head = tag(
            "head",
            tag("meta", charset="utf-8"),
            tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
            tag("meta", name="color-scheme", content="light dark"),
            tag("link", rel="icon", href="data:,"),
            tag("title", f"{title} · tacit studio"),
            *(tag("link", rel="stylesheet", href=f"{name}.css") for name in ("report", "studio")),
            tag("script", src="studio.js", defer="defer"),
        )
        main = tag("main", *content, id="main", tabindex=-1)
        body = tag("body", self._top(), main, self._bottom(), class_="wide" if is_wide else None)
        whole = tag("html", head, body, lang="zh-Hans" if self.words.language == "zh" else "en")
        return HTMLResponse(f"<!DOCTYPE html>\n{whole}\n", status)

    def _top(self) -> Markup:
        words = self.words
        here = self.address.split("?")[0] or "./"
        links = [
            tag("a", words(name), href=to, aria_current="page" if to == here else None)
            for to, name in PAGES
        ]
        return concat(
            [
                tag("a", words("Skip to the content"), href="#main", class_="skip"),
                tag(
                    "header",
                    tag("a", "tacit studio", href="./", class_="brand"),
                    tag("nav", *links, aria_label=words("Pages")),
                    class_="bar",
                ),
            ]
        )

    def _bottom(self) -> Markup:
        others = [
            tag("a", name, href=f"language?to={code}", lang=code, hreflang=code)
            for code, name in LANGUAGES.items()
            if code != self.words.language
        ]
        where = self.words("Results in {folder}", folder=self.folder)
        return tag("footer", tag("p", f"tacit {__version__} · {where} · ", *others))


def view_of(request: Request) -> View:
    """Make the view of a request."""
    words = choose(request.cookies.get("language"), request.headers.get("accept-language", ""))
    return View(request.app.state.folder, words, request.url.path.rpartition("/")[2])


def link(to: str, /, **values: str) -> str:
    """Write the address of a page of ours."""
    return f"{to}?{urlencode(values)}"


def read_count(text: str) -> int | None:
    """Read a positive whole number of at most nine digits; None if it is none."""
    text = text.strip()
    return (int(text) or None) if text.isdecimal() and len(text) < 10 else None


def lay_section(title: str, *content: str, anchor: str | None = None) -> Markup:
    """Lay out a part of a page under its title."""
    return tag("section", tag("h2", title), *content, id=anchor)


def lay_facts(rows: Sequence[tuple[str, str]]) -> Markup:
    """Lay out names and values as tiles; nothing, if there are none."""
    tiles = [
        tag("div", tag("p", name, class_="label"), tag("p", value, class_="figure"), class_="tile")
        for name, value in rows
    ]
    return tag("div", *tiles, class_="tiles") if tiles else Markup("")


def lay_notice(text: str, mood: str = "warn") -> Markup:
    """Lay out a sentence that must be seen."""
    return tag("p", text, class_=f"notice {mood}", role="status")
