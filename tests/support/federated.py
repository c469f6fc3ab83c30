"""Rounds in this process: clients of an aggregator that may be silent or tampered with."""

from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from support.crypto import short_key
from tacit.crypto import make_key_pair
from tacit.errors import InputError, PartyError
from tacit.federated import (
    FederatedSpec,
    Federation,
    Meter,
    Privacy,
    Seat,
    Training,
    find_aggregator,
    provision,
    round_config,
    run_round,
)
from tacit.federated.aggregators import enter_in_memory
from tacit.federated.contract import HELPER
from tacit.federated.secagg import STAGES, SecAggClient, SecAggServer
from tacit.federated.spec import HELPERS
from tacit.ring import Prg

FOLDER = TemporaryDirectory(prefix="tacit-")
"""Where public keys lie that specs name."""


@cache
def provided(policy):
    """Make the keys of a policy, once: those of ciphers take a while."""
    if policy.federated.aggregator == "encrypted":
        pytest.importorskip("tenseal" if policy.federated.cipher == "bfv" else "gmpy2")
    with patch("tacit.federated.provision.make_key", short_key):
        public_key, secrets = provision(policy, Prg.from_os())
    if public_key is not None:
        file = Path(FOLDER.name) / f"{len(list(Path(FOLDER.name).iterdir()))}.public"
        file.write_bytes(public_key)
        policy = change_spec(policy, public_key=file)
    return policy, secrets


class Stage:
    """Clients of one aggregator that all offer something, and may be silent or tampered with."""

    def __init__(self, policy, offers, *, silent=(), tamper=None, is_resumed=False):
        policy, secrets = provided(policy)
        self.aggregator = find_aggregator(policy.federated.aggregator)
        self.helper_keys = make_key_pair()
        self.seats = [
            Seat(
                index=i,
                signing=Ed25519PrivateKey.generate(),
                helper=self.helper_keys.public,
                secret=secret,
            )
            for i, secret in enumerate(secrets)
        ]
        if policy.federated.keys:
            known = [seat.signing.public_key().public_bytes_raw() for seat in self.seats]
            policy = change_spec(policy, keys=tuple(one.hex() for one in known))
        self.terms = round_config(policy, offers[0].values.size)
        make_helper = self.aggregator.make_helper
        if make_helper is not None:
            self.helper = make_helper(
                self.terms, self.helper_keys, Prg.from_os(), enter_in_memory()
            )
        self.clients = [
            self.aggregator.make_client(self.terms, seat, Prg.from_os()) for seat in self.seats
        ]
        self.offers, self.silent, self.tamper = offers, silent, tamper
        self.is_resumed, self.invitations = is_resumed, {}
        self.server = self.aggregator.make_server(self.terms, Prg.from_os())
        self.meter = Meter()

    def run(self):
        return run_round(self.server, self.exchange, self.meter)

    def resume(self, index):
        """Put another process of the same client in its place, with what the first has saved."""
        saved = self.clients[index].save()
        if saved:
            seat = replace(self.seats[index], saved=(self.invitations[index], saved))
            self.clients[index] = self.aggregator.make_client(self.terms, seat, Prg.from_os())

    def exchange(self, messages):
        for index, message in messages.items():
            if index not in self.silent:
                answer = self.answer(index, message)
                yield index, self.tamper(index, answer) if self.tamper else answer

    def answer(self, index, message):
        try:
            if index == HELPER:
                return self.helper(message)
            self.invitations.setdefault(index, message)
            answer = self.clients[index].answer(message, lambda: self.offers[index])
            if self.is_resumed:
                self.resume(index)
            return answer
        except PartyError as error:
            return error
        except InputError as error:
            return PartyError(f"client {index}", str(error))


# A masked round stage by stage


class Cast:
    """The clients and the server of one round, and all that the server has received."""

    def __init__(self, plan, words, *, key=None, known=False):
        prg = Prg.from_os() if key is None else Prg(key)
        signing = [Ed25519PrivateKey.generate() for _ in range(plan.clients)]
        identities = frozenset(one.public_key().public_bytes_raw() for one in signing)
        self.plan, self.words = plan, words
        self.server = SecAggServer(plan)
        self.clients = [
            SecAggClient(
                plan,
                i,
                signing=signing[i],
                prg=prg.fork(str(i)),
                known=identities if known else None,
            )
            for i in range(plan.clients)
        ]
        self.view = {stage: {} for stage in STAGES}
        self.refused = []

    def run(self, silent=None, tamper=None):
        """Run every stage; ``silent[stage]`` fall silent there, ``tamper`` changes messages."""
        messages = self.server.invite()
        gone = set()
        for stage in STAGES:
            gone |= set((silent or {}).get(stage, ()))
            messages = self.stage(stage, messages, gone, tamper)
        return self.server.total()

    def stage(self, stage, messages, gone=(), tamper=None):
        for index, message in messages.items():
            if index in gone:
                continue
            try:
                answer = self.answer(stage, index, message)
                answer = tamper(stage, index, answer) if tamper else answer
                self.server.accept(index, answer)
                self.view[stage][index] = answer
            except PartyError as error:
                self.refused.append(error)
        return self.server.close()

    def answer(self, stage, index, message):
        client = self.clients[index]
        if stage == "advertise":
            return client.advertise()
        if stage == "mask":
            return client.mask(message, self.words[index])
        return getattr(client, stage)(message)

    def expected(self):
        """Add up the words of those whose inputs the server says the sum holds."""
        total = np.zeros(self.plan.length, self.plan.dtype)
        for index in self.server.survivors:
            total += self.words[index]
        return total


# Specs, of settings of several tables at once

SERVER_SETTINGS = ("server_rate", "momentum", "patience")


def make_spec(*, privacy=None, train=None, keys=None, **settings):
    """Make a spec; keys are bytes, and what no other table has is of [federated]."""
    server = {name: settings.pop(name) for name in SERVER_SETTINGS if name in settings}
    pinned = {name: settings[name].hex() for name in HELPERS.values() if settings.get(name)}
    settings |= {**pinned, "keys": tuple(one.hex() for one in sorted(keys or ()))}
    return FederatedSpec(
        federated=Federation(**settings),
        privacy=privacy or Privacy(),
        train=replace(train or Training(), **server),
    )


def change_spec(spec, **settings):
    """Return a spec with other settings in [federated]."""
    return replace(spec, federated=replace(spec.federated, **settings))
