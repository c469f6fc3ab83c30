"""The shuffle model: unbiased means, and a shuffler that cannot drop, swap or repeat unnoticed."""

import numpy as np
import pytest
import torch

from tacit.crypto import make_key_pair
from tacit.dp import clip
from tacit.errors import PartyError
from tacit.federated.contract import RunOver, VoidRound, kind_of, pack, unpack
from tacit.federated.shuffled import (
    SHUFFLER,
    ShuffledClient,
    ShuffledPlan,
    ShuffledServer,
    Shuffler,
    dummies,
    encode,
    estimate,
    new_session,
)
from tacit.federated.shuffled.plan import PAYLOAD_BYTES
from tacit.federated.shuffled.roles import (
    BOX_BYTES,
    BUNDLES,
    COMPLAINED,
    CONFIRMED,
    RELEASED,
    TAG_BYTES,
    open_box,
    receipt_tag,
    round_of,
    seal_box,
    write_receipt,
)
from tacit.ring import Prg


def make_plan(clients=5, **changes):
    settings = {
        "clients": clients,
        "minimum": 3,
        "dimension": 6,
        "l2_bound": 1.0,
        "method": "coordinate",
        "reports": 4,
        "steps": 3,
        "local_epsilon": 2.0,
        "session": new_session(),
    }
    return ShuffledPlan(**{**settings, **changes})


class Scene:
    def __init__(self, clients=5):
        self.plan = make_plan(clients)
        self.keys, self.shuffler_keys = make_key_pair(), make_key_pair()
        self.server = ShuffledServer(self.plan, self.keys)
        self.shuffler = Shuffler(
            self.shuffler_keys, minimum=3, reports=self.plan.reports, prg=Prg.from_os()
        )
        self.clients = [
            ShuffledClient(invitation, shuffler=self.shuffler_keys.public, prg=Prg.from_os())
            for invitation in self.server.invite().values()
        ]

    def collect(self, senders):
        for index in senders:
            self.server.accept(index, self.clients[index].report(None))
        return self.server.close()[SHUFFLER]


@pytest.mark.parametrize(
    ("method", "steps", "reports"),
    [("coordinate", 1, 60000), ("coordinate", 4, 60000), ("direction", 1, 4000)],
)
def test_the_estimate_is_unbiased(method, steps, reports):
    plan = make_plan(method=method, steps=steps, reports=reports)
    x = torch.tensor([0.4, -0.3, 0.0, 0.2, -0.1, 0.6], dtype=torch.float64)
    prg = Prg(bytes(16))
    mean, refused = estimate(plan, encode(plan, clip(x, l2_bound=1.0), prg), clients=1)
    # Per coordinate, one report has a variance of about 9 · 1.7 (coordinate; d · 9 / d) times 8
    # places, or π/2 · 1.7 (direction). Six deviations; the key is fixed: it cannot flicker.
    variance = 8 * 9 * 1.7 if method == "coordinate" else 1.6 * 1.7
    assert np.abs(mean - x.numpy()).max() < 6 * (variance / reports) ** 0.5
    assert refused == 0


@pytest.mark.parametrize("method", ["coordinate", "direction"])
def test_dummies_say_nothing(method):
    plan = make_plan(method=method, reports=4000)
    mean, _ = estimate(plan, dummies(plan, Prg(bytes(16))), clients=1)
    assert np.abs(mean).max() < 6 * (8 * 9 * 1.7 / 4000) ** 0.5


def test_a_report_outside_the_domain_is_left_out():
    plan = make_plan(reports=2)
    good = dummies(plan, Prg.from_os())
    bad = (2**31).to_bytes(4, "little") + bytes(len(good[0]) - 4)
    _, refused = estimate(plan, [good[0], bad], clients=1)
    assert refused == 1


def test_a_round_goes_through_and_every_client_finds_its_reports():
    scene = Scene()
    scene.server.accept(SHUFFLER, scene.shuffler.shuffle(scene.collect(range(5))))
    receipts = scene.server.close()
    assert len({receipt[: -TAG_BYTES - 4] for receipt in receipts.values()}) == 1  # one for all
    for index, receipt in receipts.items():
        scene.server.accept(index, scene.clients[index].confirm(receipt))
    assert scene.server.close() == {}
    assert scene.server.mean().shape == (6,)


