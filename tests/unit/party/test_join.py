import errno

import pytest

from tacit.errors import DataError, LinkClosed, TacitError
from tacit.party import blame


def caused(error, number):
    error.__cause__ = OSError(number, "")
    return error


@pytest.mark.parametrize(
    ("error", "party", "words"),
    [
        (LinkClosed("lab", "went away"), "lab", "went away"),
        (DataError("row 17 of patients.csv has no age"), "hospital", "its own input"),
        (OSError(errno.ENOSPC, "full", "patients.csv"), "hospital", "its disk is full"),
        (OSError(errno.EFBIG, "full", "patients.csv"), "hospital", "its files may not grow"),
        (OSError(errno.EDQUOT, "full", "patients.csv"), "hospital", "its disk is full"),
        (caused(DataError("cannot write patients.csv"), errno.ENOSPC), "hospital", "disk is full"),
        (caused(DataError("cannot read patients.csv"), errno.EACCES), "hospital", "its own input"),
        (OSError(errno.EIO, "patients.csv"), "hospital", "internal error (OSError)"),
        (KeyboardInterrupt(), "hospital", "stopped by its user"),
        (TacitError("step 3 used twice"), "hospital", "internal error (TacitError)"),
        (ZeroDivisionError("1/0"), "hospital", "internal error (ZeroDivisionError)"),
    ],
)
def test_the_others_are_told_who_failed_but_nothing_about_a_partys_data(error, party, words):
    named, reason = blame("hospital", error)
    assert named == party
    assert words in reason
    assert "17" not in reason
    assert "patients" not in reason
