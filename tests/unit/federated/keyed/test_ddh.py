"""Inner products by discrete logarithms: the value, and what is refused."""

import pytest

from tacit.errors import DataError, InputError
from tacit.federated.keyed.ddh import (
    ORDER,
    PRIME,
    Secret,
    decrypt_sum,
    encrypt,
    make_function_key,
    make_secret,
)
from tacit.ring import Prg

NUMBERS = {0: [5, -7, 0], 1: [100, 3, -2], 2: [-9, 1, 1]}
WEIGHTS = {0: 1, 1: 2, 2: 3}


@pytest.fixture(scope="module")
def scene():
    pytest.importorskip("gmpy2")
    prg = Prg(b"three clients of")
    secrets = {index: make_secret(prg) for index in NUMBERS}
    sealed = {index: encrypt(secrets[index], b"round 1", NUMBERS[index]) for index in NUMBERS}
    return secrets, sealed


def test_a_weighted_sum_is_that_of_the_numbers_and_of_no_other_weights(scene):
    secrets, sealed = scene
    key = make_function_key(secrets, WEIGHTS)
    wanted = [sum(WEIGHTS[at] * NUMBERS[at][place] for at in NUMBERS) for place in range(3)]
    assert decrypt_sum(key, b"round 1", sealed, WEIGHTS, bound=1000) == wanted
    for weights in ({0: 1}, {0: 1, 1: 1, 2: 1}):
        with pytest.raises(DataError, match="beyond 1000, or something is of another"):
            decrypt_sum(key, b"round 1", sealed, weights, bound=1000)


def test_a_replay_under_another_label_or_a_larger_sum_is_refused(scene):
    secrets, sealed = scene
    key = make_function_key(secrets, WEIGHTS)
    with pytest.raises(DataError, match="of another label"):
        decrypt_sum(key, b"round 2", sealed, WEIGHTS, bound=1000)
    with pytest.raises(DataError, match="beyond 50"):
        decrypt_sum(key, b"round 1", sealed, WEIGHTS, bound=50)


def test_a_key_is_good_for_every_label_which_is_why_pads_are_used(scene):
    secrets, _ = scene
    key = make_function_key(secrets, WEIGHTS)
    later = {index: encrypt(secrets[index], b"round 9", [index]) for index in NUMBERS}
    assert decrypt_sum(key, b"round 9", later, WEIGHTS, bound=100) == [8]


def test_ciphertexts_of_one_number_differ_by_label_place_and_client(scene):
    secrets, _ = scene
    made = [
        *encrypt(secrets[0], b"a", [1, 1]),
        *encrypt(secrets[0], b"b", [1]),
        *encrypt(secrets[1], b"a", [1]),
    ]
    assert len(set(made)) == 4
    assert all(pow(one, ORDER, PRIME) == 1 for one in made)  # in the group of squares


def test_what_is_out_of_range_is_refused_by_name(scene):
    secrets, sealed = scene
    key = make_function_key(secrets, WEIGHTS)
    with pytest.raises(InputError, match="secrets are known"):
        make_function_key(secrets, {7: 1})
    with pytest.raises(InputError, match="at most 2"):
        decrypt_sum(key, b"round 1", sealed, WEIGHTS, bound=1 << 50)
    with pytest.raises(DataError, match="no element of the group"):
        decrypt_sum(key, b"round 1", {**sealed, 1: [0, 0, 0]}, WEIGHTS, bound=9)
    with pytest.raises(DataError, match="as many ciphertexts"):
        decrypt_sum(key, b"round 1", {**sealed, 1: []}, WEIGHTS, bound=9)
    assert "first" not in repr(Secret(1, 2))
