"""A link whose peer is a raw socket, so that the peer can do anything."""

import contextlib
import random
import socket
import struct
import threading
import time

import pytest

from support.machine import no_collector, unread_bytes
from tacit.errors import FrameError, LinkClosed, LinkTimeout, PartyError
from tacit.transport import LinkLimits, Meter, Patience, frame_bytes
from tacit.transport.frame import BYE, DATA, HEADER, HEARTBEAT, Packet, control, fail, make_head
from tacit.transport.stream import socket_link

PATIENCE = Patience(silence_s=60, heartbeat_s=0.1, stall_s=200)


class RawPeer:
    """The other end, byte by byte."""

    def __init__(self, patience: Patience = PATIENCE, limits: LinkLimits | None = None) -> None:
        out, self.reads = socket.socketpair()
        self.writes, back = socket.socketpair()
        self.link = socket_link(
            "eve", out, back, meter=Meter("me"), patience=patience, limits=limits or LinkLimits()
        )
        self.sequence = 0

    def say(self, packet: Packet) -> None:
        head = packet.head
        header = HEADER.pack(head.static, packet.depth, self.sequence, head.payload_bytes)
        self.sequence += 1
        self.writes.sendall(header + head.label + bytes(packet.frame.data))

    def end(self) -> None:
        self.writes.close()
        self.reads.close()
        self.link.close()


@pytest.fixture
def eve():
    peer = RawPeer()
    yield peer
    peer.end()


def data(tag: str, load: bytes = b"") -> Packet:
    return Packet(make_head(DATA, "online", tag, "u8", (len(load),)), 1, frame_bytes(load))


def test_silence_is_noticed():
    eve = RawPeer(Patience(silence_s=0.2, heartbeat_s=0.1, stall_s=30))
    with pytest.raises(LinkTimeout, match=r"'eve' failed: was silent for .* 'x/1' was wanted"):
        eve.link.recv("x/1")
    eve.end()


def test_dripping_bytes_do_not_hold_a_receiver_for_ever():
    eve = RawPeer(Patience(silence_s=2, heartbeat_s=0.1, stall_s=3))
    head = make_head(DATA, "online", "x/1", "u8", (1000,))
    header = HEADER.pack(head.static, 1, 0, 1000) + head.label
    done = threading.Event()

    def drip() -> None:
        for byte in header + bytes(1000):
            eve.writes.send(bytes([byte]))
            if done.wait(0.01):
                return

    thread = threading.Thread(target=drip)
    thread.start()
    with pytest.raises(LinkTimeout, match=r"alive but did not send 'x/1' within 3 s"):
        eve.link.recv("x/1")
    done.set()
    thread.join()
    eve.end()


def test_an_idle_link_sends_heartbeats(eve):
    eve.reads.settimeout(200)
    got = b""
    while len(got) < 2 * (HEADER.size + 8):
        got += eve.reads.recv(1000)
    static, _, sequence, _ = HEADER.unpack_from(got, HEADER.size + 8)
    assert (static[3], sequence) == (HEARTBEAT, 1)


def test_heartbeats_are_not_handed_out_nor_counted(eve):
    for packet in (control(HEARTBEAT), data("x/1", b"yes"), control(HEARTBEAT)):
        eve.say(packet)
    assert bytes(eve.link.recv("x/1").data) == b"yes"


@pytest.mark.parametrize("size", [1, 30, 200])
def test_garbage_is_refused_for_good(eve, size):
    eve.writes.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n" * 8)
    for _ in range(2):
        with pytest.raises(FrameError, match="wanted a frame starting with"):
            eve.link.recv("x/1")
    with pytest.raises(FrameError):
        eve.link.send("x/1", frame_bytes(bytes(size)))


@pytest.mark.parametrize("cut", [1, 27, 28, 35, 40, 60])
def test_a_truncated_frame_is_a_closed_link(eve, cut):
    head = make_head(DATA, "online", "x/1", "u8", (100,))
    whole = HEADER.pack(head.static, 1, 0, 100) + head.label + bytes(100)
    eve.writes.sendall(whole[:cut])
    eve.writes.close()
    with pytest.raises(LinkClosed, match="without saying goodbye"):
        eve.link.recv("x/1")


def test_a_failure_behind_data_comes_after_the_data(eve):
    eve.say(data("x/1", b"first"))
    eve.say(fail("dealer", "out of triples"))
    time.sleep(0.1)  # let the prefetcher see it
    assert bytes(eve.link.recv("x/1").data) == b"first"
    with pytest.raises(PartyError, match="party 'dealer' failed, says 'eve': out of triples"):
        eve.link.recv("x/2")


@pytest.mark.parametrize("party", ["dealer", "ann", "ann' failed: 'x"])
def test_what_a_peer_says_of_others_stays_its_word_wherever_it_is_told(eve, party):
    """A peer may blame anyone; every error made of its word names it, and logs print errors."""
    eve.say(fail(party, "cheated"))
    for _ in range(2):  # as it is read, and as it is found again
        with pytest.raises(PartyError) as caught:
            eve.link.recv("x/1")
        assert str(caught.value) == f"party {party!r} failed, says 'eve': cheated"


