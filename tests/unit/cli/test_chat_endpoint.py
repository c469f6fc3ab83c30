"""The local endpoint over real HTTP, with a backend that says what the test tells it."""

import http.client
import json
import select
import socket
import threading
import time
from contextlib import ExitStack, closing, contextmanager, nullcontext, suppress
from functools import partial

import pytest
from tokenizers import Tokenizer as Engine
from tokenizers import decoders, models

from support.llm import LLAMA, write_model
from tacit.cli.commands import endpoint as endpoint_module
from tacit.cli.commands.completion_request import read_request
from tacit.cli.commands.endpoint import Endpoint
from tacit.errors import ConfigError, InputError, LinkClosed
from tacit.llm import Ask, Chat, Manner, Message, Sampling, Spent, Tokenizer, chat
from tacit.llm.model import plain as plain_module
from tacit.llm.permuted import client as permuted_module
from tacit.llm.sealed import talk as sealed_module
from tacit.result import Leak

LETTERS = "abcdefghijklmnopqrstuvwxyz "
ASK = {"messages": [{"role": "user", "content": "hi"}]}
LEAK = Leak(to="user", what="permuted scores", why="to choose", kind="protocol", elements=9)


class Script:
    """A backend that says a text, or fails when the text is over."""

    architecture = LLAMA

    def __init__(self, text, failure=None):
        self._text = text
        self._failure = failure

    def speak(self, prompt, *, sampling, limit, between):
        for letter in self._text[:limit]:
            yield LETTERS.index(letter)
        if self._failure is not None:
            raise self._failure
        if limit > len(self._text):
            yield len(LETTERS)

    def take_spent(self):
        return Spent(payload_bytes=1000, round_trips=4, leaks=(LEAK,))


def partner(backend):
    engine = Engine(models.BPE({letter: i for i, letter in enumerate([*LETTERS, "."])}, []))
    engine.decoder = decoders.Fuse()
    tokenizer = Tokenizer(
        engine=engine, starts=(), stops=frozenset({len(LETTERS)}), template=None, special={}
    )
    return Chat(name="tiny", backend=backend, tokenizer=tokenizer)


def served(backend, errors=()):
    return serving(partner(backend), errors)


@contextmanager
def serving(talk, errors=()):
    endpoint = Endpoint(("127.0.0.1", 0), talk, Manner(limit=20))
    seen = []

    def run():
        try:
            endpoint.serve()
        except errors as error:
            seen.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield int(endpoint.url.rsplit(":", 1)[1].split("/")[0]), seen, thread
    finally:
        endpoint.stop()
        thread.join()


def ask(port, method="POST", path="/v1/chat/completions", body=ASK, **headers):
    content = json.dumps(body) if isinstance(body, dict) else body
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=200)) as connection:
        connection.request(method, path, content, {"Content-Type": "application/json", **headers})
        response = connection.getresponse()
        return response.status, response.read().decode()


def test_an_answer_comes_whole_with_its_ledger():
    with served(Script("hello there")) as (port, _, _):
        status, text = ask(port)
    found = json.loads(text)
    assert status == 200
    assert found["choices"][0]["message"] == {"role": "assistant", "content": "hello there"}
    assert found["choices"][0]["finish_reason"] == "stop"
    assert found["usage"] == {"prompt_tokens": 2, "completion_tokens": 12, "total_tokens": 14}
    assert found["tacit"]["first_token"]["round_trips"] == 4
    assert found["tacit"]["after_it"]["payload_bytes"] == 1000
    assert found["tacit"]["leaks"][0]["what"] == "permuted scores"


def test_an_answer_comes_in_pieces():
    with served(Script("hello there")) as (port, _, _):
        status, text = ask(port, body={**ASK, "stream": True, "max_tokens": 5})
    events = [line.removeprefix("data: ") for line in text.split("\n\n") if line]
    assert status == 200
    assert events[-1] == "[DONE]"
    chunks = [json.loads(event) for event in events[:-1]]
    assert chunks[0]["choices"][0]["delta"]["role"] == "assistant"
    said = "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks)
    assert said == "hello"
    assert chunks[-1]["choices"][0]["finish_reason"] == "length"
    assert len({chunk["id"] for chunk in chunks}) == 1


