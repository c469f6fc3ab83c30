"""What a node has let go, written on its disk: what may happen once happens once.

Flower hands every message of a node a copy of the node's state and keeps whichever copy comes back
last. A server that sends two messages at once would otherwise be answered twice from one state:
with one mask over two inputs, about two lists of survivors, or in more rounds than were planned.

A silo's rows have a ledger beside them as long as they lie there: nothing is trained unrecorded.
"""

import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import final

import numpy as np
import torch
from numpy.typing import NDArray

from tacit.disk import DurableFile, durable, is_mine_alone, make_durable
from tacit.dp import Event, Ledger, epsilon, event_from_record, event_to_record
from tacit.errors import ConfigError, DataError, InputError, PartyError
from tacit.federated.config import round_config
from tacit.federated.contract import Update
from tacit.federated.records import ACCOUNTANT, train_records
from tacit.federated.spec import FederatedSpec
from tacit.federated.training import Learner
from tacit.ring import Prg
from tacit.vault import Once

_ROUND, _OVER = "round ", "over"
_SERVER = "server"


@final
class Journal:
    """The entries of one node in one run.

    Args:
        file: where they lie; every process of the node must see the same file.

    Guarantee: of any number of threads and processes, one enters a thing, and the rest are refused;
    what was entered stays entered if a process ends or power is cut.
    Cost: a write of the whole file for every step; it has some 75 bytes for each before.
    """

    def __init__(self, file: Path) -> None:
        self._entered = Once(file, "journal")

    def begin(self, *, most: int, already: int = 0) -> int:
        """Enter a new round and return its number.

        Args:
            most: how many rounds there may be.
            already: how many the node's state knows of, from an earlier run.

        Raises:
            PartyError: it would be one more than that, or the run is over.
        """
        with self._held() as entered:
            begun = [int(name.removeprefix(_ROUND)) for name in entered if name.startswith(_ROUND)]
            number = max([already, *begun]) + 1
            if number > most:
                raise PartyError(_SERVER, f"it asks for more than the {most} rounds of the spec")
            entered.add(f"{_ROUND}{number}")
        return number

    def enter(self, number: int, what: bytes) -> None:
        """Enter one thing of a round, before its answer is worked out.

        Raises:
            PartyError: it was entered before, or the run is over.
        """
        name = f"{number} {hashlib.sha256(b'tacit step' + what).hexdigest()}"
        with self._held() as entered:
            if name in entered:
                raise PartyError(_SERVER, "it asked for a step of a round that was answered before")
            entered.add(name)

    def end(self) -> None:
        """Enter that the run is over for this node: nothing is answered in it any more.

        Raises:
            PartyError: it was over.
        """
        with self._held() as entered:
            entered.add(_OVER)

    @contextmanager
    def _held(self) -> Iterator[set[str]]:
        """Hold what was entered alone.

        Raises:
            PartyError: the run is over.
            InputError: the disk is full or not to be written to.
        """
        try:
            with self._entered.held() as entered:
                if _OVER in entered:
                    raise PartyError(_SERVER, "it goes on with a run that this node has ended")
                yield entered
        except InputError as error:  # told to the server, so without the place
            raise InputError(
                "this node cannot write its journal, and answers nothing: " + why(error)
            ) from error


def open_journal(folder: Path | None, *, run: int, node: int) -> Journal:
    """Find the journal of a node in a run.

    Args:
        folder: where journals lie; None takes one of this user's among the temporary files.
        run: Flower's number of the run.
        node: Flower's number of the node.

    Raises:
        ConfigError: others may write to the folder.
    """
    if folder is None:
        folder = Path(tempfile.gettempdir()) / f"tacit-{os.getuid()}"
    try:
        make_durable(folder)
    except InputError as error:
        raise ConfigError(f"the journal's folder cannot be made: {why(error)}") from error
    if not is_mine_alone(folder):
        raise ConfigError(
            f"the journal's folder must be yours alone to write, which {folder} is not"
        )
    return Journal(folder / f"{run}-{node}.journal")


def journal_of(folder: Path | None, key: bytes) -> Journal:
    """Find the journal of a key: it is kept for as long as the key is, from run to run."""
    number = int.from_bytes(hashlib.sha256(b"tacit journal" + key).digest()[:8], "big")
    return open_journal(folder, run=0, node=number)


def why(error: InputError) -> str:
    """Say why a file could not be written, without its place."""
    return str(getattr(error.__cause__, "strerror", None) or "its file is not as it should be")


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
