"""Newer architectures written from their formulas, on tensors as their makers name them.

Nothing here is ours: interleaved features stay interleaved, Gemma's norms are 1 + w, and every
head is computed by itself. What it is given is the configuration and the tensors of a checkpoint.
"""

import math

import torch
from torch import nn

WIDTH, HEADS, KV_HEADS, DIM, FFN, VOCAB, LAYERS = 16, 4, 2, 8, 24, 48, 3
_COMMON = {
    "num_hidden_layers": LAYERS,
    "hidden_size": WIDTH,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "head_dim": DIM,
    "intermediate_size": FFN,
    "vocab_size": VOCAB,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": False,
    "hidden_act": "silu",
}
_LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 40,
}
_GEMMA = {
    "model_type": "gemma3_text",
    "hidden_activation": "gelu_pytorch_tanh",
    "query_pre_attn_scalar": 10,
    "sliding_window": 4,
    "sliding_window_pattern": 2,
    "rope_theta": 1e6,
    "rope_local_base_freq": 10000.0,
    "rope_scaling": {"rope_type": "linear", "factor": 8.0},
    "tie_word_embeddings": True,
}
_QUARTER = {"rope_type": "default", "rope_theta": 5e4, "partial_rotary_factor": 0.25}
_WHOLE = {"partial_rotary_factor": 1}
CONFIGS = {
    "llama3": {**_COMMON, "model_type": "llama", "rope_theta": 5e5, "rope_scaling": _LLAMA3},
    "qwen3": {**_COMMON, "model_type": "qwen3", "rope_theta": 1e6},
    "gemma3": {key: one for key, one in {**_COMMON, **_GEMMA}.items() if key != "hidden_act"},
    "glm": {**_COMMON, "model_type": "glm", "partial_rotary_factor": 0.5, "attention_bias": True},
    "glm4": {**_COMMON, "model_type": "glm4", "partial_rotary_factor": 0.5},
    "glm_quarter": {**_COMMON, "model_type": "glm", "rope_parameters": _QUARTER},
    "glm4_whole": {
        **_COMMON,
        "model_type": "glm4",
        "rope_parameters": {"partial_rotary_factor": 1},
    },
}


def tensors(config, seed=0):
    """Draw the tensors of a checkpoint."""
    kind, draw = config["model_type"], torch.Generator().manual_seed(seed)
    sizes = {"q": HEADS * DIM, "k": KV_HEADS * DIM, "v": KV_HEADS * DIM}
    shapes = {"model.embed_tokens": (VOCAB, WIDTH)}
    norms = {"model.norm": WIDTH}
    for i in range(LAYERS):
        at = f"model.layers.{i}."
        shapes |= {f"{at}self_attn.{one}_proj": (rows, WIDTH) for one, rows in sizes.items()}
        shapes[f"{at}self_attn.o_proj"] = (WIDTH, HEADS * DIM)
        shapes[f"{at}mlp.down_proj"] = (WIDTH, FFN)
        if kind in ("glm", "glm4"):
            shapes[f"{at}mlp.gate_up_proj"] = (2 * FFN, WIDTH)
        else:
            shapes |= {f"{at}mlp.{one}_proj": (FFN, WIDTH) for one in ("gate", "up")}
        more = {
            "gemma3_text": ("pre_feedforward_layernorm", "post_feedforward_layernorm"),
            "glm4": ("post_self_attn_layernorm", "post_mlp_layernorm"),
        }.get(kind, ())
        for one in ("input_layernorm", "post_attention_layernorm", *more):
            norms[f"{at}{one}"] = WIDTH
        if kind in ("qwen3", "gemma3_text"):
            norms |= {f"{at}self_attn.{one}_norm": DIM for one in "qk"}
    out = {f"{name}.weight": 0.35 * torch.randn(n, generator=draw) for name, n in shapes.items()}
    for name, width in norms.items():
        usual = 0.0 if kind == "gemma3_text" else 1.0
        out[f"{name}.weight"] = usual + 0.2 * torch.randn(width, generator=draw)
    if config.get("attention_bias"):
        for i in range(LAYERS):
            for one, rows in sizes.items():
                out[f"model.layers.{i}.self_attn.{one}_proj.bias"] = torch.randn(
                    rows, generator=draw
                )
    if not config["tie_word_embeddings"]:
        out["lm_head.weight"] = 0.35 * torch.randn(VOCAB, WIDTH, generator=draw)
    return out


