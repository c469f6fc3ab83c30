from unittest import mock

import pytest
import torch

pytest.importorskip("tenseal", reason="tacit-ml[he] is not installed")

import tenseal

from private_llm import answering, plainly, speak, tiny
from tacit.errors import ConfigError, FrameError
from tacit.llm.permuted.homomorphic import Names, Picker, pieces


@pytest.mark.parametrize("vocab", [40, 5000])
def test_the_user_reads_the_entry_at_its_place(vocab):
    order = torch.randperm(vocab, generator=torch.Generator().manual_seed(1)).tolist()
    picker = Picker(vocab)
    names = Names("user", picker.public())
    for place in (0, vocab // 2, vocab - 1):
        asked = picker.ask(place)
        assert len(asked) == pieces(vocab)
        assert picker.read(names.answer(order, asked)) == order[place]


def test_the_owner_cannot_decrypt_with_what_it_is_given():
    picker = Picker(40)
    names = Names("user", picker.public())
    assert not names._context.has_secret_key()


def test_what_is_no_ciphertext_is_refused_by_name_of_its_sender():
    names = Names("user", Picker(40).public())
    with pytest.raises(FrameError, match="user"):
        names.answer(range(40), [b"nonsense"])
    with pytest.raises(FrameError, match="asked for nothing"):
        names.answer(range(40), [])


BFV, CKKS = tenseal.SCHEME_TYPE.BFV, tenseal.SCHEME_TYPE.CKKS


@pytest.mark.parametrize(
    ("scheme", "parameters", "name"),
    [
        (BFV, {"poly_modulus_degree": 4096}, "ring degree 4096"),
        (BFV, {"plain_modulus": 786433}, "plain modulus 786433"),
        (BFV, {"coeff_mod_bit_sizes": [40, 40, 40]}, "ciphertext modulus"),
        (CKKS, {"plain_modulus": None, "coeff_mod_bit_sizes": [40, 40, 40]}, "scheme"),
    ],
)
def test_keys_of_other_parameters_are_refused_by_name(scheme, parameters, name):
    agreed = {"poly_modulus_degree": 8192, "plain_modulus": 1032193}
    context = tenseal.context(scheme, **(agreed | parameters))
    with pytest.raises(FrameError, match=f"'user'.*{name}"):
        Names("user", context.serialize(save_secret_key=False))


def test_keys_whose_parameters_the_library_finds_unsound_are_refused():
    unsound = mock.Mock()
    unsound.seal_context().data.key_context_data.return_value = None
    with (
        mock.patch.object(tenseal, "context_from", return_value=unsound),
        pytest.raises(FrameError, match="keys that are none"),
    ):
        Names("user", b"")


def test_a_vector_of_another_length_is_refused():
    picker = Picker(50)
    with pytest.raises(FrameError, match="50 slots, wanted 40"):
        Names("user", picker.public()).answer(range(40), picker.ask(0))


def test_a_vocabulary_beyond_the_modulus_is_refused():
    with pytest.raises(ConfigError, match="at most 1032192"):
        Picker(2_000_000)


def test_a_chat_that_names_its_tokens_by_bfv_says_the_same():
    model = tiny("llama", seed=4)
    spoken = speak(model, answering([1, 5, 7], 3), naming="bfv")
    assert spoken.value == plainly(model, [1, 5, 7], 3)
    tags = [tag for tag, _ in spoken.received["user"]]
    assert not any(tag.startswith("id0") for tag in tags)
    assert sum(tag.startswith("he0/answer") for tag in tags) == 3
