"""The application: served on loopback, routes behind the guard, static files, errors as pages."""

import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from importlib import resources
from pathlib import Path

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Mount, Route

from tacit.cli.studio import chat, ledger, results, start, watch
from tacit.cli.studio.guard import Guard, Keys
from tacit.cli.studio.index import Index
from tacit.cli.studio.page import view_of
from tacit.cli.studio.started import Started
from tacit.cli.studio.talks import Talks
from tacit.cli.studio.words import LANGUAGES
from tacit.errors import InputError, TacitError
from tacit.report.markup import tag

HOME = ".studio"
_HOST = "127.0.0.1"
_STATIC = {
    "report.css": ("tacit.report", "style.css", "text/css"),
    "studio.css": ("tacit.cli.studio", "studio.css", "text/css"),
    "studio.js": ("tacit.cli.studio", "studio.js", "text/javascript"),
}


def serve(folder: Path, port: int, on_ready: Callable[[str], None]) -> None:
    """Serve a folder of results on loopback.

    Args:
        folder: where results lie, and runs that are started keep their journals.
        port: to listen on; 0 for any that is free.
        on_ready: gets the address to open, with the token.

    Raises:
        InputError: the port is taken.
    """
    try:
        listener = socket.create_server((_HOST, port))
    except OSError as error:
        raise InputError(f"cannot listen on {_HOST}:{port}: {error.strerror}") from error
    with listener:
        keys, chosen = Keys(), listener.getsockname()[1]
        # Requests are not logged: the first has the token in its address.
        config = uvicorn.Config(
            make_app(folder, keys, chosen),
            log_level="error",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=1,
        )
        on_ready(f"http://{_HOST}:{chosen}{keys.path}?token={keys.token}")
        uvicorn.Server(config).run(sockets=[listener])


def make_app(folder: Path, keys: Keys, port: int) -> Guard:
    """Make the application that serves a folder of results."""
    pages: dict[str, tuple[Callable[[Request], Awaitable[Response]], list[str]]] = {
        "/": (results.results, ["GET"]),
        "/result": (results.result, ["GET"]),
        "/compare": (results.compare, ["GET"]),
        "/ledger": (ledger.ledger, ["GET"]),
        "/chat": (chat.chat, ["GET", "POST"]),
        "/start": (start.start, ["GET", "POST"]),
        "/watch": (watch.watch, ["GET"]),
        "/act": (watch.act, ["POST"]),
        "/language": (_language, ["GET"]),
        **{f"/{name}": (_static, ["GET"]) for name in _STATIC},
    }
    routes = [Route(path, page, methods=methods) for path, (page, methods) in pages.items()]
    app = Starlette(
        routes=[Mount(keys.path.rstrip("/"), routes=routes)],
        lifespan=_life,
        exception_handlers={TacitError: _problem, HTTPException: _problem},
    )
    app.state.folder = folder
    app.state.index = Index(folder, folder / HOME / "index.json")
    app.state.started = Started(folder / HOME)
    app.state.talks = Talks()
    return Guard(app, keys, port)


@asynccontextmanager
async def _life(app: Starlette) -> AsyncIterator[None]:
    """Read results ahead; end conversations with the page: they are in its memory alone."""
    app.state.index.read_ahead()
    yield
    app.state.talks.close()


async def _static(request: Request) -> Response:
    package, name, kind = _STATIC[request.url.path.rpartition("/")[2]]
    content = resources.files(package).joinpath(name).read_bytes()
    return Response(content, media_type=kind, headers={"Cache-Control": "private, max-age=3600"})


async def _language(request: Request) -> Response:
    """Switch to a language, and go back to the page that asked."""
    chosen, path = request.query_params.get("to", ""), request.url.path.rpartition("/")[0] + "/"
    # Whoever sent the browser here: it goes back to a page of ours alone.
    ours, back = f"http://{request.headers['host']}{path}", request.headers.get("referer", "")
    back = back.removeprefix(ours) if back.startswith(ours) else ""
    answer = RedirectResponse(f"./{back}", 303)
    if chosen in LANGUAGES:
        answer.set_cookie("language", chosen, path=path, httponly=True, samesite="strict")
    return answer


async def _problem(request: Request, error: Exception) -> Response:
    view = view_of(request)
    status = error.status_code if isinstance(error, HTTPException) else 400
    text = error.detail if isinstance(error, HTTPException) else str(error)
    title = view.words("This cannot be shown")
    return view.page(title, tag("h1", title), tag("p", text), status=status)
