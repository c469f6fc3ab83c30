"""Who may reach the page: the browser that was given the token, on this machine, and no other.

Other programs on this machine serve pages under the same host name, which browsers take for one
site with ours. So the cookie has a path that nobody else knows, and a request that changes
anything must come from a page of ours.
"""

import secrets
from dataclasses import dataclass, field

from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

COOKIE = "tacit-studio"
_WELCOME = (
    '<!DOCTYPE html><html lang="en"><title>tacit studio</title><link rel="icon" href="data:,">'
    '<meta http-equiv="refresh" content="0;url=./"><a href="./">tacit studio</a></html>'
)
_SAFE = ("GET", "HEAD")
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}


@dataclass(frozen=True)
class Keys:
    """What a browser must know: where the page is, the token of its URL, and its cookie."""

    path: str = field(default_factory=lambda: f"/{secrets.token_urlsafe(12)}/")
    token: str = field(default_factory=lambda: secrets.token_urlsafe(24))
    cookie: str = field(default_factory=lambda: secrets.token_urlsafe(24))


class Guard:
    """Let through what carries our cookie; give it to whoever brings the token."""

    def __init__(self, app: ASGIApp, keys: Keys, port: int) -> None:
        self._app, self._keys = app, keys
        self._hosts = {f"{name}:{port}" for name in ("127.0.0.1", "localhost")}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or pass it on."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":  # a WebSocket: there are none here
            await send({"type": "websocket.close", "code": 1008})
            return
        refused = self._refuse(Request(scope))
        await (refused or self._app)(scope, receive, _with_headers(send))

    def _refuse(self, request: Request) -> Response | None:
        host = request.headers.get("host", "")
        if host not in self._hosts:  # another name that leads here: somebody rebinds it
            return PlainTextResponse("This page is for this machine alone.", 421)
        if not request.url.path.startswith(self._keys.path):
            return PlainTextResponse("There is nothing here.", 404)
        token = request.query_params.get("token")
        if token is not None and _same(token, self._keys.token):
            # Not a redirect: after a link of another page a browser would not bring the cookie.
            answer = HTMLResponse(_WELCOME)
            answer.set_cookie(
                COOKIE,
                self._keys.cookie,
                path=self._keys.path,
                httponly=True,
                samesite="strict",
            )
            return answer
        if not _same(request.cookies.get(COOKIE, ""), self._keys.cookie):
            return PlainTextResponse("Open the address that `tacit studio` printed.", 403)
        if request.method not in _SAFE and request.headers.get("origin") != f"http://{host}":
            return PlainTextResponse("This must come from a page of tacit studio.", 403)
        return None


def _same(given: str, wanted: str) -> bool:
    return secrets.compare_digest(given.encode(), wanted.encode())


def _with_headers(send: Send) -> Send:
    async def send_on(message: Message) -> None:
        if message["type"] == "http.response.start":
            known = {name.lower() for name, _ in message["headers"]}
            more = [
                (name.lower().encode(), value.encode())
                for name, value in _HEADERS.items()
                if name.lower().encode() not in known
            ]
            message = {**message, "headers": [*message["headers"], *more]}
        await send(message)

    return send_on
