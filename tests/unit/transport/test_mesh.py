import contextlib
import logging
import socket
import ssl
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from support.machine import free_port
from tacit.errors import (
    ConfigError,
    HandshakeError,
    IdentityError,
    LinkClosed,
    LinkError,
    LinkTimeout,
    PartyError,
)
from tacit.transport import Credentials, Meter, Patience, Peer, fingerprint, frame_bytes, listen
from tacit.transport import mesh as make_mesh
from tacit.transport.tls import exchange_certificates, recv_hello, secure, send_hello

PATIENCE = Patience(connect_s=60, silence_s=60, heartbeat_s=0.2, stall_s=200)
END_S = 200
"""How long a test waits for what must come."""


def print_of(credentials: Credentials) -> str:
    return fingerprint(credentials.certificate())


def mesh(me, peers, credentials, listener=None, patience=PATIENCE):
    how = {"credentials": credentials, "listener": listener, "patience": patience}
    return make_mesh(me, peers, meter=Meter(me), **how)


@pytest.fixture
def pool():
    with ThreadPoolExecutor(4) as made:
        yield made


@pytest.fixture
def listener():
    with listen("127.0.0.1", 0) as made:
        yield made


class Clock:
    """What a meeting takes for the time: it passes when a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    monkeypatch.setattr("tacit.transport.meeting.monotonic", made)
    return made


def wait_until(is_true) -> None:
    """Wait for what another thread is about to do."""
    limit = time.monotonic() + END_S
    while not is_true():
        assert time.monotonic() < limit
        time.sleep(0.005)


def wait_for_note(caplog, words: str) -> None:
    """Wait until a party has noted what a stranger did."""
    wait_until(lambda: any(words in record.getMessage() for record in list(caplog.records)))


def wait_for_heartbeat(link) -> None:
    """Wait until the other end has its link too."""
    before = link._intake.last_heard
    wait_until(lambda: link._intake.last_heard > before)


def close_all(*meshes) -> None:
    for links in meshes:
        for link in links.values():
            link.close()


def start_ann(pool, listener, keys, *, awaits=("bob",), patience=PATIENCE) -> Future:
    """Start ann, who listens and waits for bob or others; dan has no key, and never comes."""
    known = {name: print_of(keys[name]) for name in awaits if name in keys}
    peers = {name: Peer(None, known.get(name, "sha256:" + "0" * 64)) for name in awaits}
    return pool.submit(mesh, "ann", peers, keys["ann"], listener, patience)


def to_ann(listener, keys, *, pins=None) -> dict[str, Peer]:
    return {"ann": Peer(listener.getsockname(), pins or print_of(keys["ann"]))}


def start_pair(pool, listener, keys, *, bob_pins=None, patience=PATIENCE) -> list[Future]:
    """Start ann, who listens, and bob, who dials; his pin may be wrong."""
    peers = to_ann(listener, keys, pins=bob_pins)
    return [
        start_ann(pool, listener, keys, patience=patience),
        pool.submit(mesh, "bob", peers, keys["bob"], None, patience),
    ]


def show_certificate(sock: socket.socket, credentials: Credentials) -> None:
    der = credentials.certificate()
    sock.sendall(b"TACIT\x01" + len(der).to_bytes(2, "little") + der)


def test_three_parties_find_each_other_in_any_order(pool, keys):
    names = ("ann", "bob", "cat")
    listeners = {name: listen("127.0.0.1", 0) for name in names}
    peers = {name: Peer(listeners[name].getsockname(), print_of(keys[name])) for name in names}
    joining = {
        me: pool.submit(mesh, me, {n: peers[n] for n in names if n != me}, keys[me], listeners[me])
        for me in ("cat", "ann", "bob")
    }
    meshes = {me: future.result(END_S) for me, future in joining.items()}
    for me in names:
        for other in meshes[me]:
            meshes[me][other].send("hi/1", frame_bytes(f"{me} to {other}".encode()))
    for me in names:
        for other, link in meshes[me].items():
            assert bytes(link.recv("hi/1").data) == f"{other} to {me}".encode()
    close_all(*meshes.values())
    for sock in listeners.values():
        sock.close()


def test_a_party_without_an_address_dials_even_if_it_sorts_first(pool, listener, keys):
    ann = pool.submit(
        mesh, "ann", {"bob": Peer(listener.getsockname(), print_of(keys["bob"]))}, keys["ann"]
    )
    bob = mesh("bob", {"ann": Peer(None, print_of(keys["ann"]))}, keys["bob"], listener)
    close_all(ann.result(END_S), bob)


def test_the_dialler_waits_for_a_peer_that_is_not_up_yet(pool, keys):
    address = "127.0.0.1", free_port()
    bob = pool.submit(mesh, "bob", {"ann": Peer(address, print_of(keys["ann"]))}, keys["bob"])
    threading.Event().wait(0.2)
    with listen(*address) as listener:
        ann = mesh("ann", {"bob": Peer(None, print_of(keys["bob"]))}, keys["ann"], listener)
        close_all(ann, bob.result(END_S))


def test_links_are_tls_1_3(pool, listener, keys):
    ann, bob = (future.result(END_S) for future in start_pair(pool, listener, keys))
    lanes = bob["ann"]._outlet._sink._sock, bob["ann"]._intake._source._sock
    assert [lane.version() for lane in lanes] == ["TLSv1.3", "TLSv1.3"]
    close_all(ann, bob)


@pytest.mark.parametrize("is_dialer", [True, False])
def test_a_peer_that_speaks_tls_1_2_and_nothing_later_is_refused(pool, listener, keys, is_dialer):
    """It has the right key and takes every cipher; only the version is too old."""
    ours = socket.create_connection(listener.getsockname())
    theirs, _ = listener.accept()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if is_dialer else ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.load_cert_chain(keys["bob"].certificate_file, keys["bob"].key_file)

    def speak() -> None:
        with theirs, contextlib.suppress(OSError):
            context.wrap_socket(theirs, server_side=is_dialer).close()

    speaking = pool.submit(speak)
    with ours, pytest.raises(ssl.SSLError, match=r"(?i)protocol"):
        secure(
            ours,
            keys["bob"].certificate(),
            keys["ann"],
            is_dialer=is_dialer,
            deadline=time.monotonic() + END_S,
        )
    speaking.result(END_S)


def almost(pin: str) -> str:
    """Return a fingerprint that differs in its last digit alone."""
    return pin[:-1] + ("0" if pin[-1] != "0" else "1")


def test_a_key_whose_fingerprint_begins_like_the_pinned_one_is_another_key(
    pool, listener, keys, caplog, clock
):
    ann, bob = start_pair(pool, listener, keys, bob_pins=almost(print_of(keys["ann"])))
    for end, party in ((bob, "ann"), (ann, "bob")):
        with pytest.raises(HandshakeError) as caught:
            end.result(END_S)
        assert caught.value.party == party
    peers = {"bob": Peer(None, almost(print_of(keys["bob"])))}
    ann = pool.submit(mesh, "ann", peers, keys["ann"], listener)
    with pytest.raises(HandshakeError, match="but 'ann' pins"):
        mesh("bob", to_ann(listener, keys), keys["bob"])
    wait_for_note(caplog, "called itself 'bob'")
    clock.advance(100)
    with pytest.raises(LinkTimeout):
        ann.result(END_S)


@pytest.mark.parametrize("spoilt", ["sender", "link_id", "lane"])
def test_an_answer_to_another_hello_is_no_answer(pool, listener, keys, spoilt):
    """The listener has the right key, and answers as it would answer somebody else."""
    other = {"sender": "cat", "link_id": bytes(16), "lane": 1}[spoilt]

    def answer() -> None:
        sock, _ = listener.accept()
        with sock:
            deadline = time.monotonic() + END_S
            theirs = exchange_certificates(sock, keys["ann"].certificate(), deadline=deadline)
            tls = secure(sock, theirs, keys["ann"], is_dialer=False, deadline=deadline)
            with tls:
                hello = recv_hello(tls, deadline=deadline)
                right = replace(hello, sender="ann", receiver=hello.sender)
                send_hello(tls, replace(right, **{spoilt: other}))
                with contextlib.suppress(OSError):
                    tls.recv(1)

    answering = pool.submit(answer)
    patience = replace(PATIENCE, connect_s=20)
    with pytest.raises(HandshakeError, match="meant for another hello"):
        mesh("bob", to_ann(listener, keys), keys["bob"], patience=patience)
    answering.result(END_S)


def test_a_wrong_key_of_the_dialler_is_told_on_both_ends(
    pool, listener, keys, make_credentials, caplog, clock
):
    impostor = make_credentials("impostor")
    ann = start_ann(pool, listener, keys)
    with pytest.raises(HandshakeError) as at_bob:
        mesh("bob", to_ann(listener, keys), impostor)
    wait_for_note(caplog, "called itself 'bob'")
    clock.advance(100)
    with pytest.raises(LinkTimeout) as at_ann:
        ann.result(END_S)
    assert (at_bob.value.party, at_ann.value.party) == ("ann", "bob")
    hint = (
        f"a connection that called itself 'bob' showed the key {print_of(impostor)} instead of"
        f" {print_of(keys['bob'])}; if that is 'bob', correct parties.bob.key"
    )
    assert hint in at_ann.value.reason
    assert [r.levelno for r in caplog.records if hint in r.getMessage()] == [logging.WARNING]
    assert print_of(impostor) in at_bob.value.reason
    assert print_of(keys["bob"]) in at_bob.value.reason


# The waits below are longer than any grace that a refused party may have had.
def test_a_stranger_that_claims_a_name_does_not_keep_its_owner_out(
    pool, listener, keys, make_credentials
):
    ann = start_ann(pool, listener, keys)
    with pytest.raises(HandshakeError):
        mesh("bob", to_ann(listener, keys), make_credentials("impostor"))
    threading.Event().wait(1.3)
    bob = mesh("bob", to_ann(listener, keys), keys["bob"])
    close_all(ann.result(END_S), bob)


@pytest.mark.parametrize("leaves_by", ["hanging up", "sending garbage", "resetting"])
def test_a_certificate_shown_and_not_proved_does_not_keep_its_owner_out(
    pool, listener, keys, leaves_by
):
    ann = start_ann(pool, listener, keys)
    with socket.create_connection(listener.getsockname()) as mallory:
        show_certificate(mallory, keys["bob"])
        if leaves_by == "sending garbage":
            mallory.sendall(bytes(100))
        if leaves_by == "resetting":
            mallory.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    threading.Event().wait(1.3)
    bob = mesh("bob", to_ann(listener, keys), keys["bob"])
    close_all(ann.result(END_S), bob)


def test_a_wrong_key_of_the_listener_is_told_on_both_ends(pool, listener, keys):
    wanted = print_of(keys["cat"])
    ann, bob = start_pair(pool, listener, keys, bob_pins=wanted)
    with pytest.raises(HandshakeError) as at_bob:
        bob.result(END_S)
    with pytest.raises(HandshakeError) as at_ann:
        ann.result(END_S)
    assert (at_bob.value.party, at_ann.value.party) == ("ann", "bob")
    for error in (at_bob, at_ann):
        assert print_of(keys["ann"]) in error.value.reason
        assert wanted in error.value.reason


@pytest.mark.parametrize("who", ["ann", "bob"])
def test_an_expired_certificate_is_told_on_both_ends(
    pool, listener, keys, make_credentials, who, caplog, clock
):
    ann, bob = start_pair(pool, listener, {**keys, who: make_credentials(who, days=-1)})
    with pytest.raises(LinkError) as at_bob:
        bob.result(END_S)
    wait_for_note(caplog, "expired")
    clock.advance(100)
    with pytest.raises(LinkTimeout) as at_ann:
        ann.result(END_S)
    for error in (at_bob, at_ann):
        assert "expired" in error.value.reason
        assert "tacit keys" in error.value.reason


def test_a_certificate_without_its_key_does_not_get_in(
    pool, listener, keys, make_credentials, caplog, clock
):
    # Mallory shows bob's certificate, which is public, and holds another key.
    def mallory() -> None:
        other = make_credentials("mallory")
        with socket.create_connection(listener.getsockname()) as sock:
            show_certificate(sock, keys["bob"])
            sock.recv(10_000)
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
            other.load_into(context)
            with context.wrap_socket(sock) as tls, contextlib.suppress(OSError):
                tls.sendall(bytes(640))
                tls.recv(1)

    ann = start_ann(pool, listener, keys)
    mallory()
    wait_for_note(caplog, "without proving its key")
    clock.advance(100)
    with pytest.raises(
        LinkTimeout, match=r"certificate of 'bob' without proving its key.*not accepted"
    ):
        ann.result(END_S)


def test_strangers_are_ignored_and_remembered(pool, listener, keys, make_credentials):
    address = listener.getsockname()
    socks = [socket.create_connection(address) for _ in range(3)]
    socks[0].sendall(b"GET / HTTP/1.1\r\n\r\n" + bytes(100))
    socks[1].sendall(b"TACIT\x01\xff\xff")
    socks[2].close()
    ann = start_ann(pool, listener, keys)
    with pytest.raises(HandshakeError, match="expects no such party"):
        mesh("zoe", to_ann(listener, keys), make_credentials("stranger"))
    bob = mesh("bob", to_ann(listener, keys), keys["bob"])
    close_all(ann.result(END_S), bob)
    for sock in socks:
        sock.close()


def test_a_missing_party_is_named_with_who_was_refused_meanwhile(
    pool, listener, keys, caplog, clock
):
    ann = start_ann(pool, listener, keys)
    with socket.create_connection(listener.getsockname()) as scanner:
        scanner.sendall(b"SSH-2.0-scanner\r\n" * 10)
        wait_for_note(caplog, "SSH-2.")
    clock.advance(100)
    with pytest.raises(LinkTimeout) as caught:
        ann.result(END_S)
    assert caught.value.party == "bob"
    assert "no connection from 'bob' within 60 s; is it running" in caught.value.reason
    assert "SSH-2." in caught.value.reason


@pytest.mark.parametrize("shows_bob", [False, True])
def test_silent_connections_do_not_keep_the_others_out(
    pool, listener, keys, shows_bob, monkeypatch
):
    # They are not given up before the others are in.
    monkeypatch.setattr("tacit.transport.dial.PREAMBLE_S", 1000.0)
    monkeypatch.setattr("tacit.transport.dial.GREETING_S", 1000.0)
    with contextlib.ExitStack() as idle:
        for _ in range(100):
            sock = idle.enter_context(socket.create_connection(listener.getsockname()))
            if shows_bob:
                show_certificate(sock, keys["bob"])
        ann, bob = (future.result(END_S) for future in start_pair(pool, listener, keys))
        close_all(ann, bob)


def test_a_flood_of_silent_connections_never_gets_a_party_blamed(listener, keys):
    with contextlib.ExitStack() as idle:
        for _ in range(100):
            sock = idle.enter_context(socket.create_connection(listener.getsockname()))
            show_certificate(sock, keys["bob"])
        peers, patience = {"bob": Peer(None, print_of(keys["bob"]))}, Patience(connect_s=1.5)
        with pytest.raises(LinkTimeout, match=r"no connection from 'bob' within 1\.5 s"):
            mesh("ann", peers, keys["ann"], listener, patience)


def test_nobody_at_the_address_is_an_error_that_says_so(keys):
    host, port = "127.0.0.1", free_port()
    peers, patience = {"ann": Peer((host, port), print_of(keys["ann"]))}, Patience(connect_s=0.5)
    with pytest.raises(LinkTimeout, match=f"no connection to 'ann' at {host}:{port} within 0.5 s"):
        mesh("bob", peers, keys["bob"], None, patience)


def test_those_already_connected_learn_who_is_missing(pool, listener, keys, clock):
    ann = start_ann(pool, listener, keys, awaits=("bob", "cat"))
    bob = mesh("bob", to_ann(listener, keys), keys["bob"])
    wait_for_heartbeat(bob["ann"])
    clock.advance(100)
    with pytest.raises(LinkTimeout, match="'cat'"):
        ann.result(END_S)
    with pytest.raises(PartyError) as caught:
        bob["ann"].recv("x/1")
    assert caught.value.party == "cat"
    close_all(bob)


def test_a_failure_of_a_connected_party_ends_the_wait_for_the_others(
    pool, listener, keys, monkeypatch
):
    monkeypatch.setattr("tacit.transport.meeting.FAREWELL_S", 60.0)
    ann = start_ann(pool, listener, keys, awaits=("bob", "dan"))
    with listen("127.0.0.1", 0) as at_cat:
        wrong = Peer(at_cat.getsockname(), print_of(keys["bob"])[:-8] + "00000000")
        cat = pool.submit(
            mesh, "cat", {"bob": Peer(None, print_of(keys["bob"]))}, keys["cat"], at_cat
        )
        with pytest.raises(HandshakeError) as at_bob:
            mesh("bob", {**to_ann(listener, keys), "cat": wrong}, keys["bob"])
        with pytest.raises(PartyError) as at_ann:
            ann.result(END_S)
        with pytest.raises(HandshakeError) as at_cat_itself:
            cat.result(END_S)
    assert (at_ann.value.party, at_ann.value.reason) == ("cat", at_bob.value.reason)
    assert at_cat_itself.value.party == "bob"


def test_a_connected_party_that_dies_ends_the_wait_for_the_others(pool, listener, keys):
    ann = start_ann(pool, listener, keys, awaits=("bob", "dan"))
    mesh("bob", to_ann(listener, keys), keys["bob"])["ann"].kill()
    with pytest.raises(LinkClosed) as caught:
        ann.result(END_S)
    assert caught.value.party == "bob"


def test_a_party_that_dials_again_at_once_replaces_its_broken_link(pool, listener, keys, clock):
    ann = start_ann(pool, listener, keys, awaits=("bob", "cat"))
    mesh("bob", to_ann(listener, keys), keys["bob"])["ann"].kill()
    bob = mesh("bob", to_ann(listener, keys), keys["bob"])
    wait_for_heartbeat(bob["ann"])
    clock.advance(1.3)  # longer than a broken link is waited for
    threading.Event().wait(0.2)
    cat = mesh("cat", to_ann(listener, keys), keys["cat"])
    links = ann.result(END_S)
    bob["ann"].send("x/1", frame_bytes(b"again"))
    assert bytes(links["bob"].recv("x/1").data) == b"again"
    close_all(links, bob, cat)


def test_what_a_party_sends_before_all_have_come_is_kept(pool, listener, keys):
    ann = start_ann(pool, listener, keys, awaits=("bob", "cat"))
    bob = mesh("bob", to_ann(listener, keys), keys["bob"])
    bob["ann"].send("x/1", frame_bytes(b"early"))
    close_all(bob)
    threading.Event().wait(0.2)
    cat = mesh("cat", to_ann(listener, keys), keys["cat"])
    links = ann.result(END_S)
    assert bytes(links["bob"].recv("x/1").data) == b"early"
    close_all(links, cat)


def test_another_name_for_the_same_key_is_a_difference_of_job_files(pool, listener, keys):
    ann = start_ann(pool, listener, keys)
    with pytest.raises(HandshakeError, match="job files differ"):
        mesh("robert", to_ann(listener, keys), keys["bob"])
    with pytest.raises(HandshakeError, match="job files differ"):
        ann.result(END_S)


def test_a_port_in_use_says_so(listener):
    host, port = listener.getsockname()
    with pytest.raises(ConfigError, match=f"{host}:{port}.*another program uses this port"):
        listen(host, port)


@pytest.mark.parametrize(
    ("host", "port"), [("no such host", 1), ("192.0.2.1", 0), ("", 70000), ("a..b", 1)]
)
def test_an_address_that_cannot_be_listened_on_says_so(host, port):
    with pytest.raises(ConfigError, match="cannot listen on"):
        listen(host, port)


def test_settings_that_cannot_work_are_refused(listener, keys):
    ann, bob = print_of(keys["ann"]), print_of(keys["bob"])
    with pytest.raises(ConfigError, match="neither 'ann' nor 'bob' has an address"):
        mesh("ann", {"bob": Peer(None, bob)}, keys["ann"])
    with pytest.raises(ConfigError, match="the same fingerprint"):
        mesh("ann", {"bob": Peer(None, ann)}, keys["ann"], listener)
    with pytest.raises(ConfigError, match="party name"):
        mesh("ann", {"b\nb": Peer(None, bob)}, keys["ann"], listener)
    for address in (("localhost", 0), ("localhost", 70000), ("a..b", 1), ("x" * 64, 1)):
        with pytest.raises(ConfigError):
            Peer(address, bob)


def test_unusable_key_files_are_refused_before_anything_is_dialled(listener, keys, tmp_path):
    peers = {"bob": Peer(None, print_of(keys["bob"]))}
    broken = tmp_path / "broken.pem"
    broken.write_text("not a certificate")
    for credentials in (
        Credentials(Path("/nowhere/a.pem"), Path("/nowhere/a.key")),
        Credentials(broken, keys["ann"].key_file),
        Credentials(keys["ann"].certificate_file, broken),
        Credentials(keys["ann"].certificate_file, keys["bob"].key_file),
    ):
        with pytest.raises(IdentityError):
            mesh("ann", peers, credentials, listener)


def test_a_flipped_bit_on_the_wire_breaks_the_link_with_a_name(pool, listener, keys):
    with listen("127.0.0.1", 0) as front:
        ann = start_ann(pool, listener, keys)
        bob = pool.submit(mesh, "bob", to_ann(front, keys), keys["bob"])
        flip = threading.Event()
        threading.Thread(
            target=pass_all_on, args=(front, listener.getsockname(), flip), daemon=True
        ).start()
        ann, bob = ann.result(END_S), bob.result(END_S)
        bob["ann"].send("x/1", frame_bytes(bytes(1000)))
        ann["bob"].recv("x/1")
        flip.set()
        bob["ann"].send("x/2", frame_bytes(bytes(1000)))
        with pytest.raises(LinkError) as caught:
            ann["bob"].recv("x/2")
        assert caught.value.party == "bob"
        close_all(ann, bob)


def pass_all_on(front: socket.socket, target: tuple[str, int], flip: threading.Event) -> None:
    """Pass every connection on until the door is closed."""
    front.settimeout(0.05)
    while front.fileno() >= 0:
        with contextlib.suppress(OSError):
            near, _ = front.accept()
            near.settimeout(None)
            start_proxy(near, socket.create_connection(target), flip)


def start_proxy(near: socket.socket, far: socket.socket, flip: threading.Event) -> None:
    """Pass one connection on, inverting one bit of every piece while ``flip`` is set."""

    def pump(source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while piece := source.recv(1 << 16):
                spoiled = bytearray(piece)
                if flip.is_set():
                    spoiled[-1] ^= 1
                sink.sendall(spoiled)
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_WR)

    def both() -> None:
        with near, far:
            back = threading.Thread(target=pump, args=(far, near))
            back.start()
            pump(near, far)
            back.join()

    threading.Thread(target=both).start()


def test_garbage_inside_tls_gives_only_link_errors(pool, listener, keys):
    # The garbage must not be written while a heart-beat is.
    patience = Patience(connect_s=60, silence_s=240, heartbeat_s=120)
    for i in range(10):
        pair = start_pair(pool, listener, keys, patience=patience)
        ann, bob = (future.result(END_S) for future in pair)
        sink = bob["ann"]._outlet._sink
        sink.send(bytes([i]) * 500)
        with pytest.raises(LinkError) as caught:
            ann["bob"].recv("x/1")
        assert caught.value.party == "bob"
        close_all(ann, bob)
