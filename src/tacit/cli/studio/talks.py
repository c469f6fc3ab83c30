"""Private conversations: a ``tacit chat`` each, asked through its endpoint, kept in memory."""

import http.client
import json
import secrets
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import IO
from urllib.parse import urlsplit

from tacit.errors import InputError, PartyError
from tacit.party import python_command

_SILENCE_S = 3600.0
_MOST_LINES = 50


@dataclass
class Turn:
    """What was said and what came back, with what it took and what each side learned."""

    asked: str
    answer: str = ""
    is_over: bool = False
    problem: str = ""
    tokens: int = 0
    first_s: float = 0.0
    rest_s: float = 0.0
    sent: int = 0
    ahead: int = 0
    round_trips: int = 0
    learned: dict[str, list[str]] = field(default_factory=dict)

    @property
    def speed(self) -> float | None:
        """Return tokens per second after the first."""
        return (self.tokens - 1) / self.rest_s if self.tokens > 1 and self.rest_s > 0 else None

    def take(self, chunk: Mapping[str, object]) -> None:
        """Take note of one object of the stream."""
        match chunk:
            case {"error": {"message": str(message)}}:
                self.problem = message
            case {"choices": [{"delta": {"content": str(text)}}, *_]}:
                self.answer += text
        match chunk.get("usage"):
            case {"completion_tokens": int(count)}:
                self.tokens = count
        ours = chunk.get("tacit")
        if isinstance(ours, dict):
            for part in ("first_token", "after_it"):
                self.sent += ours[part]["payload_bytes"]
                self.ahead += ours[part]["offline_bytes"]
                self.round_trips += ours[part]["round_trips"]
            for leak in ours["leaks"]:
                self.learned.setdefault(leak["to"], []).append(leak["what"])


class Talk:
    """A conversation: its process, and what was said."""

    def __init__(self, options: list[str], title: str) -> None:
        self.title = title
        self.turns: list[Turn] = []
        self.lines: list[str] = []
        self.endpoint: str | None = None
        self._lock = threading.Lock()
        with socket.create_server(("127.0.0.1", 0)) as free:
            address = f"127.0.0.1:{free.getsockname()[1]}"
        # Where the words go is ours to say: a line of the chat may quote another party.
        self._ordered = f"http://{address}/v1"
        self.options = [*options, "--endpoint", address]
        self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
            python_command("chat", *self.options),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        threading.Thread(target=self._listen, args=(self._process.stdout,), daemon=True).start()

    @property
    def is_alive(self) -> bool:
        """Tell whether the parties are there."""
        return self._process.poll() is None

    @property
    def is_busy(self) -> bool:
        """Tell whether something will change by itself."""
        waits = self.is_alive and self.endpoint is None
        return waits or bool(self.turns and not self.turns[-1].is_over)

    def say(self, text: str) -> None:
        """Ask something; the answer grows in the last turn.

        Raises:
            InputError: it is not the turn of whoever asks.
        """
        with self._lock:
            if not text.strip() or self.endpoint is None or self.is_busy or not self.is_alive:
                raise InputError("a conversation takes one text at a time, when it is open")
            messages: list[dict[str, str]] = []
            for one in self.turns:
                messages += [{"role": "user", "content": one.asked}]
                messages += [{"role": "assistant", "content": one.answer}]
            messages.append({"role": "user", "content": text})
            self.turns.append(Turn(asked=text))
        threading.Thread(target=self._ask, args=(messages, self.turns[-1]), daemon=True).start()

    def end(self) -> None:
        """End the conversation and its parties."""
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _listen(self, said: IO[str]) -> None:
        with said:
            for line in said:
                self.lines = [*self.lines[1 - _MOST_LINES :], line.rstrip()]
                if line.startswith(f"listening on {self._ordered};"):
                    self.endpoint = self._ordered

    def _ask(self, messages: list[dict[str, str]], turn: Turn) -> None:
        began, first = time.monotonic(), 0.0
        try:
            for chunk in _stream(self.endpoint or "", messages):
                turn.take(chunk)
                if turn.answer and not first:
                    first = time.monotonic()
        except (OSError, http.client.HTTPException, PartyError, ValueError) as error:
            turn.problem = str(error) or type(error).__name__
        turn.first_s = (first or time.monotonic()) - began
        turn.rest_s = time.monotonic() - (first or time.monotonic())
        turn.is_over = True


class Talks:
    """The conversations of this page."""

    def __init__(self) -> None:
        self._talks: dict[str, Talk] = {}

    def open(self, options: list[str], title: str) -> str:
        """Start the parties of a conversation."""
        name = secrets.token_hex(4)
        self._talks[name] = Talk(options, title)
        return name

    def find(self, name: str) -> Talk:
        """Return a conversation.

        Raises:
            InputError: there is no such one.
        """
        if name not in self._talks:
            raise InputError("no such conversation; it ends with its page's server")
        return self._talks[name]

    def items(self) -> list[tuple[str, Talk]]:
        """List the conversations."""
        return list(self._talks.items())

    def end(self, name: str) -> None:
        """End a conversation and forget it."""
        self.find(name).end()
        del self._talks[name]

    def close(self) -> None:
        """End all of them."""
        for name in list(self._talks):
            self.end(name)


def _stream(endpoint: str, messages: list[dict[str, str]]) -> Iterator[dict[str, object]]:
    """Ask the endpoint as any program would, and yield the objects of its answer."""
    where = urlsplit(endpoint)
    connection = http.client.HTTPConnection(where.netloc, timeout=_SILENCE_S)
    try:
        body = json.dumps({"messages": messages, "stream": True})
        headers = {"Content-Type": "application/json"}
        connection.request("POST", f"{where.path}/chat/completions", body, headers)
        answer = connection.getresponse()
        if answer.status != http.client.OK:
            yield json.loads(answer.read())
            return
        for line in answer:
            text = line.decode().strip().removeprefix("data: ")
            if text and text != "[DONE]":
                yield json.loads(text)
    finally:
        connection.close()
