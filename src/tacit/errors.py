"""The exception tree. Every error that a user can cause, or a peer, is one of these.

TacitError                     exit code 1 (a bug of ours, if it reaches the user as such)
├── InputError (ValueError)    exit code 2: what the user gave cannot be used
│   ├── ConfigError            a job file or an option is wrong
│   ├── DataError              a data set, a model file or a value in it is wrong
│   ├── RangeError             a number does not fit the ring at the chosen precision
│   └── IdentityError              a key or certificate file is missing, broken or unsafe
├── ClaimError                 exit code 3: a measurement contradicts a claim
└── PartyError                 exit code 4: a party failed or disagreed; says who
    ├── LinkError              the connection to a peer cannot be used
    │   ├── LinkClosed         the peer went away
    │   ├── LinkTimeout        the peer was silent for too long
    │   ├── FrameError         the peer sent something that is not a valid frame
    │   └── HandshakeError     the peer did not prove the key that the job names
    ├── DisagreementError      the peer runs another job, another plan or another step
    └── CheatingError          the peer sent something that its tags do not prove
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar, Self, get_args


class TacitError(Exception):
    """The root of all our errors."""

    exit_code: ClassVar[int] = 1


class InputError(TacitError, ValueError):
    """What the user gave cannot be used."""

    exit_code = 2


class ConfigError(InputError):
    """A job file or a command-line option is wrong."""


class DataError(InputError):
    """A data set, a model file or a value in it is wrong."""


class RangeError(InputError):
    """A number does not fit the ring at the chosen precision."""


class IdentityError(InputError):
    """A key or certificate file is missing, broken or readable by others."""


class ClaimError(TacitError):
    """A measurement contradicts a claim."""

    exit_code = 3


class PartyError(TacitError):
    """A party failed or disagreed.

    Args:
        party: the name of the party that failed, as the job file spells it.
        reason: what happened, in words that carry no secret.
        said_by: the peer whose word this is, if we did not see it ourselves; it may say anything.
    """

    exit_code = 4

    def __init__(self, party: str, reason: str, *, said_by: str | None = None) -> None:
        is_hearsay = said_by not in (None, party)  # what a party says of itself is to be believed
        says = f", says {said_by!r}" if is_hearsay else ""
        super().__init__(f"party {party!r} failed{says}: {reason}")
        self.party = party
        self.reason = reason
        self.said_by = said_by if is_hearsay else None

    def again(self) -> Self:
        """Make the same error anew, without the frames that its traceback keeps alive."""
        return type(self)(self.party, self.reason, said_by=self.said_by)


class LinkError(PartyError):
    """The connection to a peer cannot be used."""


class LinkClosed(LinkError):
    """The peer went away without saying goodbye."""


class LinkTimeout(LinkError):
    """The peer was silent for too long."""


class FrameError(LinkError):
    """The peer sent something that is not a valid frame."""


class HandshakeError(LinkError):
    """The peer did not prove that it holds the key the job names."""


class DisagreementError(PartyError):
    """The peer runs another job, another plan or another step than we do."""


class CheatingError(PartyError):
    """The peer sent something that is not what the protocol makes of what it was dealt."""


_STUMBLES = (
    ValueError, TypeError, LookupError, AttributeError, ArithmeticError, EOFError,
    RecursionError, MemoryError,
)  # fmt: skip


def check_word(what: str, given: object, known: object) -> None:
    """Refuse what is no word of a `Literal`: where words branch, another would do as one of them.

    Raises:
        ConfigError: says which words there are.
    """
    words = get_args(known)
    if given not in words:
        raise ConfigError(f"{what}: wanted one of {', '.join(map(repr, words))}, got {given!r}")


@contextmanager
def foreign(what: str, *also: type[Exception]) -> Iterator[None]:
    """Read a file that somebody else made: whatever the reader stumbles over is the file's fault.

    Args:
        what: the sentence to say, as "not a valid LightGBM model".
        also: errors of the reader's library that are none of Python's own.

    Raises:
        DataError: in place of any of those; errors of ours pass as they are.
    """
    caught: tuple[type[Exception], ...] = (*_STUMBLES, *also)
    try:
        yield
    except TacitError:
        raise
    except caught as error:
        raise DataError(f"{what}: {type(error).__name__}: {error}") from error
