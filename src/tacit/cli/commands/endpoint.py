"""A local endpoint in the form of OpenAI's, on the user's side: chat programs talk to it.

It listens on this machine only. A page in a browser must not reach it, so requests need a local
Host and JSON that a page could only send after asking, which is never granted.
"""

import ipaddress
import json
import logging
import math
import secrets
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import chain

from tacit.cli.commands.completion_request import Request as CompletionRequest
from tacit.cli.commands.completion_request import read_request
from tacit.errors import ConfigError, InputError, PartyError, TacitError
from tacit.llm import Ask, Chat, Manner, Receipt, Spent

_LARGEST_BODY_BYTES = 1 << 20
_MOST_CONNECTIONS = 64
"""Programs that are connected at once; each has a thread."""
_MOST_ASKED = 32
"""Questions that wait or are answered: beside them there is always room for who comes anew."""
_REQUEST_S = 20.0
"""How long a connection may take for a whole request, from its start or from the last answer."""
_LEAVING_S = 1.0
"""How long the thread of a connection that was cut has to leave."""
_SILENCE_S = 60.0
"""How long a program may make us wait, over a whole answer, until it takes what it asked for."""
_GLANCE_S = 0.2
"""How often who waits for its turn is looked at."""
_HUNG_UP: int = getattr(select, "POLLRDHUP", 0)
"""What Linux says of a connection that was hung up, also where something was sent and not read."""
_MOST_AHEAD = 4096
"""How much a program may send before it has its answer: more would hide that it hung up."""
_log = logging.getLogger(__name__)


class Endpoint:
    """Serve one backend to local programs, one answer at a time."""

    def __init__(self, address: tuple[str, int], partner: Chat, manner: Manner) -> None:
        host = "127.0.0.1" if address[0] == "localhost" else address[0]
        if not _is_local(host):
            raise ConfigError(f"the endpoint is for this machine only, got the address {host}")
        self.name = partner.name
        self.manner = manner
        self.failure: BaseException | None = None
        self._partner = partner
        self._turns = _Turns()
        try:
            self._server = _Server((host, address[1]), self)
        except OSError as error:
            raise ConfigError(f"cannot listen on {host}:{address[1]}: {error.strerror}") from error

    @property
    def url(self) -> str:
        """Return where programs find the endpoint."""
        host, port = self._server.server_address[:2]
        return f"http://{host!s}:{port}/v1"

    def serve(self) -> None:
        """Answer until stopped.

        Raises:
            TacitError: another party failed; programs got an error.
        """
        try:
            self._server.serve_forever(poll_interval=0.1)
        finally:
            self.close()
        if self.failure is not None:
            raise self.failure

    def answer(self, ask: Ask, look: Callable[[], None]) -> Generator[str | Receipt, None, None]:
        """Yield an answer as text, and at last what it took. Close it to give way to others.

        ``look`` raises when nobody waits for the answer any more: then it ends where it is, in
        the queue, between two parts of the prompt or between two pieces of the answer.
        """
        reply = self._partner.reply(ask, between=look)  # what is too long need not queue
        longest = self.manner.longest_prompt
        if longest is not None and reply.prompt_tokens > longest:
            raise InputError(
                f"wanted a conversation of at most {longest} tokens here, got "
                f"{reply.prompt_tokens}; others wait while a long one is read"
            )
        with self._turns.take(look), closing(reply):
            for piece in reply:
                look()
                yield piece
            yield reply.receipt

    def give_up(self, failure: BaseException) -> None:
        """Let `serve` end with a failure."""
        self.failure = failure
        # From another thread: this one serves a request that the server would wait for.
        threading.Thread(target=self._server.shutdown, daemon=True).start()

    def stop(self) -> None:
        """End `serve` from another thread."""
        self._server.shutdown()

    def close(self) -> None:
        """Listen no longer."""
        self._server.server_close()


class _Turns:
    """One at a time, in the order in which they came."""

    def __init__(self) -> None:
        self._queue: deque[object] = deque()
        self._changed = threading.Condition()

    @contextmanager
    def take(self, look: Callable[[], None]) -> Iterator[None]:
        """Wait for our turn, and have it; whatever ``look`` raises meanwhile ends the wait."""
        me = object()
        with self._changed:
            self._queue.append(me)
        try:
            with self._changed:
                while self._queue[0] is not me:
                    self._changed.wait(_GLANCE_S)
                    look()
            yield
        finally:
            with self._changed:
                self._queue.remove(me)
                self._changed.notify_all()


Request = socket.socket | tuple[bytes, socket.socket]
"""A connection, as the standard library's servers have it."""


