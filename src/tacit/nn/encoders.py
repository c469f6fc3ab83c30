"""The attention layers of torch.nn that can be imported, as functions of ops."""

from math import sqrt
from typing import Any

import torch
from torch import Tensor, nn

from tacit.errors import InputError
from tacit.nn.layers import layer_norm, relu, shrunk
from tacit.nn.models import attention, causal_mask, merge_heads, mixing, split_heads
from tacit.nn.running import Constant, NotComputed, Running


def mask_of(mask: Any) -> Tensor:
    """Turn torch's masks (true or -inf hides) into ours (true keeps).

    Raises:
        InputError: it is computed, has other numbers, or hides all keys from a query.
    """
    if not isinstance(mask, Constant):
        raise InputError("wanted a mask that is a constant of the model, got a computed one")
    values = mask.values
    if values.dtype == torch.bool:
        kept = ~values
    elif bool(((values == 0) | torch.isneginf(values)).all()):
        kept = values == 0
    else:
        raise InputError("wanted a mask of zeros and -inf, got other numbers")
    if not bool(kept.any(dim=-1).all()):
        raise InputError("a query that may see no key has no answer; let it see one, e.g. its own")
    return kept


def multihead(
    run: Running,
    name: str,
    layer: nn.MultiheadAttention,
    query: Any,
    key: Any,
    value: Any,
    key_padding_mask: None = None,
    need_weights: bool = True,
    attn_mask: Any = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> Any:
    """Attend; the second result, the weights, is not computed."""
    if key_padding_mask is not None:
        raise InputError(f"layer {name!r}: a padding mask depends on the data, and is not public")
    ops = run.ops
    inputs = [one if layer.batch_first else ops.transpose(one, 0, 1) for one in (query, key, value)]
    whole = [
        run.affine(name, one, weight=f"{what}_weight", bias=f"{what}_bias")
        for what, one in zip("qkv", inputs, strict=True)
    ]
    whole[:2] = map(run.capped, whole[:2])
    most = run.length(whole[0]) * run.length(whole[1]) if run.has_bounds else None
    q, k, v = (split_heads(ops, one, layer.num_heads) for one in whole)
    kept = None if attn_mask is None else mask_of(attn_mask)
    if kept is not None and kept.dim() == 3:  # (batch · heads, queries, keys)
        kept = kept.reshape(-1, layer.num_heads, *kept.shape[1:])
    if is_causal and kept is None:
        kept = causal_mask(ops.shape(q)[2], ops.shape(k)[2])
    # The scale of the products is part of the queries' weights since they were imported.
    mixed = merge_heads(ops, attention(ops, q, k, v, kept=kept, scale=1.0, longest=most))
    # Every head averages rows of its own.
    longer = sqrt(layer.num_heads) * mixing(ops.shape(k)[2])
    out = run.affine(f"{name}.out_proj", run.follows(mixed, whole[2], factor=longer))
    weights = NotComputed("the weights of attention, which a module gets by need_weights=True")
    return (out if layer.batch_first else ops.transpose(out, 0, 1)), weights


def encoder_layer(
    run: Running,
    name: str,
    layer: nn.TransformerEncoderLayer,
    src: Any,
    src_mask: Any = None,
    src_key_padding_mask: None = None,
    is_causal: bool = False,
) -> Any:
    """Apply attention and a two-layer network, each with a residual and a norm."""

    def norm(which: str, x: Any) -> Any:
        return layer_norm(run, f"{name}.{which}", getattr(layer, which), x)

    def look(x: Any) -> Any:
        called = {"key_padding_mask": src_key_padding_mask, "attn_mask": src_mask}
        attend = layer.self_attn
        return multihead(run, f"{name}.self_attn", attend, x, x, x, is_causal=is_causal, **called)[
            0
        ]

    def think(x: Any) -> Any:
        wide = run.affine(f"{name}.linear1", x)
        active = relu(run, wide) if _activation(layer) == "relu" else shrunk(run, "gelu", wide)
        return run.affine(f"{name}.linear2", active)

    for which, branch in (("norm1", look), ("norm2", think)):
        if layer.norm_first:
            src = run.ops.add(src, branch(norm(which, src)))
        else:
            src = norm(which, run.ops.add(src, branch(src)))
    return src


def _activation(layer: nn.TransformerEncoderLayer) -> str:
    kind = getattr(layer.activation, "__name__", type(layer.activation).__name__).lower()
    if kind not in ("relu", "gelu"):
        raise InputError(f"a Transformer layer wants relu or gelu, got {kind}")
    return kind


def encoder(
    run: Running,
    name: str,
    layer: nn.TransformerEncoder,
    src: Any,
    mask: Any = None,
    src_key_padding_mask: None = None,
    is_causal: bool | None = None,
) -> Any:
    """Apply the layers of an encoder in order, and its norm if it has one."""
    for at, one in enumerate(layer.layers):
        src = encoder_layer(
            run, f"{name}.layers.{at}", one, src, mask, src_key_padding_mask, bool(is_causal)
        )
    if not isinstance(layer.norm, nn.LayerNorm):
        return src
    return layer_norm(run, f"{name}.norm", layer.norm, src)