def test_the_model_is_listed():
    with served(Script("")) as (port, _, _):
        status, text = ask(port, "GET", "/v1/models", None)
    assert status == 200
    assert [model["id"] for model in json.loads(text)["data"]] == ["tiny"]


def test_several_programs_get_their_own_answers():
    found = []
    with served(Script("hello")) as (port, _, _):
        threads = [threading.Thread(target=lambda: found.append(ask(port))) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    said = [json.loads(text)["choices"][0]["message"]["content"] for _, text in found]
    assert said == ["hello"] * 4


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"body": b"{"}, "not JSON"),
        ({"body": b"[]"}, "wanted a JSON object"),
        ({"body": {"messages": []}}, "at least one message"),
        ({"body": {"messages": [{"role": "cat", "content": "x"}]}}, "got 'cat'"),
        ({"body": {"messages": [{"role": "user"}]}}, "must be a text"),
        ({"body": {**ASK, "temperature": "hot"}}, "temperature must be a number"),
        ({"body": {**ASK, "temperature": -1}}, "temperature must be at least 0"),
        ({"body": {**ASK, "n": 2}}, "n is not supported"),
        ({"body": {**ASK, "temprature": 1}}, "temprature is not known"),
        ({"body": {"messages": [{"role": "user", "content": "a" * 99}]}}, "99 tokens"),
        ({"Content-Type": "text/plain"}, "application/json"),
        ({"body": rb'{"messages": [{"role": "user", "content": "\ud800"}]}'}, "surrogate"),
        ({"body": rb'{"messages": [{"role": "\udfff", "content": "x"}]}'}, "surrogate"),
        ({"body": rb'{"\ud800": 1}'}, "surrogate"),
        ({"body": {**ASK, "stop": 5}}, "stop must be a text"),
        ({"body": {**ASK, "stop": ["x"] * 99}}, "at most 16 texts"),
        ({"body": {**ASK, "temperature": 10**400}}, "temperature is too large"),
        ({"body": {**ASK, "temperature": float("nan")}}, "temperature must be at least 0"),
        ({"body": b"[" * 100_000}, "not JSON"),
        ({"body": b'{"n": ' + b"9" * 5000 + b"}"}, "not JSON"),
        ({"Content-Length": "-5"}, "wanted a body of 1"),
        ({"Content-Length": str(2**62)}, "wanted a body of 1"),
    ],
)
def test_a_wrong_request_is_refused_and_the_next_one_is_answered(change, words):
    with served(Script("hello")) as (port, _, _):
        status, text = ask(port, **change)
        assert status == 400
        assert words in json.loads(text)["error"]["message"]
        assert ask(port)[0] == 200


def test_text_that_is_none_is_said_to_whoever_sent_it_even_in_an_error():
    # An error that could not be written as JSON ended the endpoint of 0.1.
    with served(Script("hello")) as (port, _, thread):
        for path in ("/v1/\udcff", "/v1/%ED%A0%80"):
            assert raw(port, f"GET {path} HTTP/1.1\r\nHost: localhost:1\r\n\r\n").startswith(
                "HTTP/1.1 404"
            )
        assert thread.is_alive()
        assert ask(port)[0] == 200


@pytest.mark.parametrize(
    "sent",
    [
        b"\xff" * 4096,
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost:1\r\nContent-Length: 50\r\n"
        b"Content-Type: application/json\r\n\r\n{",
        b"GET /v1/models HTTP/1.1\r\nHost: localhost:1\r\n" + b"A: b\r\n" * 200 + b"\r\n",
        b"GET /v1/models HTTP/9.9\r\n\r\n",
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost:1\r\n\r\n",
    ],
)
def test_a_program_that_speaks_no_http_or_leaves_midway_harms_nobody(sent):
    with served(Script("hello")) as (port, _, thread):
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.sendall(sent)
            connection.shutdown(socket.SHUT_WR)
            connection.recv(4096)
        assert thread.is_alive()
        assert ask(port)[0] == 200


