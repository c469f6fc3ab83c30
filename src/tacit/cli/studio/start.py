"""Start: choose a kind of job, fill it in, see the job file and the forecast, run it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import parse_qsl

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from tacit.cli.commands.examples import WANTS, first_tables, list_starts, summarise_example
from tacit.cli.environment import data_folders
from tacit.cli.studio.forecast import lay_forecast
from tacit.cli.studio.form import Form
from tacit.cli.studio.page import View, lay_notice, lay_section, link, read_count, view_of
from tacit.errors import ConfigError, TacitError
from tacit.jobs.config import Job
from tacit.jobs.fields import gather, state_table
from tacit.jobs.kind import Asked
from tacit.jobs.kinds import KINDS, kind_of, read_job
from tacit.jobs.toml import parse_toml, write_toml
from tacit.report.markup import Markup, concat, keep_lines, tag
from tacit.spec import ListedError

_LARGEST_FORM = 1 << 20


@dataclass(frozen=True)
class Checked:
    """A filled form: its tables, what is wrong with them, and the job if nothing is."""

    raw: Mapping[str, object]
    problems: Mapping[str, str]
    job: Job | None = None


def check(raw: Mapping[str, object]) -> Checked:
    """Check tables with the reader of job files."""
    try:
        return Checked(raw, {}, read_job(raw, source="the job"))
    except ListedError as error:
        return Checked(raw, dict(error.problems))
    except ConfigError as error:
        return Checked(raw, {"": str(error)})


async def read_form(request: Request) -> list[tuple[str, str]]:
    """Read the fields of a form that was sent."""
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > _LARGEST_FORM:
            raise ConfigError("wanted a form of at most 1 MB")
    return parse_qsl(body.decode("utf-8", errors="replace"), keep_blank_values=True)


async def start(request: Request) -> Response:
    """Answer the pages about starting."""
    view, kind = view_of(request), request.query_params.get("kind", "")
    if kind not in KINDS:
        return view.page(view.words("Start a job"), _lay_kinds(view))
    if request.method == "POST":
        return await _take(request, view, kind)
    raw = first_tables(kind, request.query_params.get("example", ""), view.folder)
    return await run_in_threadpool(_page, view, kind, Checked(raw, {}))


async def _take(request: Request, view: View, kind: str) -> Response:
    """Take a form, or a whole job file as text: check it, forecast it, hand it out or run it."""
    sent = await read_form(request)
    values = dict(sent)
    action = values.get("do", "check")
    if "text" in values:
        try:
            raw = parse_toml(values["text"], source=view.words("The job file"))
        except ConfigError as error:
            wrong = Checked({}, {"": str(error)})
            return await run_in_threadpool(_page, view, kind, wrong)
    else:
        raw = await run_in_threadpool(_tables, kind, sent)
    if not {"add", "remove"}.isdisjoint(values):
        return await run_in_threadpool(_page, view, kind, Checked(raw, {}))
    checked = await run_in_threadpool(check, raw)
    if checked.job is not None:
        kind = checked.job.job.kind
    if action == "download":
        name = checked.job.job.name if checked.job else kind
        headers = {"Content-Disposition": f'attachment; filename="{name}.toml"'}
        return Response(write_toml(raw), media_type="text/plain", headers=headers)
    if action == "run" and checked.job is not None:
        job, party = checked.job, values.get("as", "")
        known = party if party in job.parties else ""
        run = request.app.state.started.start(write_toml(raw), job.job.name, party=known)
        return RedirectResponse(link("watch", run=run), 303)
    asked = Asked(
        search=data_folders(),
        **{name: read_count(values.get(f"ask.{name}", "")) for name in ("rows", "features")},
    )
    return await run_in_threadpool(_page, view, kind, checked, asked)


def _tables(kind: str, sent: Sequence[tuple[str, str]]) -> dict[str, object]:
    """Make the tables that a form describes, with a name more or less where that was asked."""
    values = dict(sent)
    gone, more = values.get("remove", ""), values.get("add", "")

    def names(key: str) -> list[str]:
        found = [name for at, name in sent if at == f"{key}.*" and f"{key}.{name}" != gone]
        added = values.get(f"add:{key}", "").strip() if key == more else ""
        return [*found, *([added] if added and "." not in added else [])]

    raw = gather(KINDS[kind]().record, lambda key: values.get(key, ""), names)
    head = raw.get("job")
    return {**raw, "job": {**(head if isinstance(head, dict) else {}), "kind": kind}}


def _lay_kinds(view: View) -> Markup:
    words, cards = view.words, []
    for kind in sorted(KINDS, key=lambda one: [*WANTS, one].index(one)):
        title, sentence = WANTS.get(kind) or (kind, state_table(KINDS[kind]().record))
        cards.append(_lay_choice(words(title), words(sentence), link("start", kind=kind)))
    chat = _lay_choice(
        words("Chat"), words("A language model whose owner does not see the words."), "chat"
    )
    cards.insert(min(len(cards), 3), chat)
    return concat([tag("h1", words("What do you want?")), tag("div", *cards, class_="choices")])


def _lay_choice(title: str, sentence: str, to: str) -> Markup:
    return tag("a", tag("strong", title), tag("span", sentence), href=to, class_="choice")


def _page(view: View, kind: str, checked: Checked, asked: Asked | None = None) -> Response:
    words, record = view.words, KINDS[kind]().record
    title = words(WANTS.get(kind, (kind, ""))[0])
    known = {key for key in checked.problems if key}
    examples = [
        tag("li", tag("a", name, href=link("start", kind=kind, example=name)), ": ", said)
        for name, path in list_starts(kind).items()
        if (said := summarise_example(path))
    ]
    parts: list[str] = [
        tag("p", tag("a", words("Start a job"), href="start"), class_="crumbs"),
        tag("h1", title),
        tag(
            "p",
            words("Fields are filled from an example; change what is yours.")
            if list_starts(kind)
            else "",
        ),
        tag(
            "details",
            tag("summary", words("Other examples ({n})", n=len(examples))),
            tag("ul", *examples),
        )
        if len(examples) > 1
        else "",
    ]
    if checked.problems:
        items = [
            tag("li", tag("a", key, href=f"#{key}"), ": ", text) if key else tag("li", text)
            for key, text in checked.problems.items()
        ]
        heading = tag("h2", words("This cannot run yet"))
        parts.append(tag("section", heading, tag("ul", *items), class_="problems", role="alert"))
    if asked is not None and checked.job is not None:
        parts.append(_lay_preview(view, kind, checked.job, checked.raw, asked))
    form = tag(
        "form",
        tag("button", words("Check and forecast"), name="do", value="check", class_="first"),
        Form(words, checked.raw, {key: checked.problems[key] for key in known}).lay(record),
        tag(
            "p",
            tag("button", words("Check and forecast"), name="do", value="check"),
            tag("button", words("Download the job file"), name="do", value="download"),
            class_="actions",
        ),
        method="post",
        action=link("start", kind=kind),
        class_="job",
    )
    return view.page(title, *parts, form, _lay_text(view, kind, checked.raw))


def _lay_text(view: View, kind: str, raw: Mapping[str, object]) -> Markup:
    words, text = view.words, write_toml(raw)
    area = tag(
        "textarea",
        keep_lines(text),
        name="text",
        rows=min(text.count("\n") + 2, 40),
        id="text",
        spellcheck="false",
        aria_label=words("The job file"),
    )
    button = tag("button", words("Read this file"), name="do", value="check")
    form = tag("form", area, tag("p", button), method="post", action=link("start", kind=kind))
    return tag("details", tag("summary", words("The job file as text")), form, class_="table")


def _lay_preview(
    view: View, kind: str, job: Job, raw: Mapping[str, object], asked: Asked
) -> Markup:
    """Show the job file and what it will do, with what starts it."""
    words, text = view.words, write_toml(raw)
    found = kind_of(job)
    can_run = found.run is not None or found.take_part is not None
    try:
        found.check_inputs(job, list(job.parties))
        inputs = Markup("")
    except TacitError as error:
        inputs = lay_notice(words("Not all inputs are here: {error}", error=error))
    try:
        forecast = lay_forecast(words, job, found.forecast(job, asked))
    except TacitError as error:
        forecast = concat([lay_notice(str(error)), _lay_sizes(view, kind, text)])
    parties = [tag("option", words("all parties, on this machine"), value="")]
    if found.take_part is not None:
        parties += [
            tag("option", words("{name} alone; the others run elsewhere", name=name), value=name)
            for name in job.parties
        ]
    chooser = tag(
        "p",
        tag("label", words("Run as"), for_="as"),
        " ",
        tag("select", *parties, name="as", id="as"),
    )
    run = tag(
        "form",
        tag("textarea", keep_lines(text), name="text", hidden="hidden"),
        tag("input", type="hidden", name="do", value="run"),
        chooser if len(parties) > 1 else "",
        tag("p", tag("button", words("Run it"), class_="main")),
        method="post",
        action=link("start", kind=kind),
    )
    other = tag("p", words("Such a job is started with a command: "), tag("code", "tacit serve"))
    return lay_section(
        words("What will happen"),
        inputs,
        forecast,
        tag("h3", words("The job file")),
        tag("pre", keep_lines(text), tabindex=0),
        run if can_run else other,
        anchor="preview",
    )


def _lay_sizes(view: View, kind: str, text: str) -> Markup:
    words = view.words
    boxes = [
        tag(
            "p",
            tag("label", words(name), " ", tag("input", name=f"ask.{name}", inputmode="numeric")),
        )
        for name in ("rows", "features")
    ]
    return tag(
        "form",
        tag("textarea", keep_lines(text), name="text", hidden="hidden"),
        *boxes,
        tag("button", words("Forecast for these sizes"), name="do", value="check"),
        method="post",
        action=link("start", kind=kind),
        class_="add",
    )
