"""Feed changed messages and keys to every party of every aggregator; run as a process of its own.

`python -m support.mutated_sums COUNT SEED` ends with 0 if all were refused by name or did no harm:
what a library of C++ does with bytes that it should not have got shows as a signal, not as an
exception.
"""

import sys
from contextlib import suppress
from functools import partial

import numpy as np

from support.federated import Stage, make_spec, provided
from tacit.crypto.cipher import load_public, load_secret, load_share
from tacit.errors import InputError, PartyError
from tacit.federated import Privacy, Update
from tacit.federated.provision import read_secret
from tacit.ring import Prg

CLIENTS, SIZE = 4, 9
WORDS = {
    "bfv": {"aggregator": "encrypted"},
    "threshold": {"aggregator": "encrypted", "cipher": "paillier", "threshold": 2},
    "keyed": {"aggregator": "keyed"},
    "bfv, verified": {"aggregator": "encrypted", "verified": True},
    "keyed, verified": {"aggregator": "keyed", "verified": True},
    "masked, verified": {"aggregator": "masked", "verified": True},
}


def policy(name):
    settings = {"clients": CLIENTS, "rounds": 1, "minimum": 3, "colluding_share": 0.0}
    privacy = Privacy(kind="none", clip=1.0)
    return make_spec(privacy=privacy, drop_rate=0.0, **settings, **WORDS[name])


class Fuzzed(Stage):
    """A round in which one message, chosen by its number, is changed on its way."""

    def __init__(self, name, number, change):
        offers = [Update(np.full(SIZE, 0.01 * at, np.float32), 1) for at in range(CLIENTS)]
        super().__init__(policy(name), offers)
        self.number, self.change, self.seen = number, change, 0

    def exchange(self, messages):
        for index, message in messages.items():
            answer = self.answer(index, self.passing(message))
            yield index, self.passing(answer) if isinstance(answer, bytes) else answer

    def passing(self, message):
        self.seen += 1
        return self.change(message) if self.seen == self.number else message


class Changes:
    """Flips, cuts, lengthens and splices bytes, by a seed."""

    def __init__(self, seed):
        self.prg, self.others = Prg(seed.to_bytes(16, "big")), [b""]

    def pick(self, count):
        return int(self.prg.below(max(count, 1), 1)[0])

    def __call__(self, message):
        self.others = [*self.others[-7:], message]
        how, at = self.pick(6), self.pick(min(len(message), 400 if self.pick(2) else len(message)))
        body = bytearray(message)
        if how == 0:
            body[at : at + 1] = bytes([(body[at] if body else 0) ^ (1 << self.pick(8))])
        elif how == 1:
            body = body[:at]
        elif how == 2:
            body += self.prg.bytes(1 + self.pick(40))
        elif how == 3:
            body[at : at + 8] = self.prg.bytes(8)
        elif how == 4:
            other = self.others[self.pick(len(self.others))]
            body = body[:at] + bytearray(other[at:])
        else:
            body[at : at + 4] = b"\xff" * 4
        return bytes(body)


def try_round(name, number, change):
    stage = Fuzzed(name, number, change)
    with suppress(PartyError):  # a void round names who failed
        stage.run()
    return stage.seen


def try_keys(name, change):
    spec, secrets = provided(policy(name))
    load = load_share if spec.federated.threshold else partial(load_secret, spec.federated.cipher)
    with suppress(PartyError, InputError):
        load(read_secret(change(secrets[0])).cipher)
    with suppress(PartyError, InputError):
        load(change(read_secret(secrets[0]).cipher))
    with suppress(InputError):
        file = spec.federated.public_key
        load_public(spec.federated.cipher, change(file.read_bytes() if file else b"no key"))


def main(count, seed):
    change = Changes(seed)
    lengths = {name: try_round(name, 0, change) for name in WORDS}
    for turn in range(count):
        name = list(WORDS)[turn % len(WORDS)]
        if turn % 10 == 9:
            try_keys(name, change)
        else:
            try_round(name, 1 + change.pick(lengths[name]), change)
    print(f"{count} changed inputs, none did harm")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
