"""One suite over every kind of link: what `tacit.transport.Link` promises."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import pytest

from tacit.crypto import make_identity
from tacit.errors import (
    DisagreementError,
    InputError,
    LinkClosed,
    LinkError,
    LinkTimeout,
    PartyError,
)
from tacit.transport import (
    Credentials,
    Frame,
    Link,
    LinkLimits,
    Meter,
    Patience,
    Peer,
    Recorded,
    ShapedLink,
    faulty_pair,
    fingerprint,
    frame_bytes,
    listen,
    memory_pair,
    mesh,
)

QUICK = Patience(connect_s=60, silence_s=60, heartbeat_s=0.1, stall_s=200)
MB = 1 << 20


@dataclass
class Ends:
    """Both ends of a link between ann and bob."""

    ann: Link
    bob: Link
    ann_meter: Meter
    bob_meter: Meter
    kill_ann: Callable[[], None]


@pytest.fixture(scope="session")
def credentials(tmp_path_factory) -> dict[str, Credentials]:
    folder = tmp_path_factory.mktemp("keys")
    made = {name: make_identity(name, folder) for name in ("ann", "bob")}
    return {name: Credentials(one.certificate_file, one.key_file) for name, one in made.items()}


def tls_pair(credentials, meters, patience, limits):
    prints = {name: fingerprint(made.certificate()) for name, made in credentials.items()}

    def join(me: str, other: str, listener: socket.socket | None, address) -> Link:
        links = mesh(
            me,
            {other: Peer(address, prints[other])},
            credentials=credentials[me],
            listener=listener,
            meter=meters[me],
            patience=patience,
            limits=limits,
        )
        return links[other]

    with listen("127.0.0.1", 0) as listener, ThreadPoolExecutor(2) as pool:
        ann = pool.submit(join, "ann", "bob", listener, None)
        bob = pool.submit(join, "bob", "ann", None, listener.getsockname())
        return ann.result(), bob.result()


def make_ends(kind: str, credentials, *, patience=QUICK, limits=None) -> Ends:
    limits = limits or LinkLimits()
    meters = {name: Meter(name) for name in ("ann", "bob")}
    common = {"meter_a": meters["ann"], "meter_b": meters["bob"]}
    settings = {"patience": patience, "limits": limits}
    base, _, wrapper = kind.partition("+")
    if base == "memory":
        ann, bob = memory_pair("ann", "bob", **common, **settings)
    elif base == "streams":
        ann, bob = faulty_pair("ann", "bob", faults={}, **common, **settings)
    else:
        ann, bob = tls_pair(credentials, meters, patience, limits)
    kill = ann.kill
    if wrapper == "recorded":
        ann, bob = Recorded(ann), Recorded(bob)
    elif wrapper == "shaped":
        ann, bob = (ShapedLink(end, rtt_ms=0.5, mbit_per_s=20_000) for end in (ann, bob))
    return Ends(ann, bob, meters["ann"], meters["bob"], kill)


LINKS = ("memory", "tls", "streams", "memory+recorded", "tls+shaped", "memory+shaped")
STREAMED = ("tls", "streams")


@pytest.fixture(params=LINKS)
def kind(request) -> str:
    return request.param


@pytest.fixture
def ends(kind, credentials) -> Iterator[Ends]:
    before = set(threading.enumerate())
    made = make_ends(kind, credentials)
    yield made
    made.ann.close()
    made.bob.close()
    left = {thread.name for thread in set(threading.enumerate()) - before}
    assert not {name for name in left if name.startswith("tacit-") and name != "tacit-meet"}


def text(frame: Frame) -> bytes:
    return bytes(frame.data)


def test_a_frame_arrives_with_type_shape_and_bytes(ends):
    array = np.arange(24, dtype=np.int64).reshape(2, 3, 4)
    ends.ann.send("x/1", Frame("i64", array.shape, array.data))
    got = ends.bob.recv("x/1")
    assert (got.dtype, got.shape) == ("i64", (2, 3, 4))
    assert np.array_equal(np.frombuffer(got.data, np.int64).reshape(got.shape), array)
    assert (ends.ann.peer, ends.bob.peer) == ("bob", "ann")


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1,) * 8])
def test_odd_shapes_survive(ends, shape):
    array = np.zeros(shape, np.float32)
    ends.ann.send("x/odd", Frame("f32", shape, array.data))
    got = ends.bob.recv("x/odd")
    assert (got.shape, got.data.nbytes) == (shape, array.nbytes)


def test_the_receiver_owns_what_it_gets(ends):
    sent = np.zeros(16, np.uint8)
    ends.ann.send("x/own", Frame("u8", (16,), sent.data))
    got = ends.bob.recv("x/own")
    got.data[:] = b"\xff" * 16
    assert not sent.any()


def test_frames_keep_their_order_within_a_channel(ends):
    for i in range(300):
        ends.ann.send(f"a/{i}", frame_bytes(b"%d" % i))
    assert [text(ends.bob.recv(f"a/{i}")) for i in range(300)] == [b"%d" % i for i in range(300)]


def test_a_channel_does_not_wait_for_another(ends):
    ends.ann.send("one/1", frame_bytes(b"1"))
    ends.ann.send("two/1", frame_bytes(b"2"))
    ends.ann.send("one/2", frame_bytes(b"3"))
    assert text(ends.bob.recv("two/1")) == b"2"
    assert text(ends.bob.recv("one/1")) == b"1"
    assert text(ends.bob.recv("one/2")) == b"3"


def test_two_threads_can_wait_on_two_channels(ends):
    with ThreadPoolExecutor(2) as pool:
        one, two = (pool.submit(ends.bob.recv, tag) for tag in ("one/x", "two/x"))
        time.sleep(0.05)
        ends.ann.send("two/x", frame_bytes(b"2"))
        assert text(two.result(200)) == b"2"
        ends.ann.send("one/x", frame_bytes(b"1"))
        assert text(one.result(200)) == b"1"


def test_many_threads_can_send_at_once(ends):
    def burst(channel: int) -> None:
        for i in range(50):
            ends.ann.send(f"{channel}/{i}", frame_bytes(bytes(channel * 40_000)))

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(burst, range(3)))
        for channel in range(3):
            for i in range(50):
                assert ends.bob.recv(f"{channel}/{i}").data.nbytes == channel * 40_000


def test_another_tag_than_wanted_is_a_disagreement(ends):
    ends.ann.send("step/4", frame_bytes(b""))
    with pytest.raises(DisagreementError, match=r"wanted 'step/5', got 'step/4'") as caught:
        ends.bob.recv("step/5")
    assert caught.value.party == "ann"


def test_a_frame_of_64_mb_arrives_whole(ends):
    words = np.arange(8 * MB, dtype=np.int64)
    ends.ann.send("big/x", Frame("i64", words.shape, words.data))
    got = ends.bob.recv("big/x")
    assert np.array_equal(np.frombuffer(got.data, np.int64), words)


def test_both_sides_may_send_50_mb_before_they_receive(ends):
    load = np.full(50 * MB, 7, np.uint8)

    def swap(link: Link) -> int:
        for i in range(2):
            link.send(f"swap/{i}", Frame("u8", (25 * MB,), load[: 25 * MB].data))
        return sum(link.recv(f"swap/{i}").data.nbytes for i in range(2))

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(swap, (ends.ann, ends.bob))) == [50 * MB, 50 * MB]


@pytest.mark.parametrize("kind", LINKS)
def test_a_full_queue_makes_the_sender_wait_and_not_fail(kind, credentials):
    limits = LinkLimits(queue_bytes=MB, prefetch_bytes=MB, stash_bytes=MB)
    ends = make_ends(kind, credentials, limits=limits)
    load = frame_bytes(bytes(MB))

    def send_all() -> None:
        for i in range(40):
            ends.ann.send(f"x/{i}", load)

    with ThreadPoolExecutor(1) as pool:
        sending = pool.submit(send_all)
        assert sum(ends.bob.recv(f"x/{i}").data.nbytes for i in range(40)) == 40 * MB
        sending.result(200)
    ends.ann.close()
    ends.bob.close()


@pytest.mark.parametrize("kind", LINKS)
def test_frames_that_nobody_asks_for_are_bounded(kind, credentials):
    limits = LinkLimits(queue_bytes=MB, prefetch_bytes=MB, stash_bytes=2 * MB)
    ends = make_ends(kind, credentials, limits=limits)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(ends.bob.recv, "wanted/x")
        with pytest.raises(LinkError, match="nobody asked for"):  # noqa: PT012
            for i in range(4):
                ends.ann.send(f"other/{i}", frame_bytes(bytes(MB)))
            waiting.result(200)
    ends.bob.close()
    ends.ann.close(failure=("ann", "over"))


def test_meters_of_both_ends_agree(ends):
    ends.ann.send("s/1", frame_bytes(bytes(10)), phase="setup")
    ends.ann.send("o/1", frame_bytes(bytes(20)), phase="offline")
    ends.ann.send("x/1", frame_bytes(bytes(30)))
    ends.ann.send("x/2", frame_bytes(bytes(5)))
    for tag in ("s/1", "o/1", "x/1", "x/2"):
        ends.bob.recv(tag)
    sent = [(t.phase, t.messages, t.payload_bytes) for t in ends.ann_meter.traffic()]
    assert sent == [("setup", 1, 10), ("offline", 1, 20), ("online", 2, 35)]
    assert ends.ann_meter.traffic() == ends.bob_meter.arrivals()
    assert ends.bob_meter.traffic() == ()


def test_the_chain_counts_messages_that_wait_for_each_other(ends):
    for i in range(5):
        ends.ann.send(f"go/{i}", frame_bytes(b"ping"))
        ends.bob.recv(f"go/{i}")
        ends.bob.send(f"back/{i}", frame_bytes(b"pong"))
        ends.ann.recv(f"back/{i}")
    assert ends.ann_meter.rounds("online") == ends.bob_meter.rounds("online") == 10
    assert ends.ann_meter.rounds("offline") == ends.ann_meter.rounds("setup") == 0


def test_messages_side_by_side_are_one_round(ends):
    for i in range(4):
        ends.ann.send(f"a/{i}", frame_bytes(b""))
        ends.bob.send(f"b/{i}", frame_bytes(b""))
    for i in range(4):
        ends.bob.recv(f"a/{i}")
        ends.ann.recv(f"b/{i}")
    assert ends.ann_meter.rounds("online") == ends.bob_meter.rounds("online") == 1


def test_what_was_sent_before_a_goodbye_still_arrives(ends):
    ends.ann.send("x/1", frame_bytes(bytes(3 * MB)))
    ends.ann.send("x/2", frame_bytes(b"last"))
    ends.ann.close()
    assert ends.bob.recv("x/1").data.nbytes == 3 * MB
    assert text(ends.bob.recv("x/2")) == b"last"
    with pytest.raises(LinkClosed, match=r"'ann' failed: finished before sending 'x/3'"):
        ends.bob.recv("x/3")


def test_a_waiting_receiver_learns_of_the_goodbye(ends):
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(ends.bob.recv, "x/1")
        time.sleep(0.05)
        ends.ann.close()
        with pytest.raises(LinkClosed, match="finished before sending 'x/1'"):
            waiting.result(200)


def test_a_failure_names_the_party_that_failed_not_the_messenger(ends):
    ends.ann.close(failure=("dealer", "ran out of\nmemory\x1b[31m"))
    for _ in range(2):
        with pytest.raises(PartyError) as caught:
            ends.bob.recv("x/1")
        assert caught.value.party == "dealer"
        assert caught.value.reason == "ran out of memory?[31m"


def test_a_failure_reaches_a_sender_too(ends):
    ends.ann.close(failure=("dealer", "crashed"))
    with pytest.raises(PartyError) as caught:  # noqa: PT012
        for i in range(1000):
            ends.bob.send(f"x/{i}", frame_bytes(bytes(100_000)))
            time.sleep(0.01)
    assert (caught.value.party, caught.value.reason) == ("dealer", "crashed")


def test_a_peer_that_dies_is_named(ends):
    ends.kill_ann()
    with pytest.raises(LinkClosed) as caught:
        ends.bob.recv("x/1")
    assert caught.value.party == "ann"


def test_a_sender_learns_that_its_peer_died(ends):
    ends.kill_ann()
    with pytest.raises(LinkClosed) as caught:  # noqa: PT012
        for i in range(1000):
            ends.bob.send(f"x/{i}", frame_bytes(bytes(100_000)))
            time.sleep(0.01)
    assert caught.value.party == "ann"


def test_closing_twice_is_closing_once(ends):
    ends.ann.close()
    ends.ann.close()
    ends.ann.close(failure=("ann", "too late"))
    with pytest.raises(LinkClosed, match="finished"):
        ends.bob.recv("x/1")


def test_a_closed_end_neither_sends_nor_receives(ends):
    ends.ann.close()
    with pytest.raises(LinkClosed, match="this end of the link is closed"):
        ends.ann.recv("x/1")
    with pytest.raises(LinkClosed, match="this end of the link is closed"):
        ends.ann.send("x/1", frame_bytes(b""))


def test_closing_ends_a_wait_in_another_thread(ends):
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(ends.bob.recv, "x/1")
        time.sleep(0.05)
        ends.bob.close()
        with pytest.raises(LinkClosed):
            waiting.result(200)


@pytest.mark.parametrize("kind", LINKS)
def test_a_lively_peer_that_does_not_send_times_out(kind, credentials):
    # Heart-beats must come in time on a busy machine too; between threads there is no silence.
    stall_s = 0.5 if kind.startswith("memory") else 4
    patience = Patience(silence_s=3, heartbeat_s=0.05, stall_s=stall_s)
    ends = make_ends(kind, credentials, patience=patience)
    with pytest.raises(LinkTimeout, match=f"alive but did not send 'x/1' within {stall_s:g} s"):
        ends.bob.recv("x/1")
    ends.ann.close()
    ends.bob.close()


# A shaped link never makes its sender wait.
@pytest.mark.parametrize("kind", ["memory", *STREAMED])
def test_a_sender_whose_peer_takes_nothing_times_out(kind, credentials):
    limits = LinkLimits(queue_bytes=MB, prefetch_bytes=MB, stash_bytes=MB)
    patience = Patience(silence_s=0.5, heartbeat_s=0.1, stall_s=0.5)
    ends = make_ends(kind, credentials, patience=patience, limits=limits)
    with pytest.raises(LinkTimeout) as caught:  # noqa: PT012
        for i in range(400):
            ends.ann.send(f"x/{i}", frame_bytes(bytes(MB)))
            time.sleep(0.005)
    assert caught.value.party == "bob"
    ends.ann.close()
    ends.bob.close()


@pytest.mark.parametrize("tag", ["", "x" * 65, "tab\t/1", "ümlaut/1"])
def test_a_tag_that_cannot_travel_is_refused_here(ends, tag):
    with pytest.raises(InputError, match="printable ASCII"):
        ends.ann.send(tag, frame_bytes(b""))


@pytest.mark.parametrize(
    "frame",
    [
        Frame("i64", (3,), memoryview(bytes(8))),
        Frame("i16", (4,), memoryview(bytes(8))),
        Frame("u8", (1,) * 9, memoryview(bytes(1))),
        Frame("u8", (-2, -4), memoryview(bytes(8))),
        Frame("u8", (4,), memoryview(bytes(8))[::2]),
    ],
)
def test_a_frame_that_contradicts_itself_is_refused_here(ends, frame):
    with pytest.raises(InputError):
        ends.ann.send("x/1", frame)


def test_a_frame_over_the_limit_is_refused_here(credentials):
    ends = make_ends("memory", credentials, limits=LinkLimits(max_frame_bytes=10))
    with pytest.raises(InputError, match="split it"):
        ends.ann.send("x/1", frame_bytes(bytes(11)))
