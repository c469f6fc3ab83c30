"""A server that puts clients of two jobs, which name the same keys, into one round."""

from dataclasses import replace

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from support.federated import make_spec
from tacit.errors import PartyError
from tacit.federated import Privacy
from tacit.federated.config import RoundConfig, round_config
from tacit.federated.contract import Seat, Update
from tacit.federated.secagg.messages import open_message
from tacit.federated.secagg.plan import NONCE_BYTES, centred
from tacit.federated.secagg.server import STAGES, SecAggServer
from tacit.federated.secagg.sides import SecAggClientSide, plan_from
from tacit.ring import Prg

CLIENTS, DIMENSION = 5, 400
QUIET = Privacy(clip=1.0)
NOISY = Privacy(kind="central", clip=1.0, epsilon=2.0)


class Mixed:
    """Client 0 holds to a job with noise, which counts on its fellows; these to one without."""

    def __init__(self):
        signing = [Ed25519PrivateKey.generate() for _ in range(CLIENTS)]
        keys = frozenset(one.public_key().public_bytes_raw() for one in signing)
        noisy, quiet = (
            round_config(
                make_spec(
                    clients=CLIENTS, rounds=1, server="malicious", keys=keys, privacy=privacy
                ),
                DIMENSION,
            )
            for privacy in (NOISY, QUIET)
        )
        self.configs = [noisy] + [quiet] * (CLIENTS - 1)
        self.plans = [plan_from(config) for config in self.configs]
        self.sides = [
            SecAggClientSide(config, Seat(index=i, signing=signing[i]), Prg.from_os())
            for i, config in enumerate(self.configs)
        ]
        self.refused = []

    def run(self, sessions):
        """Invite everybody to the plan of its own job, and carry the round through."""
        plans = [replace(p, session=s) for p, s in zip(self.plans, sessions, strict=True)]
        server = SecAggServer(plans[0])
        messages = {i: open_message(plan, i) for i, plan in enumerate(plans)}
        for _ in STAGES:
            for i, message in messages.items():
                try:
                    update = Update(np.zeros(DIMENSION, np.float32), 1)
                    server.accept(i, self.sides[i].answer(message, lambda u=update: u))
                except PartyError as error:
                    self.refused.append(error)
            messages = server.close()
        return centred(plans[0], server.total()[:DIMENSION])


@pytest.mark.parametrize("is_named", [False, True])
def test_clients_of_two_jobs_have_no_sum_together(is_named):
    """Whether they are all told the session of one of the jobs, or each that of its own."""
    scene = Mixed()
    sessions = [scene.plans[0].session] * CLIENTS
    if is_named:
        nonce = sessions[0][:NONCE_BYTES]
        sessions = [nonce + config.agreed for config in scene.configs]
    with pytest.raises(PartyError, match="too few"):
        scene.run(sessions)
    if not is_named:
        assert len(scene.refused) == CLIENTS - 1
        assert all("not the one that follows from" in str(one) for one in scene.refused)


def test_without_what_is_agreed_in_the_session_a_sum_had_the_noise_of_one(monkeypatch):
    """What they are there for: as many parts as the claim counts on are 2, and one is there."""
    monkeypatch.setattr(RoundConfig, "agreed", property(lambda self: self.model))
    scene = Mixed()
    found = scene.run([scene.plans[0].session] * CLIENTS)
    grid = scene.configs[0].mechanism.grid
    assert grid.parts == 2
    assert scene.refused == []
    assert found.std() < 1.2 * float(grid.sigma2) ** 0.5
