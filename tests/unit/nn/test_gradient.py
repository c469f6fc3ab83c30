"""Gradients over ops against torch's own."""

import pytest
import torch

from tacit.errors import InputError
from tacit.nn.gradient import GradientOps
from tacit.nn.plain import TorchOps
from tacit.nn.tape import pull_back

A, B = (3, 4), (4, 5)
IMAGE = (2, 3, 8, 8)
ONE = (1, 1)

CASES = {
    "add broadcasting": ([A, (4,)], lambda ops, x, y: ops.add(x, y)),
    "sub broadcasting": ([(3, 1), A], lambda ops, x, y: ops.sub(x, y)),
    "mul broadcasting": ([A, (3, 1)], lambda ops, x, y: ops.mul(x, y)),
    "mul with itself": ([A], lambda ops, x: ops.mul(x, x)),
    "square": ([A], lambda ops, x: ops.square(x)),
    "matmul": ([A, B], lambda ops, x, y: ops.matmul(x, y)),
    "matmul in batches": ([(2, *A), B], lambda ops, x, y: ops.matmul(x, y)),
    "scale and shift": ([A], lambda ops, x: ops.shift(ops.scale(x, -2.5), 1.0)),
    "weigh": ([A], lambda ops, x: ops.weigh(x, torch.arange(4.0))),
    "offset": ([A], lambda ops, x: ops.offset(x, torch.ones(3, 4))),
    "sum": ([A], lambda ops, x: ops.sum(x, dim=0)),
    "reshape": ([A], lambda ops, x: ops.reshape(x, (2, 6))),
    "transpose": ([(2, 3, 4)], lambda ops, x: ops.transpose(x, 0, 2)),
    "take": ([A], lambda ops, x: ops.take(x, (2, 0, 2, 2), dim=1)),
    "concatenate": ([A, (2, 4)], lambda ops, x, y: ops.concatenate([x, y, x], dim=0)),
    "relu": ([A], lambda ops, x: ops.relu(x)),
    "sigmoid": ([A], lambda ops, x: ops.sigmoid(x)),
    "tanh": ([A], lambda ops, x: ops.tanh(x)),
    "silu": ([A], lambda ops, x: ops.silu(x)),
    "erf": ([A], lambda ops, x: ops.erf(x)),
    "gelu": ([A], lambda ops, x: ops.gelu(x)),
    "softmax": ([A], lambda ops, x: ops.softmax(x, dim=-1)),
    "softmax of columns": ([A], lambda ops, x: ops.softmax(x, dim=0)),
    "rsqrt": ([A], lambda ops, x: ops.rsqrt(ops.shift(ops.square(x), 0.5))),
    "layer norm": ([A], lambda ops, x: ops.layer_norm(x, eps=1e-5)),
    "rms norm": ([A], lambda ops, x: ops.rms_norm(x, eps=1e-5)),
    "max of an odd row": ([(3, 5)], lambda ops, x: ops.max(x, dim=1)),
    "max pool": (
        [IMAGE],
        lambda ops, x: ops.max_pool2d(x, size=(2, 2), stride=(2, 2), padding=(0, 0)),
    ),
    "average pool": (
        [IMAGE],
        lambda ops, x: ops.avg_pool2d(x, size=(4, 2), stride=(4, 2), padding=(0, 0)),
    ),
    "clamp": ([A], lambda ops, x: ops.clamp(x, -0.5, 0.8)),
    "within": ([A], lambda ops, x: ops.within(ops.scale(x, 0.5), x, gain=0.5)),
}
for stride in (ONE, (2, 2), (3, 2)):
    for padding in ((0, 0), ONE, (2, 1)):
        for size in ((3, 3), (1, 1), (5, 4)):
            CASES[f"conv {size} stride {stride} padding {padding}"] = (
                [IMAGE, (4, 3, *size)],
                lambda ops, x, w, how=(stride, padding): ops.conv2d(
                    x, w, stride=how[0], padding=how[1]
                ),
            )


@pytest.mark.parametrize("name", CASES)
def test_a_gradient_is_that_of_torch(name):
    shapes, program = CASES[name]
    generator = torch.Generator().manual_seed(7)
    values = [
        torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_()
        for shape in shapes
    ]
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


def test_windows_that_overlap_cannot_be_trained_and_say_so():
    ops = GradientOps(TorchOps())
    x = ops.leaf(torch.ones(1, 1, 6, 6))
    with pytest.raises(InputError, match="tile the image"):
        ops.max_pool2d(x, size=(3, 3), stride=(2, 2), padding=(0, 0))
