"""Sums of updates that two servers check on shares: whatever a client does, its clip holds."""

import numpy as np
import pytest
import torch

from tacit.errors import ConfigError, DataError
from tacit.federated.bounded import NormCheck, send_update, share_update, sum_checked
from tacit.federated.contract import VoidRound
from tacit.mpc import Roles
from tacit.party import Meeting, run_threads, without_setup
from tacit.ring import Prg

ROLES = Roles("server", "checker", "dealer")
CLIENTS = tuple(f"client {i}" for i in range(4))
DIMENSION = 50


def make_check(**changes):
    settings = {
        "clients": CLIENTS,
        "roles": ROLES,
        "dimension": DIMENSION,
        "clip": 1.0,
        "scale": 4096.0,
    }
    return NormCheck(**{**settings, **changes})


def updates():
    found = np.random.default_rng(3).normal(size=(4, DIMENSION))
    return found / np.linalg.norm(found, axis=1, keepdims=True) * [[1.0], [0.5], [0.9], [0.0]]


def run(check, cheat=None, silent=()):
    """Run all parties; ``cheat`` is what the first client shares, in words."""
    values = updates()

    def party(session):
        me = session.me
        if me not in check.clients:
            return sum_checked(session, check), session.cost()
        if me in silent:
            session.send("server", "update/seed", torch.zeros(3, dtype=torch.uint8))
            session.send("checker", "update/words", torch.zeros(3, dtype=torch.int64))
        elif me == CLIENTS[0] and cheat is not None:
            seed = bytes(16)
            session.send("server", "update/seed", torch.zeros(16, dtype=torch.uint8))
            share = torch.from_numpy(cheat) - Prg(seed).words((check.dimension,))
            session.send("checker", "update/words", share)
        else:
            send_update(session, check, values[CLIENTS.index(me)], Prg.from_os())
        return None

    parties = (*check.clients, *ROLES.computing, ROLES.dealer)
    meeting = Meeting(parties=parties, job_digest=bytes(32))
    return run_threads(dict.fromkeys(parties, party), meeting)


def test_the_sum_is_that_of_all_honest_clients():
    found = run(make_check())
    result, _ = found["server"]
    assert result.counted == CLIENTS
    assert np.abs(result.total - updates().sum(axis=0)).max() <= 4 / 4096
    assert found["checker"][0].total is None
    assert found["dealer"][0] is None


@pytest.mark.parametrize(
    ("clip", "values"),
    [
        (10.9, [6.51, 6.51, 5.51, 1.51]),
        (3**0.5, [1.0, 1.0, 1.0, 0.0]),
        (2.0, [0.0, -2.0, 0.0, 0.0]),
    ],
)
def test_an_honest_update_is_within_the_clip_however_coarse_its_units(clip, values):
    """Rounded to the nearest the first is longer; the square of the second clip is below 3."""
    check = make_check(dimension=4, clip=clip, scale=1.0)
    assert np.linalg.norm(values) <= check.clip
    seed, share = share_update(check, np.array(values), Prg.from_os())
    assert np.square((share + Prg(seed).words((4,))).numpy()).sum() <= check.most


def cheats():
    """List words that are longer than the clip, in every way that wrapping around could hide."""
    one = np.zeros(DIMENSION, np.int64)
    for bit in range(13, 63):
        for sign in (1, -1):
            word = one.copy()
            word[bit % DIMENSION] = sign * (1 << bit)
            yield f"{sign} · 2^{bit}", word
    yield "all at half the clip", np.full(DIMENSION, 2048)
    yield "just longer", np.full(DIMENSION, 580)  # √50 · 580 = 4,101 of 4,096 units
    # Squares that are 0 modulo 2^64, and squares whose sum wraps around to almost nothing.
    yield "roots of zero", np.full(DIMENSION, 1 << 32)
    wrapping = one.copy()
    wrapping[:16] = 1 << 30  # 16 · 2^60 = 2^64
    yield "wrapping squares", wrapping
    yield "two that cancel", np.where(np.arange(DIMENSION) < 2, [1 << 50, -(1 << 50)] * 25, 0)
    yield "random words", Prg(bytes(16)).words((DIMENSION,)).numpy()


