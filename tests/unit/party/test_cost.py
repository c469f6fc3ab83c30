import pytest

from tacit.party.cost import CostedMessage, CostTally, exchange, forecast_seconds
from tacit.result import Cost, Traffic


def tally(*rounds):
    counted = CostTally()
    counted.add(rounds, "online")
    return counted.cost()


def test_messages_sent_at_once_are_one_round():
    cost = tally(exchange("a", "b", 8), exchange("a", "b", 8))
    assert cost.online_rounds == 2
    assert sum(entry.payload_bytes for entry in cost.traffic) == 32


def test_messages_that_do_not_wait_for_each_other_make_no_chain():
    cost = tally(
        (CostedMessage("a", "b", 1),), (CostedMessage("a", "b", 1),), (CostedMessage("a", "c", 1),)
    )
    assert cost.online_rounds == 1


def test_a_reply_is_a_round_of_its_own_through_any_number_of_parties():
    cost = tally(
        (CostedMessage("a", "b", 1),), (CostedMessage("b", "c", 1),), (CostedMessage("c", "a", 1),)
    )
    assert cost.online_rounds == 3


def test_the_forecast_counts_half_a_round_trip_per_round_and_the_busiest_direction():
    traffic = (
        Traffic(sender="a", receiver="b", phase="online", messages=1, payload_bytes=1_000_000),
        Traffic(sender="b", receiver="a", phase="online", messages=1, payload_bytes=250_000),
    )
    cost = Cost(traffic=traffic, offline_rounds=0, online_rounds=3)
    timing = forecast_seconds(cost, rtt_ms=40, mbit_per_s=80)
    assert timing.online_seconds == pytest.approx(3 * 0.020 + 0.1)
    assert timing.offline_seconds == 0