class _Server(ThreadingHTTPServer):
    """Serves connections in threads, of which there are not too many.

    Who has sent a whole question keeps its connection until it is answered. All others have a time
    to do so, and the one that has waited longest is cut when there is no room for who comes anew:
    connections that stay keep nobody out.
    """

    daemon_threads = True
    request_queue_size = _MOST_CONNECTIONS  # the library's 5 reset a burst of twenty

    def __init__(self, address: tuple[str, int], endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self._free = threading.BoundedSemaphore(_MOST_CONNECTIONS)
        self._lock = threading.Lock()
        self._idle: dict[Request, float] = {}  # until when they may be, in the order of it
        self._asked = 0
        super().__init__(address, _Handler)

    def process_request(self, request: Request, client_address: object) -> None:
        """Serve a connection in a thread, for which another one is cut if there are too many."""
        if not self._free.acquire(blocking=False):
            self._cut(math.inf, most=1)
            if not self._free.acquire(timeout=_LEAVING_S):
                return self.shutdown_request(request)
        try:
            self._wait_for(request)
            super().process_request(request, client_address)
        except BaseException:  # no thread was started
            self._leave(request)
            raise
        return None

    def process_request_thread(self, request: Request, client_address: object) -> None:
        """Serve a connection, and make room for the next."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._leave(request)

    def service_actions(self) -> None:
        """Cut those whose time is over; called several times a second."""
        self._cut(time.monotonic())

    @contextmanager
    def asking(self, request: Request) -> Iterator[bool]:
        """Keep a connection while its question is answered; say whether it may wait for that."""
        with self._lock:
            self._idle.pop(request, None)
            is_welcome = self._asked < _MOST_ASKED
            self._asked += 1
        try:
            yield is_welcome
        finally:
            with self._lock:
                self._asked -= 1
            self._wait_for(request)

    def _wait_for(self, request: Request) -> None:
        with self._lock:
            self._idle[request] = time.monotonic() + _REQUEST_S

    def _leave(self, request: Request) -> None:
        with self._lock:
            self._idle.pop(request, None)
        self._free.release()

    def _cut(self, now: float, most: int = _MOST_CONNECTIONS) -> None:
        """Cut connections that could have asked until now; their threads leave by themselves."""
        with self._lock:
            for request in [one for one, until in self._idle.items() if until < now][:most]:
                del self._idle[request]
                if isinstance(request, socket.socket):
                    with suppress(OSError):  # it has gone by itself
                        request.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing on the terminal: a program that went away, or sent something odd."""
        _log.debug("a connection to the endpoint failed", exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = _SILENCE_S
    protocol_version = "HTTP/1.1"
    server_version = "tacit"
    _slow_s = 0.0
    """How long we have waited for a program to take its answer."""

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: what is asked is the user's."""

    def do_GET(self) -> None:
        """Answer /v1/models."""
        if not self._is_allowed():
            return
        if self.path.rstrip("/") != "/v1/models":
            return self._refuse(HTTPStatus.NOT_FOUND, f"no such path: {self.path}")
        model = {"id": self.server.endpoint.name, "object": "model", "owned_by": "tacit"}
        self._send(HTTPStatus.OK, {"object": "list", "data": [model]})

    def do_POST(self) -> None:
        """Answer /v1/chat/completions."""
        if not self._is_allowed():
            return
        if self.path.rstrip("/") != "/v1/chat/completions":
            return self._refuse(HTTPStatus.NOT_FOUND, f"no such path: {self.path}")
        try:
            request = read_request(self._body(), self.server.endpoint.manner)
            with self.server.asking(self.connection) as is_welcome:
                if not is_welcome:
                    text = f"{_MOST_ASKED} questions wait already; ask again later"
                    return self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, text)
                self._answer(request)
        except InputError as error:
            self._refuse(HTTPStatus.BAD_REQUEST, str(error))
        except OSError:  # the program is gone, or too slow
            raise
        except Exception as error:  # what one program sent must not end the endpoint for others
            is_party = isinstance(error, PartyError)
            status = HTTPStatus.BAD_GATEWAY if is_party else HTTPStatus.INTERNAL_SERVER_ERROR
            self._refuse(status, self._told(error))

    def _answer(self, request: CompletionRequest) -> None:
        with closing(self.server.endpoint.answer(request.ask, self._look)) as parts:
            # The first part shows whether the conversation can be answered at all.
            whole = chain([next(parts)], parts)
            completion = _Completion(self.server.endpoint.name)
            (self._stream if request.is_streamed else self._whole)(completion, whole)

    def _whole(self, completion: "_Completion", answer: Iterator[str | Receipt]) -> None:
        parts = list(answer)
        text = "".join(part for part in parts if isinstance(part, str))
        receipt = next(part for part in parts if isinstance(part, Receipt))
        self._send(HTTPStatus.OK, completion.whole(text, receipt))

    def _stream(self, completion: "_Completion", answer: Iterator[str | Receipt]) -> None:
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Cache-Control", "no-store")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        try:
            self._event(completion.start())
            for part in answer:
                self._event(completion.part(part))
        except OSError:
            raise
        except Exception as error:  # too late for another status
            self._event({"error": {"message": self._told(error), "type": "api_error"}})
        self.wfile.write(b"data: [DONE]\n\n")

    def _look(self) -> None:
        """Raise OSError if the program has hung up, or sends so much that we could not see it."""
        poll = select.poll()
        poll.register(self.connection, select.POLLIN | _HUNG_UP)
        for _, seen in poll.poll(0):
            ahead = self.connection.recv(_MOST_AHEAD + 1, socket.MSG_PEEK)
            if seen & _HUNG_UP or not 0 < len(ahead) <= _MOST_AHEAD:
                raise ConnectionAbortedError("the program left before its answer was there")

    def _told(self, error: Exception) -> str:
        """Return what a program hears of an error; without the other parties, nobody can serve."""
        if isinstance(error, PartyError):
            self.server.endpoint.give_up(error)
        if isinstance(error, TacitError):
            return str(error)
        _log.warning("a request failed and was answered with an error", exc_info=error)
        return f"this request cannot be answered ({type(error).__name__})"

    def _event(self, content: object) -> None:
        begun = time.monotonic()
        self.wfile.write(b"data: " + _written(content) + b"\n\n")
        self._slow_s += time.monotonic() - begun
        if self._slow_s > _SILENCE_S:  # others wait for their turn
            raise TimeoutError("the program takes its answer too slowly")

    def _body(self) -> object:
        if self.headers.get_content_type() != "application/json":
            raise InputError("wanted Content-Type: application/json")
        try:
            size = int(self.headers.get("Content-Length", ""))
        except ValueError as error:
            raise InputError("wanted a Content-Length") from error
        if not 0 < size <= _LARGEST_BODY_BYTES:
            raise InputError(f"wanted a body of 1 to {_LARGEST_BODY_BYTES} bytes, got {size}")
        try:
            body: object = json.loads(self.rfile.read(size))
            json.dumps(body, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            raise InputError("the body holds half of a surrogate pair, which is no text") from error
        except (ValueError, RecursionError) as error:
            raise InputError(f"the body is not JSON: {error}") from error
        return body

    def _is_allowed(self) -> bool:
        """Refuse a request that was made for another host, as a page in a browser does."""
        host = self.headers.get("Host", "").rpartition(":")[0].strip("[]")
        if host == "localhost" or _is_local(host):
            return True
        self._refuse(HTTPStatus.FORBIDDEN, "this endpoint is for programs on this machine only")
        return False

    def _refuse(self, status: HTTPStatus, message: str) -> None:
        kind = "invalid_request_error" if status < HTTPStatus.INTERNAL_SERVER_ERROR else "api_error"
        self.close_connection = True  # a body may be left unread
        self._send(status, {"error": {"message": message, "type": kind}})

    def _send(self, status: HTTPStatus, content: object) -> None:
        body = _written(content)
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class _Completion:
    """The objects of one answer."""

    def __init__(self, model: str) -> None:
        self._head: dict[str, object] = {
            "id": f"chatcmpl-{secrets.token_hex(12)}",
            "created": int(time.time()),
            "model": model,
        }

    def start(self) -> dict[str, object]:
        return self._chunk({"role": "assistant", "content": ""}, None)

    def part(self, part: str | Receipt) -> dict[str, object]:
        if isinstance(part, str):
            return self._chunk({"content": part}, None)
        return {**self._chunk({}, part.ending), **_extras(part)}

    def whole(self, text: str, receipt: Receipt) -> dict[str, object]:
        message = {"role": "assistant", "content": text}
        choice = {"index": 0, "message": message, "finish_reason": receipt.ending}
        return {
            **self._head,
            "object": "chat.completion",
            "choices": [choice],
            **_extras(receipt),
        }

    def _chunk(self, delta: dict[str, str], ending: str | None) -> dict[str, object]:
        choice = {"index": 0, "delta": delta, "finish_reason": ending}
        return {**self._head, "object": "chat.completion.chunk", "choices": [choice]}


def _extras(receipt: Receipt) -> dict[str, object]:
    """Return the usage as OpenAI counts it, and under our own name what was sent and shown."""
    usage = {
        "prompt_tokens": receipt.prompt_tokens,
        "completion_tokens": receipt.tokens,
        "total_tokens": receipt.prompt_tokens + receipt.tokens,
    }
    ours = {
        "first_token": _plain(receipt.prompt_spent),
        "after_it": _plain(receipt.spent),
        "leaks": [asdict(leak) for leak in receipt.leaks],
    }
    return {"usage": usage, "tacit": ours}


def _plain(spent: Spent) -> dict[str, int]:
    return {
        "payload_bytes": spent.payload_bytes,
        "round_trips": spent.round_trips,
        "offline_bytes": spent.offline_bytes,
    }


def _written(content: object) -> bytes:
    return json.dumps(content, ensure_ascii=False).encode(errors="replace")


def _is_local(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
