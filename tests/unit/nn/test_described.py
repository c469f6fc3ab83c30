"""Models from words, and modules made trainable: also in several threads at once."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn

from tacit.errors import ConfigError, InputError
from tacit.nn import GradientOps, TorchOps, make_model, parse_layers, pull_back


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
    with pytest.raises(
        ConfigError, match=r"layer 2, 'dence 3', does not fit .* did you mean 'dense'"
    ):
        parse_layers(("dense 4", "dence 3"), (5,), seed=0)


class Reader(nn.Module):
    """Reads words, as people classify texts."""

    def __init__(self, *, is_hard=False):
        super().__init__()
        self.words = nn.Embedding(7, 3, padding_idx=0)
        self.read = nn.GRU(3, 4, batch_first=True)
        self.head = nn.Linear(4, 2)
        self.is_hard = is_hard

    def forward(self, ids):
        scores = self.head(self.read(self.words(ids))[1][-1])
        return scores + scores.argmax(dim=1, keepdim=True) if self.is_hard else scores


def test_a_reader_of_words_is_trained_and_its_padding_stays():
    module = Reader().double()
    model = make_model(module, (5,))
    assert (model.outputs, model.inputs) == (2, (5,))
    ids = torch.tensor([[3, 1, 6, 0, 0], [2, 2, 4, 5, 0]])
    ops = GradientOps(TorchOps())
    leaves = {name: ops.leaf(value) for name, value in model.initial.items()}
    out = model(ops, leaves, ops.leaf(ids.double()))
    assert torch.allclose(out.value, module(ids))
    above = torch.ones(2, 2, dtype=torch.float64)
    (by_words,) = pull_back(TorchOps(), out, above, [leaves["words/weight"]])
    (wanted,) = torch.autograd.grad(module(ids), [module.words.weight], above)
    assert torch.allclose(by_words, wanted)
    assert not by_words[0].any()


def test_what_has_no_gradient_is_refused_by_name_when_it_is_to_be_trained():
    with pytest.raises(InputError, match=r"operation 'argmax'.*has no gradient"):
        make_model(Reader(is_hard=True), (5,))
