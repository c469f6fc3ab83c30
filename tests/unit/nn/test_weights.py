"""Weights in files: read as tensors alone, refused in words, and back in the torch module."""

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from tacit.errors import DataError
from tacit.nn import import_module, load_weights, read_facts, read_weights, to_safetensors


def network():
    torch.manual_seed(4)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2))


def save(path, state):
    if path.suffix in (".pt", ".pth"):
        torch.save(state, path)
    elif path.suffix == ".npz":
        np.savez(path, **{name.replace(".", "/"): one.numpy() for name, one in state.items()})
    else:
        path.write_bytes(to_safetensors(state, {"scale": [2.0, 4.0]}))


@pytest.mark.parametrize("ending", [".pt", ".pth", ".npz", ".safetensors"])
def test_weights_come_back_from_every_kind_of_file(tmp_path, ending):
    module, path = network(), tmp_path / f"w{ending}"
    save(path, module.state_dict())
    other = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2))
    load_weights(other, path)
    for name, value in module.state_dict().items():
        assert torch.equal(other.state_dict()[name], value)


def test_safetensors_of_ours_are_those_of_everybody(tmp_path):
    module, path = network(), tmp_path / "w.safetensors"
    save(path, module.state_dict())
    nn.Module.load_state_dict(network(), load_file(path))
    assert read_facts(path) == {"scale": [2.0, 4.0]}


@pytest.mark.parametrize("key", ["state_dict", "model_state_dict"])
def test_a_checkpoint_around_the_weights_is_unwrapped(tmp_path, key):
    torch.save({key: network().state_dict(), "epoch": 3}, tmp_path / "w.pt")
    load_weights(network(), tmp_path / "w.pt")


def test_a_whole_pickled_module_is_refused_with_what_to_save(tmp_path):
    torch.save(network(), tmp_path / "w.pt")
    with pytest.raises(DataError, match=r"torch\.save\(module\.state_dict\(\), path\)"):
        read_weights(tmp_path / "w.pt")


@pytest.mark.parametrize("ending", [".pt", ".npz", ".safetensors", ".f32"])
@pytest.mark.parametrize("content", [b"", b"not weights", b'\x08\0\0\0\0\0\0\0{"a":1}x'])
def test_a_file_that_holds_no_weights_is_refused_with_its_name(tmp_path, ending, content):
    path = tmp_path / f"w{ending}"
    path.write_bytes(content)
    with pytest.raises(DataError, match=rf"w\{ending}"):
        load_weights(network(), path)


def test_weights_of_another_module_missing_files_and_strange_endings_are_refused(tmp_path):
    save(tmp_path / "w.pt", nn.Linear(3, 4).state_dict())
    with pytest.raises(DataError, match="does not hold the weights of this model"):
        load_weights(network(), tmp_path / "w.pt")
    with pytest.raises(DataError, match="no such file"):
        load_weights(network(), tmp_path / "none.pt")
    with pytest.raises(DataError, match=r"wanted weights as \.safetensors"):
        load_weights(network(), tmp_path / "w.bin")
    (tmp_path / "w.f32").write_bytes(b"\0" * 8)
    with pytest.raises(DataError, match="wanted 34 weights of this model, got 2"):
        load_weights(network(), tmp_path / "w.f32")


def test_weights_that_are_no_numbers_are_refused(tmp_path):
    state = network().state_dict()
    state["0.weight"][0, 0] = float("nan")
    save(tmp_path / "w.pt", state)
    with pytest.raises(DataError, match=r"'0\.weight' holds NaN"):
        read_weights(tmp_path / "w.pt")


class Attending(nn.Module):
    def __init__(self):
        super().__init__()
        self.attend = nn.MultiheadAttention(4, 2, batch_first=True)
        self.norm = nn.BatchNorm1d(3, affine=False)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(3))

    def forward(self, x):
        return self.norm(self.attend(x, x, x, attn_mask=self.mask, need_weights=False)[0])


@pytest.mark.parametrize("make", [network, Attending])
def test_what_a_run_folds_together_is_unfolded_for_torch(make):
    module = make().eval()
    for name, value in module.named_buffers():
        if name.endswith(("running_mean", "running_var")):
            value.copy_(torch.rand_like(value) + 0.5)
    imported = import_module(module)
    other = make().eval()
    other.load_state_dict(imported.state(imported.weights))
    x = torch.rand(5, 3) if make is network else torch.rand(5, 3, 4)
    assert torch.allclose(other(x), module(x), atol=1e-6)
