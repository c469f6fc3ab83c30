"""A model as the sealed program reads it: norms folded in, and how large its values can get.

The owner works out powers of two, and publishes them. Behind a norm a row of width d has length
√d, whatever the text. Lengths of rows and spectral norms of the matrices that follow bound every
other value; nothing of this is measured on texts, so no text can exceed it. What stands in front of
a norm can be a thousand times as large in one place as elsewhere, and is brought down before it is
squared; by how much is measured, and what is larger still saturates.
"""

import math
from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor

from tacit.errors import FrameError
from tacit.llm.model.architecture import Architecture, LanguageModel
from tacit.llm.model.folding import (
    behind_norm,
    head_lengths,
    magnitudes,
    outputs_behind_norm,
    panels,
    spectral_norms,
)
from tacit.mpc.share import SPARE_BITS, WORD_BITS
from tacit.party import Fact, Session

FRAC_BITS = 16
_SLACK = 1.25
"""For the errors of approximated functions, which are within a few per cent."""
_FURTHEST = 40  # bounds travel as exponents of two in ± this range: 2^40 already fills the word
_DIVISOR_BITS = 6
"""What an average of keys that are all alike is divided by keeps so many, up to 1024 keys."""
_FEWEST_BITS = 26
"""Of a product that goes into the stream: with fewer than 13 of each factor rounding would show."""

Shape = tuple[int, ...]


def weight_shapes(a: Architecture) -> dict[str, Shape]:
    """List the tensors that every pass reads, with their shapes."""
    inner, kv = a.heads * a.head_dim, a.kv_heads * a.head_dim
    up = 2 * a.ffn if a.has_gate else a.ffn
    sizes = {"qkv": (a.width, inner + 2 * kv), "o": (inner, a.width)}
    sizes |= {"up": (a.width, up), "down": (a.ffn, a.width)}
    out: dict[str, Shape] = {"embed": (a.vocab, a.width)}
    for i in range(a.layers):
        for name, size in sizes.items():
            out[f"{i}.{name}.weight"] = size
            if has_bias(a, name):
                out[f"{i}.{name}.bias"] = (size[1],)
        for j in (1, 2) if a.skips_from_norm else ():
            out |= {f"{i}.skip{j}.{part}": (a.width,) for part in ("weight", "bias")}
        if a.has_qk_norm:
            out |= {f"{i}.{part}_norm.weight": (a.head_dim,) for part in "qk"}
        if a.has_post_norm:
            out |= {f"{i}.post{j}.weight": (a.width,) for j in (1, 2)}
    out["output.weight"] = (a.width, a.vocab)
    if has_bias(a, "output"):
        out["output.bias"] = (a.vocab,)
    return out


def value_names(a: Architecture) -> list[str]:
    """List the values of a pass that have a bound of their own."""
    layer = ["q", "k", "v", "scores", "attended", "up", "active", "fed"]
    layer += ["gate"] if a.has_gate else []
    layer += ["norm1", "norm2"]
    return [*(f"{i}.{name}" for i in range(a.layers) for name in layer), "logits", "norm"]


def names(a: Architecture) -> list[str]:
    """List everything that has a published bound, in the order in which bounds travel."""
    positions = ["positions"] if a.positions == "learned" else []
    return [*weight_shapes(a), *positions, *value_names(a)]


def measure(a: Architecture, weights: Mapping[str, Tensor]) -> dict[str, float]:
    """Bound the tensors of a layer, and the values of a pass that follow from them.

    Args:
        a: the model.
        weights: of a layer, or of what stands in front of or behind them all, as `fold` gives them.
    """
    found = {name: max(abs(float(one)) for one in torch.aminmax(w)) for name, w in weights.items()}
    layer = next((int(name.split(".")[0]) for name in weights if name[0].isdigit()), None)
    if layer is not None:
        found |= _attention(a, weights, layer) | _feed(a, weights, layer)
    elif "output.weight" in weights:
        found["logits"] = float(_columns(a, weights, "output").max())
    return found


