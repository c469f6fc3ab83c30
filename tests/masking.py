"""A whole masked round in memory, with clients that fall silent where a test says so."""

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tacit.errors import PartyError
from tacit.federated.secagg import STAGES, SecAggClient, SecAggServer
from tacit.ring import Prg


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
