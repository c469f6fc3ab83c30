"""What every compressor of the table must do, on the wire and off it."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tacit.errors import ConfigError, DataError
from tacit.split import COMPRESSORS, Compression, make_codec
from tacit.split.selection import as_mask

WIDTH, ROWS = 128, 64
SETTINGS = {
    "none": {},
    "shrink": {"k": 8},
    "quantise": {"bits": 4},
    "topk": {"k": 6},
    "randtopk": {"k": 6, "alpha": 0.1},
    "randtopk-coded": {"k": 6, "alpha": 0.1, "bits": 4, "gradient_bits": 8},
    "l1": {"threshold": 0.8},
}
N = 32


def make(kind, width=WIDTH, **changes):
    return make_codec(Compression(kind=kind, **{**SETTINGS[kind], **changes}), width)


def batch(rows=ROWS, width=WIDTH, seed=0):
    return torch.randn(rows, width, generator=torch.Generator().manual_seed(seed))


def coin(seed=1):
    return torch.Generator().manual_seed(seed)


def test_every_compressor_is_in_this_suite():
    assert SETTINGS.keys() == COMPRESSORS.keys()


@pytest.mark.parametrize("is_training", [True, False])
@pytest.mark.parametrize("kind", COMPRESSORS)
def test_both_sides_agree_on_what_was_kept(kind, is_training):
    codec, h = make(kind), batch()
    data, kept = codec.pack(h, is_training=is_training, generator=coin())
    seen, kept_there = codec.unpack(data, ROWS, is_training=is_training)
    assert data.dtype == torch.uint8
    if kept is None:
        assert kept_there is None
    else:
        assert torch.equal(kept, kept_there)
        kept = as_mask(kept, WIDTH)
        assert torch.equal(seen[~kept], torch.zeros_like(seen[~kept]))
    inside = slice(None) if kept is None else kept
    spread = (
        float(h[inside].max() - h[inside].min()) / 2 ** (codec.forward.bits + 1)
        if hasattr(codec.forward, "bits")
        else 0.0
    )
    assert float((seen[inside] - h[inside]).abs().max()) <= spread * 1.001


@pytest.mark.parametrize("kind", COMPRESSORS)
def test_what_says_that_it_draws_draws_and_nothing_else_does(kind):
    codec, h = make(kind), batch()
    (one, kept), (two, _) = (
        codec.pack(h, is_training=True, generator=coin(seed)) for seed in (1, 2)
    )
    assert torch.equal(one, two) != codec.draws_forward
    gradient = batch(seed=3)
    back = [codec.pack_gradient(gradient, kept, generator=coin(seed)) for seed in (1, 2)]
    assert torch.equal(*back) != codec.draws_backward


@pytest.mark.parametrize("kind", COMPRESSORS)
def test_drawing_ahead_changes_no_byte(kind):
    codec, h, early = make(kind), batch(), coin(1)
    draws = codec.draw(ROWS, early, h.device)
    one, _ = codec.pack(h, is_training=True, generator=early, draws=draws)
    two, _ = codec.pack(h, is_training=True, generator=coin(1))
    assert torch.equal(one, two)


@pytest.mark.parametrize("kind", COMPRESSORS)
def test_a_message_has_the_size_that_was_forecast(kind):
    codec, h = make(kind), batch()
    for is_training in (True, False):
        data, kept = codec.pack(h, is_training=is_training, generator=coin())
        forecast = codec.forward_bytes(ROWS, is_training=is_training)
        assert forecast is None or data.numel() == forecast
        if is_training:
            assert codec.pack_gradient(h, kept, generator=coin()).numel() == codec.backward_bytes(
                ROWS
            )


@pytest.mark.parametrize("kind", COMPRESSORS)
def test_the_gradient_that_comes_back_is_the_masked_dense_gradient(kind):
    codec, h = make(kind), batch().requires_grad_()
    weights = batch(seed=3)
    data, kept = codec.pack(h, is_training=True, generator=coin())
    seen, kept_there = codec.unpack(data, ROWS, is_training=True)
    seen.requires_grad_()
    (seen.sin() * weights).sum().backward()
    back = codec.unpack_gradient(
        codec.pack_gradient(seen.grad, kept_there, generator=coin()), kept, ROWS
    )
    dense = seen.grad if kept is None else seen.grad * as_mask(kept, WIDTH)
    assert torch.equal(codec.only(seen.grad, kept), dense)
    step = 0.0
    if hasattr(codec.backward, "bits"):
        step = float(dense.max() - dense.min()) / (2**codec.backward.bits - 1)
    assert float((back - dense).abs().max()) <= step * 1.001
    # And what autograd says when the whole thing happens in one process.
    inside = codec.apply(h, is_training=True, generator=coin())
    torch.testing.assert_close(inside, seen.detach(), atol=1e-6, rtol=0)
    (inside.sin() * weights).sum().backward()
    assert float((h.grad - dense).abs().max()) <= step * 1.001


@pytest.mark.parametrize("kind", ["topk", "randtopk", "shrink"])
def test_keeping_all_is_lossless(kind):
    codec, h = make(kind, k=WIDTH), batch()
    data, kept = codec.pack(h, is_training=True, generator=coin())
    seen, _ = codec.unpack(data, ROWS, is_training=True)
    assert torch.equal(seen, h)
    assert torch.equal(codec.unpack_gradient(codec.pack_gradient(h, kept), kept, ROWS), h)


@pytest.mark.parametrize(
    ("kind", "is_training", "forward", "backward"),
    [
        ("shrink", True, 8 / WIDTH, 8 / WIDTH),
        ("quantise", True, 4 / N, 1.0),
        ("topk", True, 6 / WIDTH * (1 + 7 / N), 6 / WIDTH),
        ("randtopk", True, 6 / WIDTH * (1 + 7 / N), 6 / WIDTH),
        ("none", True, 1.0, 1.0),
    ],
)
def test_wire_bytes_are_within_two_percent_of_table_3_1(kind, is_training, forward, backward):
    codec, h, dense = make(kind), batch(), ROWS * WIDTH * 4
    data, kept = codec.pack(h, is_training=is_training, generator=coin())
    assert data.numel() == pytest.approx(forward * dense, rel=0.02)
    assert codec.pack_gradient(h, kept).numel() == pytest.approx(backward * dense, rel=0.02)


def test_l1_serves_within_two_percent_of_table_3_1_and_trains_densely():
    codec, h, dense = make("l1"), batch(), ROWS * WIDTH * 4
    data, kept = codec.pack(h, is_training=False)
    k = float(kept.sum()) / ROWS
    assert data.numel() == pytest.approx(k / WIDTH * (1 + 7 / N) * dense, rel=0.02)
    assert codec.pack(h, is_training=True)[0].numel() == dense
    assert float(codec.penalty(h)) == pytest.approx(0.001 * float(h.abs().sum(1).mean()), rel=1e-5)


def test_ranked_subsets_and_few_bits_take_less_than_half_of_randomised_top_k():
    plain, coded = make("randtopk"), make("randtopk-coded")
    whole = plain.forward_bytes(ROWS) + plain.backward_bytes(ROWS)
    assert coded.forward_bytes(ROWS) + coded.backward_bytes(ROWS) < whole / 2


@pytest.mark.parametrize("kind", COMPRESSORS)
def test_several_messages_at_once_are_each_rounded_by_themselves(kind):
    codec = make(kind, **({"alpha": 0.0} if "alpha" in SETTINGS[kind] else {}))
    h = torch.stack([batch(seed=seed) * 10.0**seed for seed in range(3)])
    together = codec.apply(h, is_training=True, generator=coin())
    apart = [codec.apply(one, is_training=True, generator=coin()) for one in h]
    assert torch.equal(together, torch.stack(apart))


@pytest.mark.parametrize("kind", COMPRESSORS)
def test_an_empty_batch_is_refused(kind):
    with pytest.raises(DataError, match="at least one row"):
        make(kind).pack(torch.empty(0, WIDTH), is_training=True)
    with pytest.raises(DataError, match="at least one row"):
        make(kind).unpack(torch.empty(0, dtype=torch.uint8), 0, is_training=True)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("kind", COMPRESSORS)
def test_values_that_are_not_finite_are_refused(kind, bad):
    h = batch()
    h[3, 5] = bad
    with pytest.raises(DataError, match="not finite, in 1 of 64 rows"):
        make(kind).pack(h, is_training=True, generator=coin())


@pytest.mark.parametrize("kind", COMPRESSORS)
def test_what_a_peer_cut_short_or_made_longer_is_refused(kind):
    codec = make(kind)
    data, kept = codec.pack(batch(), is_training=True, generator=coin())
    for wrong in (data[:-1], torch.cat([data, data[:1]]), data[:0]):
        with pytest.raises(DataError):
            codec.unpack(wrong, ROWS, is_training=True)
    with pytest.raises(DataError, match="bytes of gradient"):
        codec.unpack_gradient(data[:3], kept, ROWS)


@pytest.mark.parametrize("kind", COMPRESSORS)
def test_a_batch_of_one_row_works(kind):
    codec = make(kind)
    data, _ = codec.pack(batch(rows=1), is_training=True, generator=coin())
    assert codec.unpack(data, 1, is_training=True)[0].shape == (1, WIDTH)


@pytest.mark.parametrize("kind", ["topk", "randtopk", "randtopk-coded", "shrink"])
def test_more_than_there_is_cannot_be_kept(kind):
    with pytest.raises(ConfigError, match="cannot keep 129 of the 128 values"):
        make(kind, k=WIDTH + 1)


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        ("topk", {}, "needs k"),
        ("topk", {"k": 3, "alpha": 0.1}, "has no alpha; it takes feedback, k"),
        ("none", {"k": 3}, "it takes no settings"),
        ("topk", {"k": 0}, "at least 1, got 0"),
        ("randtopk", {"k": 3, "alpha": 1.5}, "from 0 to 1, got 1.5"),
        ("quantise", {"bits": 17}, "wanted 1 to 16, got 17"),
        ("l1", {"weight": -1.0}, "at least 0, got -1"),
        ("zip", {}, "wanted one of"),
    ],
)
def test_settings_that_make_no_sense_are_refused_by_name(kind, settings, message):
    with pytest.raises(ConfigError, match=message):
        Compression(kind=kind, **settings)


@given(
    width=st.integers(1, 70),
    rows=st.integers(1, 9),
    data=st.data(),
    kind=st.sampled_from(["topk", "randtopk", "randtopk-coded"]),
)
def test_positions_survive_the_wire_for_any_shape(width, rows, data, kind):
    k = data.draw(st.integers(1, width))
    codec, h = make(kind, width=width, k=k), batch(rows, width, seed=rows)
    packed, kept = codec.pack(h, is_training=True, generator=coin())
    assert torch.equal(codec.unpack(packed, rows, is_training=True)[1], kept)
    assert as_mask(kept, width).sum(1).eq(k).all()


@given(noise=st.binary(min_size=0, max_size=400), kind=st.sampled_from(sorted(COMPRESSORS)))
def test_bytes_from_a_hostile_peer_are_read_or_refused_but_never_crash(noise, kind):
    codec = make(kind, width=16, **({"k": 3} if "k" in SETTINGS[kind] else {}))
    data = (
        torch.frombuffer(bytearray(noise), dtype=torch.uint8)
        if noise
        else torch.empty(0, dtype=torch.uint8)
    )
    for is_training in (True, False):
        try:
            seen, _ = codec.unpack(data, 4, is_training=is_training)
        except DataError:
            continue
        assert seen.shape == (4, 16)
        assert bool(torch.isfinite(seen).all())
