"""A client's rows behind a ledger of their own, on a disk: nothing is trained unrecorded."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import final

import numpy as np
import torch
from numpy.typing import NDArray

from tacit.disk import DurableFile, durable
from tacit.dp import Event, Ledger, epsilon, event_from_record, event_to_record
from tacit.errors import ConfigError, DataError, InputError, PartyError
from tacit.federated.config import round_config
from tacit.federated.contract import Update
from tacit.federated.journal import why
from tacit.federated.records import ACCOUNTANT, train_records
from tacit.federated.spec import FederatedSpec
from tacit.federated.training import Learner
from tacit.ring import Prg


@final
class RecordLedger:
    """What was done to the rows of one data set, line by line, by whatever run and node.

    Guarantee: of any number of threads and processes, each spends only what all before it have
    left, at the least δ that one of them asked for; what was written stays written if a process
    ends or power is cut.
    Cost: a write of the whole file for every round.
    """

    def __init__(self, file: Path) -> None:
        self._file = file

    def spend(self, event: Event, *, limit: float, delta: float, accountant: str) -> None:
        """Write an event down before it happens, if all together then stay within ε.

        Their ε is that of the least δ so far: a larger one would make room that was spent already.

        Raises:
            PartyError: there is not enough left.
            InputError: the file is not a ledger, or cannot be written.
        """
        with self._opened() as (file, lines):
            events, least = self._parsed(lines)
            least = min(delta, least)
            claim = epsilon([*events, event], delta=least, accountant=accountant)
            if claim.epsilon is None or claim.epsilon > limit * (1 + 1e-6):
                raise PartyError(
                    "client",
                    f"its ledger has no room: with this round its rows would be at ε = "
                    f"{claim.epsilon or float('inf'):.4g} at δ = {least:g}, and it "
                    f"allows {limit:g}",
                )
            line = {"event": event_to_record(event), "delta": delta}
            file.write(lines + json.dumps(line).encode() + b"\n")

    def read(self) -> Ledger:
        """Return all that was written down."""
        ledger = Ledger()
        with self._opened() as (_, lines):
            for event in self._parsed(lines)[0]:
                ledger.record(event)
        return ledger

    @contextmanager
    def _opened(self) -> Iterator[tuple[DurableFile, bytes]]:
        """Hold the file alone, with its whole lines: what a crash cut short was never trained."""
        try:
            with durable(self._file) as file:
                raw = file.read() or b""
                yield file, raw[: raw.rfind(b"\n") + 1]
        except InputError as error:
            if type(error) is not InputError:
                raise
            raise InputError(  # told to the server, so without the place
                "this client cannot write the ledger of its rows, and trains nothing: " + why(error)
            ) from error

    def _parsed(self, lines: bytes) -> tuple[list[Event], float]:
        """Read what was entered, and the least δ that was asked for."""
        try:
            found = [json.loads(line) for line in lines.decode().splitlines()]
            older = [{"event": one} if "kind" in one else one for one in found]  # without δ
            deltas = [float(one.get("delta", 1.0)) for one in older]
            return [event_from_record(one["event"]) for one in older], min(deltas, default=1.0)
        except (ValueError, KeyError, TypeError, AttributeError, DataError) as error:
            raise DataError(
                f"{self._file} is not a ledger that can be counted on; put it right, from a copy: "
                "without it nobody knows what these rows have spent"
            ) from error


@final
class Silo:
    """A client's rows, its training, and its ledger.

    Args:
        learner: makes the learner of these rows, when it is needed.
        client: which of the learner's clients it is.
        ledger: the file that is counted on, whatever run, node or process comes; it belongs with
            the rows.
    """

    def __init__(self, learner: Callable[[], Learner], client: int, *, ledger: Path) -> None:
        self._learner, self._client = learner, client
        self._ledger = RecordLedger(ledger)

    def train(self, weights: NDArray[np.float32], spec: FederatedSpec) -> Update:
        """Train for a round on these weights, if the ledger has room for it.

        Guarantee: `train_records`', and this round with all before it, of whatever spec, stays
        within this spec's ε at the least δ of any.
        Cost: `train_records`', and one computation of ε.

        Raises:
            PartyError: the ledger has no room for it, or the weights are not of this model.
        """
        learner = self._learner()
        if weights.size != learner.dimension:
            raise PartyError(
                "server", f"wanted {learner.dimension} weights to train on, got {weights.size}"
            )
        asked, steps = spec.privacy, round_config(spec, learner.dimension).mechanism.records
        if steps is None or asked.epsilon is None:
            raise ConfigError(f"a silo trains with privacy 'record', got {asked.kind!r}")
        self._ledger.spend(
            steps.event,
            limit=asked.epsilon,
            delta=asked.delta,
            accountant=asked.accountant or ACCOUNTANT,
        )
        given = torch.from_numpy(weights).to(learner.first_weights())
        return train_records(learner, self._client, given, steps, prg=Prg.from_os())[0]
