"""Models from words, and modules made trainable: also in several threads at once."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from tacit.errors import ConfigError
from tacit.learn.training import make_model, parse_layers


def test_models_can_be_made_in_many_threads_at_once():
    # A tracer of torch changes what calling a module does, for all threads.
    words = ("conv 3 3", "relu", "avgpool 2", "flatten", "dense 6", "tanh", "dense 4")

    def make(seed):
        return make_model(parse_layers(words, (1, 10, 10), seed=seed), (1, 10, 10))

    with ThreadPoolExecutor(8) as pool:
        models = list(pool.map(make, [seed % 3 for seed in range(48)]))
    for at, model in enumerate(models):
        for name, value in models[at % 3].initial.items():
            assert torch.equal(model.initial[name], value)


def test_a_word_that_is_no_layer_is_named_with_its_place():
    with pytest.raises(ConfigError, match="layer 2, 'dence 3', does not fit"):
        parse_layers(("dense 4", "dence 3"), (5,), seed=0)
