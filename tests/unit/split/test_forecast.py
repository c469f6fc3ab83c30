"""The forecast is what the meter counts, to the byte and to the round."""

import pytest

from support.split import WIDTH, make_task, rows, run_split
from tacit.result import Traffic
from tacit.split import Compression, forecast


def online(cost):
    return sorted(
        (one for one in cost.traffic if one.phase == "online"),
        key=lambda one: (one.sender, one.receiver),
    )


@pytest.mark.parametrize(
    ("owners", "compression", "pace"),
    [
        (("clinic",), {}, {}),
        (("clinic",), {"kind": "randtopk-coded", "k": 3}, {"in_flight": 3, "checkpoint_every": 4}),
        (("clinic",), {"kind": "quantise", "bits": 3}, {"micro_batches": 3, "batch": 17}),
        (("clinic", "bank"), {"kind": "topk", "k": 2}, {"in_flight": 2, "micro_batches": 2}),
    ],
)
def test_every_byte_and_round_is_forecast(owners, compression, pace):
    task = make_task(owners=owners, compression=Compression(**compression), **pace)
    x, _ = rows(50, seed=3)
    found = run_split(task, questions=x)  # 13 batches of four: more than may be ahead
    plan = forecast(task, widths=dict.fromkeys(owners, WIDTH), rows=60, questions=(50, 4))
    for owner in owners:
        metered = found[owner]["cost"]
        mine = [one for one in plan.cost.traffic if owner in (one.sender, one.receiver)]
        assert online(metered) == mine
    deepest = max(found[name]["cost"].online_rounds for name in (*owners, "lab"))
    assert deepest == plan.cost.online_rounds


def test_an_l1_model_serves_an_amount_that_depends_on_the_values():
    task = make_task(compression=Compression(kind="l1"))
    assert forecast(task, widths={"clinic": WIDTH}, rows=60, questions=(5, 5)) is None


def test_a_resumed_training_sends_the_rest():
    task = make_task()
    rest = forecast(task, widths={"clinic": WIDTH}, rows=60, start=7)
    assert rest.cost.traffic[0] == Traffic(
        sender="clinic",
        receiver="lab",
        phase="online",
        messages=2,
        payload_bytes=2 * 20 * WIDTH * 4,
    )
    assert rest.cost.online_rounds == 4
