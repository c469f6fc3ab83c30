import math
import time

import pytest

from tacit.errors import ConfigError, LinkClosed, PartyError
from tacit.transport import (
    Frame,
    Meter,
    Patience,
    Received,
    Recorded,
    ShapedLink,
    frame_bytes,
    memory_pair,
)


def shaped_pair(**network: float):
    meters = Meter("ann"), Meter("bob")
    patience = Patience(silence_s=60, heartbeat_s=1, stall_s=200)
    ann, bob = memory_pair("ann", "bob", meter_a=meters[0], meter_b=meters[1], patience=patience)
    return ShapedLink(ann, **network), ShapedLink(bob, **network), meters


def close(*links) -> None:
    for link in links:
        link.close()


def test_a_frame_arrives_half_a_round_trip_later():
    ann, bob, _ = shaped_pair(rtt_ms=60)
    begun = time.monotonic()
    ann.send("x/1", frame_bytes(b"1"))
    bob.recv("x/1")
    assert time.monotonic() - begun >= 0.03
    close(ann, bob)


def test_the_sender_does_not_wait_for_the_network():
    ann, bob, _ = shaped_pair(rtt_ms=86_400_000)  # a day: the test would not end
    ann.send("x/1", frame_bytes(b"1"))
    ann.close(failure=("ann", "gave up"))
    close(bob)


def test_frames_queue_for_the_bandwidth():
    ann, bob, _ = shaped_pair(mbit_per_s=8)  # a byte per microsecond
    begun = time.monotonic()
    for i in range(3):
        ann.send(f"x/{i}", frame_bytes(bytes(20_000)))
    arrivals = []
    for i in range(3):
        bob.recv(f"x/{i}")
        arrivals.append(time.monotonic() - begun)
    assert all(at >= 0.02 * (i + 1) for i, at in enumerate(arrivals))
    close(ann, bob)


def test_the_chain_is_that_of_the_moment_of_sending():
    ann, bob, meters = shaped_pair(rtt_ms=40)
    ann.send("a/1", frame_bytes(b""))
    bob.send("b/1", frame_bytes(b""))
    ann.recv("b/1")
    bob.recv("a/1")
    assert [meter.rounds("online") for meter in meters] == [1, 1]
    close(ann, bob)


def test_closing_lets_out_what_is_under_way():
    ann, bob, _ = shaped_pair(rtt_ms=50)
    ann.send("x/1", frame_bytes(b"late"))
    ann.close()
    assert bytes(bob.recv("x/1").data) == b"late"
    close(bob)


def test_a_failure_does_not_wait_for_the_network():
    ann, bob, _ = shaped_pair(mbit_per_s=0.001)
    ann.send("x/1", frame_bytes(bytes(1 << 20)))  # would take more than two hours
    ann.close(failure=("ann", "gave up"))
    with pytest.raises(PartyError, match="gave up"):
        bob.recv("x/1")
    close(bob)


def test_a_peer_that_is_gone_is_reported_by_a_later_send():
    ann, bob, _ = shaped_pair(rtt_ms=1)
    bob.close()
    with pytest.raises(LinkClosed):  # noqa: PT012
        for i in range(200):
            ann.send(f"x/{i}", frame_bytes(b""))
            time.sleep(0.01)
    close(ann)


def test_a_link_can_become_another_network():
    ann, bob, _ = shaped_pair()
    ann.reshape(rtt_ms=100, mbit_per_s=1000)
    began = time.monotonic()
    ann.send("x/1", frame_bytes(b"later"))
    assert bytes(bob.recv("x/1").data) == b"later"
    assert time.monotonic() - began >= 0.05
    close(ann, bob)


@pytest.mark.parametrize(
    "network", [{"rtt_ms": -1}, {"rtt_ms": math.inf}, {"mbit_per_s": 0}, {"mbit_per_s": math.nan}]
)
def test_an_impossible_network_is_refused(network):
    with pytest.raises(ConfigError, match="rtt_ms"):
        shaped_pair(**network)


def test_a_record_holds_what_was_handed_out_and_nothing_else():
    ann, bob = memory_pair("ann", "bob", meter_a=Meter("ann"), meter_b=Meter("bob"))
    spy = Recorded(bob)
    ann.send("a/1", frame_bytes(b"one"), phase="offline")
    ann.send("b/1", Frame("i32", (2,), memoryview(bytes(8))))
    ann.send("c/1", frame_bytes(b"never asked for"))
    spy.recv("b/1").data[:] = b"\xff" * 8  # the record is a copy
    spy.recv("a/1")
    spy.send("d/1", frame_bytes(b"sent"))
    assert spy.received == [
        Received("b/1", "online", "i32", (2,), bytes(8)),
        Received("a/1", "offline", "u8", (3,), b"one"),
    ]
    assert bytes(ann.recv("d/1").data) == b"sent"
    ann.close()
    spy.close()