def place(
    a: Architecture, found: Mapping[str, float], sizes: Sequence[tuple[float, float]]
) -> dict[str, float]:
    """Round what `measure` found to powers of two, and add the norms.

    Args:
        a: the model.
        found: of all layers.
        sizes: the smallest and the largest root of a mean square of the stream's rows in front of
            each layer, and behind the last, on probes.
    """
    found = dict(found)
    for i in range(a.layers):
        found[f"{i}.norm1"] = _longest(sizes[i])
        found[f"{i}.norm2"] = _longest(sizes[i], sizes[i + 1])
    found["norm"] = _longest(sizes[-1])
    return {name: 2.0 ** _exponent(_SLACK * found[name]) for name in names(a)}


def stream_bits(a: Architecture, bounds: Mapping[str, float]) -> int:
    """Return how many fraction bits may have what goes through a matrix into the stream; 0 if few.

    It is then opened without a truncation before, and what is cut off below is lost at the top of
    the product, and so of the stream: the larger that can be, the fewer.
    """
    parts = [bounds[f"{i}.{part}"] for i in range(a.layers) for part in ("attended", "fed")]
    if a.has_post_norm:  # a norm of its own brings it back to whole words
        most = max(parts)
    elif a.skips_from_norm:
        skips = [
            bounds[f"{i}.skip{j}.{part}"]
            for i in range(a.layers)
            for j in (1, 2)
            for part in ("weight", "bias")
        ]
        most = max(parts) + 2 * math.sqrt(a.width) * max(skips)
    else:
        most = sum(parts) + bounds["embed"] + bounds.get("positions", 0.0)
    # The product has twice the usual fraction bits, of which those in front of the cut are 2f.
    room = WORD_BITS - SPARE_BITS - FRAC_BITS - math.ceil(math.log2(most) + 2.0**-8)
    return min(room, 2 * FRAC_BITS) if room >= _FEWEST_BITS else 0


def factor_bits(stream: int) -> tuple[int, int]:
    """Return the fraction bits of two factors of what goes into the stream, by `stream_bits`."""
    bits = stream or 2 * FRAC_BITS
    return bits // 2, bits - bits // 2


def mixed_bits(stream: int, keys: int) -> tuple[int, int]:
    """Return those of an average of values and of what divides it, which may be 1 / keys."""
    average, inverse = factor_bits(stream)
    is_long = inverse < FRAC_BITS and keys << _DIVISOR_BITS > 1 << inverse
    # Too precise for the stream: one round more, where texts are long and values can be large.
    return (FRAC_BITS, FRAC_BITS) if is_long else (average, inverse)


WHY = "both sides must know how many bits a value needs"


def bounds_fact(a: Architecture) -> Fact:
    """Return what the owner of a model tells of its sizes."""
    return Fact(
        tag="sealed bounds",
        count=len(names(a)),
        what="how large weights and values can be, as powers of two",
        why=WHY,
        kind="protocol",
    )


def publish(session: Session, a: Architecture, bounds: Mapping[str, float]) -> None:
    """Tell everyone the bounds. Cost: 8 bytes for each, once per session."""
    session.publish(bounds_fact(a), tuple(round(math.log2(bounds[name])) for name in names(a)))


def learn(session: Session, owner: str, a: Architecture) -> dict[str, float]:
    """Receive the owner's bounds."""
    wanted = names(a)
    powers = session.learn(owner, bounds_fact(a))
    if not all(abs(power) <= _FURTHEST for power in powers):
        raise FrameError(owner, f"publishes bounds beyond 2^{_FURTHEST}")
    return {name: 2.0**power for name, power in zip(wanted, powers, strict=True)}