@pytest.fixture(scope="module")
def judged():
    """Judge all cheats in one go, each as a client of its own, between two honest ones."""
    known = list(cheats())
    names = tuple(f"c{i}" for i in range(len(known) + 2))
    check = make_check(clients=names)
    words = [np.trunc(one * 4095.999).astype(np.int64) for one in updates()[:2]]
    words = [words[0], *(word for _, word in known), words[1]]

    def party(session):
        if session.me not in names:
            return sum_checked(session, check)
        seed = Prg.from_os().bytes(16)
        session.send("server", "update/seed", torch.frombuffer(bytearray(seed), dtype=torch.uint8))
        mine = torch.from_numpy(np.ascontiguousarray(words[names.index(session.me)]))
        session.send("checker", "update/words", mine - Prg(seed).words((DIMENSION,)))
        return None

    parties = (*names, *ROLES.computing, ROLES.dealer)
    found = run_threads(
        dict.fromkeys(parties, party), Meeting(parties=parties, job_digest=bytes(32))
    )
    return names, found["server"]


def test_no_update_that_is_too_long_is_counted(judged):
    names, result = judged
    assert result.counted == (names[0], names[-1])
    assert result.refused == names[1:-1]
    assert np.abs(result.total - updates()[:2].sum(axis=0)).max() <= 2 / 4096


def test_the_top_bit_of_a_word_changes_nothing():
    cheat = np.trunc(updates()[0] * 4095.999).astype(np.int64)
    cheat[::3] ^= np.int64(-(1 << 63))
    result, _ = run(make_check(), cheat=cheat)["server"]
    assert result.counted == CLIENTS
    assert np.abs(result.total - updates().sum(axis=0)).max() <= 4 / 4096


def test_whoever_sends_something_else_is_missing_and_the_round_goes_on():
    result, _ = run(make_check(), silent=CLIENTS[1:2])["server"]
    assert result.missing == CLIENTS[1:2]
    assert np.abs(result.total - updates()[[0, 2, 3]].sum(axis=0)).max() <= 3 / 4096


def test_too_few_within_the_clip_give_no_sum():
    with pytest.raises(VoidRound, match="client 0"):
        run(make_check(minimum=4), cheat=np.full(DIMENSION, 1 << 40))


def test_the_servers_send_what_was_planned():
    check = make_check()
    found = run(check)
    planned = check.plan(4).forecast().cost
    sent = {
        (one.sender, one.receiver): one.payload_bytes
        for one in planned.traffic
        if one.phase == "online"
    }
    for name in ROLES.computing:
        mine = without_setup(found[name][1]).traffic
        (other,) = (one for one in ROLES.computing if one != name)
        online = sum(
            one.payload_bytes
            for one in mine
            if (one.sender, one.receiver, one.phase) == (name, other, "online")
        )
        the_sum = 8 * DIMENSION if name == "checker" else 0
        assert online == sent[name, other] + the_sum


def test_what_each_server_gets_of_an_update_is_uniform():
    class Wire:
        """A session that keeps what is sent."""

        def __init__(self):
            self.sent = {}

        def send(self, to, tag, values):
            self.sent[to] = values

    bits = {"server": [], "checker": []}
    for _ in range(200):
        wire = Wire()
        send_update(wire, make_check(), updates()[0], Prg.from_os())
        for to, values in wire.sent.items():
            octets = np.frombuffer(values.numpy().tobytes(), np.uint8)
            bits[to].append(np.unpackbits(octets))
    for rows in bits.values():  # every bit of every message is set in about half of the runs
        share = np.mean(rows, axis=0)
        assert np.abs(share - 0.5).max() < 0.5 - 1e-9
        assert abs(share.mean() - 0.5) < 0.02


def test_numbers_that_make_no_sense_are_refused():
    with pytest.raises(ConfigError, match="smaller scale"):
        make_check(scale=1e9)
    with pytest.raises(ConfigError, match="sum may be shown"):
        make_check(minimum=9)
    check = make_check()
    for wrong in (np.zeros(3), np.full(DIMENSION, np.nan), np.ones(DIMENSION)):
        with pytest.raises(DataError):
            send_update(None, check, wrong, Prg.from_os())
