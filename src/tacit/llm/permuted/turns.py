"""What a user may ask of the owner next: masks and batches are used once, whatever it sends."""

from typing import final

from tacit.errors import FrameError
from tacit.llm.permuted.batch import Batch
from tacit.llm.permuted.seats import CLOSE, NAME, RUN, STEP


@final
class Turns:
    """Where a conversation stands at the owner.

    Guarantee: no run of a batch is served twice, and no run's token is named twice; a second
    look through the same order would show more than the ledger says.
    """

    def __init__(self, user: str) -> None:
        self._user = user
        self._at: tuple[Batch, int] | None = None
        self._is_named = True

    def admit(self, op: int, number: int, run: int) -> None:
        """Refuse a command that is out of turn, before its order is looked for."""
        last = -1 if self._at is None else self._at[0].number
        match op:
            case _ if op == CLOSE:
                return
            case _ if op == NAME:
                is_due = not self._is_named
            case _ if op == RUN:
                is_due = number > last and run == 0
            case _ if op == STEP:
                is_due = not self._is_named and self._follows(number, run)
            case _:
                is_due = False
        if not is_due:
            raise FrameError(
                self._user, f"sent command {op} for run {run} of order {number} out of turn"
            )
        self._is_named = True

    def take(self, op: int, batch: Batch, run: int) -> None:
        """Note a run that begins, if its order is of the right kind."""
        if run >= batch.runs or batch.is_prompt != (op == RUN):
            raise FrameError(self._user, f"batch {batch.number} has no run {run} of this kind")
        self._at, self._is_named = (batch, run), False

    def _follows(self, number: int, run: int) -> bool:
        if self._at is None:
            return False
        batch, done = self._at
        if number == batch.number:
            return run == done + 1
        return number > batch.number and run == 0
