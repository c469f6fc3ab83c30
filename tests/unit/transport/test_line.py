"""Threads that wait on one link: each is woken for its own packet, and somebody always reads."""

import threading
import time

from tacit.transport import Meter, frame_bytes, memory_pair

CHANNELS = ("a", "b", "c", "d")


def waiting_threads(link, taken):
    """Start a thread on every channel, one after the other: the first of them reads."""
    threads = []
    for number, channel in enumerate(CHANNELS):

        def take(tag=f"{channel}/1"):
            taken.append(bytes(link.recv(tag).data))

        threads.append(threading.Thread(target=take))
        threads[-1].start()
        while len(link._waiters) < number:
            time.sleep(0.001)
    return threads


def test_a_packet_wakes_the_thread_that_waits_for_it_and_no_other():
    ann, bob = memory_pair("ann", "bob", meter_a=Meter("ann"), meter_b=Meter("bob"))
    taken: list[bytes] = []
    threads = waiting_threads(bob, taken)
    woken: list[str] = []
    while len(waiters := list(bob._waiters)) < len(CHANNELS) - 1:
        time.sleep(0.001)  # a waiter looks at the clock now and then
    for waiter in waiters:
        original = waiter.woken.notify

        def notify(n=1, channel=waiter.channel, original=original):
            woken.append(channel)
            original(n)

        waiter.woken.notify = notify
    ann.send("c/1", frame_bytes(b"c"))
    threads[2].join(200)
    assert (taken, woken) == ([b"c"], ["c"])
    for channel in ("a", "d", "b"):
        ann.send(f"{channel}/1", frame_bytes(channel.encode()))
    for thread in threads:
        thread.join(200)
    assert sorted(taken) == [b"a", b"b", b"c", b"d"]
    ann.close()
    bob.close()


def test_every_thread_gets_its_packet_whoever_reads():
    ann, bob = memory_pair("ann", "bob", meter_a=Meter("ann"), meter_b=Meter("bob"))
    for _ in range(50):
        taken: list[bytes] = []
        threads = waiting_threads(bob, taken)
        for channel in reversed(CHANNELS):
            ann.send(f"{channel}/1", frame_bytes(channel.encode()))
        for thread in threads:
            thread.join(200)
        assert sorted(taken) == [b"a", b"b", b"c", b"d"]
    ann.close()
    bob.close()