def _attention(a: Architecture, w: Mapping[str, Tensor], i: int) -> dict[str, float]:
    inner, kv, dim = a.heads * a.head_dim, a.kv_heads * a.head_dim, a.head_dim
    sizes = _columns(a, w, f"{i}.qkv").split_with_sizes([inner, kv, kv])
    bias = w.get(f"{i}.qkv.bias")
    queries, keys, values = head_lengths(a, w[f"{i}.qkv.weight"].T, bias)
    largest = [float(one.max()) for one in sizes]
    if a.has_qk_norm:  # a normalised head has length √d, before its weights
        weights = [w[f"{i}.{part}_norm.weight"].abs().max() for part in "qk"]
        longest = [math.sqrt(dim) * float(one) for one in weights]
        queries, keys = torch.full_like(queries, longest[0]), torch.full_like(keys, longest[1])
        largest[:2] = longest
    mixed = w[f"{i}.o.weight"].view(a.heads, dim, -1).norm(dim=1)  # (heads, width)
    attended = (mixed * values.unsqueeze(1)).sum(0) + magnitudes(w.get(f"{i}.o.bias"))
    return {
        f"{i}.q": largest[0],
        f"{i}.k": largest[1],
        f"{i}.v": largest[2],
        f"{i}.scores": float((queries * keys).max()),
        f"{i}.attended": float(attended.max()),
    }


def _feed(a: Architecture, w: Mapping[str, Tensor], i: int) -> dict[str, float]:
    sizes, matrix = _columns(a, w, f"{i}.up"), w[f"{i}.up.weight"]
    up, out = sizes[-a.ffn :], dict[str, float]()
    active = up
    if a.has_gate:
        out[f"{i}.gate"] = float(sizes[: a.ffn].max())
        active = sizes[: a.ffn] * up
    down = w[f"{i}.down.weight"]
    # A bias counts as if the row had length one.
    stretch = float(spectral_norms(matrix[:, -a.ffn :]))
    stretch += float(magnitudes(w.get(f"{i}.up.bias")).norm())
    lengths = [active.norm(), stretch * math.sqrt(a.width)]
    length = float(lengths[1]) * out.get(f"{i}.gate", 1.0)
    fed = torch.minimum(down.abs().T @ active, down.norm(dim=0) * min(float(lengths[0]), length))
    out[f"{i}.up"] = float(up.max())
    out[f"{i}.active"] = float(active.max())
    out[f"{i}.fed"] = float((fed + magnitudes(w.get(f"{i}.down.bias"))).max())
    return out


def _columns(a: Architecture, w: Mapping[str, Tensor], name: str) -> Tensor:
    """Bound every output of an affine map of normalised rows."""
    return outputs_behind_norm(a, w[f"{name}.weight"].T, w.get(f"{name}.bias"))


def _longest(*sizes: tuple[float, float]) -> float:
    """Place the 4096 that the root of a mean square of a row may span.

    Rows may be a quarter as long as the shortest of a probe, and at least four times the longest;
    where that is more than 4096 apart, the room that is left is on both sides.
    """
    shortest, longest = min(one for one, _ in sizes), max(one for _, one in sizes)
    top = max(4 * longest, 2.0**9 * shortest)
    if top > 2.0**11 * shortest:
        top = max(longest, min(top, 2.0**6 * math.sqrt(longest * shortest)))
    return top


def _exponent(size: float) -> int:
    return math.ceil(math.log2(max(size, 2.0**-_FURTHEST)))


_USUAL_SIZE = 1 / 16
"""Embeddings are enlarged up to this root mean square: inverse roots begin at 1/16."""


def usual_gain(model: LanguageModel) -> int:
    """Return by how many powers of two to enlarge the stream; norms take it out again."""
    embed, a = model.weights["embed"], model.architecture
    sizes = torch.cat(
        [embed[rows].double().square().mean(1).sqrt() for rows in panels((a.vocab, a.width))]
    )
    return max(0, math.ceil(math.log2(_USUAL_SIZE / max(float(sizes.median()), 2.0**-20))))


