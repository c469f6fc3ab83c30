"""What a user may ask of the owner next: masks and orders are used once, whatever it sends."""

from typing import final

from tacit.errors import FrameError
from tacit.llm.permuted.order import Order
from tacit.llm.permuted.seats import CLOSE, NAME, RUN, STEP


@final
class Turns:
    """Where a conversation stands at the owner.

    Guarantee: no run of an order is served twice, and no run's token is named twice; a second
    look through the same order would show more than the ledger says.
    """

    def __init__(self, user: str) -> None:
        self._user = user
        self._at: tuple[Order, int] | None = None
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

    def take(self, op: int, order: Order, run: int) -> None:
        """Note a run that begins, if its order is of the right kind."""
        if run >= order.runs or order.is_prompt != (op == RUN):
            raise FrameError(self._user, f"order {order.number} has no run {run} of this kind")
        self._at, self._is_named = (order, run), False

    def _follows(self, number: int, run: int) -> bool:
        if self._at is None:
            return False
        order, done = self._at
        if number == order.number:
            return run == done + 1
        return number > order.number and run == 0
