"""The local engine: all clients, and a helper where one is needed, in this process."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import final

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from torch import Tensor

from tacit.crypto import make_key_pair
from tacit.errors import InputError, PartyError
from tacit.federated.adaptive import Shares, find_shares
from tacit.federated.aggregators import Aggregator, enter_in_memory
from tacit.federated.config import RoundConfig, Shaper, Shaping, shape_update
from tacit.federated.contract import (
    HELPER,
    Aggregate,
    ClientSide,
    Helper,
    Meter,
    Offer,
    Seat,
    Update,
    run_round,
)
from tacit.federated.objective import fit_update
from tacit.federated.records import train_records
from tacit.federated.training import Learner
from tacit.ring import Prg

_TOGETHER = 32  # clients trained side by side
_MOST_STAGES = 5


@final
class LocalEngine:
    """A `Carrier` that walks from one client object to the next."""

    def __init__(
        self,
        learner: Learner,
        aggregator: Aggregator,
        *,
        drop_rate: float,
        prg: Prg,
        secrets: Sequence[bytes] = (),
    ) -> None:
        self._learner, self._aggregator = learner, aggregator
        self._drop_rate, self._prg = drop_rate, prg
        self._secrets = secrets or [b""] * learner.clients
        self._signing = [Ed25519PrivateKey.generate() for _ in range(learner.clients)]
        self._helper_keys = make_key_pair()
        self._helper: Helper | None = None
        self._shaper: Shaper | None = None
        self._shares: Shares | None = None
        self.clients_cpu_s = 0.0
        """Processor seconds that the clients, and a helper, have taken so far."""

    @property
    def identities(self) -> frozenset[bytes]:
        """The public keys of the clients; a spec that names keys names these."""
        return frozenset(key.public_key().public_bytes_raw() for key in self._signing)

    def carry(self, weights: Tensor, config: RoundConfig, meter: Meter) -> Aggregate:
        """Run a round with every client of the learner."""
        make_helper = self._aggregator.make_helper
        if self._helper is None and make_helper is not None:
            self._helper = make_helper(config, self._helper_keys, Prg.from_os(), enter_in_memory())
        clients = [self._sit(config, index) for index in range(config.federated.clients)]
        if self._shaper is None:
            self._shaper = Shaper(config.mechanism, self._learner.names, self._learner.shapes)
        if config.mechanism.adaptive is not None:
            self._shares = find_shares(
                self._learner, weights, config.mechanism.adaptive, self._shares
            )
        shaping = self._shaper.shaping(weights.cpu().numpy(), self._shares)
        if config.mechanism.records is not None:
            meter.spent.update(dict.fromkeys(range(self._learner.clients), ()))
        source = _Source(self._learner, weights, config, shaping, meter, self._prg)
        silent_from = self._draw_silence(config.federated.clients)
        stage = 0

        def exchange(messages: dict[int, bytes]) -> Iterator[tuple[int, bytes | PartyError]]:
            nonlocal stage
            source.expect([index for index in messages if silent_from.get(index, 99) > stage])
            for index, message in messages.items():
                if silent_from.get(index, 99) > stage:
                    yield index, self._answer(index, message, clients, source.offer(index))
            stage += 1

        for index in range(config.federated.clients):
            meter.down[index] = 4 * config.dimension
        found = run_round(self._aggregator.make_server(config, Prg.from_os()), exchange, meter)
        return replace(found, mean=self._shaper.finish(found.mean, shaping))

    def _sit(self, config: RoundConfig, index: int) -> ClientSide:
        seat = Seat(
            index=index,
            signing=self._signing[index],
            helper=self._helper_keys.public,
            secret=self._secrets[index],
        )
        return self._aggregator.make_client(config, seat, Prg.from_os())

    def _draw_silence(self, clients: int) -> dict[int, int]:
        """Choose who falls silent, and before which stage."""
        rolls = self._prg.below(2**53, clients).numpy() * 2.0**-53
        stages = self._prg.below(_MOST_STAGES, clients).tolist()
        return {int(index): stages[index] for index in np.flatnonzero(rolls < self._drop_rate)}

    def _answer(
        self, index: int, message: bytes, clients: Sequence[ClientSide], offer: Offer
    ) -> bytes | PartyError:
        begun = time.process_time()
        try:
            if index == HELPER and self._helper is not None:
                return self._helper(message)
            return clients[index].answer(message, offer)
        except PartyError as error:
            return error
        except InputError as error:
            # Its own update cannot be used: it says so and leaves.
            return PartyError(f"client {index}", str(error))
        finally:
            self.clients_cpu_s += time.process_time() - begun


@final
class _Source:
    """Trains clients in groups, when the first of a group is asked for its update."""

    def __init__(
        self,
        learner: Learner,
        weights: Tensor,
        config: RoundConfig,
        shaping: Shaping,
        meter: Meter,
        prg: Prg,
    ) -> None:
        self._learner, self._weights, self._config = learner, weights, config
        self._shaping, self._meter, self._prg = shaping, meter, prg
        self._expected: list[int] = []
        self._ready: dict[int, Update] = {}

    def expect(self, clients: Sequence[int]) -> None:
        self._expected = [index for index in clients if index != HELPER]

    def offer(self, index: int) -> Offer:
        return lambda: self._take(index)

    def _take(self, index: int) -> Update:
        learner, weights, privacy = self._learner, self._weights, self._config.spec.privacy
        if self._config.mechanism.records is not None:
            steps, spent = self._config.mechanism.records, self._meter.spent
            update, ledger = train_records(learner, index, weights, steps, prg=Prg.from_os())
            spent[index] = (*spent.get(index, ()), *ledger.events_of(None))
            return update
        if privacy.mechanism == "objective" and privacy.epsilon is not None:
            return fit_update(learner, index, weights, epsilon=privacy.epsilon, prg=Prg.from_os())
        if index not in self._ready:
            at = self._expected.index(index)
            group = self._expected[at : at + _TOGETHER]
            found = learner.updates(weights, group, self._prg)
            self._ready = dict(zip(group, found, strict=True))
        update = self._ready.pop(index)
        return Update(
            shape_update(update.values, self._shaping), update.weight, self._shaping.small
        )
