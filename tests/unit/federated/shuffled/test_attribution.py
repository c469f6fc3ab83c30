"""A server that does not hold to the protocol, and wants to know whose reports are whose."""

import math

import pytest
import torch
from scipy.stats import beta

from tacit.crypto import make_key_pair
from tacit.dp import DirectionReport, Shuffled, clip, epsilon, estimate_direction_sum
from tacit.errors import PartyError
from tacit.federated.contract import VoidRound, pack, records, unpack
from tacit.federated.shuffled import ShuffledClient, ShuffledPlan, Shuffler, new_session
from tacit.federated.shuffled.roles import (
    BOX_BYTES,
    BUNDLE,
    BUNDLES,
    DIGEST_BYTES,
    RECEIPT,
    RELEASED,
    TAG_BYTES,
    open_box,
    open_message,
    receipt_tag,
    round_of,
    write_receipt,
)
from tacit.ring import Prg

CLIENTS, LOCAL_EPSILON, DELTA = 8, 0.6, 1e-5


def make_plan(reports=8):
    return ShuffledPlan(
        clients=CLIENTS,
        minimum=3,
        dimension=6,
        l2_bound=1.0,
        method="direction",
        reports=reports,
        steps=1,
        local_epsilon=LOCAL_EPSILON,
        session=new_session(),
    )


class Run:
    """A round up to the receipt, as the server sees it; clients can be asked over and over."""

    def __init__(self, prg, servers=None):
        plan, self.shuffler = make_plan(), make_key_pair()
        servers = servers or [make_key_pair()] * CLIENTS
        self.invitations = [open_message(plan, one.public) for one in servers]
        clients = [
            ShuffledClient(one, shuffler=self.shuffler.public, prg=prg.fork(str(i)))
            for i, one in enumerate(self.invitations)
        ]
        self.bundles = [unpack(one.report(None), BUNDLE, "b", sender="")[0] for one in clients]
        self.saved = [one.save() for one in clients]

    def shuffle(self):
        worker = Shuffler(self.shuffler, minimum=3, reports=8, prg=Prg.from_os())
        message = pack(BUNDLES, self.invitations[0], b"".join(self.bundles))
        boxes, tags = unpack(worker.shuffle(message), RELEASED, "bb", sender="")
        return records(boxes, BOX_BYTES, sender=""), records(tags, TAG_BYTES, sender="")

    def ask(self, index, receipt, tag):
        """Return what a client answers, all that the server sees; always from the same state."""
        client = ShuffledClient(
            self.invitations[index], shuffler=self.shuffler.public, prg=Prg.from_os()
        )
        client.load(self.saved[index])
        try:
            return client.confirm(pack(RECEIPT, receipt, tag))
        except PartyError as error:
            return str(error)

    def owned(self, index):
        (_, mine) = unpack(self.saved[index], 65, "bb", sender="")
        return records(mine, DIGEST_BYTES, sender="")


def attribute(run, ask):
    """Leave out one report after the other and say whose it is, if one client answers unlike all.

    Returns how many reports were attributed, and how many of them rightly.
    """
    boxes, tags = run.shuffle()
    listed = records(write_receipt(boxes), DIGEST_BYTES, sender="")
    found = {}
    for one in listed:
        receipt = b"".join(other for other in listed if other != one)
        said = [ask(i, receipt, tags[i]) for i in range(CLIENTS)]
        odd = [i for i in range(CLIENTS) if said.count(said[i]) == 1]
        if len(odd) == 1:
            found[one] = odd[0]
    return len(found), sum(one in run.owned(i) for one, i in found.items())


def test_a_server_that_leaves_reports_out_of_receipts_attributes_none():
    run = Run(Prg(bytes(16)))
    assert attribute(run, run.ask) == (0, 0)


def test_it_attributed_all_while_a_client_told_how_many_it_missed():
    """Clients of 0.1 believed any receipt: this is what the attack is worth without a tag."""
    run = Run(Prg(bytes(16)))

    def tell(index, receipt, tag):
        return sum(one not in receipt for one in run.owned(index))

    assert attribute(run, tell) == (64, 64)


