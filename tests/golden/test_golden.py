"""What tacit does is what the files here say; `python -m golden --write` writes them anew."""

import pytest

from golden.cases import NEEDS_MNIST, REST, SLICE
from golden.jobs import has_mnist
from golden.record import difference, forgotten, run

HOW = "if this is meant: cd tests; python -m golden --write"


def check(name):
    found = difference(name, run(name))
    assert not found, f"{name} is not as it was; {HOW} '{name}'\n{found}"


@pytest.mark.parametrize("name", SLICE)
def test_what_is_promised_sent_shown_and_refused_is_as_it_was(name):
    check(name)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [pytest.param(one, marks=pytest.mark.data) if one in NEEDS_MNIST else one for one in REST],
)
def test_so_it_is_of_all_examples(name):
    if name in NEEDS_MNIST and not has_mnist():
        pytest.skip("MNIST is not here: TACIT_DATA names the folder that has mnist/mnist.npz")
    check(name)


def test_no_file_is_left_of_a_case_that_is_gone():
    assert forgotten() == []
