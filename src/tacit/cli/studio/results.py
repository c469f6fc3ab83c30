"""Read: every result of the folder, one result as its report, and several side by side."""

from collections.abc import Callable, Sequence

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from tacit import report
from tacit.cli.studio.index import Index, Summary, sum_traffic
from tacit.cli.studio.page import View, lay_notice, link, read_count, view_of
from tacit.errors import InputError
from tacit.report.format import (
    HARD_SPACE,
    show_bound,
    show_bytes,
    show_count,
    show_interval,
    show_quantity,
    show_seconds,
)
from tacit.report.html import lay_sections
from tacit.report.markup import Markup, concat, tag
from tacit.report.overview import lay_headline
from tacit.report.tally import find_slowest, time_at_work
from tacit.report.words import KIND_NAMES
from tacit.result import Result

_PATIENCE_S = 0.15
"""How long a page waits for results that are not summarised yet."""
_ON_A_PAGE = 100
_MOST = 8  # results side by side


async def results(request: Request) -> Response:
    """Answer the list of results."""
    view, index = view_of(request), request.app.state.index
    found, left = await run_in_threadpool(index.refresh, _PATIENCE_S)
    asked = request.query_params.get("q", "")
    number = read_count(request.query_params.get("page", "")) or 1
    shown = [one for one in found if one.has(asked.casefold().split())]
    return view.page(
        view.words("Results"),
        _lay_list(view, shown, asked, number, left),
        is_wide=True,
    )


async def result(request: Request) -> Response:
    """Answer one result as its report."""
    view, name = view_of(request), request.query_params.get("run", "")
    found = await run_in_threadpool(request.app.state.index.load, name)
    words = view.words
    if request.query_params.get("part") == "report":  # to keep or to print, by itself
        policy = "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:"
        headers = {"Content-Security-Policy": policy}
        return HTMLResponse(await run_in_threadpool(report.render, found), headers=headers)
    crumbs = tag(
        "p",
        tag("a", words("Results"), href="./"),
        f" · {name} · ",
        tag("a", words("As a page by itself"), href=link("result", run=name, part="report")),
        " · ",
        tag("a", words("Compare"), href=link("compare", run=name)),
        class_="crumbs",
    )
    body = await run_in_threadpool(lambda: concat([lay_headline(found), lay_sections(found)]))
    return view.page(found.name, crumbs, body)


async def compare(request: Request) -> Response:
    """Answer several results side by side."""
    view, words = view_of(request), view_of(request).words
    names = list(dict.fromkeys(request.query_params.getlist("run")))[:_MOST]
    index: Index = request.app.state.index
    loaded, broken = [], []
    for name in names:
        try:
            loaded.append((name, await run_in_threadpool(index.load, name)))
        except InputError as error:
            broken.append(lay_notice(str(error)))
    found, _ = await run_in_threadpool(index.refresh, _PATIENCE_S)
    others = [one for one in found if one.name not in names and not one.problem]
    body = _lay_table(view, loaded) if loaded else tag("p", words("Choose results to compare."))
    return view.page(
        words("Compare"),
        tag("p", tag("a", words("Results"), href="./"), class_="crumbs"),
        tag("h1", words("Side by side")),
        *broken,
        tag("section", body),
        _lay_more(view, names, others[:200]),
        is_wide=True,
    )


def _lay_more(view: View, names: Sequence[str], others: Sequence[Summary]) -> Markup:
    words = view.words
    hidden = [tag("input", type="hidden", name="run", value=name) for name in names]
    options = [tag("option", f"{one.name} · {one.when}", value=one.name) for one in others]
    if not options or len(names) >= _MOST:
        return Markup("")
    return tag(
        "form",
        *hidden,
        tag("label", words("Add a result"), for_="more"),
        tag("select", *options, name="run", id="more"),
        tag("button", words("Add"), class_="quiet"),
        action="compare",
        class_="add",
    )


