"""What tacit does is what the files here say; `python -m golden --write` writes them anew."""

import pytest

from golden.cases import REST, SLICE
from golden.record import difference, forgotten, run

HOW = "if this is meant: cd tests; python -m golden --write"


def check(name):
    found = difference(name, run(name))
    assert not found, f"{name} is not as it was; {HOW} '{name}'\n{found}"


@pytest.mark.parametrize("name", SLICE)
def test_what_is_promised_sent_shown_and_refused_is_as_it_was(name):
    check(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", REST)
def test_so_it_is_of_all_examples(name):
    check(name)


def test_no_file_is_left_of_a_case_that_is_gone():
    assert forgotten() == []