class Reference:
    """A model as its formulas say, in doubles."""

    def __init__(self, config, tensors):
        self.c, self.kind = config, config["model_type"]
        self.w = {name: one.double() for name, one in tensors.items()}

    def logits(self, ids):
        embed = self.w["model.embed_tokens.weight"]
        x = embed[torch.tensor(ids)]
        if self.kind == "gemma3_text":
            x = x * math.sqrt(WIDTH)
        for i in range(LAYERS):
            x = self.block(f"model.layers.{i}.", i, x)
        return self.norm("model.norm", x) @ self.w.get("lm_head.weight", embed).T

    def block(self, at, i, x):
        h = self.attention(f"{at}self_attn.", i, self.norm(f"{at}input_layernorm", x))
        if self.kind == "gemma3_text":
            x = x + self.norm(f"{at}post_attention_layernorm", h)
            h = self.mlp(f"{at}mlp.", self.norm(f"{at}pre_feedforward_layernorm", x))
            return x + self.norm(f"{at}post_feedforward_layernorm", h)
        if self.kind == "glm4":
            x = x + self.norm(f"{at}post_self_attn_layernorm", h)
            h = self.mlp(f"{at}mlp.", self.norm(f"{at}post_attention_layernorm", x))
            return x + self.norm(f"{at}post_mlp_layernorm", h)
        x = x + h
        return x + self.mlp(f"{at}mlp.", self.norm(f"{at}post_attention_layernorm", x))

    def norm(self, name, x):
        weight = self.w[f"{name}.weight"] + (self.kind == "gemma3_text")
        return x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt() * weight

    def mlp(self, at, x):
        if self.kind in ("glm", "glm4"):
            gate, up = (x @ self.w[f"{at}gate_up_proj.weight"].T).chunk(2, -1)
        else:
            gate, up = (x @ self.w[f"{at}{one}_proj.weight"].T for one in ("gate", "up"))
        if self.kind == "gemma3_text":
            gate = nn.functional.gelu(gate, approximate="tanh")
        else:
            gate = gate / (1 + (-gate).exp())
        return (gate * up) @ self.w[f"{at}down_proj.weight"].T

    def attention(self, at, i, x):
        q, k, v = (self.heads(f"{at}{one}_proj", x) for one in "qkv")
        if self.kind in ("qwen3", "gemma3_text"):
            q = [self.norm(f"{at}q_norm", one) for one in q]
            k = [self.norm(f"{at}k_norm", one) for one in k]
        is_local = self.kind == "gemma3_text" and i % 2 == 0
        scale = 10**-0.5 if self.kind == "gemma3_text" else DIM**-0.5
        mixed = []
        for head in range(HEADS):
            shared = head * KV_HEADS // HEADS
            scores = self.turn(q[head], is_local) @ self.turn(k[shared], is_local).T * scale
            for row in range(len(x)):
                for key in range(len(x)):
                    if key > row or (is_local and key <= row - 4):
                        scores[row, key] = -math.inf
            mixed.append(scores.softmax(-1) @ v[shared])
        return torch.cat(mixed, -1) @ self.w[f"{at}o_proj.weight"].T

    def heads(self, name, x):
        out = x @ self.w[f"{name}.weight"].T + self.w.get(f"{name}.bias", torch.zeros(()))
        return out.split(DIM, -1)

    def turn(self, x, is_local):
        """Turn pairs of features as complex numbers; in GLM neighbours, and a part of them."""
        is_glm = self.kind in ("glm", "glm4")
        settings = self.c | self.c.get("rope_parameters", {})
        turned = int(DIM * settings["partial_rotary_factor"]) if is_glm else DIM
        theta = 10000.0 if is_local else settings.get("rope_theta", 10000.0)
        speed = theta ** -(torch.arange(turned // 2, dtype=torch.float64) * 2 / turned)
        if "rope_scaling" in self.c and not is_local:
            speed = self.scaled(speed)
        spin = torch.polar(torch.ones(()).double(), torch.arange(len(x))[:, None] * speed)
        if is_glm:
            pairs = torch.view_as_complex(x[:, :turned].reshape(len(x), -1, 2).contiguous())
            return torch.cat([torch.view_as_real(pairs * spin).flatten(1), x[:, turned:]], -1)
        pairs = torch.complex(x[:, : DIM // 2].contiguous(), x[:, DIM // 2 :].contiguous()) * spin
        return torch.cat([pairs.real, pairs.imag], -1)

    def scaled(self, speed):
        s = self.c["rope_scaling"]
        if s["rope_type"] == "linear":
            return speed / s["factor"]
        original, low, high = 40, s["low_freq_factor"], s["high_freq_factor"]
        out = []
        for one in speed.tolist():
            length = 2 * math.pi / one
            if length < original / high:
                out.append(one)
            elif length > original / low:
                out.append(one / s["factor"])
            else:
                smooth = (original / length - low) / (high - low)
                out.append((1 - smooth) * one / s["factor"] + smooth * one)
        return torch.tensor(out, dtype=torch.float64)
