"""Features by a public rule or a public network: each row from its own picture or text."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch.nn import functional

from tacit.data import read_texts
from tacit.errors import ConfigError, DataError
from tacit.nn import HistogramsOfGradients, ImageNetwork, TextNetwork
from tacit.nn.features import cut_out


def test_rows_have_norm_one_and_depend_on_their_own_picture_alone():
    pictures = np.random.default_rng(0).random((5, 28, 28))
    rows = HistogramsOfGradients()(pictures)
    assert rows.shape == (5, 6 * 6 * 2 * 2 * 9)
    assert np.linalg.norm(rows, axis=1) == pytest.approx(np.ones(5))
    assert np.array_equal(HistogramsOfGradients()(pictures[2:3])[0], rows[2])


def test_an_edge_votes_for_its_direction_and_an_empty_picture_for_none():
    across = np.tile(np.arange(16.0), (16, 1))  # grey that grows to the right: 0 degrees
    down = across.T
    empty = np.zeros((16, 16))
    rows = HistogramsOfGradients(cell=4, bins=4, block=1)(np.stack([across, down, empty]))
    votes = rows.reshape(3, -1, 4).sum(axis=1)
    # Bins are centred at 22.5 degrees and so on: 0 lies between the last and the first.
    assert votes[0] == pytest.approx([votes[0, 0], 0, 0, votes[0, 0]])
    assert votes[1] == pytest.approx([0, votes[1, 1], votes[1, 1], 0])
    assert not votes[2].any()


def test_rows_that_are_no_pictures_have_no_histograms():
    with pytest.raises(DataError, match="height, width"):
        HistogramsOfGradients()(np.zeros((3, 784)))


WIDTHS = ((16, 1, 3, 1), (24, 2, 3, 6), (40, 2, 5, 6), (80, 3, 3, 6), (112, 3, 5, 6))
WIDTHS += ((192, 4, 5, 6), (320, 1, 3, 6))


@pytest.fixture(scope="module")
def lite(tmp_path_factory):
    """Write weights of the shapes of EfficientNet-Lite0, drawn at random."""
    torch.manual_seed(0)
    found = {}

    def norm(name, width):
        found[f"{name}.running_mean"] = 0.1 * torch.randn(width)
        found[f"{name}.running_var"] = 1 + 0.1 * torch.rand(width)
        found[f"{name}.weight"] = torch.ones(width)
        found[f"{name}.bias"] = 0.1 * torch.randn(width)

    def layer(name, norm_name, out, inner, size):
        found[f"{name}.weight"] = torch.randn(out, inner, size, size) / (inner * size**2) ** 0.5
        norm(norm_name, out)

    layer("_conv_stem", "_bn0", 32, 3, 3)
    at, wide = 0, 32
    for out, repeats, size, expansion in WIDTHS:
        for _ in range(repeats):
            name, inner = f"_blocks.{at}", wide * expansion
            if expansion != 1:
                layer(f"{name}._expand_conv", f"{name}._bn0", inner, wide, 1)
            layer(f"{name}._depthwise_conv", f"{name}._bn1", inner, 1, size)
            layer(f"{name}._project_conv", f"{name}._bn2", out, inner, 1)
            at, wide = at + 1, out
    layer("_conv_head", "_bn1", 1280, 320, 1)
    file = tmp_path_factory.mktemp("lite") / "lite.safetensors"
    save_file({name: value.half() for name, value in found.items()}, file)
    return file


def test_features_of_a_picture_are_of_norm_1_and_its_own(lite):
    pictures = torch.rand(3, 3, 32, 32, dtype=torch.float64)
    rows = torch.from_numpy(cut_out(f"images:{lite}", pictures.numpy()))
    assert rows.shape == (3, 1280)
    assert torch.allclose(rows.norm(dim=1), torch.ones(3).double())
    other = pictures.clone()
    other[1] = 1 - other[1]
    again = torch.from_numpy(ImageNetwork(lite)(other))
    assert torch.allclose(again[[0, 2]], rows[[0, 2]], atol=1e-5)
    assert (again[1] - rows[1]).abs().max() > 10 * (again[0] - rows[0]).abs().max()


@pytest.mark.parametrize(
    "pictures", [torch.rand(2, 1, 8, 8), torch.rand(2, 3, 8), 255 * torch.rand(2, 3, 8, 8)]
)
def test_what_is_no_picture_is_refused(lite, pictures):
    with pytest.raises(DataError, match="from 0 to 1"):
        ImageNetwork(lite)(pictures)


def test_files_of_something_else_are_refused(tmp_path):
    save_file({"weight": torch.zeros(2)}, tmp_path / "other.safetensors")
    with pytest.raises(DataError, match="EfficientNet"):
        ImageNetwork(tmp_path / "other.safetensors")
    with pytest.raises(DataError, match="safetensors"):
        ImageNetwork(tmp_path / "nowhere.safetensors")
    with pytest.raises(DataError, match=r"model\.onnx"):
        TextNetwork(tmp_path)
    with pytest.raises(ConfigError, match="no such file"):
        cut_out("nowhere.py:make", torch.zeros(2, 2))


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    """Write a network whose last hidden states are rows of a table, and a tokenizer of words."""
    onnx = pytest.importorskip("onnx")
    from onnx import TensorProto, helper
    from tokenizers import Tokenizer, models, pre_tokenizers

    folder = tmp_path_factory.mktemp("encoder")
    words = {"[PAD]": 0, "[UNK]": 1, "good": 2, "bad": 3, "film": 4}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))  # noqa: S106 - no password
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    table = np.random.default_rng(0).normal(size=(5, 6)).astype(np.float32)
    names = ("input_ids", "attention_mask", "token_type_ids")
    graph = helper.make_graph(
        [helper.make_node("Gather", ["table", "input_ids"], ["last_hidden_state"])],
        "encoder",
        [helper.make_tensor_value_info(one, TensorProto.INT64, ["n", "t"]) for one in names],
        [helper.make_tensor_value_info("last_hidden_state", TensorProto.FLOAT, ["n", "t", 6])],
        [helper.make_tensor("table", TensorProto.FLOAT, table.shape, table.ravel())],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, folder / "model.onnx")
    return folder, torch.from_numpy(table).double()


def test_features_of_a_text_are_the_mean_of_its_tokens_without_padding(encoder):
    folder, table = encoder
    rows = torch.from_numpy(
        TextNetwork(folder)(["good film", "bad", "good good film film unheard"])
    )
    means = torch.stack([table[[2, 4]].mean(0), table[3], table[[2, 2, 4, 4, 1]].mean(0)])
    assert torch.allclose(rows, functional.normalize(means, dim=1), atol=1e-6)


def test_lines_of_texts_are_read_and_others_named_by_their_place(tmp_path):
    file = tmp_path / "texts.jsonl"
    file.write_text(json.dumps({"text": "a", "stars": 1}) + "\n" + '{"text": "b", "stars": 0}\n')
    texts, classes = read_texts(file, label="stars")
    assert (texts, classes.tolist()) == (["a", "b"], [1, 0])
    for line, words in (("{}", ":3: wanted"), ('{"text": 1, "stars": 1}', ":3: wanted a text")):
        file.write_text('{"text": "a", "stars": 1}\n' * 2 + line)
        with pytest.raises(DataError, match=words):
            read_texts(file, label="stars")
    file.write_text("")
    with pytest.raises(DataError, match="got none"):
        read_texts(file, label=None)