@pytest.mark.parametrize("is_streamed", [False, True])
def test_an_error_of_ours_ends_one_request_and_not_the_endpoint(is_streamed, caplog):
    backend = Script("hel", ZeroDivisionError("a bug"))
    with served(backend) as (port, _, thread):
        status, text = ask(port, body={**ASK, "stream": is_streamed})
        assert status == (200 if is_streamed else 500)
        assert "this request cannot be answered (ZeroDivisionError)" in text
        assert thread.is_alive()
        backend._failure = None
        assert ask(port)[0] == 200


def test_a_burst_of_programs_is_connected_before_the_endpoint_gets_to_the_first():
    endpoint = Endpoint(("127.0.0.1", 0), partner(Script("hello")), Manner(limit=20))
    port = int(endpoint.url.rsplit(":", 1)[1].split("/")[0])
    with ExitStack() as stack:
        stack.callback(endpoint.close)
        for _ in range(60):
            stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=0.5))


def test_a_conversation_longer_than_the_user_lets_programs_have_read_is_refused_at_once():
    endpoint = Endpoint(
        ("127.0.0.1", 0), partner(Script("hello")), Manner(limit=20, longest_prompt=12)
    )
    look = lambda: None  # noqa: E731
    try:
        for size, is_short in ((12, True), (13, False)):
            ask = Ask(messages=(Message(role="user", content=size * "x"),), limit=5)
            with nullcontext() if is_short else pytest.raises(InputError, match="at most 12"):
                assert list(endpoint.answer(ask, look))[:-1] == list("hello")
    finally:
        endpoint.close()


class Reader(Script):
    """A backend that reads a prompt in parts, as long as it is let."""

    def __init__(self, text, parts):
        super().__init__(text)
        self.parts, self.read, self.is_reading = parts, 0, threading.Event()
        self.order = []

    def speak(self, prompt, *, sampling, limit, between):
        self.order.append(len(prompt))
        if len(prompt) > 10:
            for _ in range(self.parts):
                self.is_reading.set()
                time.sleep(0.01)
                self.read += 1
                between()
        yield from super().speak(prompt, sampling=sampling, limit=limit, between=between)


