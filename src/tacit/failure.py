"""How parties that we started ended, and which of them was the cause."""

import signal
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from tacit.errors import ClaimError, InputError, PartyError, TacitError

BUG = 1
"""The exit code of a bug of ours."""


@dataclass(frozen=True, kw_only=True)
class Failure:
    """Why a command ended, and with which exit code.

    ``party`` is whom the others blame, ``said_by`` who told so if it was not seen, ``details`` a
    traceback if it was a bug of ours.
    """

    exit_code: int
    message: str
    party: str | None = None
    reason: str | None = None
    said_by: str | None = None
    details: str = ""

    def fields(self) -> dict[str, object]:
        """Return the record as plain values."""
        return asdict(self)


class ChildBugError(TacitError):
    """A party that we started ran into a bug of ours; carries its traceback."""

    def __init__(self, message: str, details: str) -> None:
        super().__init__(message)
        self.details = details


@dataclass(frozen=True, kw_only=True)
class End:
    """How a party that we started ended.

    Attributes:
        party: its name.
        exit_code: negative for a signal; 0 for one that had done its part and was slow to leave.
        failure: None if it said nothing about one.
        was_ended: it still ran when the others had come to their end or failed, and we ended it:
            then the exit code says nothing about what was wrong with it.
        final: its last words, "done" or "failed" with what belongs to it, if any.
    """

    party: str
    exit_code: int
    failure: Failure | None
    was_ended: bool = False
    final: Mapping[str, Any] = field(default_factory=dict)  # parsed JSON of our own child


def find_cause(ends: Sequence[End]) -> TacitError | None:
    """Find the first cause among the ways the parties ended; None if all ended well.

    A party that knows its own fault beats one that died without a word, and both beat those that
    only report that another one failed. A party that we had to end, for instance one that hung,
    did not die of that: what the others say about it comes first.
    """
    if all(end.exit_code == 0 for end in ends):
        return None
    for end in ends:
        failure = end.failure
        if failure and failure.exit_code != PartyError.exit_code:
            return _own_fault(end.party, failure)
    blamed = Counter(end.failure.party for end in ends if end.failure and end.failure.party)
    silent = [
        end for end in ends if end.failure is None and end.exit_code < 0 and not end.was_ended
    ]
    if silent:
        worst = max(silent, key=lambda end: blamed[end.party])
        return PartyError(worst.party, _name_signal(-worst.exit_code))
    return _blamed(ends, blamed)


def _own_fault(party: str, failure: Failure) -> TacitError:
    message = f"party {party!r}: {failure.message}"
    if failure.exit_code == InputError.exit_code:
        return InputError(message)
    if failure.exit_code == ClaimError.exit_code:
        return ClaimError(message)
    return ChildBugError(message, failure.details)


def _blamed(ends: Sequence[End], blamed: "Counter[str]") -> TacitError:
    accused = {end.party: end.failure.party for end in ends if end.failure}
    for one, other in accused.items():
        is_mutual = other is not None and one < other and accused.get(other) == one
        if is_mutual and blamed[one] == blamed[str(other)]:  # else the others know which
            return PartyError(
                f"{one} or {other}", "each says that it was the other: one of the two"
            )
    for end in ends:
        if end.failure and end.failure.party in dict(blamed.most_common(1)):
            return PartyError(end.failure.party, end.failure.reason or end.failure.message)
    failed = [end for end in ends if end.exit_code != 0]
    end = next((end for end in failed if not end.was_ended), failed[0])
    if end.was_ended:
        return PartyError(end.party, "did not end by itself and was ended")
    return PartyError(end.party, f"ended with exit code {end.exit_code} and without a word")


def _name_signal(number: int) -> str:
    try:
        return f"killed by signal {number} ({signal.Signals(number).name})"
    except ValueError:
        return f"killed by signal {number}"
