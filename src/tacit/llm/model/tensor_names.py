"""How the tensors of each kind of checkpoint are called, and how they become ours."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from tacit.errors import DataError
from tacit.llm.model.architecture import Architecture, LanguageModel, Shape, shapes
from tacit.llm.model.machine import give_back_freed

Readers = Mapping[str, Callable[[], Tensor]]
"""The tensors of a checkpoint by their own names, each read when it is asked for."""


@dataclass(frozen=True, kw_only=True)
class Layout:
    """The names of one kind of checkpoint.

    ``parts`` maps the parts of a block to theirs; ``fused`` is the matrix that holds q, k and v,
    one after the other or, if ``is_interleaved``, head by head. ``is_transposed`` matrices are
    (in, out). ``is_paired`` rotary weights turn neighbouring features together, as in GGUF; those
    that do not turn come last. ``fused_gate`` holds gate and up, one after the other. The weights
    of norms are stored less ``norm_offset``.
    """

    embed: str
    norm: str
    output: str
    block: str
    parts: Mapping[str, str]
    positions: str = ""
    fused: str = ""
    is_interleaved: bool = False
    is_transposed: bool = False
    is_paired: bool = False
    fused_gate: str = ""
    norm_offset: float = 0.0
    ignored: str = field(default=r"(?!)")


LLAMA = Layout(
    embed="model.embed_tokens",
    norm="model.norm",
    output="lm_head",
    block="model.layers.{}.",
    parts={
        "norm1": "input_layernorm",
        "norm2": "post_attention_layernorm",
        **{part: f"self_attn.{part}_proj" for part in "qkvo"},
        **{part: f"mlp.{part}_proj" for part in ("gate", "up", "down")},
    },
    ignored=r".*\.rotary_emb\.inv_freq",
)
_QK_NORMS = {f"{part}_norm": f"self_attn.{part}_norm" for part in "qk"}
QWEN3 = replace(LLAMA, parts={**LLAMA.parts, **_QK_NORMS})
GEMMA3 = replace(
    LLAMA,
    parts={
        **LLAMA.parts,
        **_QK_NORMS,
        "post_norm1": "post_attention_layernorm",
        "norm2": "pre_feedforward_layernorm",
        "post_norm2": "post_feedforward_layernorm",
    },
    norm_offset=1.0,
)
GLM = replace(
    LLAMA,
    parts={name: part for name, part in LLAMA.parts.items() if name not in ("gate", "up")},
    fused_gate="mlp.gate_up_proj",
    is_paired=True,
)
GLM4 = replace(
    GLM,
    parts={
        **GLM.parts,
        "post_norm1": "post_self_attn_layernorm",
        "post_norm2": "post_mlp_layernorm",
    },
)
GPT2 = Layout(
    embed="wte",
    norm="ln_f",
    output="lm_head",
    block="h.{}.",
    parts={
        "norm1": "ln_1",
        "norm2": "ln_2",
        "o": "attn.c_proj",
        "up": "mlp.c_fc",
        "down": "mlp.c_proj",
    },
    positions="wpe",
    fused="attn.c_attn",
    is_transposed=True,
    ignored=r"h\.\d+\.attn\.(masked_)?bias",
)
CHATGLM = Layout(
    embed="transformer.word_embeddings",
    norm="transformer.final_layernorm",
    output="lm_head",
    block="transformer.layers.{}.",
    parts={
        "norm1": "input_layernorm",
        "norm2": "post_attention_layernorm",
        "o": "attention.dense",
        "up": "mlp.dense_h_to_4h",
        "down": "mlp.dense_4h_to_h",
    },
    fused="attention.query_key_value",
    is_interleaved=True,
    ignored=r".*\.rotary_emb\.inv_freq",
)
_GGUF_PARTS = {
    "norm1": "attn_norm",
    "norm2": "ffn_norm",
    "o": "attn_output",
    "up": "ffn_up",
    "down": "ffn_down",
}
_GGUF_SPLIT = {**_GGUF_PARTS, "gate": "ffn_gate", **{part: f"attn_{part}" for part in "qkv"}}
GGUF_LLAMA = Layout(
    embed="token_embd",
    norm="output_norm",
    output="output",
    block="blk.{}.",
    parts=_GGUF_SPLIT,
    is_paired=True,
)
GGUF_QWEN2 = Layout(
    embed="token_embd", norm="output_norm", output="output", block="blk.{}.", parts=_GGUF_SPLIT
)
GGUF_QWEN3 = replace(
    GGUF_QWEN2, parts={**_GGUF_SPLIT, "q_norm": "attn_q_norm", "k_norm": "attn_k_norm"}
)
GGUF_GPT2 = Layout(
    embed="token_embd",
    norm="output_norm",
    output="output",
    block="blk.{}.",
    parts=_GGUF_PARTS,
    positions="position_embd",
    fused="attn_qkv",
)


def gather(
    architecture: Architecture, layout: Layout, readers: Readers, *, is_lazy: bool = False
) -> LanguageModel:
    """Read every tensor of a checkpoint and give it our name and form.

    Args:
        architecture: of the model.
        layout: how its tensors are called.
        readers: the tensors.
        is_lazy: read and check all of them, but keep none: each is read again when it is wanted.

    Raises:
        DataError: naming the tensor that is missing, has another shape, or is not understood: a
            model with a part that we leave out would silently say something else.
    """
    found = _Lazy(architecture, layout, readers)
    weights = found if is_lazy else found.all()
    model = LanguageModel(architecture=architecture, weights=weights)
    found.refuse_rest()
    return model


class _Lazy(Mapping[str, Tensor]):
    """A checkpoint's tensors under our names, read a layer at a time; the last one is kept.

    Whoever goes through a model reads it layer by layer, and memory holds one.
    """

    def __init__(self, architecture: Architecture, layout: Layout, readers: Readers) -> None:
        self._architecture, self._layout, self._taken = architecture, layout, _Taken(readers)
        self._wanted = shapes(architecture)
        groups: dict[str, list[str]] = {}
        for name in self._wanted:
            groups.setdefault(_group(name), []).append(name)
        self._groups = groups
        self._known: tuple[str, dict[str, Tensor]] = ("", {})

    def __getitem__(self, name: str) -> Tensor:
        return self._read(_group(name))[name]

    def __iter__(self) -> Iterator[str]:
        return (name for names in self._groups.values() for name in names)

    def __len__(self) -> int:
        return len(self._wanted)

    def all(self) -> dict[str, Tensor]:
        """Read everything."""
        out: dict[str, Tensor] = {}
        for group in self._groups:
            out |= self._read(group)
        if self._architecture.tied_output:
            out["output.weight"] = out["embed"]
        return out

    def refuse_rest(self) -> None:
        """Refuse tensors that nobody has asked for, when all have been read."""
        self._taken.refuse_rest(self._layout.ignored)
        self._known = ("", {})

    def _read(self, group: str) -> dict[str, Tensor]:
        if self._known[0] != group:
            self._known = ("", {})  # before the next is read: there may be no room for both
            give_back_freed()
            self._known = group, self._gather(group)
        return self._known[1]

    def _gather(self, group: str) -> dict[str, Tensor]:
        a, layout, taken = self._architecture, self._layout, self._taken
        match group:
            case "embed" | "positions":
                name = layout.embed if group == "embed" else layout.positions
                return {group: taken.read(f"{name}.weight")}
            case "norm":
                return {
                    f"norm.{kind}": taken.read(f"{layout.norm}.{kind}") + layout.norm_offset
                    for kind in kinds_of(a.norm == "layer")
                }
            case "output":
                return {"output.weight": _output(a, layout, taken)}
            case _:
                return _block(a, layout, taken, int(group), self._wanted)


def _group(name: str) -> str:
    """Name what is read at once: a layer by its number, or what stands before or behind them."""
    first, _, rest = name.partition(".")
    return rest.partition(".")[0] if first == "layers" else first


class _Taken:
    """The tensors of a checkpoint, and which of them were read."""

    def __init__(self, readers: Readers) -> None:
        self._readers = readers
        self._names: set[str] = set()

    def read(self, name: str) -> Tensor:
        if name not in self._readers:
            raise DataError(f"the checkpoint has no tensor {name!r}")
        self._names.add(name)
        return self._readers[name]().float().contiguous()

    def read_or(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """Read a bias, or zeros where this one is left out."""
        return self.read(name) if name in self._readers else torch.zeros(shape)

    def refuse_rest(self, ignored: str) -> None:
        for name in sorted(self._readers.keys() - self._names):
            if not re.fullmatch(ignored, name):
                raise DataError(
                    f"the checkpoint has a tensor {name!r} that we have no use for; "
                    "it is of an architecture that tacit does not know"
                )


def _block(
    a: Architecture, layout: Layout, taken: _Taken, i: int, wanted: Mapping[str, Shape]
) -> dict[str, Tensor]:
    out: dict[str, Tensor] = {}
    there, here = layout.block.format(i), f"layers.{i}."
    for part, name in layout.parts.items():
        is_norm = "norm" in part
        weight = taken.read(f"{there}{name}.weight")
        out[f"{here}{part}.weight"] = weight + layout.norm_offset if is_norm else weight
        if is_norm and a.norm == "layer":
            out[f"{here}{part}.bias"] = taken.read(f"{there}{name}.bias")
        elif not is_norm and a.has_bias:
            key = f"{here}{part}.bias"
            out[key] = taken.read_or(f"{there}{name}.bias", wanted[key])
    if layout.fused:
        out |= _unfuse(a, layout, taken, there + layout.fused, here)
    if layout.fused_gate:
        joined = taken.read(f"{there}{layout.fused_gate}.weight")
        for part, half in zip(("gate", "up"), joined.chunk(2), strict=True):
            out[f"{here}{part}.weight"] = half.contiguous()
            if a.has_bias:
                out[f"{here}{part}.bias"] = torch.zeros(wanted[f"{here}{part}.bias"])
    if layout.is_transposed:
        out = {key: w.T.contiguous() if w.ndim == 2 else w for key, w in out.items()}
    if layout.is_paired:
        heads = {"q": a.heads, "k": a.kv_heads}
        for key in [key for key in out if key.split(".")[2] in heads]:
            out[key] = _unpair(out[key], heads[key.split(".")[2]], key)
    return out


def _unfuse(
    a: Architecture, layout: Layout, taken: _Taken, there: str, here: str
) -> dict[str, Tensor]:
    """Take q, k and v out of one matrix."""
    out = {}
    for kind in kinds_of(a.has_bias):
        name = f"{there}.{kind}"
        w = taken.read(name)
        axis = w.ndim - 1 if layout.is_transposed else 0
        if w.shape[axis] != 3 * a.width:
            raise DataError(
                f"tensor {name!r} must hold q, k and v of width {a.width}, got {tuple(w.shape)}"
            )
        if layout.is_interleaved:
            parts = w.reshape(a.heads, 3, a.head_dim, *w.shape[1:]).unbind(1)
            split = [part.flatten(0, 1) for part in parts]
        else:
            split = list(w.chunk(3, axis))
        for part, piece in zip("qkv", split, strict=True):
            out[f"{here}{part}.{kind}"] = piece.contiguous()
    return out


def _unpair(w: Tensor, heads: int, name: str) -> Tensor:
    """Undo the order of GGUF, in which the two features that turn together are neighbours."""
    if w.shape[0] % (2 * heads):
        raise DataError(f"tensor {name!r} of shape {tuple(w.shape)} does not hold {heads} heads")
    return w.reshape(heads, -1, 2, *w.shape[1:]).transpose(1, 2).reshape(w.shape)


def _output(a: Architecture, layout: Layout, taken: _Taken) -> Tensor:
    name = f"{layout.output}.weight"
    if not a.tied_output:
        return taken.read(name)
    embed, stored = taken.read(f"{layout.embed}.weight"), taken.read_or(name, ())
    # Some writers store a tied matrix twice.
    if stored.ndim and not torch.equal(stored, embed):
        raise DataError(f"the configuration ties {name!r} to the embedding, but they differ")
    return embed


def kinds_of(has_bias: bool) -> tuple[str, ...]:
    """List what a layer or norm has: a weight, and a bias if it has one."""
    return ("weight", "bias") if has_bias else ("weight",)
