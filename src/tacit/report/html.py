"""One self-contained HTML file for a result: no network, no script, escaped by construction."""

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import replace
from importlib import resources
from pathlib import Path

from tacit.disk import write_whole
from tacit.report.gallery import lay_pictures, lay_sheets
from tacit.report.headline import GAMES, split_utility
from tacit.report.ledger import lay_learned, lay_promised
from tacit.report.markup import Markup, concat, tag
from tacit.report.measures import (
    lay_cost,
    lay_curves,
    lay_networks,
    lay_parties,
    lay_rates,
    lay_timeline,
    lay_traffic,
)
from tacit.report.overview import lay_footer, lay_headline, lay_tiles
from tacit.report.tally import is_alone
from tacit.report.utility import lay_utility
from tacit.result import Result, Sheet


def render(result: Result) -> str:
    """Render a result as an HTML document."""
    css = resources.files("tacit.report").joinpath("style.css").read_text(encoding="utf-8")
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=_lock(css)),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", f"{result.name} · tacit report"),
        tag("style", Markup(css)),
    )
    main = tag("main", lay_sections(result))
    body = tag("body", lay_headline(result), main, lay_footer(result))
    return f"<!DOCTYPE html>\n{tag('html', head, body, lang='en')}\n"


def write(result: Result, path: Path) -> None:
    """Render a result into a file, whole or not at all."""
    write_whole(path, render(result))


def lay_sections(result: Result) -> Markup:
    """Lay out everything between the headline and the footer."""
    notes = tag("ul", *(tag("li", note) for note in result.notes))
    alone = is_alone(result)
    # What counts in an audit is the table of threats.
    first = result.sheets[:1] if result.kind == "audit" else ()
    tables = result.sheets[len(first) :]
    time = concat([lay_timeline(result), lay_parties(result)])
    curves = concat([lay_curves(result.curves), lay_rates(result)])
    parts = [
        lay_tiles(result),
        _lay_tables(first, "first") if first else "",
        "" if alone else _lay_section("traffic", "Who sent what to whom", lay_traffic(result)),
        "" if alone else _lay_section("learned", "What each party learned", lay_learned(result)),
        _lay_section("promised", "What was promised", lay_promised(result)),
        _lay_measures(result),
        _lay_section("curves", "Curves", curves) if result.curves else "",
        _lay_section("pictures", "Pictures", lay_pictures(result)) if result.pictures else "",
        _lay_tables(tables) if tables else "",
        "" if alone else _lay_costs(result),
        _lay_section("timeline", "Where the time went", time),
        _lay_section("notes", "Notes", notes) if result.notes else "",
    ]
    return concat(parts)


def _lay_measures(result: Result) -> Markup:
    """Lay out what was measured; what a split job measures of attackers apart from its own."""
    good, far = "How good the result is", "How far attacks came"
    if result.kind in GAMES:
        return _lay_section("utility", far, lay_utility(result))
    own, attacks = split_utility(result)
    first = _lay_section("utility", good, lay_utility(replace(result, utility=own)))
    if not attacks:
        return first
    second = _lay_section("attacks", far, lay_utility(replace(result, utility=attacks)))
    return concat([first, second])


def _lay_costs(result: Result) -> Markup:
    """Lay out what the traffic was and would take elsewhere, where there are several parties."""
    has_networks = result.forecast is not None and result.forecast.timings
    other = "What it would take on other networks"
    return concat(
        [
            _lay_section("cost", "What it cost: forecast and metered", lay_cost(result)),
            _lay_section("networks", other, lay_networks(result)) if has_networks else "",
        ]
    )


def _lay_tables(sheets: Sequence[Sheet], anchor: str = "tables") -> Markup:
    title = "Tables" if len(sheets) > 1 else sheets[0].title
    return _lay_section(anchor, title, lay_sheets(sheets))


def _lay_section(anchor: str, title: str, content: Markup) -> Markup:
    heading = tag("h2", title, id=f"{anchor}-title")
    return tag("section", heading, content, id=anchor, aria_labelledby=f"{anchor}-title")


def _lock(css: str) -> str:
    """Forbid the page to load or run anything but its own style sheet and pictures."""
    digest = base64.b64encode(hashlib.sha256(css.encode()).digest()).decode()
    style = f"style-src 'sha256-{digest}'"
    return f"default-src 'none'; {style}; img-src data:; base-uri 'none'; form-action 'none'"
