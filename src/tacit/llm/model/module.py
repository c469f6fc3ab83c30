"""A language model as a torch module: for whoever trains one."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from tacit.errors import ConfigError, DataError
from tacit.llm.model.architecture import Architecture, LanguageModel, shapes
from tacit.llm.model.plain import activate
from tacit.llm.model.rotary import rotate, turns, visible

Past = list[tuple[Tensor, Tensor]]
"""Keys and values of every layer, (…, heads, tokens, head_dim); extended by those who read on."""


class CausalModule(nn.Module):
    """The model of a checkpoint as layers of torch: ids (…, tokens) to scores (…, tokens, vocab).

    Any number of dimensions may stand before the tokens; the first are the records, whose gradients
    `tacit.dp.make_private` clips. Parameters have the names of `shapes`, so that `weights` of a
    trained module make a `LanguageModel` again.

    Raises:
        ConfigError: the model attends in both directions (ChatGLM).
    """

    def __init__(self, model: LanguageModel) -> None:
        super().__init__()
        a = self.architecture = model.architecture
        if a.family == "chatglm":
            raise ConfigError(
                "ChatGLM looks at the prompt in both directions; wanted a causal model"
            )
        self.embed = nn.Embedding(a.vocab, a.width)
        if a.positions == "learned":
            self.positions = nn.Embedding(a.context, a.width)
        self.layers = nn.ModuleList([_Block(a, i) for i in range(a.layers)])
        self.norm = _norm(a, a.width)
        self.output = nn.Linear(a.width, a.vocab, bias=False)
        if a.tied_output:
            self.output.weight = self.embed.weight
        own = self.state_dict()
        for name, weight in model.weights.items():
            own[_here(name)].copy_(weight)

    def forward(self, ids: Tensor, past: Past | None = None) -> Tensor:
        """Return the scores of the token after each; with a past, of ids that follow it."""
        a, count = self.architecture, ids.shape[-1]
        start = past[0][0].shape[-2] if past else 0
        if start + count > a.context:
            raise DataError(
                f"the text is too long: {start + count} tokens, the model's context is {a.context}"
            )
        x = a.embed_scale * self.embed(ids)
        if a.positions == "learned":
            x = x + self.positions(
                torch.arange(start, start + count, device=ids.device).expand_as(ids)
            )
        sights = {
            window: _sight(a, start, count, window, x)
            for window in {a.window_of(i) for i in range(a.layers)}
        }
        for i, layer in enumerate(self.layers):
            before = past[i] if past and i < len(past) else None
            x, kept = layer(x, sights[a.window_of(i)], before)
            if past is not None:
                past[i : i + 1] = [kept]
        scores: Tensor = self.output(self.norm(x))
        return scores

    @property
    def device(self) -> torch.device:
        """Return where the weights lie."""
        return self.embed.weight.device


def language_model(module: nn.Module) -> LanguageModel:
    """Return the model that a module has become, on the host.

    Raises:
        ConfigError: its layers are not those it was made of; merge adapters first.
    """
    if not isinstance(module, CausalModule):
        raise ConfigError(f"wanted a CausalModule, got {type(module).__name__}")
    held = {name: w.detach().float().cpu().contiguous() for name, w in module.state_dict().items()}
    wanted = shapes(module.architecture)
    if set(held) != {_here(name) for name in wanted}:
        raise ConfigError("the module has other layers than its architecture: merge adapters first")
    return LanguageModel(
        architecture=module.architecture, weights={name: held[_here(name)] for name in wanted}
    )


class _Block(nn.Module):
    """Attention and the matrices behind it, each around a skip."""

    def __init__(self, a: Architecture, index: int) -> None:
        super().__init__()
        self.architecture = a
        inner, kv = a.heads * a.head_dim, a.kv_heads * a.head_dim
        self.q = nn.Linear(a.width, inner, bias=a.has_bias)
        self.k, self.v = (nn.Linear(a.width, kv, bias=a.has_bias) for _ in range(2))
        self.o = nn.Linear(inner, a.width, bias=a.has_bias)
        if a.has_gate:
            self.gate = nn.Linear(a.width, a.ffn, bias=a.has_bias)
        self.up = nn.Linear(a.width, a.ffn, bias=a.has_bias)
        self.down = nn.Linear(a.ffn, a.width, bias=a.has_bias)
        self.norm1, self.norm2 = _norm(a, a.width), _norm(a, a.width)
        if a.has_qk_norm:
            self.q_norm, self.k_norm = _norm(a, a.head_dim), _norm(a, a.head_dim)
        if a.has_post_norm:
            self.post_norm1, self.post_norm2 = _norm(a, a.width), _norm(a, a.width)

    def forward(
        self,
        x: Tensor,
        sight: tuple[tuple[Tensor, Tensor] | None, Tensor | None],
        before: tuple[Tensor, Tensor] | None,
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Return the stream behind this layer, and its keys and values."""
        a = self.architecture
        mixed, kept = self._attend(self.norm1(x), sight, before)
        x = x + (self.post_norm1(mixed) if a.has_post_norm else mixed)
        h = self.norm2(x)
        fed = self.down(activate(a, self.up(h), self.gate(h) if a.has_gate else None))
        return x + (self.post_norm2(fed) if a.has_post_norm else fed), kept

    def _attend(
        self,
        x: Tensor,
        sight: tuple[tuple[Tensor, Tensor] | None, Tensor | None],
        before: tuple[Tensor, Tensor] | None,
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        a, (angles, mask) = self.architecture, sight
        q, k, v = (
            layer(x).unflatten(-1, (-1, a.head_dim)).transpose(-3, -2)
            for layer in (self.q, self.k, self.v)
        )
        if a.has_qk_norm:
            q, k = self.q_norm(q), self.k_norm(k)
        if angles is not None:
            q, k = rotate(a, q, *angles), rotate(a, k, *angles)
        if before is not None:
            k, v = torch.cat([before[0], k], -2), torch.cat([before[1], v], -2)
        lead = q.shape[:-3]
        flat = [one.reshape(-1, *one.shape[-3:]) for one in (q, k, v)]
        mixed = functional.scaled_dot_product_attention(
            flat[0],
            flat[1],
            flat[2],
            attn_mask=mask,
            is_causal=mask is None and q.shape[-2] > 1,
            scale=a.query_scale,
            enable_gqa=a.kv_heads != a.heads,
        )
        joined = mixed.reshape(*lead, *mixed.shape[1:]).transpose(-3, -2).flatten(-2)
        out: Tensor = self.o(joined)
        return out, (k, v)


def _norm(a: Architecture, width: int) -> nn.Module:
    return nn.RMSNorm(width, a.norm_eps) if a.norm == "rms" else nn.LayerNorm(width, a.norm_eps)


def _sight(
    a: Architecture, start: int, count: int, window: int, x: Tensor
) -> tuple[tuple[Tensor, Tensor] | None, Tensor | None]:
    """Return the angles of new tokens, and who sees whom where that is not simply the past."""
    angles = None
    if a.positions != "learned":
        cos, sin = turns(a, start=start, count=count, window=window)
        angles = cos.to(x), sin.to(x)
    is_plain = not window and (start == 0 or count == 1)
    mask = None if is_plain else visible(a, start=start, count=count, window=window).to(x.device)
    return angles, mask


def _here(name: str) -> str:
    """Return what a tensor of `shapes` is called in a module."""
    return f"{name}.weight" if name in ("embed", "positions") else name


def tiny_model(
    vocab: int, *, layers: int = 2, width: int = 64, context: int = 256, seed: int = 0
) -> LanguageModel:
    """Return a small LLaMA with random weights, to be trained from nothing in seconds."""
    a = Architecture(
        family="llama",
        layers=layers,
        width=width,
        heads=4,
        kv_heads=4,
        head_dim=width // 4,
        ffn=4 * width,
        vocab=vocab,
        context=context,
        norm="rms",
        norm_eps=1e-5,
        activation="swiglu",
        positions="rotary",
        rope_theta=1e4,
        tied_output=True,
        has_bias=False,
    )
    chance = torch.Generator().manual_seed(seed)
    weights = {
        name: torch.ones(shape)
        if "norm" in name
        else torch.empty(shape).normal_(std=0.5 / math.sqrt(shape[-1]), generator=chance)
        for name, shape in shapes(a).items()
    }
    weights["output.weight"] = weights["embed"]
    return LanguageModel(architecture=a, weights=weights)
