"""The ledger of a data set as a page: what its runs have spent one after another, what is left."""

from collections.abc import Sequence

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from tacit.cli.studio.index import Summary, list_data, spent_on
from tacit.cli.studio.page import View, lay_facts, lay_notice, link, view_of
from tacit.report.format import show_bound
from tacit.report.markup import Markup, concat, lay_table, tag
from tacit.report.measures import lay_curves
from tacit.result import Curve


async def ledger(request: Request) -> Response:
    """Answer the ledger."""
    view, words = view_of(request), view_of(request).words
    found, _ = await run_in_threadpool(request.app.state.index.refresh, 5.0)
    groups = list_data(found)
    chosen = request.query_params.get("data", "")
    heading = tag("h1", words("Ledger"))
    if chosen not in groups:
        return view.page(words("Ledger"), heading, _lay_choices(view, groups))
    budget = _budget(request.query_params.get("budget", ""))
    crumbs = tag("p", tag("a", words("Ledger"), href="ledger"), f" · {chosen}", class_="crumbs")
    body = _lay_data(view, chosen, groups[chosen], budget)
    return view.page(words("Ledger"), crumbs, heading, body)


def _lay_choices(view: View, groups: dict[str, list[Summary]]) -> Markup:
    words = view.words
    if not groups:
        return tag("p", words("No result here names its data yet."))
    rows = []
    for name, runs in groups.items():
        spent = "; ".join(show_bound(one.epsilon) for one in spent_on(runs))
        rows.append((tag("a", name, href=link("ledger", data=name)), str(len(runs)), spent or "–"))
    return tag("section", lay_table((words("Data"), f"#{words('Runs')}", "#ε"), rows))


def _lay_data(view: View, name: str, runs: Sequence[Summary], budget: float | None) -> Markup:
    words = view.words
    parts: list[str] = [_lay_budget(view, name, budget)]
    for spent in spent_on(runs):
        tiles = [(words("ε spent, at most"), show_bound(spent.epsilon))]
        tiles.append((words("δ spent, at most"), show_bound(spent.delta)))
        if budget is not None:
            tiles.append(
                (words("ε left"), show_bound(max(budget - spent.epsilon, 0.0), upper=False))
            )
        total, points, rows = 0.0, [(0.0, 0.0)], []
        for number, one in enumerate(spent.runs, 1):
            total += one.epsilon or 0.0
            points += [(float(number), points[-1][1]), (float(number), total)]
            shown = tag("a", one.name, href=link("result", run=one.name))
            figures = (one.epsilon, one.delta, total)
            rows.append((one.when, shown, one.figure, *map(show_bound, figures)))
        heads = ("When", "Result", "First figure", "#ε", "#δ", "#ε in all")
        over = budget is not None and spent.epsilon > budget
        parts.append(
            tag(
                "section",
                tag("h2", spent.relation or words("Relation not stated")),
                lay_notice(words("The budget is exceeded."), "bad") if over else "",
                lay_facts(tiles),
                _draw(view, points, budget),
                lay_table([_head(view, head) for head in heads], rows),
            )
        )
    bare = [one for one in runs if one.epsilon is None]
    if bare:
        text = words("Runs on this data that claim no ε; no sum bounds what they tell:")
        items = [tag("li", tag("a", one.name, href=link("result", run=one.name))) for one in bare]
        parts.append(
            tag("section", tag("h2", words("Without ε")), tag("p", text), tag("ul", *items))
        )
    rests = words(
        "ε and δ of runs on the same records add up (basic composition): an upper bound, under one "
        "relation, for what all of them released. Runs whose results are not in this folder, and "
        "the same data under another name, are not counted."
    )
    return concat([*parts, tag("p", rests, class_="help")])


def _head(view: View, head: str) -> str:
    return ("#" if head.startswith("#") else "") + view.words(head.lstrip("#"))


def _lay_budget(view: View, name: str, budget: float | None) -> Markup:
    return tag(
        "form",
        tag("input", type="hidden", name="data", value=name),
        tag("label", view.words("Budget of ε"), for_="budget"),
        tag("input", name="budget", id="budget", value=f"{budget:g}" if budget else ""),
        tag("button", view.words("Show"), class_="quiet"),
        action="ledger",
        class_="add",
    )


def _draw(view: View, points: Sequence[tuple[float, float]], budget: float | None) -> Markup:
    words = view.words
    title, last = words("ε over time"), points[-1][0]
    lines = [(words("spent"), tuple(points))]
    if budget is not None:
        lines.append((words("budget"), ((0.0, budget), (last, budget))))
    curves = tuple(
        Curve(title=title, x_label=words("Runs"), y_label="ε", name=name, points=line)
        for name, line in lines
    )
    return lay_curves(curves)


def _budget(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 < value < float("inf") else None
