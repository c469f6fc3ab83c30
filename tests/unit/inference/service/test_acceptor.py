"""A prediction service on real sockets: whatever one client sends, the others are answered."""

import secrets
import socket
import threading
import time
from contextlib import ExitStack, contextmanager, suppress

import numpy as np
import torch

from support.machine import no_collector, unread_bytes
from support.mpc import ROLES
from tacit.crypto import make_identity
from tacit.errors import PartyError
from tacit.inference.service import Acceptor, connected
from tacit.transport import (
    Credentials,
    Frame,
    LinkLimits,
    Meter,
    Patience,
    Peer,
    frame_bytes,
    listen,
    mesh,
)
from tacit.transport.dial import Hello, Lane, _dial_lane
from tacit.transport.frame import DATA, HEADER, make_head
from tacit.transport.tls import GreetingError, exchange_certificates, secure

PATIENCE = Patience(connect_s=20, silence_s=20, heartbeat_s=1, stall_s=60)
LIMITS = LinkLimits(max_frame_bytes=1 << 20, prefetch_bytes=1 << 20, stash_bytes=1 << 21)
EVE, ANN = "client-0", "client-1"
ANSWER_S = 20.0
"""How long a share waits for the other one: who hangs up may take with it what was not yet read."""


class Listeners:
    """Both servers' listeners, and the way to them."""

    def __init__(self, service, folder, stack):
        self.service, self.task = service, service.task
        names = (*ROLES.computing, EVE, ANN)
        self.identities = {name: make_identity(name, folder) for name in names}
        clients = {name: Peer(None, self.identities[name].fingerprint) for name in (EVE, ANN)}
        self.servers, self.acceptors = {}, {}
        for name in ROLES.computing:
            listener = stack.enter_context(listen("127.0.0.1", 0))
            address = listener.getsockname()[:2]
            self.servers[name] = Peer(address, self.identities[name].fingerprint)
            acceptor = Acceptor(
                name,
                clients,
                credentials=self.credentials(name),
                listener=listener,
                patience=PATIENCE,
                limits=LIMITS,
            )
            acceptor.open(service.servers[name].queue.admit)
            stack.callback(acceptor.close)
            self.acceptors[name] = acceptor

    def credentials(self, name):
        identity = self.identities[name]
        return Credentials(identity.certificate_file, identity.key_file)

    @contextmanager
    def links(self):
        """Connect to both servers as the client that attacks."""
        links = mesh(
            EVE,
            self.servers,
            credentials=self.credentials(EVE),
            listener=None,
            meter=Meter(EVE),
            patience=PATIENCE,
        )
        try:
            yield links
        finally:
            for link in links.values():
                link.kill()

    def ask(self, rows):
        with connected(
            ANN,
            self.task.spec,
            name=self.task.name,
            servers=self.servers,
            identity=self.identities[ANN],
            patience=PATIENCE,
        ) as client:
            return client.ask(rows)


def visit(links):
    for link in links.values():
        link.recv("terms/0")
        link.send("visit/0", Frame("i64", (1,), memoryview(bytes(8))), phase="setup")


def strangers_who_connect(listeners):
    for peer in listeners.servers.values():
        for sent in (b"", b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 5000, b"TACIT\x01\xff\xff"):
            with socket.create_connection(peer.address) as guest:
                guest.sendall(sent)


def a_visit_that_is_none(listeners):
    for frame in (frame_bytes(b"\xed\xa0\x80"), Frame("i64", (1,), memoryview(b"\xff" * 8))):
        with listeners.links() as links:
            for link in links.values():
                link.send("visit/0", frame)
            links[ROLES.first].recv("answer/0")


def questions_of_all_kinds(listeners):
    draw = np.random.default_rng(3)
    for _ in range(5):
        with listeners.links() as links, suppress(PartyError):
            visit(links)
            for number in range(20):
                for link in links.values():
                    dtype = ("u8", "i32", "i64")[draw.integers(3)]
                    shape = tuple(int(n) for n in draw.integers(0, 9, draw.integers(4)))
                    size = int(np.prod(shape)) * {"u8": 1, "i32": 4, "i64": 8}[dtype]
                    link.send(f"ask/{number}", Frame(dtype, shape, memoryview(draw.bytes(size))))


def a_tag_of_another_question(listeners):
    with listeners.links() as links:
        visit(links)
        links[ROLES.first].send("ask/99", Frame("i64", (1, 6), memoryview(bytes(48))))
        links[ROLES.first].recv("answer/0")


def noise_instead_of_frames(listeners):
    with listeners.links() as links:
        visit(links)
        for link in links.values():
            link._outlet._sink.send(b"\xff" * 4096)
        links[ROLES.first].recv("answer/0")


