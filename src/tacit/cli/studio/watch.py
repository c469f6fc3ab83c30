"""Watch: what runs and what ran, each as its journal tells it; stop, and go on."""

import time
from pathlib import Path

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from tacit.cli.studio.page import View, lay_facts, lay_section, link, view_of
from tacit.cli.studio.start import read_form
from tacit.cli.studio.started import JOB, LOG, PartyState, RunState, Started
from tacit.jobs.kinds import KINDS
from tacit.report.format import show_bound, show_bytes, show_count, show_percent, show_seconds
from tacit.report.markup import Markup, concat, keep_lines, lay_table, tag
from tacit.report.measures import lay_curves
from tacit.report.words import STAGES
from tacit.result import Curve

_JOINED = frozenset({"start", "connect"})
_STOPPED = (130, 143)


async def watch(request: Request) -> Response:
    """Answer the list of runs, or the page of one."""
    view, name = view_of(request), request.query_params.get("run", "")
    started: Started = request.app.state.started
    if not name:
        return view.page(view.words("Watch"), _lay_list(view, started))
    state = started.state(name)
    words = view.words
    if request.query_params.get("part") == "live":
        return HTMLResponse(lay_live(view, started, state))
    live = tag(
        "div",
        lay_live(view, started, state),
        id="live",
        data_follow=link("watch", run=name, part="live"),
    )
    return view.page(
        _title(state),
        tag("p", tag("a", words("Watch"), href="watch"), class_="crumbs"),
        tag("h1", _title(state)),
        live,
        tag(
            "details",
            tag("summary", words("The job file")),
            tag("pre", keep_lines(started.read(name, JOB)), tabindex=0),
            class_="table",
        ),
        tag(
            "details",
            tag("summary", words("The command")),
            tag("pre", " ".join(started.command(name)[2:]), tabindex=0),
            class_="table",
        ),
    )


def _title(state: RunState) -> str:
    """Return the name of the job, or of the run while the job is not read."""
    return state.job or state.name.rpartition("-")[0].rpartition("-")[0]


async def act(request: Request) -> Response:
    """Stop a run, or start it again."""
    values = dict(await read_form(request))
    started: Started = request.app.state.started
    name = values.get("run", "")
    if values.get("do") == "stop":
        started.stop(name)
    else:
        name = started.again(name, is_fresh=values.get("do") == "fresh")
    return RedirectResponse(link("watch", run=name), 303)


def lay_live(view: View, started: Started, state: RunState) -> Markup:
    """Lay out what changes while a run goes on."""
    words = view.words
    parts: list[str] = [_lay_status(view, started, state), _lay_buttons(view, state)]
    parts.append(lay_facts(_figures(view, state)))
    if state.parties:
        cards = [_lay_party(view, state, *item) for item in state.parties.items()]
        parts.append(lay_section(words("Parties"), tag("div", *cards, class_="cards")))
    if any(party.sent for party in state.parties.values()):
        parts.append(lay_section(words("Bytes on each link"), _lay_links(view, state)))
    if curves := _curves(view, state):
        parts.append(lay_section(words("How it goes"), curves))
    if state.dropped:
        rows = [(str(number), ", ".join(who)) for number, who in state.dropped.items()]
        table = lay_table((words("Round"), words("Clients")), rows)
        parts.append(lay_section(words("Who dropped out"), table))
    if state.said:
        log = tag("pre", keep_lines("\n".join(state.said[-100:])), tabindex=0)
        parts.append(lay_section(words("What it says"), log))
    over = "true" if state.is_over else "false"
    return tag("div", *parts, data_over=over)


def describe(view: View, state: RunState) -> tuple[str, str]:
    """Say how a run stands, with a mood."""
    words = view.words
    if state.code == 0:
        return words("Done"), "good"
    if state.code in _STOPPED:
        return words("Stopped"), "quiet"
    if state.code is not None and state.blamed:
        return words("Failed: party {party}", party=state.blamed), "bad"
    if state.code == 3:
        return words("A claim is contradicted"), "bad"
    if state.code is not None:
        return words("Failed"), "bad"
    if not state.is_alive:
        return words("Ended without a word"), "bad"
    return (
        (words("Running"), "good") if state.parties or state.kind else (words("Starting"), "quiet")
    )


def _lay_status(view: View, started: Started, state: RunState) -> Markup:
    text, mood = describe(view, state)
    parts: list[str] = [tag("strong", text)]
    if state.message and state.code:
        parts += [tag("br"), state.message]
    elif state.is_over and state.code is None:
        tail = started.read(state.name, LOG).strip().splitlines()[-3:]
        parts += [tag("br"), " ".join(tail)]
    if state.code == 0:
        name = _result_name(view, state)
        words = view.words("Read the result")
        shown = state.out if name is None else tag("a", words, href=link("result", run=name))
        parts += [" · ", shown]
    return tag("p", *parts, class_=f"status {mood}", role="status")


