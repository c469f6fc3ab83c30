"""Chat: choose a model and a protocol with its claims before you, then talk."""

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from tacit.cli.commands.models import find_model, models_folder
from tacit.cli.studio.page import View, lay_notice, lay_section, link, read_count, view_of
from tacit.cli.studio.start import read_form
from tacit.cli.studio.talks import Talk, Talks, Turn
from tacit.errors import TacitError
from tacit.llm import ChatProtocol, list_models, open_checkpoint
from tacit.llm.backend.chat_file import PrecisionName, ProtocolName
from tacit.report.format import show_bytes, show_count, show_seconds
from tacit.report.ledger import lay_claims
from tacit.report.markup import Markup, concat, keep_lines, tag

_PROTOCOLS: dict[ProtocolName, str] = {
    "sealed": "Slow; nothing is shown but the answer.",
    "permuted": "Fast; for models whose weights the user may have: one who cheats computes them.",
}
_PRECISIONS: tuple[PrecisionName, ...] = ("fitted", "wide")


async def chat(request: Request) -> Response:
    """Answer the pages of conversations."""
    view, talks = view_of(request), request.app.state.talks
    name = request.query_params.get("talk", "")
    if request.method == "POST":
        return await _take(request, view, talks)
    if not name:
        return view.page(view.words("Chat"), _lay_start(view, talks, {}))
    talk = talks.find(name)
    live = _lay_live(view, name, talk)
    if request.query_params.get("part") == "live":
        return HTMLResponse(live)
    follow = link("chat", talk=name, part="live")
    return view.page(
        talk.title,
        tag("p", tag("a", view.words("Chat"), href="chat"), class_="crumbs"),
        tag("h1", talk.title),
        tag("div", live, id="live", data_follow=follow),
        _lay_say(view, name) if talk.is_alive else "",
    )


async def _take(request: Request, view: View, talks: Talks) -> Response:
    values = dict(await read_form(request))
    name = values.get("talk", "")
    match values.get("do"):
        case "say":
            talks.find(name).say(values.get("text", ""))
        case "end":
            await run_in_threadpool(talks.end, name)
            return RedirectResponse("chat", 303)
        case "start":
            options, title = _options(values)
            name = talks.open(options, title)
        case _:
            claims = await run_in_threadpool(_lay_promise, view, values)
            page = _lay_start(view, talks, values)
            return view.page(view.words("Chat"), page, claims)
    return RedirectResponse(link("chat", talk=name), 303)


def _protocol(values: dict[str, str]) -> ProtocolName:
    return next((one for one in _PROTOCOLS if one == values.get("protocol")), "sealed")


def _options(values: dict[str, str]) -> tuple[list[str], str]:
    """Return the options of ``tacit chat`` that were chosen, and a title."""
    protocol = _protocol(values)
    options = ["--protocol", protocol]
    if model := values.get("model", "").strip():
        options += ["--model", model]
    if job := values.get("job", "").strip():
        options += ["--as", "user", "--job", job]
    precision = values.get("precision", "")
    if precision in _PRECISIONS and protocol == "permuted" and not job:
        options += ["--precision", precision]
    if tokens := read_count(values.get("tokens", "")):
        options += ["--max-tokens", str(tokens)]
    return options, f"{model.rpartition('/')[2] or 'smollm2-135m'} · {protocol}"


def _lay_start(view: View, talks: Talks, values: dict[str, str]) -> Markup:
    words = view.words
    chosen = values.get("protocol", "sealed")
    choices = [
        tag(
            "label",
            tag(
                "input",
                type="radio",
                name="protocol",
                value=name,
                checked="checked" if name == chosen else None,
            ),
            tag("strong", name),
            tag("span", words(about), class_="help"),
            class_="radio",
        )
        for name, about in _PROTOCOLS.items()
    ]
    names = [tag("option", value=one[0]) for one in list_models(folder=models_folder()) if one[3]]
    precision = [tag("option", words("as usual: {value}", value="fitted"), value="")]
    precision += [
        tag("option", one, selected="selected" if one == values.get("precision") else None)
        for one in _PRECISIONS
    ]
    form = tag(
        "form",
        tag("datalist", *names, id="models"),
        tag(
            "div",
            _lay_input(
                view, "model", values, words("a folder, a GGUF file, or a fetched model"), "models"
            ),
            _lay_input(view, "tokens", values, words("most tokens of an answer")),
            _lay_input(
                view,
                "job",
                values,
                words("the file that all three share, if the owner is elsewhere"),
            ),
            tag(
                "div",
                tag("label", "precision", for_="precision"),
                tag("select", *precision, name="precision", id="precision"),
                tag("p", words("under permuted: how fine numbers are"), class_="help"),
            ),
            class_="fields",
        ),
        tag("fieldset", tag("legend", words("Protocol")), *choices),
        tag(
            "p",
            tag("button", words("Show what is promised"), name="do", value="check"),
            class_="actions",
        ),
        method="post",
        action="chat",
    )
    opened = [
        tag("li", tag("a", talk.title, href=link("chat", talk=name)))
        for name, talk in talks.items()
    ]
    listed = lay_section(words("Open conversations"), tag("ul", *opened)) if opened else ""
    intro = words(
        "What you type is kept in this program's memory, not on disk; what each side learned "
        "stands under every answer."
    )
    return concat([tag("h1", words("Chat")), listed, tag("p", intro), form])


