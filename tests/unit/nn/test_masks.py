"""Attention beside torch's: which keys a mask hides, and in how many dimensions one calls it."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import tacit
from tacit.errors import InputError
from tacit.nn import TorchOps, import_module

QUERIES, KEYS, WIDTH = 3, 5, 4


class Attention(nn.Module):
    """Torch's function, with queries, keys and values that are made of one input."""

    def __init__(self, lead, mask=None, *, groups=None, **named):
        super().__init__()
        self.lead, self.named = lead, named
        self.inner = (*lead[:-1], groups) if groups else lead
        self.lin = nn.Linear(WIDTH, WIDTH)
        self.register_buffer("mask", mask)

    def forward(self, x):
        y = self.lin(x)
        few = y[..., :QUERIES, :]
        if self.inner != self.lead:
            y = y[:, : self.inner[-1]]
        return F.scaled_dot_product_attention(few, y * 0.5, y + 1, self.mask, **self.named)


def coins():
    return torch.Generator().manual_seed(4)


def kept(*shape):
    """Give a mask in which every query sees its first key, and others by chance."""
    mask = torch.rand(*shape, generator=coins()) < 0.5
    mask[..., 0] = True
    return mask


def hiding(mask):
    return torch.zeros(mask.shape).masked_fill(~mask, -torch.inf)


LEADS = [(), (2,), (2, 4), (2, 1, 4), (1, 2, 2, 4)]
CASES = [
    *((lead, mask, {}) for lead in LEADS for mask in (None, kept(QUERIES, KEYS))),
    *((lead, None, {"is_causal": True, "scale": 0.7}) for lead in LEADS),
    *((lead, kept(*lead, QUERIES, KEYS), {}) for lead in LEADS),
    ((2, 4), hiding(kept(QUERIES, KEYS)), {}),
    ((2, 4), hiding(kept(2, 1, QUERIES, KEYS)), {}),
    ((2, 4), kept(4, QUERIES, KEYS), {}),
    ((2, 4), kept(1, 1, 1, KEYS), {}),
    ((2, 4), kept(1, KEYS), {}),
    ((2, 4), kept(2, 4, QUERIES, KEYS), {"enable_gqa": True, "groups": 2}),
    ((2, 4), kept(2, 1, QUERIES, KEYS), {"enable_gqa": True, "groups": 2}),
]


def made(lead, mask, named):
    torch.manual_seed(0)
    module = Attention(lead, mask, **named).eval()
    return module, torch.rand(*lead, KEYS, WIDTH, generator=coins()) * 2 - 1


@pytest.mark.parametrize(("lead", "mask", "named"), CASES)
def test_a_mask_keeps_what_it_keeps_in_torch(lead, mask, named):
    module, x = made(lead, mask, named)
    with torch.no_grad():
        wanted = module(x).double()
    model = import_module(module)
    got = model(TorchOps(), model.weights, x.double())
    assert got.shape == wanted.shape
    assert (got - wanted).abs().max() < 1e-6


@pytest.mark.parametrize("case", [(LEADS[1], kept(QUERIES, KEYS), {}), CASES[-1], CASES[12]])
def test_a_mask_keeps_the_same_on_shares(case):
    module, x = made(*case)
    with torch.no_grad():
        wanted = module(x)
    got = tacit.secure(module, protocol="sealed")(x).values
    assert (got - wanted).abs().max() < 5e-3


def test_a_mask_of_every_head_goes_to_its_head():
    class Called(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.MultiheadAttention(WIDTH, 2, batch_first=True)
            self.register_buffer("mask", ~kept(6, KEYS, KEYS))

        def forward(self, x):
            return self.layer(x, x, x, attn_mask=self.mask)[0]

    module, x = Called().double().eval(), torch.rand(3, KEYS, WIDTH, generator=coins()).double()
    model = import_module(module)
    with torch.no_grad():
        assert (model(TorchOps(), model.weights, x) - module(x)).abs().max() < 1e-9


def test_a_query_that_sees_no_key_is_refused():
    mask = kept(QUERIES, KEYS)
    mask[1] = False
    module, x = made((2, 4), mask, {})
    model = import_module(module)
    with pytest.raises(InputError, match="a query that may see no key"):
        model(TorchOps(), model.weights, x.double())


@pytest.mark.parametrize("kind", [torch.int64, torch.bool])
def test_whole_numbers_are_not_made_of_others_without_a_word(kind):
    class Rounded(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = nn.Linear(WIDTH, WIDTH)

        def forward(self, x):
            return self.lin(x).to(kind) + x

    model = import_module(Rounded().double())
    with pytest.raises(InputError, match=f"operation 'to'.*floating-point.*{kind}"):
        model(TorchOps(), model.weights, torch.ones(1, WIDTH).double())


def test_a_public_mask_is_a_number_once_it_is_made_one():
    class Weighed(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = nn.Linear(KEYS, WIDTH)
            self.register_buffer("mask", kept(KEYS))

        def forward(self, x):
            return self.lin(x * (1 - self.mask.to(x.device).float()) + x * self.mask.to(torch.int))

    module, x = Weighed().double(), torch.rand(2, KEYS, generator=coins()).double()
    model = import_module(module)
    with torch.no_grad():
        assert (model(TorchOps(), model.weights, x) - module(x)).abs().max() < 1e-9


@pytest.mark.parametrize(
    "use", [lambda out, weights: weights, lambda out, weights: out + weights.mean()]
)
def test_weights_of_attention_are_refused_where_they_are_used(use):
    class Called(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.MultiheadAttention(WIDTH, 2, batch_first=True)

        def forward(self, x):
            out, weights = self.layer(x, x, x)
            return use(out, weights)

    model = import_module(Called().double())
    with pytest.raises(InputError, match=r"weights of attention|wanted a module that returns"):
        model(TorchOps(), model.weights, torch.ones(1, KEYS, WIDTH).double())