def _result_name(view: View, state: RunState) -> str | None:
    try:
        return Path(state.out).absolute().relative_to(view.folder.absolute()).as_posix()
    except ValueError:
        return None


def _lay_buttons(view: View, state: RunState) -> Markup:
    words = view.words
    hidden = tag("input", type="hidden", name="run", value=state.name)
    resumes = state.kind in KINDS and KINDS[state.kind]().resumes
    if not state.is_over:
        buttons = [tag("button", words("Stop"), name="do", value="stop", class_="quiet")]
    elif state.code == 0:
        buttons = [tag("button", words("Run again"), name="do", value="again", class_="quiet")]
    elif resumes:
        buttons = [
            tag("button", words("Go on where it stopped"), name="do", value="again"),
            tag("button", words("Begin anew"), name="do", value="fresh", class_="quiet"),
        ]
    else:
        buttons = [tag("button", words("Run again"), name="do", value="again")]
    return tag("form", hidden, *buttons, method="post", action="act", class_="actions")


def _figures(view: View, state: RunState) -> list[tuple[str, str]]:
    words = view.words
    end = state.seen if state.is_over else time.time()
    found = [(words("Time"), show_seconds(max(end - state.began, 0.0)) if state.began else "–")]
    if state.parties:
        joined = sum(one.stage not in _JOINED for one in state.parties.values())
        found.append((words("Parties joined"), f"{joined} / {len(state.parties)}"))
        sent = sum(sum(one.sent.values()) for one in state.parties.values())
        found.append((words("Sent so far"), show_bytes(sent)))
        rounds = max(one.rounds for one in state.parties.values())
        found.append((words("Online rounds"), show_count(rounds)))
    if state.accuracy:
        found.append((words("Accuracy"), show_percent(state.accuracy[-1][1])))
    if state.epsilon:
        found.append((f"ε ({state.terms})", show_bound(state.epsilon[-1][1])))
    return found


def _lay_party(view: View, state: RunState, name: str, party: PartyState) -> Markup:
    words = view.words
    is_dead = name == state.blamed or party.stage == "failed"
    stage = words(STAGES.get(party.stage, party.stage))
    mood = "bad" if is_dead else "good" if party.stage == "done" else "quiet"
    if name == state.blamed and party.stage != "failed":
        stage = words("died while it was {stage}", stage=stage)
    done = 1 if party.stage == "done" else party.done
    total = 1 if party.stage == "done" else party.total
    bar = tag(
        "progress",
        max=total or None,
        value=done if total else None,
        aria_label=words("Progress of {party}", party=name),
    )
    counted = f" · {show_count(done)} / {show_count(total)}" if total > 1 else ""
    lines = [
        f"{time.strftime('%H:%M:%S', time.localtime(at))}  {STAGES.get(text, text)}"
        for at, text in party.lines
    ]
    log = tag(
        "details",
        tag("summary", words("Log")),
        tag("pre", keep_lines("\n".join(lines) or "–"), tabindex=0),
        id=f"log-{name}",
    )
    return tag(
        "article",
        tag("h3", name, tag("span", f" {party.role}", class_="role")),
        tag("p", stage, counted, class_=f"sentence {mood}"),
        bar if not state.is_over or party.stage == "done" else "",
        tag("p", party.problem, class_="problem") if party.problem else "",
        log,
        class_=f"card {mood}",
    )


def _lay_links(view: View, state: RunState) -> Markup:
    words = view.words
    rows = [
        (name, to, show_bytes(size))
        for name, party in state.parties.items()
        for to, size in party.sent.items()
    ]
    return lay_table((words("From"), words("To"), f"#{words('Sent')}"), rows)


def _curves(view: View, state: RunState) -> Markup | None:
    words = view.words
    across = words("Round") if state.epsilon or state.kind == "federated" else words("Step")
    found = [
        Curve(title=title, x_label=across, y_label=title, name=title, points=tuple(points))
        for title, points in ((words("Accuracy"), state.accuracy), ("ε", state.epsilon))
        if points
    ]
    if not found:
        return None
    return lay_curves(tuple(found))


def _lay_list(view: View, started: Started) -> Markup:
    words, runs = view.words, started.list_runs()
    heading = tag("h1", words("Watch"))
    if not runs:
        empty = tag("p", words("Nothing was started from here yet."), " ")
        return concat([heading, empty, tag("p", tag("a", words("Start a job"), href="start"))])
    rows = []
    for state in runs:
        text, mood = describe(view, state)
        name = tag("a", _title(state), href=link("watch", run=state.name))
        began = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(state.began or None))
        rows.append((name, tag("span", text, class_=f"sentence {mood}"), state.kind, began))
    heads = (words("Job"), words("State"), words("Kind"), words("Started"))
    return concat([heading, tag("section", lay_table(heads, rows))])