def test_what_a_peer_says_of_itself_is_no_hearsay(eve):
    eve.say(fail("eve", "out of triples"))
    with pytest.raises(PartyError, match=r"^party 'eve' failed: out of triples$") as caught:
        eve.link.recv("x/1")
    assert caught.value.said_by is None


def test_a_failure_is_found_when_sending_breaks(eve):
    eve.say(fail("dealer", "out of triples"))
    eve.reads.close()
    with pytest.raises(PartyError, match="'dealer' failed, says 'eve': out of triples"):
        eve.link.send("x/1", frame_bytes(bytes(10)))


def test_a_goodbye_is_found_when_sending_breaks(eve):
    eve.say(control(BYE))
    eve.reads.close()
    with pytest.raises(LinkClosed, match="finished before taking 'x/1'"):
        eve.link.send("x/1", frame_bytes(bytes(10)))


def test_a_broken_sending_lane_alone_ends_a_wait(eve):
    eve.reads.close()
    with pytest.raises(LinkClosed, match="the connection broke"):
        eve.link.recv("x/1")


def test_frames_are_read_ahead_only_up_to_the_limit():
    limits = LinkLimits(prefetch_bytes=1 << 20, stash_bytes=1 << 20)
    eve = RawPeer(limits=limits)
    eve.writes.settimeout(0.3)
    with pytest.raises(TimeoutError):  # noqa: PT012
        for i in range(100):
            eve.say(data(f"x/{i}", bytes(1 << 18)))
    assert eve.sequence <= 8
    eve.end()


def test_a_flood_of_empty_frames_is_bounded():
    eve = RawPeer(limits=LinkLimits(prefetch_bytes=1 << 16, stash_bytes=1 << 16))
    eve.writes.settimeout(0.3)
    with pytest.raises(TimeoutError):  # noqa: PT012
        for i in range(100_000):
            eve.say(data(f"x{i}/1"))
    eve.end()


@pytest.mark.parametrize("way", ["close", "kill"])
def test_a_link_that_ended_keeps_nothing_of_what_nobody_read(way):
    with no_collector():
        for _ in range(5):
            eve = RawPeer(limits=LinkLimits(prefetch_bytes=1 << 20, stash_bytes=1 << 20))
            for i in range(12):
                eve.say(data(f"junk{i}/1", bytes(1 << 14)))
            head = make_head(DATA, "online", "half/1", "u8", (1 << 20,))
            begun = HEADER.pack(head.static, 1, 12, 1 << 20) + head.label + bytes(1 << 17)
            eve.writes.sendall(begun)
            deadline = time.monotonic() + 60
            while unread_bytes() <= 1 << 20 and time.monotonic() < deadline:
                time.sleep(0.01)
            assert unread_bytes() > 1 << 20
            getattr(eve.link, way)()
            eve.end()
            del eve
            assert unread_bytes() == 0


def test_a_link_that_broke_keeps_nothing_of_what_nobody_read():
    with no_collector():
        for _ in range(5):
            eve = RawPeer(limits=LinkLimits(prefetch_bytes=1 << 16, stash_bytes=1 << 16))

            def flood(eve=eve) -> None:
                with contextlib.suppress(OSError):
                    for i in range(20):
                        eve.say(data(f"junk{i}/1", bytes(1 << 14)))

            flooding = threading.Thread(target=flood)
            flooding.start()
            with pytest.raises(PartyError, match="that nobody asked for"):
                eve.link.recv("wanted/1")
            eve.end()
            flooding.join(60)
            assert unread_bytes() < 1 << 15  # the last one, while the error is shown


def test_closing_gives_up_on_a_peer_that_does_not_read():
    eve = RawPeer(Patience(silence_s=0.3, heartbeat_s=0.1, stall_s=30))
    eve.link.send("x/1", frame_bytes(bytes(32 << 20)))
    eve.link.close()
    eve.end()


def test_live_links_survive_mutated_frames():
    draw = random.Random(3)  # noqa: S311  a seeded fuzzer keeps no secret
    head = make_head(DATA, "online", "x/1", "u8", (40,))
    whole = HEADER.pack(head.static, 1, 0, 40) + head.label + bytes(40)
    for _ in range(300):
        spoiled = bytearray(whole)
        if draw.random() < 0.5:
            spoiled[draw.randrange(39)] ^= 1 << draw.randrange(8)
        else:
            struct.pack_into("<Q", spoiled, 20, draw.getrandbits(64))
        eve = RawPeer()
        eve.writes.sendall(spoiled)
        eve.writes.close()
        with contextlib.suppress(PartyError):
            eve.link.recv("x/1")
        eve.end()