def a_length_beyond_all_memory(listeners):
    with listeners.links() as links:
        head = make_head(DATA, "online", "ask/0", "i64", (2**50, 6))
        for link in links.values():
            outlet = link._outlet
            outlet._sink.send(HEADER.pack(head.static, 1, outlet._sequence, head.payload_bytes))
            outlet._sink.send(head.label)
        links[ROLES.first].recv("answer/0")


def gone_in_the_middle_of_a_question(listeners):
    with listeners.links() as links:
        visit(links)
        for link in links.values():
            link.send("ask/0", Frame("i64", (3, 6), memoryview(bytes(144))))


def frames_that_nobody_reads(listeners):
    for _ in range(5):
        with listeners.links() as links:
            visit(links)
            for link in links.values():
                for number in range(4):
                    link.send(f"junk{number}/0", frame_bytes(bytes(1 << 18)))
                link.send("ask/0", frame_bytes(b""))
                link.recv("answer/0")  # so all of it was read


def visits_in_a_row(listeners):
    for _ in range(20):
        with listeners.links() as links:
            visit(links)
            links[ROLES.first].send("ask/0", Frame("i64", (1, 6), memoryview(bytes(48))))


def lanes_that_stay_single(listeners):
    # Of 64 lanes in all, those of one client pushed out those of the others in 0.1.
    with ExitStack() as stack:
        for _ in range(20):
            for name, peer in listeners.servers.items():
                link = secrets.token_bytes(16)
                hello = Hello(sender=EVE, receiver=name, lane=0, link_id=link)
                deadline = time.monotonic() + 20
                lane = _dial_lane(peer, hello, listeners.credentials(EVE), deadline=deadline)
                stack.enter_context(lane)
        kept = [len(acceptor._lanes) for acceptor in listeners.acceptors.values()]
        assert max(kept) <= 4


def proved_and_then_silent(listeners):
    # Before the hello, which names the link: a thread and two handles each, until it is late.
    peer, credentials = listeners.servers[ROLES.first], listeners.credentials(EVE)
    with ExitStack() as stack:
        for _ in range(48):
            sock = stack.enter_context(socket.create_connection(peer.address))
            with suppress(OSError, GreetingError):
                deadline = time.monotonic() + 20
                theirs = exchange_certificates(sock, credentials.certificate(), deadline=deadline)
                tls = secure(sock, theirs, credentials, is_dialer=True, deadline=deadline)
                stack.callback(tls.close)
        greeting = [one for one in threading.enumerate() if one.name == "tacit-greet"]
        assert len(greeting) <= 24


ATTACKS = [
    strangers_who_connect,
    a_visit_that_is_none,
    questions_of_all_kinds,
    a_tag_of_another_question,
    noise_instead_of_frames,
    a_length_beyond_all_memory,
    gone_in_the_middle_of_a_question,
    frames_that_nobody_reads,
    visits_in_a_row,
    lanes_that_stay_single,
    proved_and_then_silent,
]


def test_whatever_a_client_sends_the_others_are_answered_and_nothing_of_it_is_kept(
    make_service_task, serving, rows, tmp_path
):
    task = make_service_task()
    with serving(task, answer_s=ANSWER_S) as service, ExitStack() as stack:
        stack.enter_context(no_collector())
        listeners = Listeners(service, tmp_path, stack)
        for attack in ATTACKS:
            with suppress(PartyError):
                attack(listeners)
            answers = listeners.ask(rows)
            assert torch.equal(answers, service.plain(rows)), attack.__name__
            for server in service.servers.values():
                assert settled(server.queue.waiting) == 0, attack.__name__
            assert settled(threads_of_clients) == 0, attack.__name__
            assert unread_bytes() < 1 << 18, attack.__name__
        assert "error" not in service.ends


def settled(look):
    limit = time.monotonic() + 10 * ANSWER_S
    while look() and time.monotonic() < limit:
        time.sleep(0.02)
    return look()


def threads_of_clients():
    return sum(one.name.startswith("tacit-client-") for one in threading.enumerate())


def test_a_client_that_comes_again_and_again_at_once_has_four_links_in_the_making(tmp_path):
    """Each holds a thread while the one before it ends; others come in as ever."""
    identity = make_identity("server", tmp_path)
    with listen("127.0.0.1", 0) as listener, socket.socket() as unused:
        acceptor = Acceptor(
            "server",
            {},
            credentials=Credentials(identity.certificate_file, identity.key_file),
            listener=listener,
            patience=PATIENCE,
            limits=LIMITS,
        )
        lanes = {name: Lane(name, 0, bytes(16), unused) for name in (EVE, ANN)}
        with ExitStack() as stack:
            comes = [stack.enter_context(acceptor._arrival(lanes[EVE])) for _ in range(6)]
            assert comes == [True] * 4 + [False] * 2
            assert stack.enter_context(acceptor._arrival(lanes[ANN]))
        with acceptor._arrival(lanes[EVE]) as is_welcome:
            assert is_welcome