def _lay_input(
    view: View, name: str, values: dict[str, str], hint: str, choices: str | None = None
) -> Markup:
    return tag(
        "div",
        tag("label", view.words(name), for_=f"chat-{name}"),
        tag("input", name=name, id=f"chat-{name}", value=values.get(name, ""), list=choices),
        tag("p", hint, class_="help"),
    )


def _lay_promise(view: View, values: dict[str, str]) -> Markup:
    """Lay out what a protocol promises about a model, with what starts the conversation."""
    words = view.words
    options, title = _options(values)
    try:
        protocol = ChatProtocol(name=_protocol(values))
        checkpoint = open_checkpoint(find_model(values.get("model", "").strip() or None))
        claims = lay_claims(protocol.claims(checkpoint.architecture))
    except TacitError as error:
        return lay_notice(str(error), "bad")
    hidden = [
        tag("input", type="hidden", name=key, value=values.get(key, ""))
        for key in ("model", "protocol", "precision", "tokens", "job")
    ]
    start = tag(
        "form",
        *hidden,
        tag("button", words("Start the conversation"), name="do", value="start", class_="main"),
        method="post",
        action="chat",
        class_="actions",
    )
    command = tag("pre", f"tacit chat {' '.join(options)}", tabindex=0)
    return lay_section(words("What is promised"), tag("p", title), claims, start, command)


def _lay_live(view: View, name: str, talk: Talk) -> Markup:
    words = view.words
    if not talk.is_alive:
        text = words("The parties are gone: {why}", why=" ".join(talk.lines[-3:]))
        status = tag("p", text, class_="status bad", role="status")
    elif talk.endpoint is None:
        last = talk.lines[-1] if talk.lines else ""
        status = tag("p", words("Starting"), f" · {last}", class_="status quiet", role="status")
    else:
        text = words("Open; other programs find it at {endpoint}", endpoint=talk.endpoint)
        status = tag("p", text, class_="status good", role="status")
    turns = [_lay_turn(view, turn) for turn in talk.turns]
    hidden = tag("input", type="hidden", name="talk", value=name)
    button = tag("button", words("End the conversation"), name="do", value="end", class_="quiet")
    end = tag("form", hidden, button, method="post", action="chat", class_="actions")
    box = tag("div", *turns, class_="turns", role="log", aria_live="polite")
    return tag("div", status, box, end, data_over="false" if talk.is_busy else "true")


def _lay_turn(view: View, turn: Turn) -> Markup:
    words = view.words
    parts: list[str] = [keep_lines(turn.answer) if turn.answer else "…"]
    if turn.problem:
        parts.append(tag("p", turn.problem, class_="problem"))
    if turn.is_over and not turn.problem:
        speed = "–" if turn.speed is None else f"{turn.speed:.1f}"
        figures = words(
            "{tokens} tokens · {speed} tokens/s · first after {first} · {sent} sent in {trips} "
            "round trips, {ahead} ahead",
            tokens=show_count(turn.tokens),
            speed=speed,
            first=show_seconds(turn.first_s),
            sent=show_bytes(turn.sent),
            trips=show_count(turn.round_trips),
            ahead=show_bytes(turn.ahead),
        )
        learned = [
            tag("li", tag("strong", words("{who} learned: ", who=who)), "; ".join(whats))
            for who, whats in turn.learned.items()
        ]
        parts.append(tag("div", tag("p", figures), tag("ul", *learned), class_="receipt"))
    return concat(
        [
            tag("div", keep_lines(turn.asked), class_="turn-you"),
            tag("div", *parts, class_="turn-model"),
        ]
    )


def _lay_say(view: View, name: str) -> Markup:
    words = view.words
    return tag(
        "form",
        tag("input", type="hidden", name="talk", value=name),
        tag("label", words("Say something"), for_="say"),
        tag("textarea", name="text", id="say", rows=2, required="required"),
        tag("p", tag("button", words("Send"), name="do", value="say"), class_="actions"),
        method="post",
        action="chat",
        class_="say",
    )
