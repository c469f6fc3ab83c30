"""What tacit does is what the files here say; `python -m golden --write` writes them anew."""

import pytest

from golden.cases import NEEDS_MNIST, REST, SLICE
from golden.jobs import has_mnist
from golden.record import difference, forgotten, refer, run
from golden.watch import fold, together

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


def test_runs_that_are_alike_are_named_and_one_that_is_not_is_written_out():
    run = [("3.0", "online i64[5]"), ("4.0", "online u8[1]")]
    other = [("3.0", "online i64[5]"), ("4.0", "online u8[2]")]
    told = [
        (f"{at}.{place}", text) for at, one in enumerate([run, run, other]) for place, text in one
    ]
    assert fold([("seed", "setup u8[32]"), ("plan", "setup u8[32]"), *told]) == [
        *("seed: setup u8[32]", "plan: setup u8[32]"),
        *("0 … 1 (2 times): 3.0 online i64[5]", "0 … 1 (2 times): 4.0 online u8[1]"),
        *("2: 3.0 online i64[5]", "2: 4.0 online u8[2]"),
    ]


def test_clients_that_send_the_same_are_written_once():
    said = {f"client {one} → server": {"round": ["a"]} for one in (0, 1, 2, 5)}
    said["client 3 → server"] = {"round": ["b"]}
    assert together(said | {"client → dealer": {}}) == {
        "client 0–2, 5 → server": {"round": ["a"]},
        "client 3 → server": {"round": ["b"]},
        "client → dealer": {},
    }


def test_what_stands_already_is_named_by_its_place():
    long = ["x" * 300]
    assert refer({"a": long, "b": {"c": long}, "d": ["x"]}, {}) == {
        "a": long,
        "b": {"c": "as at a"},
        "d": ["x"],
    }
