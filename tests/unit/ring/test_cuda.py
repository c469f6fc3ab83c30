"""Every ring operation on CUDA, bit for bit against the CPU."""

from fractions import Fraction

import pytest
import torch

from tacit.ring import (
    Prg,
    accumulate,
    conv1d,
    conv2d,
    decode,
    discrete_gaussian,
    encode,
    from_bytes,
    from_planes,
    less_unsigned,
    matmul,
    pack_bits,
    parity,
    popcount,
    prepare,
    shift_right,
    to_bytes,
    to_planes,
    unpack_bits,
)
from tacit.ring.fused import is_available
from tacit.ring.product import multiply_with

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

KEY = bytes(range(16))
SHAPES = [(1, 1, 1), (1, 4096, 512), (7, 100, 33), (16, 129, 40), (17, 1000, 8), (300, 2100, 257)]
SMALL = 32_639  # the largest entry of two digits


def same(found: torch.Tensor, expected: torch.Tensor) -> bool:
    assert found.is_cuda
    return torch.equal(found.cpu(), expected)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kernel", ["int8", "stacked", "float64"])
def test_every_kernel_is_exact(kernel, shape):
    m, k, n = shape
    prg = Prg(KEY)
    left, right = prg.words((m, k)), prg.words((k, n))
    assert same(multiply_with(kernel, left.cuda(), right.cuda()), left @ right)


@pytest.mark.parametrize("rows", [1, 16, 17])
def test_a_product_is_added_to_what_is_there(rows):
    prg = Prg(KEY)
    left, right, out = prg.words((rows, 500)), prg.words((500, 70)), prg.words((rows, 70))
    assert same(accumulate(out.cuda(), left.cuda(), prepare(right.cuda())), out + left @ right)


@pytest.mark.skipif(not is_available(), reason="needs Triton")
@pytest.mark.parametrize("bound", [127, SMALL, 2**31, 2**62])
@pytest.mark.parametrize("shape", SHAPES[:4])
def test_the_fused_kernel_is_exact(shape, bound):
    m, k, n = shape
    prg = Prg(KEY)
    left, right = prg.words((m, k)), prg.below(2 * bound, (k, n)) - bound + 1
    assert same(multiply_with("fused", left.cuda(), prepare(right.cuda())), left @ right)


@pytest.mark.parametrize("k", [16_368, 16_400, 70_000, 131_080])
@pytest.mark.parametrize("rows", [1, 40])
@pytest.mark.parametrize("is_prepared", [False, True])
def test_sums_of_extreme_digits_do_not_overflow(k, rows, is_prepared):
    word = -0x7F7F7F7F7F7F7F80  # all digits are −128
    left, right = torch.full((rows, k), word), torch.full((k, 8), word)
    operand = prepare(right.cuda()) if is_prepared else right.cuda()
    assert same(matmul(left.cuda(), operand), left @ right)


@pytest.mark.parametrize("rows", [1, 2, 16, 17, 32, 33, 200])
def test_prepared_small_weights_are_exact(rows):
    prg = Prg(KEY)
    weights = prg.below(2 * SMALL + 1, (1000, 264)) - SMALL
    factor = prepare(weights.cuda())
    left = prg.words((rows, 1000))
    assert factor.planes is not None
    assert factor.planes.shape[1] == 2
    assert same(matmul(left.cuda(), factor), left @ weights)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((50,), (50,)),
        ((50,), (50, 20)),
        ((20, 50), (50,)),
        ((3, 20, 50), (50, 30)),
        ((3, 20, 50), (3, 50, 30)),
        ((3, 1, 20, 50), (2, 50, 30)),
        ((2, 600, 700), (2, 700, 500)),
        ((0, 5), (5, 3)),
    ],
)
def test_vectors_and_batches_are_exact(left, right):
    prg = Prg(KEY)
    a, b = prg.words(left), prg.words(right)
    assert same(matmul(a.cuda(), b.cuda()), torch.matmul(a, b))


def test_transposed_operands_are_exact():
    prg = Prg(KEY)
    a, b = prg.words((700, 600)).t(), prg.words((500, 700)).t()
    assert same(matmul(a.cuda(), b.cuda()), torch.matmul(a, b))
    assert same(matmul(a.cuda(), prepare(b.cuda())), torch.matmul(a, b))


def test_convolutions_are_exact():
    prg = Prg(KEY)
    images, weights = prg.words((4, 6, 20, 21)), prg.words((8, 3, 3, 3))
    options = {"stride": 2, "padding": 1, "groups": 2}
    expected = conv2d(images, weights, **options)
    assert same(conv2d(images.cuda(), weights.cuda(), **options), expected)
    signals, taps = prg.words((2, 4, 100)), prg.words((5, 4, 7))
    assert same(conv1d(signals.cuda(), taps.cuda()), conv1d(signals, taps))


@pytest.mark.parametrize("frac_bits", [0, 16, 40])
def test_fixed_point_is_the_same(frac_bits):
    values = decode(Prg(KEY).words(100_000), frac_bits=63 - 1)  # in [−2, 2)
    expected = encode(values, frac_bits=frac_bits)
    assert same(encode(values.cuda(), frac_bits=frac_bits), expected)
    assert same(encode(values, frac_bits=frac_bits, device="cuda"), expected)
    assert same(decode(expected.cuda(), frac_bits=frac_bits), decode(expected, frac_bits=frac_bits))


@pytest.mark.parametrize("count", [1, 64, 1000, 200_000])
def test_bit_operations_are_the_same(count):
    prg = Prg(KEY)
    words, others, bits = prg.words(count), prg.words(count), prg.bits(count)
    planes = to_planes(words)
    assert same(to_planes(words.cuda()), planes)
    assert same(from_planes(planes.cuda(), count), words)
    assert same(shift_right(words.cuda(), 5), shift_right(words, 5))
    assert same(less_unsigned(words.cuda(), others.cuda()), less_unsigned(words, others))
    assert same(popcount(words.cuda()), popcount(words))
    assert same(parity(words.cuda()), parity(words))
    assert same(pack_bits(bits.cuda()), pack_bits(bits))
    assert same(unpack_bits(pack_bits(bits).cuda(), count), bits)


def test_draws_placed_on_the_device_are_the_draws_of_the_host():
    host, device = Prg(KEY), Prg(KEY)
    assert same(device.words((3, 5), device="cuda"), host.words((3, 5)))
    assert same(device.bits(99, device="cuda"), host.bits(99))
    assert same(device.below(1000, 99, device="cuda"), host.below(1000, 99))
    assert same(device.permutation(99, device="cuda"), host.permutation(99))
    noise = discrete_gaussian(host, 10, sigma2=Fraction(4))
    assert torch.equal(discrete_gaussian(device, 10, sigma2=Fraction(4)), noise)


def test_a_tensor_on_the_device_can_be_sent():
    words = Prg(KEY).words((3, 5))
    assert torch.equal(from_bytes(to_bytes(words.cuda()), "i64", (3, 5)), words)
