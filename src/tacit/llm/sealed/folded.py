"""A model's weights as the sealed program reads them: norms folded into what follows them."""

import math

import torch
from torch import Tensor

from tacit.llm.model.architecture import Architecture, LanguageModel

_USUAL_SIZE = 1 / 16
"""Embeddings are enlarged up to this root mean square: inverse roots begin at 1/16."""


def usual_gain(model: LanguageModel) -> int:
    """Return by how many powers of two to enlarge the stream; norms take it out again."""
    sizes = model.weights["embed"].double().square().mean(1).sqrt()
    return max(0, math.ceil(math.log2(_USUAL_SIZE / max(float(sizes.median()), 2.0**-20))))


def fold(model: LanguageModel, *, gain_bits: int = 0) -> dict[str, Tensor]:
    """Return every tensor of the program in doubles, matrices as (in, out).

    The stream is enlarged by 2^gain_bits, so that a norm's eps must be by its square. The weights
    of a norm are multiplied into the matrix behind it and its bias into that matrix's bias;
    the scale of scores goes into the queries, or into the norm that they have. In ChatGLM the
    skip starts behind the norm, so its weights and bias are there too, as ``skip1`` and ``skip2``.
    """
    a, gain = model.architecture, 2.0**gain_bits
    out = {"embed": gain * a.embed_scale * _double(model, "embed")}
    if a.positions == "learned":
        out["positions"] = gain * _double(model, "positions")
    for i in range(a.layers):
        out |= _folded_layer(model, i, gain)
    out |= _behind_norm(model, "norm", "output", [_double(model, "output.weight")], [None])
    return out


def has_bias(a: Architecture, name: str) -> bool:
    """Say whether an affine map of the program has a bias: its own, or a norm's."""
    folded = name in ("qkv", "up", "output") and a.norm == "layer"
    return folded or (a.has_bias and name != "output")


def _folded_layer(model: LanguageModel, i: int, gain: float) -> dict[str, Tensor]:
    a, name = model.architecture, f"layers.{i}"
    scales = {"q": 1.0 if a.has_qk_norm else a.query_scale, "k": 1.0, "v": 1.0}
    qkv = [scale * _double(model, f"{name}.{one}.weight") for one, scale in scales.items()]
    qkv_bias = [_bias(model, f"{name}.{one}", scale) for one, scale in scales.items()]
    branches = ["gate", "up"] if a.has_gate else ["up"]
    ups = [_double(model, f"{name}.{one}.weight") for one in branches]
    up_bias = [_bias(model, f"{name}.{one}", 1.0) for one in branches]
    out = _behind_norm(model, f"{name}.norm1", f"{i}.qkv", qkv, qkv_bias)
    out |= _behind_norm(model, f"{name}.norm2", f"{i}.up", ups, up_bias)
    for one in ("o", "down"):
        out[f"{i}.{one}.weight"] = gain * _double(model, f"{name}.{one}.weight").T
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
    model: LanguageModel, norm: str, name: str, parts: list[Tensor], biases: list[Tensor | None]
) -> dict[str, Tensor]:
    """Join matrices that read one norm, with the norm's weights in them."""
    matrix, weight = torch.cat(parts), _double(model, f"{norm}.weight")
    out = {f"{name}.weight": (matrix * weight).T}
    known = [one for one in biases if one is not None]
    if model.architecture.norm == "layer":
        out[f"{name}.bias"] = matrix @ _double(model, f"{norm}.bias")
        if known:
            out[f"{name}.bias"] = out[f"{name}.bias"] + torch.cat(known)
    elif known:
        out[f"{name}.bias"] = torch.cat(known)
    return {key: value.contiguous() for key, value in out.items()}


def _bias(model: LanguageModel, name: str, scale: float) -> Tensor | None:
    if not model.architecture.has_bias:
        return None
    return scale * _double(model, f"{name}.bias")


def _double(model: LanguageModel, name: str) -> Tensor:
    return model.weights[name].double()