def fold(
    model: LanguageModel, *, gain_bits: int = 0, dtype: torch.dtype = torch.float64
) -> Iterator[dict[str, Tensor]]:
    """Yield every tensor of the program, matrices as (in, out): a layer at a time.

    Embeddings and the output come first: they are largest, and whoever keeps something of every
    layer has most room for them then. All is computed in doubles, and rounded to ``dtype``. The
    stream is enlarged by 2^gain_bits, so that a norm's eps must be by its square. The weights of a
    norm are multiplied into the matrix behind it and its bias into that matrix's bias; the scale of
    scores goes into the queries, or into the norm that they have. In ChatGLM the skip starts behind
    the norm, so its weights and bias are there too, as ``skip1`` and ``skip2``.
    """
    a, gain = model.architecture, 2.0**gain_bits
    yield {"embed": _scaled(model.weights["embed"], gain * a.embed_scale, dtype)}
    if a.positions == "learned":
        yield {"positions": _scaled(model.weights["positions"], gain, dtype)}
    yield _rounded(_behind_norm(model, "norm", "output", {"output": 1.0}, dtype), dtype)
    for i in range(a.layers):
        yield _rounded(_folded_layer(model, i, gain, dtype), dtype)


def has_bias(a: Architecture, name: str) -> bool:
    """Say whether an affine map of the program has a bias: its own, or a norm's."""
    folded = name in ("qkv", "up", "output") and a.norm == "layer"
    return folded or (a.has_bias and name != "output")


def _folded_layer(
    model: LanguageModel, i: int, gain: float, dtype: torch.dtype
) -> dict[str, Tensor]:
    a, name = model.architecture, f"layers.{i}"
    scales = {"q": 1.0 if a.has_qk_norm else a.query_scale, "k": 1.0, "v": 1.0}
    qkv = {f"{name}.{one}": scale for one, scale in scales.items()}
    ups = {f"{name}.{one}": 1.0 for one in (["gate", "up"] if a.has_gate else ["up"])}
    out = _behind_norm(model, f"{name}.norm1", f"{i}.qkv", qkv, dtype)
    out |= _behind_norm(model, f"{name}.norm2", f"{i}.up", ups, dtype)
    for one in ("o", "down"):
        out[f"{i}.{one}.weight"] = _scaled(model.weights[f"{name}.{one}.weight"], gain, dtype).T
        if a.has_bias:
            out[f"{i}.{one}.bias"] = gain * _double(model, f"{name}.{one}.bias")
    if a.has_qk_norm:
        out[f"{i}.q_norm.weight"] = a.query_scale * _double(model, f"{name}.q_norm.weight")
        out[f"{i}.k_norm.weight"] = _double(model, f"{name}.k_norm.weight")
    for j in (1, 2) if a.has_post_norm else ():
        out[f"{i}.post{j}.weight"] = gain * _double(model, f"{name}.post_norm{j}.weight")
    if a.skips_from_norm:
        for j in (1, 2):
            for part in ("weight", "bias"):
                skip = gain * a.residual_scale * _double(model, f"{name}.norm{j}.{part}")
                out[f"{i}.skip{j}.{part}"] = skip
    return out


def _behind_norm(
    model: LanguageModel, norm: str, name: str, parts: dict[str, float], dtype: torch.dtype
) -> dict[str, Tensor]:
    """Join matrices that read one norm, by name and scale, with the norm's weights in them."""
    sizes = [len(model.weights[f"{one}.weight"]) for one in parts]
    scale = torch.tensor(list(parts.values()), dtype=torch.float64)
    scale = scale.repeat_interleave(torch.tensor(sizes))
    matrix = torch.empty((sum(sizes), model.architecture.width), dtype=dtype)
    biases = list[Tensor]()
    for rows in panels((len(matrix), matrix.shape[1])):
        weight, bias = behind_norm(model, norm, list(parts), rows, scale)
        matrix[rows] = weight
        biases += [] if bias is None else [bias]
    out = {f"{name}.weight": matrix.T}
    return out | {f"{name}.bias": torch.cat(biases)} if biases else out


def _rounded(tensors: dict[str, Tensor], dtype: torch.dtype) -> dict[str, Tensor]:
    return {name: one.to(dtype) for name, one in tensors.items()}


def _scaled(values: Tensor, scale: float, dtype: torch.dtype) -> Tensor:
    """Multiply in doubles, and round."""
    out = torch.empty(values.shape, dtype=dtype)
    for rows in panels((len(values), values.shape[1])):
        out[rows] = scale * values[rows].double()
    return out


def _double(model: LanguageModel, name: str) -> Tensor:
    return model.weights[name].double()