def test_forged_tags_and_the_tags_of_others_are_no_tags():
    run = Run(Prg(bytes(16)))
    boxes, tags = run.shuffle()
    receipt = write_receipt(boxes)
    honest = run.ask(0, receipt, tags[0])
    assert isinstance(honest, bytes)
    for tag in (tags[1], bytes(TAG_BYTES), receipt_tag(bytes(16), bytes(32), receipt)):
        assert "not one that the shuffler vouches for" in run.ask(0, receipt, tag)


def test_a_client_confirms_once():
    run = Run(Prg(bytes(16)))
    boxes, tags = run.shuffle()
    client = ShuffledClient(run.invitations[0], shuffler=run.shuffler.public, prg=Prg.from_os())
    client.load(run.saved[0])
    with pytest.raises(PartyError, match="not one that the shuffler vouches for"):
        client.confirm(pack(RECEIPT, b"", tags[0]))
    again = ShuffledClient(run.invitations[0], shuffler=run.shuffler.public, prg=Prg.from_os())
    again.load(client.save())
    with pytest.raises(PartyError, match="without a report, or again"):
        again.confirm(pack(RECEIPT, write_receipt(boxes), tags[0]))


def test_a_server_with_another_key_for_every_client_gets_no_report():
    """In 0.1 the key that opened a report said whose it was: all were attributed."""
    run = Run(Prg(bytes(16)), servers=[make_key_pair() for _ in range(CLIENTS)])
    with pytest.raises(VoidRound, match="1 clients reported, at least 3 are shuffled"):
        run.shuffle()


def leave_out(is_plus, prg, believes):
    """Return what a victim answers if the server leaves out what speaks for minus: one round.

    Its update is the first axis or the opposite; every other report is there.
    """
    plan, server, shuffler = make_plan(reports=1), make_key_pair(), make_key_pair()
    invitation = open_message(plan, server.public)
    client = ShuffledClient(invitation, shuffler=shuffler.public, prg=prg)
    update = torch.zeros(6, dtype=torch.float64)
    update[0] = 1.0 if is_plus else -1.0
    (bundle,) = unpack(client.report(clip(update, l2_bound=1.0)), BUNDLE, "b", sender="")
    name = round_of(invitation)
    box = open_box(shuffler, bundle, associated=name)[16:]  # the server sees it among others
    payload = open_box(server, box, associated=name)
    seed, sign = payload[:-1], payload[-1]
    side = direction(seed) * (1 if sign == 1 else -1)
    receipt = write_receipt([box] if side > 0 else [])
    if believes:
        return side <= 0  # its report is not on the list, and it says so
    try:
        return client.confirm(pack(RECEIPT, receipt, bytes(TAG_BYTES)))
    except PartyError as error:
        return str(error)


def direction(seed):
    report = DirectionReport(seed, 1)
    return float(estimate_direction_sum([report], dimension=6, l2_bound=1.0, epsilon=1.0)[0])


def measured_epsilon(believes, trials=700):
    """Bound ε from below by how often each answer comes, at 99.9 % for both rates together."""
    prg = Prg(b"\5" * 16)
    said = [
        [leave_out(is_plus, prg.fork(f"{is_plus}{i}"), believes) for i in range(trials)]
        for is_plus in (True, False)
    ]
    best = 0.0
    for answer in set(said[0]) | set(said[1]):
        for one, other in (said, said[::-1]):
            hits, misses = one.count(answer), other.count(answer)
            low = beta.ppf(2.5e-4, hits, trials - hits + 1) if hits else 0.0
            high = beta.ppf(1 - 2.5e-4, misses + 1, trials - misses) if misses < trials else 1.0
            if low > DELTA:
                best = max(best, math.log((low - DELTA) / high))
    return best


def test_one_answer_a_round_says_no_more_than_is_claimed():
    event = Shuffled(local_epsilon=LOCAL_EPSILON, clients=100)
    claimed = epsilon([event], delta=DELTA, accountant="fourier").epsilon
    assert claimed < 0.3
    assert measured_epsilon(believes=False, trials=100) <= claimed
    assert measured_epsilon(believes=True) > claimed  # a client of 0.1: the attack can see