def _lay_list(view: View, shown: Sequence[Summary], asked: str, page: int, left: int) -> Markup:
    words = view.words
    search = tag(
        "form",
        tag("label", words("Search"), for_="q"),
        tag("input", type="search", name="q", id="q", value=asked),
        tag("button", words("Search"), class_="quiet"),
        class_="add",
        role="search",
    )
    parts: list[str] = [tag("h1", words("Results")), search]
    if left:
        text = words("Not read yet: {n}; this page reloads.", n=show_count(left))
        parts.append(tag("p", text, class_="notice quiet", role="status", data_reload="1"))
    if not shown:
        parts.append(
            tag("p", words("There is no result here yet." if not asked else "Nothing found."))
        )
        parts.append(tag("p", tag("a", words("Start a job"), href="start")))
        return concat(parts)
    first = (page - 1) * _ON_A_PAGE
    rows = [_lay_row(view, one) for one in shown[first : first + _ON_A_PAGE]]
    heads = ("", "Result", "When", "Kind", "Protocol", "First figure", "ε", "Sent", "At work")
    top = [tag("th", words(head), scope="col") if head else tag("td") for head in heads]
    table = tag("table", tag("thead", tag("tr", *top)), tag("tbody", *rows), class_="runs")
    button = tag("button", words("Compare the chosen ones"))
    form = tag("form", table, tag("p", button, class_="actions"), action="compare")
    pages = range(1, (len(shown) - 1) // _ON_A_PAGE + 2)
    turn = [
        tag(
            "a",
            str(number),
            href=link("./", q=asked, page=str(number)),
            aria_current="page" if number == page else None,
        )
        for number in pages
    ]
    count = tag("p", words("Results: {n}", n=show_count(len(shown))), class_="beside")
    more = tag("nav", *turn, aria_label=words("Pages of results"), class_="turn")
    return concat([*parts, tag("section", form, count, more if len(pages) > 1 else "")])


def _lay_row(view: View, one: Summary) -> Markup:
    words = view.words
    if one.problem:
        text = tag("span", words("cannot be read"), class_="problem")
        cell = tag("td", text, " ", one.problem, colspan=7)
        return tag("tr", tag("td"), tag("td", one.name, class_="first"), cell)
    box = tag(
        "input",
        type="checkbox",
        name="run",
        value=one.name,
        aria_label=words("Choose {name}", name=one.name),
    )
    cells = [
        (words("When"), one.when),
        (words("Kind"), one.kind),
        (words("Protocol"), one.protocol),
        (words("First figure"), one.figure),
        ("ε", _show_epsilon(one)),
        (words("Sent"), show_bytes(one.sent)),
        (words("At work"), show_seconds(one.seconds)),
    ]
    name = tag("a", one.name, href=link("result", run=one.name))
    return tag(
        "tr",
        tag("td", box),
        tag("td", name, class_="first"),
        *(tag("td", text, data_label=label) for label, text in cells),
    )


def _show_epsilon(one: Summary) -> str:
    if one.epsilon is None:
        return ""
    return f"{show_bound(one.epsilon)} (δ{HARD_SPACE}={HARD_SPACE}{show_bound(one.delta)})"


def _lay_table(view: View, loaded: Sequence[tuple[str, Result]]) -> Markup:
    words = view.words
    results = [one for _, one in loaded]
    groups = (
        (words("The run"), _list_facts(view, results)),
        (words("Measured"), _list_metrics(results)),
        (words("Promised"), _list_claims(results)),
        (words("Learned on the way and in the end"), _list_leaks(results)),
    )
    body = []
    for title, rows in groups:
        if rows:
            head = tag("th", title, colspan=len(loaded) + 1, scope="colgroup", class_="group")
            body += [tag("tr", head), *(_lay_line(view, name, cells) for name, cells in rows)]
    heads = [
        tag("th", tag("a", name, href=link("result", run=name)), scope="col") for name, _ in loaded
    ]
    corner = tag("td", words("≠ marks what differs"), class_="beside")
    table = tag(
        "table", tag("thead", tag("tr", corner, *heads)), tag("tbody", *body), class_="sides"
    )
    hint = tag("p", words("Scroll sideways for more →"), class_="hint")
    return concat([hint, tag("div", table, class_="scroll", tabindex=0)])


def _lay_line(view: View, name: str, cells: Sequence[str]) -> Markup:
    differs = len(set(cells)) > 1
    mark = tag("abbr", "≠ ", title=view.words("differs"), class_="differs") if differs else ""
    return tag(
        "tr",
        tag("th", mark, name, scope="row"),
        *(tag("td", cell or "–") for cell in cells),
        class_="differs" if differs else None,
    )


Lines = list[tuple[str, list[str]]]


def _list_facts(view: View, results: Sequence[Result]) -> Lines:
    words = view.words

    def seconds(one: Result) -> str:
        slowest = find_slowest(one)
        return "" if slowest is None else show_seconds(time_at_work(slowest) or slowest.seconds)

    facts: tuple[tuple[str, Callable[[Result], str]], ...] = (
        ("Kind", lambda one: one.kind),
        ("Protocol", lambda one: one.protocol),
        ("When", lambda one: one.created),
        ("Version", lambda one: one.version),
        ("Parties", lambda one: ", ".join(party.name for party in one.parties)),
        ("Sent", lambda one: show_bytes(sum_traffic(one))),
        ("Online rounds", lambda one: show_count(one.metered.online_rounds)),
        ("At work", seconds),
    )
    return [(words(name), [of(one) for one in results]) for name, of in facts]


def _list_metrics(results: Sequence[Result]) -> Lines:
    names = dict.fromkeys(metric.name for one in results for metric in one.utility)
    rows = []
    for name in names:
        cells = []
        for one in results:
            metric = next((each for each in one.utility if each.name == name), None)
            text = "" if metric is None else show_quantity(metric.value, metric.unit)
            if metric is not None and metric.low is not None:
                text += f" ({show_interval(metric.low, metric.high, metric.unit)})"
            cells.append(text)
        rows.append((name, cells))
    return rows


def _list_claims(results: Sequence[Result]) -> Lines:
    subjects = dict.fromkeys(claim.subject for one in results for claim in one.claims)
    rows = []
    for subject in subjects:
        cells = []
        for one in results:
            claim = next((each for each in one.claims if each.subject == subject), None)
            text = "" if claim is None else claim.guarantee
            if claim is not None and claim.epsilon is not None:
                text += f", ε = {show_bound(claim.epsilon)} (δ = {show_bound(claim.delta)})"
            cells.append(text)
        rows.append((subject, cells))
    return rows


def _list_leaks(results: Sequence[Result]) -> Lines:
    names = dict.fromkeys((leak.to, leak.kind) for one in results for leak in one.leakage)
    rows = []
    for to, kind in names:
        cells = [
            "; ".join(
                f"{leak.what} ({show_count(leak.elements)})"
                for leak in one.leakage
                if (leak.to, leak.kind) == (to, kind)
            )
            for one in results
        ]
        rows.append((f"{to}: {KIND_NAMES[kind]}", cells))
    return rows
