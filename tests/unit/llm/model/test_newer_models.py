"""LLaMA 3, Qwen3, Gemma 3 and GLM-4: small random checkpoints against their formulas."""

import json

import pytest
import torch
from safetensors.torch import save_file

from support.llm_reference import CONFIGS, Reference, tensors
from tacit.errors import ConfigError, DataError
from tacit.llm import Cache, logits, open_checkpoint

IDS = [5, 17, 3, 3, 40, 42, 9, 1, 30, 7]


def stored(folder, name, **changes):
    config = CONFIGS[name] | changes
    (folder / "config.json").write_text(json.dumps(config))
    save_file(tensors(config), folder / "model.safetensors")
    return open_checkpoint(folder)


@pytest.mark.parametrize("name", CONFIGS)
def test_scores_are_those_of_the_formulas(name, tmp_path):
    wanted = Reference(CONFIGS[name], tensors(CONFIGS[name])).logits(IDS)
    found = logits(stored(tmp_path, name).load(), IDS)
    torch.testing.assert_close(found.double(), wanted, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", CONFIGS)
def test_reading_token_by_token_is_reading_at_once(name, tmp_path):
    model, cache = stored(tmp_path, name).load(), Cache()
    steps = torch.cat([logits(model, [token], cache) for token in IDS])
    torch.testing.assert_close(steps, logits(model, IDS), atol=1e-4, rtol=1e-4)


def test_layers_of_gemma_may_be_listed_and_angles_have_a_table_each(tmp_path):
    (first := tmp_path / "a").mkdir()
    (second := tmp_path / "b").mkdir()
    kinds = ["sliding_attention", "full_attention", "sliding_attention"]
    angles = {
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
        "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
    }
    listed = stored(
        second,
        "gemma3",
        layer_types=kinds,
        rope_parameters=angles,
        rope_scaling=None,
        rope_theta=None,
        rope_local_base_freq=None,
    )
    assert listed.architecture == stored(first, "gemma3").architecture


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("gemma3", {"layer_types": ["full_attention", "sliding_attention"]}, "must repeat"),
        ("gemma3", {"final_logit_softcapping": 30.0}, "final_logit_softcapping must be None"),
        ("gemma3", {"hidden_activation": "relu"}, "hidden_activation must be"),
        ("qwen3", {"attention_bias": True}, "have no bias"),
        ("glm4", {"partial_rotary_factor": 3.0}, "no model has these positions"),
        ("qwen3", {"partial_rotary_factor": 0.5}, "partial_rotary_factor must be 1 for qwen3"),
        ("glm_quarter", {"partial_rotary_factor": 0.5}, "wanted one"),
        ("qwen3", {"use_mrope": True}, "use_mrope must be False"),
        ("qwen3", {"logit_scale": 0.1}, "logit_scale = 0.1 is a setting that tacit does not know"),
        ("qwen3", {"rope_parameters": {"mrope_section": [2, 2]}}, "mrope_section = .*not know"),
        ("gemma3", {"rope_parameters": {"rope_theta": 1.0}}, "contradict each other"),
        ("llama3", {"quantization_config": {"bits": 4}}, "quantization_config = .*not know"),
    ],
)
def test_what_no_known_model_has_is_refused_by_name(name, change, words, tmp_path):
    with pytest.raises((DataError, ConfigError), match=words):
        stored(tmp_path, name, **change)
