"""What went wrong, in one record: for the screen, for the pipe to a parent, and for a verdict."""

import errno
import traceback

import click

from tacit.errors import InputError, PartyError, TacitError
from tacit.extras import install_hint
from tacit.failure import BUG, ChildBugError, End, Failure, find_cause

__all__ = ["BUG", "ChildBugError", "End", "Failure", "describe", "find_cause"]

_OF_THE_HOST = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EMFILE}


def describe(error: BaseException) -> Failure:
    """Say what an error means for the user."""
    if isinstance(error, PartyError):
        return Failure(
            exit_code=error.exit_code,
            message=str(error),
            party=error.party,
            reason=error.reason,
            said_by=error.said_by,
        )
    if isinstance(error, TacitError) and error.exit_code != BUG:
        return Failure(exit_code=error.exit_code, message=str(error))
    if isinstance(error, click.ClickException):
        return Failure(exit_code=InputError.exit_code, message=error.format_message())
    if isinstance(error, OSError) and error.errno in _OF_THE_HOST:
        where = f"{error.filename}: " if error.filename else ""
        return Failure(exit_code=InputError.exit_code, message=f"{where}{error.strerror}")
    if isinstance(error, ModuleNotFoundError) and (hint := install_hint(error.name or "")):
        return Failure(
            exit_code=InputError.exit_code,
            message=f"this needs {error.name}, which is not installed; run: {hint}",
        )
    return Failure(
        exit_code=BUG,
        message=f"internal error: {type(error).__name__}: {error}",
        details="".join(traceback.format_exception(error)),
    )
