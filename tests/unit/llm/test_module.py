"""A model as a torch module: the same scores as the plain engine, with a past and without."""

import pytest
import torch

from support.llm import FAMILIES, tiny
from tacit.errors import ConfigError, DataError
from tacit.llm import logits
from tacit.llm.model.module import CausalModule, language_model, tiny_model


@pytest.mark.parametrize("family", [name for name in FAMILIES if name != "chatglm"])
def test_every_family_computes_what_the_plain_engine_does(family):
    model = tiny(family)
    module = CausalModule(model)
    ids = torch.arange(12) % model.architecture.vocab
    past = []
    with torch.no_grad():
        whole = module(ids.expand(2, 3, 12))[1, 2]
        parts = [module(ids[None, a:b], past)[0] for a, b in ((0, 5), (5, 6), (6, 12))]
    wanted = logits(model, ids.tolist())
    assert torch.allclose(whole, wanted, atol=1e-4)
    assert torch.allclose(torch.cat(parts), wanted, atol=1e-4)
    back = language_model(module)
    assert all(torch.equal(back.weights[name], w) for name, w in model.weights.items())


def test_what_is_no_causal_model_or_too_long_is_refused():
    with pytest.raises(ConfigError, match="in both directions"):
        CausalModule(tiny("chatglm"))
    with pytest.raises(DataError, match="9 tokens, the model's context is 8"):
        CausalModule(tiny_model(10, context=8))(torch.zeros(1, 9, dtype=torch.long))
    with pytest.raises(ConfigError, match="wanted a CausalModule, got Linear"):
        language_model(torch.nn.Linear(1, 1))