def test_a_shuffler_that_drops_a_report_is_named():
    scene = Scene()
    released = scene.shuffler.shuffle(scene.collect(range(5)))
    (body, tags) = unpack(released, RELEASED, "bb", sender="shuffler")
    scene.server.accept(SHUFFLER, pack(RELEASED, body[BOX_BYTES:], tags))
    with pytest.raises(VoidRound, match="'shuffler' failed: it was given 20 reports and returned"):
        scene.server.close()


def test_a_shuffler_that_swaps_a_report_for_its_own_is_named_by_the_client_and_ends_the_run():
    scene = Scene()
    (invitation, body) = unpack(scene.collect(range(5)), BUNDLES, "bb", sender="server")
    name, size = round_of(invitation), len(body) // 5
    inside = [
        open_box(scene.shuffler_keys, body[at : at + size], associated=name)
        for at in range(0, len(body), size)
    ]
    boxes = [one[16:][at : at + BOX_BYTES] for one in inside for at in range(0, 308, BOX_BYTES)]
    boxes[0] = seal_box(scene.keys.public, bytes(PAYLOAD_BYTES), associated=name)
    tags = [receipt_tag(one[:16], name, write_receipt(boxes)) for one in inside]
    scene.server.accept(SHUFFLER, pack(RELEASED, b"".join(boxes), b"".join(tags)))
    receipts = scene.server.close()
    said = [scene.clients[index].confirm(receipts[index]) for index in range(5)]
    assert [kind_of(one, sender="a client") for one in said] == [COMPLAINED, *[CONFIRMED] * 4]
    assert len(set(map(len, said))) == 1
    with pytest.raises(RunOver, match="'shuffler' failed: client 0 misses a report of its own"):
        scene.server.accept(0, said[0])


def test_a_crowd_below_the_plan_is_not_shuffled():
    with pytest.raises(VoidRound, match="2 clients reported, the plan wants 3"):
        Scene().collect([0, 1])
    scene = Scene()
    message = scene.collect(range(5))
    few = Shuffler(scene.shuffler_keys, minimum=6, reports=4, prg=Prg.from_os())
    with pytest.raises(VoidRound, match="5 clients reported, at least 6 are shuffled"):
        few.shuffle(message)


def test_a_shuffler_of_another_job_too_keeps_to_the_crowd_that_clients_count_on():
    """Its key serves two jobs, and the other one is content with two: ε was planned for three."""
    scene = Scene()
    scene.collect([0, 1, 2])
    bundles = b"".join(list(scene.server._bundles.values())[:2])
    (invitation,) = set(scene.server.invite().values())
    lax = Shuffler(scene.shuffler_keys, minimum=2, reports=4, prg=Prg.from_os())
    with pytest.raises(VoidRound, match="2 clients reported, at least 3 are shuffled"):
        lax.shuffle(pack(BUNDLES, invitation, bundles))


def test_the_same_round_is_not_shuffled_twice():
    scene = Scene()
    message = scene.collect(range(5))
    scene.shuffler.shuffle(message)
    with pytest.raises(PartyError, match="shuffle a round again"):
        scene.shuffler.shuffle(message)


def test_a_bundle_is_not_taken_twice():
    """Reports that come in pairs would be the victim's."""
    scene = Scene()
    (invitation, body) = unpack(scene.collect(range(5)), BUNDLES, "bb", sender="server")
    size = len(body) // 5
    with pytest.raises(PartyError, match="'server' failed: it gave the shuffler one bundle twice"):
        scene.shuffler.shuffle(pack(BUNDLES, invitation, body[size:] + body[-size:]))


def test_a_client_reports_once():
    scene = Scene()
    scene.clients[0].report(None)
    with pytest.raises(PartyError, match="a second time"):
        scene.clients[0].report(None)


def test_the_shuffler_sees_no_value_and_the_order_is_lost():
    scene = Scene()
    message = scene.collect(range(5))
    (invitation, body) = unpack(message, BUNDLES, "bb", sender="server")
    bundle, name = len(body) // 5, round_of(invitation)
    inside = []
    for at in range(5):
        opened = open_box(
            scene.shuffler_keys, body[at * bundle : (at + 1) * bundle], associated=name
        )
        inside += [opened[i : i + BOX_BYTES] for i in range(16, len(opened), BOX_BYTES)]
    (released, _) = unpack(scene.shuffler.shuffle(message), RELEASED, "bb", sender="shuffler")
    out = [released[i : i + BOX_BYTES] for i in range(0, len(released), BOX_BYTES)]
    assert sorted(out) == sorted(inside)
    assert out != inside  # 20! orders: chance 4e-19
