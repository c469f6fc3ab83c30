"""A precision for one model: as many bits as words have room for behind what its values reach."""

import math
from dataclasses import replace

from tacit.errors import RangeError
from tacit.llm.model.architecture import Architecture, LanguageModel
from tacit.llm.model.plain import streams
from tacit.llm.permuted.bounds import bound_model
from tacit.llm.permuted.precision import LEAST_REACH, WORD_BITS, Precision

_ENDS = 4
"""Tokens at either end of the vocabulary, where special ones are: a text begins with each once.

The first token of a text is where streams are largest in many models.
"""
_FOLLOWING, _LONG = 7, 32
_MARGIN = 2.0
"""How much further a value may go than was measured, at least, before it is refused."""
_MOST, _FURTHEST = 26, 60
"""Bits in front of the point: of what is measured (weights keep 14 then, activations 10), and of a
bound, which is left aside where it does not fit a word."""
_SCALED = 16
"""Fraction bits of queries and of attention weights, at most: more would not be seen."""


def fit_precision(model: LanguageModel) -> Precision:
    """Find how far the values of a model can go, and give the rest of a word to fractions.

    What is behind a norm, and the stream where a layer starts, have room for all that the weights
    allow: no text exceeds it. Behind attention, and for products with the stream before its norm,
    that would leave too few bits. There words have room for twice what was measured on texts that
    are the same for every model of a size; and whether a row is within that follows from the
    stream, which the user sees: what is not is refused, by name.

    Guarantee: with a `gain` in what is returned, nothing is wrapped unnoticed. None for the model:
    whoever is told the precision learns powers of two above its values.
    Cost: a hundred tokens in the clear, and each weight read a few times.

    Raises:
        RangeError: values are so large that too few bits are left.
    """
    exact = bound_model(model)
    stream, length, last = 0.0, exact.embedded / _MARGIN, 0.0
    for found in streams(model, _texts(model.architecture)):
        stream = max(stream, *(float(x.abs().max()) for x in found))
        *lengths, end = (float(x.double().norm(dim=1).max()) for x in found)
        length, last = max(length, *lengths), max(last, end)
    gain, output_gain = _exponent(exact.readers), _exponent(exact.output_readers)
    raw = _bits(_MARGIN * max(2.0**gain * length, 2.0**output_gain * last))
    reach = _bits(max(_MARGIN * stream, exact.attended)) + 1  # for their sum
    fitted = fit_reach(max(reach, raw), raw)
    far = _bits(exact.stream, most=_FURTHEST)
    if fitted.stream + far > WORD_BITS:
        return fitted
    return replace(
        fitted,
        span=max(fitted.span, _bits(exact.normed)),
        score=max(fitted.score, _bits(exact.scores)),
        far=far,
        gain=gain,
        output_gain=output_gain,
    )


def fit_reach(reach: int, raw: int) -> Precision:
    """Return the finest precision with so many bits in front of the point.

    Weights count most, then activations: what is fed the stream before its norm has the bits of
    both, and of weights once more.

    Args:
        reach: of the stream.
        raw: of products with it, not more.
    """
    # Weights get three bits more than activations, as their rounding counts more; a product with
    # the raw stream has weights twice: (w − 3) + 2·w = 64 − raw.
    weight = round((WORD_BITS - raw + 3) / 3)
    rest = WORD_BITS - reach - weight
    attention = min(_SCALED, -(-rest // 2))
    query = min(_SCALED, rest - attention)
    activation = WORD_BITS - raw - 2 * weight
    return Precision(
        activation=activation,
        weight=weight,
        query=query,
        rotation=14,
        attention=attention,
        skip=activation + weight - 8,  # a byte less than the stream's own words
        reach=reach,
        look=20,
    )


def _texts(a: Architecture) -> list[list[int]]:
    spread = [place * 7919 % a.vocab for place in range(min(_LONG, a.context))]
    ends = [*range(min(_ENDS, a.vocab)), *range(max(0, a.vocab - _ENDS), a.vocab)]
    return [spread, *([end, *spread[1 : 1 + _FOLLOWING]] for end in ends)]


def _exponent(size: float) -> int:
    """Return a power of two above a size, 1 at least."""
    return max(1, math.ceil(math.log2(max(size, 1.0))))


def _bits(size: float, *, most: int = _MOST) -> int:
    """Return the bits in front of the point, sign included, of words that hold a value.

    Raises:
        RangeError: there are not so many.
    """
    if not math.isfinite(size):
        raise RangeError(f"the values of this model are not finite: {size}")
    bits = max(LEAST_REACH, math.floor(math.log2(max(size, 1.0))) + 2)
    if bits > most:
        raise RangeError(
            f"values of this model reach {size:.3g}, which leaves too few bits of a word for "
            f"fractions; at most {2.0 ** (most - 1):.3g} can be served"
        )
    return bits