def open_ask(port, text, **more):
    """Ask, and leave the answer for later."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    body = json.dumps({"messages": [{"role": "user", "content": text}], **more})
    connection.request("POST", "/v1/chat/completions", body, {"Content-Type": "application/json"})
    return connection


@pytest.mark.parametrize(
    ("is_streamed", "more"), [(False, 0), (True, 0), (False, 1), (False, 1 << 17)]
)
def test_a_long_prompt_is_no_longer_read_when_its_program_has_left(is_streamed, more):
    backend = Reader("hello", parts=10_000)
    with served(backend) as (port, _, _):
        connection = open_ask(port, "a long prompt", stream=is_streamed)
        assert backend.is_reading.wait(60)
        connection.sock.sendall(bytes(more))  # nobody reads it: what follows is seen all the same
        connection.close()
        assert ask(port)[0] == 200
    assert backend.read < 10_000


def test_programs_have_their_turns_in_order_and_who_leaves_the_queue_has_none():
    backend = Reader("hello", parts=100)
    with served(backend) as (port, _, _), ExitStack() as stack:
        first = stack.enter_context(closing(open_ask(port, "a long prompt")))
        assert backend.is_reading.wait(60)
        waiting = []
        for size in (5, 6, 7, 8):
            waiting.append(stack.enter_context(closing(open_ask(port, "x" * size))))
            time.sleep(0.05)
        waiting[1].close()
        for connection in (first, waiting[0], waiting[2], waiting[3]):
            assert connection.getresponse().status == 200
    assert backend.order == [13, 5, 7, 8]


def short_ask(limit):
    return {"messages": [{"role": "user", "content": "short"}], "max_tokens": limit}


def said_in(text):
    return json.loads(text)["choices"][0]["message"]["content"]


@pytest.mark.parametrize(
    "protocol", ["plain", "permuted", pytest.param("sealed", marks=pytest.mark.slow)]
)
def test_a_real_model_reads_no_further_for_a_program_that_left(tmp_path, monkeypatch, protocol):
    """A prompt of 25 parts is left after the first; another program is answered as ever."""
    monkeypatch.setattr(plain_module, "PART", 8)
    monkeypatch.setattr(sealed_module, "CHUNK", 8)
    monkeypatch.setattr(permuted_module, "Ahead", partial(permuted_module.Ahead, chunk=8))
    has_begun, has_left, parts = threading.Event(), threading.Event(), []

    def watch(speak, prompt, *, between, **how):
        def slowly():
            parts.append(len(prompt))
            if len(prompt) > 100:
                has_begun.set()
                assert has_left.wait(60)
            between()

        yield from speak(prompt, between=slowly, **how)

    with chat(write_model(tmp_path / "tiny"), protocol=protocol) as talk:
        wanted = talk.reply(Ask(messages=(Message(role="user", content="short"),), limit=3))
        wanted = "".join(wanted)
        talk.backend.speak = partial(watch, talk.backend.speak)
        with serving(talk) as (port, _, _):
            connection = open_ask(port, "l" + 199 * "o", max_tokens=3)
            assert has_begun.wait(60)
            connection.close()
            has_left.set()
            status, text = ask(port, body=short_ask(3))
        assert (status, said_in(text)) == (200, wanted)
    assert parts.count(200) == 1


def test_connections_that_stay_make_no_more_threads_than_there_may_be(monkeypatch):
    monkeypatch.setattr(endpoint_module, "_MOST_CONNECTIONS", 4)
    before = threading.active_count()
    with served(Script("hello")) as (port, _, _), ExitStack() as stack:
        for _ in range(30):
            stack.enter_context(socket.create_connection(("127.0.0.1", port)))
        time.sleep(0.3)
        assert threading.active_count() - before <= 4 + 1
        stack.close()
        for _ in range(200):
            try:
                status = ask(port)[0]
            except (http.client.HTTPException, OSError):  # a place is free when its program is gone
                time.sleep(0.05)
                continue
            break
        assert status == 200


def test_a_program_can_try_out_what_another_one_said(tmp_path):
    """No guarantee, and said so: what is known of a prompt need not be sent again."""
    secret, wrong = "a pin is fourseven really it is", "a pin is ninethree really it is"

    def sent(port, text):
        asked = {"messages": [{"role": "user", "content": text}], "max_tokens": 1}
        return json.loads(ask(port, body=asked)[1])["tacit"]["first_token"]["payload_bytes"]

    with (
        chat(write_model(tmp_path / "tiny"), protocol="permuted") as talk,
        serving(talk) as (port, _, _),
    ):
        whole = sent(port, secret)
        assert sent(port, wrong) == whole
        assert sent(port, secret) < whole / 2


HEAD = (
    b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:1\r\nContent-Type: application/json\r\n"
)
BODY = HEAD + b"Content-Length: 9999\r\n\r\n{"
STARTS = {"nothing": b"", "half a head": HEAD, "half a body": BODY}


@pytest.mark.parametrize("start", STARTS)
def test_connections_that_stay_keep_nobody_out(start):
    """On 0.2 sixty-four of them were all there were: everybody else was refused."""
    with served(Script("hello")) as (port, _, _), ExitStack() as stack:
        for _ in range(200):
            held = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            with suppress(OSError):  # it was cut for one that came later
                held.sendall(STARTS[start])
        assert ask(port)[0] == 200


@pytest.mark.parametrize("start", STARTS)
def test_a_request_that_drips_in_is_not_waited_for(monkeypatch, start):
    monkeypatch.setattr(endpoint_module, "_REQUEST_S", 0.3)
    with (
        served(Script("hello")) as (port, _, _),
        socket.create_connection(("127.0.0.1", port), timeout=60) as held,
    ):
        held.sendall(STARTS[start])
        is_cut = False
        for _ in range(600):  # on 0.2 every byte bought another minute
            if select.select([held], [], [], 0.1)[0]:
                is_cut = True
                break
            held.sendall(b"x")
        assert is_cut


def test_no_more_questions_wait_than_leave_room_and_who_waits_is_not_cut(monkeypatch):
    monkeypatch.setattr(endpoint_module, "_MOST_ASKED", 3)
    monkeypatch.setattr(endpoint_module, "_MOST_CONNECTIONS", 5)
    with served(Reader("hello", parts=1 << 20)) as (port, _, _), ExitStack() as stack:
        asked = {
            one.sock: one
            for one in (stack.enter_context(closing(open_ask(port, 13 * "x"))) for _ in range(4))
        }
        (refused,) = select.select([*asked], [], [], 60)[0]
        answer = asked.pop(refused).getresponse()
        assert answer.status == 503
        assert b"3 questions wait already" in answer.read()
        for _ in range(30):
            stack.enter_context(socket.create_connection(("127.0.0.1", port)))
        assert ask(port, "GET", "/v1/models", None)[0] == 200
        assert not select.select([*asked], [], [], 0)[0]


def test_who_takes_its_answer_slowly_is_left_after_a_while_in_all(monkeypatch):
    """Each piece alone was in time on 0.2, and all others waited for each."""
    clock = [0.0]
    handler = endpoint_module._Handler.__new__(endpoint_module._Handler)
    monkeypatch.setattr(endpoint_module.time, "monotonic", lambda: clock[0])

    class Slow:
        def write(self, data):
            clock[0] += 50.0

    handler.wfile = Slow()
    handler._event({})
    with pytest.raises(TimeoutError, match="too slowly"):
        handler._event({})


def raw(port, text):
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.sendall(text.encode(errors="surrogateescape"))
        return connection.recv(4096).decode(errors="replace")


def test_a_page_in_a_browser_is_refused():
    with served(Script("hello")) as (port, _, _):
        assert ask(port, Host="evil.example:80")[0] == 403
        assert ask(port, "OPTIONS")[0] == 501
        assert ask(port, Host=f"localhost:{port}")[0] == 200


def test_an_unknown_path_is_not_found():
    with served(Script("hello")) as (port, _, _):
        assert ask(port, path="/v1/embeddings")[0] == 404
        assert ask(port, "GET", "/", None)[0] == 404


@pytest.mark.parametrize("is_streamed", [False, True])
def test_a_party_that_fails_ends_the_server_and_the_program_hears_why(is_streamed):
    gone = LinkClosed("dealer", "it went away")
    with served(Script("hel", gone), (LinkClosed,)) as (port, seen, thread):
        status, text = ask(port, body={**ASK, "stream": is_streamed})
        thread.join(200)
    assert status == (200 if is_streamed else 502)
    assert "party 'dealer' failed: it went away" in text
    assert seen == [gone]


def test_the_endpoint_is_for_this_machine_only():
    with pytest.raises(ConfigError, match=r"this machine only, got the address 192\.0\.2\.1"):
        Endpoint(("192.0.2.1", 0), partner(Script("")), Manner())


def test_a_port_in_use_is_said():
    first = Endpoint(("127.0.0.1", 0), partner(Script("")), Manner())
    port = int(first.url.rsplit(":", 1)[1].split("/")[0])
    with pytest.raises(ConfigError, match=f"cannot listen on 127.0.0.1:{port}"):
        Endpoint(("127.0.0.1", port), partner(Script("")), Manner())
    first.close()


def test_what_a_request_leaves_out_is_as_on_the_command_line():
    manner = Manner(sampling=Sampling(temperature=0.5, seed=4), limit=9, system="Be brief.")
    ask_ = read_request({**ASK, "top_p": 0.5, "stop": "x", "user": "me"}, manner).ask
    assert ask_.sampling == Sampling(temperature=0.5, seed=4, top_p=0.5)
    assert ask_.limit == 9
    assert ask_.stops == ("x",)
    assert [message.role for message in ask_.messages] == ["system", "user"]


def test_a_message_may_come_in_parts_of_text():
    content = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    request = read_request({"messages": [{"role": "user", "content": content}]}, Manner())
    assert request.ask.messages[0].content == "ab"
    picture = [{"type": "image_url", "image_url": {}}]
    with pytest.raises(InputError, match="text only"):
        read_request({"messages": [{"role": "user", "content": picture}]}, Manner())
