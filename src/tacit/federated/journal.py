"""What a node has let go, written on its disk: what may happen once happens once.

Flower hands every message of a node a copy of the node's state and keeps whichever copy comes back
last. A server that sends two messages at once would otherwise be answered twice from one state:
with one mask over two inputs, about two lists of survivors, or in more rounds than were planned.

A silo's rows have a ledger beside them as long as they lie there: nothing is trained unrecorded.
"""

import hashlib
import os
import secrets
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import final

import numpy as np
import torch
from numpy.typing import NDArray

from tacit.disk import is_mine_alone, make_durable
from tacit.dp import Book, Ledger, ledger_to_record
from tacit.dp.book import BudgetSpentError, open_book
from tacit.errors import ConfigError, InputError, PartyError
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
class Silo:
    """A client's rows, its training, and its ledger.

    Args:
        learner: makes the learner of these rows, when it is needed.
        client: which of the learner's clients it is.
        book: what is counted on, whatever run, node or process comes: a file, or a book with a
            limit of the owner's own. It belongs with the rows.
    """

    def __init__(self, learner: Callable[[], Learner], client: int, *, book: Path | Book) -> None:
        self._learner, self._client = learner, client
        self._book = open_book(book)

    def train(self, weights: NDArray[np.float32], spec: FederatedSpec) -> Update:
        """Train for a round on these weights, if the book has room for it.

        Guarantee: `train_records`', and this round with all that the book has before it stays
        within this spec's ε at the least δ of any.
        Cost: `train_records`', and one computation of ε.

        Raises:
            PartyError: the book has no room for it, or the weights are not of this model.
        """
        learner = self._learner()
        if weights.size != learner.dimension:
            raise PartyError(
                "server", f"wanted {learner.dimension} weights to train on, got {weights.size}"
            )
        asked, steps = spec.privacy, round_config(spec, learner.dimension).mechanism.records
        if steps is None or asked.epsilon is None:
            raise ConfigError(f"a silo trains with privacy 'record', got {asked.kind!r}")
        # The noise was found for this very ε: what is added up anew may be off by a rounding.
        limit = min(self._book.most, asked.epsilon * (1 + 1e-6))
        ledger = Ledger()
        ledger.record(steps.event)
        try:
            replace(self._book, most=limit).enter(
                secrets.token_hex(16),
                ledger_to_record(ledger),
                asked.delta,
                kind="federated",
                accountant=asked.accountant or ACCOUNTANT,
            )
        except BudgetSpentError as error:  # told to the server, so without the place
            raise PartyError(
                "client",
                f"its ledger has no room: with this round its rows would be at ε = "
                f"{error.epsilon:.4g} at δ = {error.delta:g}, and it allows {limit:g}",
            ) from None
        except InputError as error:
            if type(error) is not InputError:
                raise
            raise InputError(
                "this client cannot write the ledger of its rows, and trains nothing: " + why(error)
            ) from error
        given = torch.from_numpy(weights).to(learner.first_weights())
        return train_records(learner, self._client, given, steps, prg=Prg.from_os())[0]
