"""Gradients over ops against torch's own, in the clear."""

import pytest
import torch

from support.operations import CASES, HOT, values_of
from tacit.errors import InputError
from tacit.nn.gradient import GradientOps, pull_back
from tacit.nn.plain import TorchOps


@pytest.mark.parametrize("name", CASES)
def test_a_gradient_is_that_of_torch(name):
    program, values, generator = values_of(name)
    for value in values:
        value.requires_grad_()
    plain = program(TorchOps(), *values)
    seed = torch.randn(plain.shape, generator=generator, dtype=torch.float64)
    wanted = torch.autograd.grad(plain, values, seed)
    ops = GradientOps(TorchOps())
    leaves = [ops.leaf(value.detach()) for value in values]
    out = program(ops, *leaves)
    torch.testing.assert_close(out.value, plain.detach())
    got = pull_back(TorchOps(), out, seed, leaves)
    for mine, theirs in zip(got, wanted, strict=True):
        torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("verb", ["lookup", "embedding"])
def test_a_table_is_differentiated_by_the_rows_that_were_read(verb):
    table = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    ids = HOT if verb == "lookup" else torch.tensor([2.0, 0.0, 2.0], dtype=torch.float64)
    plain = getattr(TorchOps(), verb)(table, ids)
    seed = torch.randn(plain.shape, dtype=torch.float64)
    (wanted,) = torch.autograd.grad(plain, [table], seed)
    ops = GradientOps(TorchOps())
    leaf = ops.leaf(table.detach())
    out = getattr(ops, verb)(leaf, ops.leaf(ids))
    (got,) = pull_back(TorchOps(), out, seed, [leaf])
    torch.testing.assert_close(got, wanted)


def test_a_value_the_output_does_not_depend_on_has_no_gradient():
    ops = GradientOps(TorchOps())
    x, y = ops.leaf(torch.ones(2)), ops.leaf(torch.ones(2))
    with pytest.raises(InputError, match="does not depend on wanted value 1"):
        pull_back(TorchOps(), ops.scale(x, 2.0), torch.ones(2), [x, y])


def test_only_what_leads_to_the_wanted_values_is_differentiated():
    class Counting(TorchOps):
        products = 0

        def mul(self, x, y):
            self.products += 1
            return super().mul(x, y)

    inner = Counting()
    ops = GradientOps(inner)
    x, w = ops.leaf(torch.ones(2)), ops.leaf(torch.ones(2))
    out = ops.mul(ops.sigmoid(x), w)
    inner.products = 0
    pull_back(inner, out, torch.ones(2), [w])
    assert inner.products == 1  # that by w, nothing else
