import numpy as np
import pytest
import torch

from tacit.errors import RangeError
from tacit.mpc.share import BitShare, BitSpec, Share, Spec

SECRETS = [
    Share(torch.tensor([123456789]), Spec.of(shape=(1,), frac_bits=16, bound=1.0)),
    BitShare(torch.tensor([123456789]), BitSpec(shape=(1,))),
]


@pytest.mark.parametrize("secret", SECRETS, ids=lambda secret: type(secret).__name__)
@pytest.mark.parametrize(
    "use",
    [
        lambda s: np.asarray(s),
        lambda s: s + torch.ones(1),
        lambda s: torch.ones(1) + s,
        lambda s: 2 * s,
        lambda s: s @ s,
        lambda s: torch.add(s, s),
        lambda s: bool(s),
        lambda s: float(s),
        lambda s: list(s),
        lambda s: s[0],
        lambda s: len(s),
    ],
)
def test_a_secret_cannot_slip_into_plain_arithmetic(secret, use):
    with pytest.raises(TypeError):
        use(secret)


@pytest.mark.parametrize("secret", SECRETS, ids=lambda secret: type(secret).__name__)
def test_the_text_of_a_secret_shows_its_shape_and_not_its_words(secret):
    assert "(1,)" in repr(secret)
    assert "123456789" not in repr(secret) + str(secret)


@pytest.mark.parametrize(("bound", "frac_bits"), [(2.0**42, 20), (1.0, 62), (float("inf"), 1)])
def test_a_value_that_could_reach_the_headroom_is_refused(bound, frac_bits):
    with pytest.raises(RangeError, match="frac_bits"):
        Spec.of(shape=(1,), frac_bits=frac_bits, bound=bound)


def test_bits_are_counted_in_whole_words():
    assert [BitSpec(shape=(n,)).words for n in (1, 64, 65)] == [1, 1, 2]


@pytest.mark.parametrize(("bound", "frac_bits"), [(1.5, 0), (0.1, 16), (2.0**40 + 0.3, 20)])
def test_the_largest_word_covers_every_rounding(bound, frac_bits):
    spec = Spec.of(shape=(1,), frac_bits=frac_bits, bound=bound)
    assert spec.largest >= round(bound * 2**frac_bits)
    assert spec.bound >= bound
