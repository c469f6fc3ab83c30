"""A precision for one model: as many bits as words have room for behind what its values reach."""

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from tacit.errors import RangeError
from tacit.llm.model.architecture import Architecture, LanguageModel
from tacit.llm.model.folding import Affine, head_lengths, magnitudes, outputs_behind_norm, panels
from tacit.llm.model.plain import streams
from tacit.llm.permuted.blueprint import Blueprint
from tacit.llm.permuted.precision import LEAST_REACH, WORD_BITS, Precision
from tacit.llm.permuted.weights import fold, matrices
from tacit.ring import panel_rows

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


_SLACK = 1.05
"""For weights and activations that are rounded."""
_ATTENTION_BITS = 11
"""Attention weights have as many bits at least, so that many keys may weigh that much too much."""


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """What no text exceeds.

    Attributes:
        embedded: the length of a row of the stream in front of the first layer.
        stream: the stream where a layer starts, in any place, and what a norm is to be taken of
            before it is added to it.
        attended: what attention adds to it (in ChatGLM: the stream behind attention).
        normed: what activations read, and scores of tokens behind a norm.
        scores: attention scores.
        readers: the length of a row of the matrices that read the stream before its norm.
        output_readers: the same of the output matrix; 0 if it reads what is normalised.
    """

    embedded: float
    stream: float
    attended: float
    normed: float
    scores: float
    readers: float
    output_readers: float


def bound_model(model: LanguageModel) -> Bounds:
    """Bound every kind of value of a model. Cost: each weight is read a few times, by layers."""
    a, plan = model.architecture, Blueprint(model.architecture, Precision())
    wanted = {one.name: one for one in matrices(a)}

    def folded(name: str) -> Affine:
        return fold(model, wanted[name], plan)[:2]

    embed = model.weights["embed"]
    stream = a.embed_scale * max(abs(float(one)) for one in torch.aminmax(embed))
    rows = embed.split_with_sizes(panel_rows((a.vocab, a.width)))
    embedded = a.embed_scale * max(float(one.double().norm(dim=1).max()) for one in rows)
    if a.positions == "learned":
        positions = model.weights["positions"].double()
        stream += float(positions.abs().max())
        embedded += float(positions.norm(dim=1).max())
    attended, scores, readers, unnormed = 0.0, 0.0, 0.0, 0.0
    del embed, rows
    normed, output = 0.0, 0.0
    for outputs in panels(wanted["output"].shape[::-1]):
        part = fold(model, wanted["output"], plan, outputs)[:2]
        normed = max(normed, float(outputs_behind_norm(a, *part).max()))
        if plan.is_raw_output:
            output = max(output, float(part[0].norm(dim=1).max()))
    for i in range(a.layers):
        layer = {part: folded(f"{i}.{part}") for part in ("qkv", "o", "up", "down")}
        score, mixed = _attention(model, i, layer["qkv"], layer["o"])
        up = outputs_behind_norm(a, *layer["up"])
        fed = _fed(a, up, *layer["down"])
        readers = max(readers, float(layer["qkv"][0].norm(dim=1).max()))
        normed, scores = max(normed, float(up.max())), max(scores, score)
        if a.skips_from_norm:
            skips = [
                math.sqrt(a.width) * float(folded(f"{i}.skip{j}")[0].abs().max()) for j in (1, 2)
            ]
            mixed, stream = mixed + skips[0], max(stream, fed + skips[1])
        elif a.has_post_norm:
            added = [
                math.sqrt(a.width) * float(folded(f"{i}.post{j}")[0].abs().max()) for j in (1, 2)
            ]
            stream, unnormed = stream + sum(added), max(unnormed, fed)
            mixed = max(mixed, added[0])
        else:
            stream += mixed + fed
        attended = max(attended, mixed)
    return Bounds(
        embedded=_SLACK * embedded,
        stream=_SLACK * max(stream, unnormed),
        attended=_SLACK * attended,
        normed=_SLACK * normed,
        scores=_SLACK * scores,
        readers=_SLACK * readers,
        output_readers=_SLACK * output,
    )


def _attention(model: LanguageModel, i: int, qkv: Affine, o: Affine) -> tuple[float, float]:
    """Bound the scores of a layer, and what its attention adds to the stream."""
    a, (weight, bias) = model.architecture, qkv
    # What is there twice, for the norms of heads, is not longer.
    queries, keys, values = head_lengths(a, weight[: (a.heads + 2 * a.kv_heads) * a.head_dim], bias)
    weights = 1 + a.context * 2.0 ** -(_ATTENTION_BITS + 1)  # rounded, they add up to more than 1
    if a.has_qk_norm:  # a normalised head has length √d at most, before its weights
        longest = [
            math.sqrt(a.head_dim)
            * float(model.weights[f"layers.{i}.{part}_norm.weight"].abs().max())
            for part in "qk"
        ]
        queries, keys = (torch.full_like(queries, one) for one in longest)
        queries = queries * a.query_scale
    mixed = o[0].view(-1, a.heads, a.head_dim).norm(dim=2) @ (weights * values)
    return float((queries * keys).max()), float((mixed + magnitudes(o[1])).max())


def _fed(a: Architecture, up: Tensor, down: Tensor, bias: Tensor | None) -> float:
    # |silu(x)| and |gelu(x)| are at most |x|.
    active = up[: a.ffn] * up[a.ffn :] if a.has_gate else up
    sums = torch.minimum(down.abs() @ active, down.norm(dim=1) * active.norm())
    return float((sums + magnitudes(bias)).max())
