"""The aggregator "bounded": a client that shares more than its clip is left out, by name."""

import numpy as np
import pytest
import torch

from support.federated import make_spec
from tacit import federated
from tacit.errors import ConfigError
from tacit.federated import (
    Meter,
    Privacy,
    Seat,
    Update,
    VoidRound,
    find_aggregator,
    round_config,
    run_round,
)
from tacit.federated.bounded import SHARED, NormCheck, choose_scale, plan_check, share_update
from tacit.federated.contract import pack
from tacit.mpc import Roles
from tacit.ring import Prg

CLIENTS, DIMENSION = 5, 40


def asked(**changes):
    privacy = Privacy(kind="none", clip=1.0)
    wished = {"clients": CLIENTS, "rounds": 1, "aggregator": "bounded", "privacy": privacy}
    return make_spec(**{**wished, "minimum": 3, **changes})


def updates():
    found = np.random.default_rng(1).normal(size=(CLIENTS, DIMENSION))
    return found / np.linalg.norm(found, axis=1, keepdims=True)


def lie(words, seed=bytes(16)):
    """Share words that are longer than the clip; no honest client would."""
    return pack(SHARED, seed, (words - Prg(seed).words((DIMENSION,))).numpy().tobytes())


def run(poison=None, cheats=()):
    config = round_config(asked(), DIMENSION)
    aggregator, meter, values = find_aggregator("bounded"), Meter(), updates()

    def exchange(messages):
        for index, message in messages.items():
            side = aggregator.make_client(config, Seat(index=index, signing=None), Prg.from_os())
            answer = side.answer(message, lambda at=index: Update(values[at], 1))
            yield index, lie(poison) if index in cheats else answer

    server = aggregator.make_server(config, Prg.from_os())
    return run_round(server, exchange, meter), meter, config


def test_the_mean_is_that_of_all_clients_and_costs_what_it_says():
    found, meter, config = run()
    assert found.survivors == tuple(range(CLIENTS))
    unit = 1 / plan_check(config).scale
    assert np.abs(found.mean - updates().mean(axis=0)).max() <= unit
    assert meter.refused == []
    assert set(meter.up.values()) == {len(pack(SHARED, bytes(16), bytes(8 * DIMENSION)))}


@pytest.mark.parametrize("power", [0, 25, 31, 61, 62, 63])
def test_a_poisoned_update_is_left_out_by_name(power):
    """Just above the clip, far above it, and where squares or sums would wrap around."""
    words = torch.zeros(DIMENSION, dtype=torch.int64)
    check = plan_check(round_config(asked(), DIMENSION))
    if power == 63:  # read modulo 2^63 this is 0: no number moves, and the sum is the others'
        words[3] = -(1 << 63)
    else:
        words[3] = check.longest + 1 if power == 0 else 1 << power
    found, meter, _ = run(words, cheats=(2,))
    others = [0, 1, 3, 4]
    if power == 63:
        assert np.abs(found.mean * 5 - updates()[others].sum(axis=0)).max() < 1e-3
        return
    assert found.survivors == (0, 1, 3, 4)
    assert [error.party for error in meter.refused] == ["client 2"]
    assert np.abs(found.mean - updates()[others].mean(axis=0)).max() < 1e-3


def test_too_few_within_the_clip_make_the_round_void():
    with pytest.raises(VoidRound, match="within the clip"):
        run(torch.full((DIMENSION,), 1 << 40), cheats=(0, 1, 2))


def test_a_run_with_the_word_trains_and_claims_what_holds():
    generator = torch.Generator().manual_seed(0)
    features = 10 * torch.rand(60, 4, generator=generator) - 5
    rows = [(features[at::4], (features[at::4, 0] > 0).long()) for at in range(4)]
    privacy = Privacy(kind="none", clip=5.0)
    found = federated.fit("linear", rows, privacy=privacy, rounds=3, aggregator="bounded")
    sums = [one for one in found.claims if "against clients" in one.subject]
    assert "2^-40" in sums[0].guarantee
    assert sums[0].assumptions[0].startswith("malicious: clients may do anything")
    assert "semi-honest" in found.claims[1].assumptions[0]
    assert [one.void for one in found.rounds] == [None] * 3
    assert (found.predict(features) == (features[:, 0] > 0).numpy()).mean() > 0.7


@pytest.mark.parametrize(
    "changes",
    [
        {"privacy": Privacy(kind="central", clip=1.0, epsilon=1.0)},
        {"server": "malicious", "keys": frozenset(bytes([i]) * 32 for i in range(CLIENTS))},
        {"largest_weight": 9},
    ],
)
def test_what_it_cannot_promise_is_refused(changes):
    with pytest.raises(ConfigError, match="bounded"):
        asked(**changes)


def test_without_a_clip_there_is_nothing_to_check():
    spec = asked(privacy=Privacy(kind="none"))
    with pytest.raises(ConfigError, match="set clip"):
        plan_check(round_config(spec, DIMENSION))


@pytest.mark.parametrize("dimension", [1, 50, 10_000, 1_000_000])
@pytest.mark.parametrize("clip", [0.01, 1.0, 300.0])
def test_the_chosen_units_can_be_checked(dimension, clip):
    check = NormCheck(
        clients=("a", "b"),
        roles=Roles("s", "c", "d"),
        dimension=dimension,
        clip=clip,
        scale=choose_scale(dimension, clip),
    )
    assert check.blocks <= 300


@pytest.mark.parametrize("dimension", [50, 1_000_000, 6_000_000, 10_000_000])
def test_nobody_is_counted_beyond_the_clip_however_many_numbers_there_are(dimension):
    """Room for what rounding adds was 6 % of the clip at a million, 4.8 clips at six."""
    check = plan_check(round_config(asked(), dimension))
    assert check.longest <= check.scale * 1.0
    drawn = np.random.default_rng(2).normal(size=dimension)
    values = drawn / np.linalg.norm(drawn)
    seed, share = share_update(check, values, Prg.from_os())
    words = (share + Prg(seed).words((dimension,))).numpy()
    assert np.square(words).sum() <= check.most
    assert np.abs(words / check.scale - values).max() <= 1.001 / check.scale
