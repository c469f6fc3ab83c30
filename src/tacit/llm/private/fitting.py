"""A precision for one model: as many bits as words have room for behind what its values reach."""

import math

from tacit.errors import RangeError
from tacit.llm.architecture import Architecture, LanguageModel
from tacit.llm.plain import streams
from tacit.llm.private.blueprint import Blueprint
from tacit.llm.private.precision import LEAST_REACH, WORD_BITS, Precision
from tacit.llm.private.weights import fold, matrices

_ENDS = 4
"""Tokens at either end of the vocabulary, where special ones are: a text begins with each once.

The first token of a text is where streams are largest in many models.
"""
_FOLLOWING, _LONG = 7, 32
_MARGIN = 2.0
"""How much further a value may go than was measured, at least, before it is refused."""
_MOST = 26
_SCALED = 16
"""Fraction bits of queries and of attention weights, at most: more would not be seen."""


def fit_precision(model: LanguageModel) -> Precision:
    """Measure how far the values of a model go, and give the rest of a word to fractions.

    The texts are the same for every model of a size. What goes beyond twice the largest value
    seen may be refused when it comes, by name; it is never wrapped unnoticed.

    Guarantee: none for the model: whoever is told the precision learns two powers of two above
    its largest values.
    Cost: a hundred tokens in the clear.

    Raises:
        RangeError: values are so large that too few bits are left.
    """
    stream, raw = 0.0, 0.0
    a = model.architecture
    plan = Blueprint(a, Precision())
    last = ["output"] if plan.is_raw_output else []
    readers = [*(f"{layer}.qkv" for layer in range(a.layers)), *last]
    weights = {
        one.name: fold(model, one, plan)[0].float() for one in matrices(a) if one.name in readers
    }
    for ids in _texts(a):
        found = streams(model, ids)
        stream = max(stream, *(float(x.abs().max()) for x in found))
        for name, x in zip(readers, found, strict=False):
            raw = max(raw, float((x @ weights[name].t()).abs().max()))
    return fit_reach(max(_bits(stream), _bits(raw)), _bits(raw))


def fit_reach(reach: int, raw: int) -> Precision:
    """Return the finest precision with so many bits in front of the point.

    Weights count most, then activations: what is fed the stream before its norm has the bits of
    both, and of weights once more.

    Args:
        reach: of the stream.
        raw: of products with it, not more.
    """
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


def _bits(size: float) -> int:
    """Return the bits in front of the point, sign included, of words that hold a value safely.

    A value is refused above a quarter of the range.
    """
    if not math.isfinite(size):
        raise RangeError(f"the values of this model are not finite: {size}")
    bits = max(LEAST_REACH, math.ceil(math.log2(max(_MARGIN * size, 1.0))) + 3)
    if bits > _MOST:
        raise RangeError(
            f"values of this model reach {size:.3g}, which leaves too few bits of a word for "
            f"fractions; at most {2 ** (_MOST - 3) / _MARGIN:.3g} can be served"
        )
    return bits
