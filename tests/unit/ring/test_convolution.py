import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.errors import DataError
from tacit.ring import Prg, conv1d, conv2d, convolution

KEY = bytes(range(16))


def naive(images, weights, *, stride, padding, dilation, groups):
    """Convolve with Python integers, one output at a time."""
    batch, _, height, width = images.shape
    filters, depth, rows, columns = weights.shape
    out_h = (height + 2 * padding[0] - dilation[0] * (rows - 1) - 1) // stride[0] + 1
    out_w = (width + 2 * padding[1] - dilation[1] * (columns - 1) - 1) // stride[1] + 1
    image, weight = images.tolist(), weights.tolist()
    out = torch.empty((batch, filters, out_h, out_w), dtype=torch.int64)
    for b, f, y, x in itertools.product(range(batch), range(filters), range(out_h), range(out_w)):
        total = 0
        for d, r, c in itertools.product(range(depth), range(rows), range(columns)):
            row = y * stride[0] + r * dilation[0] - padding[0]
            column = x * stride[1] + c * dilation[1] - padding[1]
            if 0 <= row < height and 0 <= column < width:
                channel = f // (filters // groups) * depth + d
                total += image[b][channel][row][column] * weight[f][d][r][c]
        out[b, f, y, x] = (total + 2**63) % 2**64 - 2**63
    return out


PAIR = st.tuples(st.integers(1, 2), st.integers(1, 2))


@settings(max_examples=40, deadline=None)
@given(
    key=st.binary(min_size=16, max_size=16),
    stride=PAIR,
    padding=st.tuples(st.integers(0, 2), st.integers(0, 2)),
    dilation=PAIR,
    groups=st.integers(1, 3),
    kernel=st.tuples(st.integers(1, 3), st.integers(1, 3)),
)
def test_conv2d_agrees_with_the_definition(key, stride, padding, dilation, groups, kernel):
    prg = Prg(key)
    images = prg.words((2, 2 * groups, 5, 6))
    weights = prg.words((3 * groups, 2, *kernel))
    options = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    assert torch.equal(conv2d(images, weights, **options), naive(images, weights, **options))


def test_conv2d_takes_strided_images_and_single_numbers():
    prg = Prg(KEY)
    images, weights = prg.words((2, 6, 7, 3)).permute(0, 3, 1, 2), prg.words((4, 3, 3, 3))
    found = conv2d(images, weights, stride=2, padding=1)
    expected = naive(images, weights, stride=(2, 2), padding=(1, 1), dilation=(1, 1), groups=1)
    assert torch.equal(found, expected)
    assert found.is_contiguous()


def test_conv1d_is_conv2d_of_one_row():
    prg = Prg(KEY)
    signals, weights = prg.words((2, 4, 11)), prg.words((6, 2, 3))
    expected = naive(
        signals.unsqueeze(2),
        weights.unsqueeze(2),
        stride=(1, 2),
        padding=(0, 1),
        dilation=(1, 3),
        groups=2,
    )
    found = conv1d(signals, weights, stride=2, padding=1, dilation=3, groups=2)
    assert torch.equal(found, expected.squeeze(2))


def test_a_large_batch_is_convolved_in_parts(monkeypatch):
    prg = Prg(KEY)
    images, weights = prg.words((5, 2, 6, 6)), prg.words((3, 2, 3, 3))
    whole = conv2d(images, weights)
    monkeypatch.setitem(convolution._COLUMN_WORDS, "cpu", 2 * 18 * 16)
    assert torch.equal(conv2d(images, weights), whole)


def test_an_empty_batch_stays_empty():
    prg = Prg(KEY)
    assert conv2d(prg.words((0, 2, 6, 6)), prg.words((3, 2, 3, 3))).shape == (0, 3, 4, 4)


@pytest.mark.parametrize(
    ("images", "weights", "groups"),
    [
        ((1, 2, 4, 4), (3, 1, 2, 2), 1),
        ((1, 2, 4), (3, 2, 2, 2), 1),
        ((1, 4, 4, 4), (3, 2, 2, 2), 2),
    ],
)
def test_shapes_that_do_not_fit_are_refused(images, weights, groups):
    prg = Prg(KEY)
    with pytest.raises(DataError, match="conv2d takes"):
        conv2d(prg.words(images), prg.words(weights), groups=groups)


def test_a_window_larger_than_the_image_is_refused():
    prg = Prg(KEY)
    with pytest.raises(DataError, match="window of 5"):
        conv2d(prg.words((1, 1, 4, 4)), prg.words((1, 1, 3, 3)), dilation=2)
    with pytest.raises(DataError, match="conv1d takes"):
        conv1d(prg.words((1, 4)), prg.words((1, 1, 3)))
