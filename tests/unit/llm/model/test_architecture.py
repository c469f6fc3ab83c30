import math
from dataclasses import replace

import pytest
import torch

from support.llm import CHATGLM, LLAMA, make_model
from tacit.errors import ConfigError, DataError
from tacit.llm import LanguageModel, parameters, shapes


def test_a_missing_tensor_is_refused_by_name():
    model = make_model(LLAMA)
    weights = {k: w for k, w in model.weights.items() if k != "layers.1.gate.weight"}
    with pytest.raises(DataError, match=r"no tensor 'layers\.1\.gate\.weight' of shape \(24, 16\)"):
        LanguageModel(architecture=LLAMA, weights=weights)


def test_a_tensor_of_another_shape_is_refused_by_name():
    weights = {**make_model(LLAMA).weights, "layers.0.q.weight": torch.zeros(16, 32)}
    with pytest.raises(DataError, match=r"'layers\.0\.q\.weight' must have shape \(32, 16\)"):
        LanguageModel(architecture=LLAMA, weights=weights)


def test_a_tensor_that_the_architecture_has_not_is_refused_by_name():
    weights = {**make_model(LLAMA).weights, "layers.0.q.bias": torch.zeros(32)}
    with pytest.raises(DataError, match=r"'layers\.0\.q\.bias' that llama has not"):
        LanguageModel(architecture=LLAMA, weights=weights)


def test_a_tied_output_counts_once():
    untied = replace(LLAMA, tied_output=False)
    assert parameters(untied) - parameters(LLAMA) == 64 * 16


def test_the_parameters_of_a_known_model_are_counted_right():
    # TinyStories 260K (Karpathy), as published.
    stories = replace(
        LLAMA, layers=5, width=64, heads=8, kv_heads=4, head_dim=8, ffn=172, vocab=512
    )
    assert parameters(stories) == 260_032


def test_a_layer_norm_has_a_bias_and_a_gate_is_only_in_swiglu():
    names = shapes(CHATGLM)
    assert names["layers.0.norm1.bias"] == (16,)
    assert "layers.0.gate.weight" not in names


def test_chatglm_scales_its_skips():
    assert CHATGLM.residual_scale == pytest.approx(math.sqrt(4))
    assert CHATGLM.skips_from_norm
    assert LLAMA.residual_scale == 1.0


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"layers": 0}, "layers"),
        ({"layers": 10**9}, "layers from 1 to 4096"),
        ({"kv_heads": 3}, "multiple"),
        ({"head_dim": 7}, "divisible"),
    ],
)
def test_impossible_shapes_are_refused(change, words):
    with pytest.raises(ConfigError, match=words):
        replace(LLAMA, **change)
