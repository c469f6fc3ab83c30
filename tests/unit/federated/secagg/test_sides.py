"""A client takes part in the round that follows from its own config, once, and in no other."""

from dataclasses import replace

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from support.federated import Cast, make_spec
from tacit.errors import ConfigError, DisagreementError, PartyError, RangeError
from tacit.federated import Privacy, Seat, Update, round_config
from tacit.federated.contract import VoidRound, pack
from tacit.federated.secagg import Neighbourhood, SecAggPlan, plan_secagg, quantise
from tacit.federated.secagg.messages import DELIVERY, PAIR, key_pair_of, open_message
from tacit.federated.secagg.plan import LARGEST_WEIGHT
from tacit.federated.secagg.sides import SecAggClientSide, plan_from
from tacit.ring import Prg

CONFIG = round_config(make_spec(clients=5, rounds=1, privacy=Privacy(clip=1.0)), 3)
CHANGES = {
    "clients": 6,
    "dimension": 4,
    "bound": 2.0,
    "scale": 1.0,
    "word_bytes": 5,
    "neighbourhood": Neighbourhood(neighbours=4, threshold=2),
    "minimum": 2,
}


def side():
    return SecAggClientSide(
        CONFIG, Seat(index=0, signing=Ed25519PrivateKey.generate()), Prg.from_os()
    )


def answer(one, message):
    return one.answer(message, lambda: Update(np.zeros(3, np.float32), 1))


@pytest.mark.parametrize("name", CHANGES)
def test_a_plan_that_differs_in_anything_is_refused(name):
    plan = plan_from(CONFIG)
    with pytest.raises(DisagreementError, match="not the one that follows from this client's"):
        answer(side(), open_message(replace(plan, **{name: CHANGES[name]}), 0))
    assert answer(side(), open_message(plan, 0))


def test_every_field_of_a_plan_is_compared():
    agreed = {"session", "tags"}  # the model in a session is; tags are never taken from the server
    assert set(SecAggPlan.__dataclass_fields__) == {*CHANGES, *agreed}


def test_an_invitation_of_another_client_a_second_one_and_none_are_refused():
    plan, one = plan_from(CONFIG), side()
    with pytest.raises(PartyError, match="it did not invite this client"):
        answer(one, pack(DELIVERY, b""))
    with pytest.raises(DisagreementError, match="not the one that follows"):
        answer(one, open_message(plan, 1))
    answer(one, open_message(plan, 0))
    with pytest.raises(PartyError, match="it invited this client a second time"):
        answer(one, open_message(plan_from(CONFIG), 0))
    with pytest.raises(PartyError, match="a message of kind 9, which no step"):
        answer(one, pack(9, b""))


def test_a_client_that_shared_another_key_voids_the_round_and_is_named():
    """It shows the keys of one seed and shares another."""
    near = Neighbourhood(neighbours=4, threshold=3)
    plan = plan_secagg(5, 1, bound=1.0, neighbourhood=near, minimum=2)
    cast = Cast(plan, np.ones((5, plan.length), plan.dtype))
    liar = cast.clients[1]
    liar._seeds = [liar._seeds[0], bytes(16), liar._seeds[2]]
    assert key_pair_of(liar._seeds[PAIR], plan.session, b"mask").public != liar._masking.public
    with pytest.raises(VoidRound, match="'client 1' failed: it shared another key than it adv"):
        cast.run({"mask": {1}})


def test_plans_that_hide_nothing_and_weights_that_do_not_fit_are_refused():
    near = Neighbourhood(neighbours=4, threshold=3)
    for minimum in (1, 6):
        with pytest.raises(ConfigError, match="must be 2 to 5"):
            plan_secagg(5, 1, bound=1.0, neighbourhood=near, minimum=minimum)
    for bound in (0.0, -1.0, float("inf"), float("nan")):
        with pytest.raises(ConfigError, match="positive and finite"):
            plan_secagg(5, 1, bound=bound, neighbourhood=near, minimum=2)
    plan = plan_secagg(5, 1, bound=1.0, neighbourhood=near, minimum=2)
    for changes in ({"dimension": 0}, {"word_bytes": 9}, {"session": bytes(16)}):
        with pytest.raises(ConfigError, match="wants a dimension, 1 to 8 bytes a word"):
            replace(plan, **changes)
    for weight in (-1, LARGEST_WEIGHT + 1):
        with pytest.raises(RangeError, match="a weight is 0 to"):
            quantise(plan, np.zeros(1), weight=weight, prg=Prg(bytes(16)))
    mechanism = replace(CONFIG.mechanism, clip=None)
    with pytest.raises(ConfigError, match="set clip"):
        plan_from(replace(CONFIG, mechanism=mechanism))
