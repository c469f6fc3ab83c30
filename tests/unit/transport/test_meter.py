import threading

from tacit.result import Traffic
from tacit.transport import Meter


def test_traffic_is_sorted_by_peer_and_phase():
    meter = Meter("me")
    meter.count_sent("zoe", "online", 5)
    meter.count_sent("ann", "online", 1)
    meter.count_sent("ann", "setup", 2)
    meter.count_sent("ann", "online", 3)
    assert meter.traffic() == (
        Traffic(sender="me", receiver="ann", phase="setup", messages=1, payload_bytes=2),
        Traffic(sender="me", receiver="ann", phase="online", messages=2, payload_bytes=4),
        Traffic(sender="me", receiver="zoe", phase="online", messages=1, payload_bytes=5),
    )


def test_sending_does_not_lengthen_the_senders_own_chain():
    meter = Meter("me")
    assert [meter.count_sent("ann", "online", 0) for _ in range(3)] == [1, 1, 1]
    assert meter.rounds("online") == 1


def test_a_message_extends_what_was_received_before_it():
    meter = Meter("me")
    meter.count_taken("ann", "online", 0, 7)
    meter.count_taken("bob", "online", 0, 3)
    assert meter.count_sent("bob", "online", 0) == 8
    assert meter.rounds("online") == 8


def test_phases_have_chains_of_their_own_and_setup_has_none():
    meter = Meter("me")
    meter.count_taken("ann", "offline", 0, 4)
    assert meter.count_sent("ann", "online", 0) == 1
    assert meter.count_sent("ann", "setup", 0) == 0
    assert [meter.rounds(phase) for phase in ("setup", "offline", "online")] == [0, 4, 1]


def test_a_lying_peer_cannot_overflow_the_depth():
    meter = Meter("me")
    meter.count_taken("ann", "online", 0, 2**32 - 1)
    assert meter.count_sent("ann", "online", 0) == 2**32 - 1


def test_threads_do_not_lose_counts():
    meter = Meter("me")

    def count() -> None:
        for _ in range(2000):
            meter.count_sent("ann", "online", 2)

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (meter.traffic()[0].messages, meter.traffic()[0].payload_bytes) == (8000, 16000)
