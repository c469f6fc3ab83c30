from dataclasses import replace

import pytest
import torch

from support.llm import LLAMA, make_model
from tacit.errors import ConfigError, DataError
from tacit.llm import LanguageModel, parameters


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"layers.1.gate.weight": None},
            r"no tensor 'layers\.1\.gate\.weight' of shape \(24, 16\)",
        ),
        (
            {"layers.0.q.weight": torch.zeros(16, 32)},
            r"'layers\.0\.q\.weight' must have shape \(32, 16\)",
        ),
        ({"layers.0.q.bias": torch.zeros(32)}, r"'layers\.0\.q\.bias' that llama has not"),
    ],
    ids=["missing", "of another shape", "unknown"],
)
def test_a_tensor_that_does_not_fit_is_refused_by_name(change, words):
    weights = {**make_model(LLAMA).weights, **change}
    with pytest.raises(DataError, match=words):
        LanguageModel(
            architecture=LLAMA, weights={k: w for k, w in weights.items() if w is not None}
        )


def test_the_parameters_of_a_known_model_are_counted_right():
    # TinyStories 260K (Karpathy), as published.
    stories = replace(
        LLAMA, layers=5, width=64, heads=8, kv_heads=4, head_dim=8, ffn=172, vocab=512
    )
    assert parameters(stories) == 260_032


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
