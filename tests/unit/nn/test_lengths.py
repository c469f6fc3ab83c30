"""Lengths of rows: every bound that an imported model states of a value holds, and is of use."""

import pytest
import torch
from torch import nn

from support.models import small_bert
from tacit.nn import TorchOps, import_module
from tacit.nn.ops import BoundedOps
from tacit.nn.running import NORM, ROWS


class WatchingOps(TorchOps):
    """Compute in the clear with the sizes of values as they are, and check what is stated of them.

    A stated bound follows from the sizes of inputs, so it must hold for sizes that are exact.
    """

    def __init__(self):
        self.looseness = []

    def bound(self, value):
        return float(value.abs().max())

    def product_within(self, x, y, *, bound):
        out = torch.matmul(x, y)
        assert float(out.abs().max()) <= bound
        self.looseness.append(bound / max(float(out.abs().max()), 1e-9))
        return out

    def attention(self, scores, seen):
        return torch.softmax(scores.masked_fill(~seen, -torch.inf), -1)

    def norm_rows(self, x, *, eps, length, centred):
        longest = float(x.norm(dim=-1).max())
        assert longest <= length * (1 + 1e-9)
        self.looseness.append(length / longest)
        return self.layer_norm(x, eps=eps) if centred else self.rms_norm(x, eps=eps)


class Corners(nn.Module):
    """Rows of one element beside longer ones, parts of rows and rows put together."""

    def __init__(self):
        super().__init__()
        self.norm, self.inner = nn.LayerNorm(8), nn.LayerNorm(16)
        self.narrow, self.wide = nn.Linear(8, 1), nn.Linear(16, 16)
        self.gain = nn.Parameter(torch.full((1,), 3.0))

    def forward(self, x):
        y = self.norm(x)
        one = self.narrow(y)
        y = (y + one) * 2.0 - one / 0.5 + one * self.gain
        pairs = y.view(y.shape[0], -1, 16)
        return self.wide(self.inner(pairs)) + self.wide(pairs)


def encoder(**options):
    layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True, **options)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


MODULES = {
    "corners": (Corners, lambda: torch.randn(2, 4, 8)),
    "behind": (lambda: encoder(activation="gelu"), lambda: 3 * torch.randn(2, 5, 16)),
    "before": (lambda: encoder(norm_first=True), lambda: 3 * torch.randn(2, 5, 16)),
    "bert": (lambda: small_bert(layers=3), lambda: torch.randint(0, 50, (2, 9))),
}


@pytest.mark.parametrize("scale", [0.3, 1.0, 4.0])
@pytest.mark.parametrize("kind", MODULES)
def test_what_is_stated_of_a_value_holds(kind, scale):
    torch.manual_seed(3)
    make, draw = MODULES[kind]
    module = make().eval()
    with torch.no_grad():
        for value in module.parameters():
            value.mul_(scale)
        imported, ops, x = import_module(module.double()), WatchingOps(), draw()
        assert isinstance(ops, BoundedOps)
        assert not isinstance(TorchOps(), BoundedOps)
        got = imported(ops, imported.weights, x if kind == "bert" else x.double())
        assert ops.looseness
        wanted = module(x if kind == "bert" else x.double())
    assert torch.allclose(got, wanted, atol=1e-9)


def test_a_row_that_is_aligned_with_a_matrix_reaches_what_is_stated():
    """The bound is not loose: the worst row, which is normal, comes within a few per cent."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.LayerNorm(64, elementwise_affine=False), nn.Linear(64, 64, False))
    with torch.no_grad():
        module[1].weight.sub_(module[1].weight.mean(1, keepdim=True))
        row = module[1].weight[module[1].weight.norm(dim=1).argmax()].double()
        imported, ops = import_module(module.double().eval()), WatchingOps()
        imported(ops, imported.weights, row[None])
    assert 1.0 <= min(ops.looseness[1:]) < 1.1


def test_lengths_are_told_of_models_with_norms_alone():
    plain = import_module(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)).eval())
    assert set(plain.gains) == {"0/weight", "2/weight"}
    normal = import_module(nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4)).eval())
    assert {ROWS.format("0/weight"), NORM.format("0/weight"), ROWS.format("1/bias")} <= set(
        normal.gains
    )


def test_the_entries_of_a_table_are_known_where_the_input_is_nothing_but_their_names():
    assert import_module(small_bert()).entries() == 50

    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(5, 4)

        def forward(self, ids):
            return self.table(ids) * ids.unsqueeze(-1)

    assert import_module(Both().eval()).entries() is None
    assert import_module(nn.Linear(3, 2).eval()).entries() is None
