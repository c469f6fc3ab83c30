"""Run a language model in the clear: the reference of the private engine, and a chat without it."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from tacit.errors import DataError
from tacit.llm.model.architecture import Architecture, LanguageModel
from tacit.llm.model.rotary import rotate, turns, visible

PART = 256
"""How many tokens of a prompt are read at once."""
Choose = Callable[[Tensor], int]
"""Given the scores of every token, return the one to take."""


Between = Callable[[], None]
"""Called between two parts of a prompt; what it raises ends the answer there."""


def no_word() -> None:
    """Let reading go on."""


@dataclass(kw_only=True, eq=False)
class Cache:
    """What attention remembers: keys and values of every layer, (…, heads, tokens, head_dim).

    ``prompt`` counts the tokens that see each other in both directions, in ChatGLM; the first
    call sets it to all of its tokens but the last, which is ``<sop>``.
    """

    keys: dict[int, Tensor] = field(default_factory=dict)
    values: dict[int, Tensor] = field(default_factory=dict)
    length: int = 0
    prompt: int = 0

    def extend(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Append the new keys and values of a layer and return all of them."""
        if layer in self.keys:
            key = torch.cat([self.keys[layer], key], -2)
            value = torch.cat([self.values[layer], value], -2)
        self.keys[layer], self.values[layer] = key, value
        return key, value


@torch.no_grad()
def logits(model: LanguageModel, ids: Sequence[int], cache: Cache | None = None) -> Tensor:
    """Return the scores of the next token after each of ``ids``, (tokens, vocab).

    With a cache, ``ids`` follow what it holds, and are added to it.

    Raises:
        DataError: an id is not in the vocabulary, or the text is longer than the context.
    """
    return scores_of(model, _last(model, ids, cache or Cache()))


@torch.no_grad()
def next_logits(model: LanguageModel, ids: Sequence[int], cache: Cache) -> Tensor:
    """Return the scores after the last of ``ids`` only, (vocab,); cheaper for long prompts."""
    return scores_of(model, _last(model, ids, cache)[-1:])[0]


def generate(
    model: LanguageModel,
    prompt: Sequence[int],
    *,
    choose: Choose,
    limit: int,
    cache: Cache,
    between: Between = no_word,
) -> Iterator[int]:
    """Yield up to ``limit`` tokens after the prompt; stop by not asking for more.

    Ends early when the context is full. The last token that was yielded is not in the cache yet.
    """
    ids = list(prompt)
    # ChatGLM reads its prompt in both directions, so all at once.
    is_whole = model.architecture.family == "chatglm" and not cache.length
    for _ in range(limit):
        if cache.length + len(ids) > model.architecture.context:
            return
        while len(ids) > PART and not is_whole:
            _last(model, ids[:PART], cache)
            ids = ids[PART:]
            between()
        token = choose(next_logits(model, ids, cache))
        yield token
        ids = [token]


def perplexity(model: LanguageModel, ids: Sequence[int]) -> float:
    """Return exp of the mean surprise at each token but the first."""
    if len(ids) < 2:
        raise DataError(f"perplexity needs at least 2 tokens, got {len(ids)}")
    scores = logits(model, ids)[:-1]
    return math.exp(functional.cross_entropy(scores, torch.tensor(ids[1:])).item())


def streams(model: LanguageModel, texts: Sequence[Sequence[int]]) -> list[list[Tensor]]:
    """Return what every layer reads in each text, and what the last norm does: (tokens, width).

    All texts go through one layer before the next is read.
    """
    walks = [_walk(model, ids, Cache()) for ids in texts]
    return [list(one) for one in zip(*zip(*walks, strict=True), strict=True)]


def _last(model: LanguageModel, ids: Sequence[int], cache: Cache) -> Tensor:
    """Return what the last layer says."""
    for x in _walk(model, ids, cache):
        last = x
    return last


@torch.no_grad()
def _walk(model: LanguageModel, ids: Sequence[int], cache: Cache) -> Iterator[Tensor]:
    """Yield the stream in front of every layer, and behind the last."""
    check_ask(model.architecture, cache.length, ids)
    yield from walk_layers(model, model.weights["embed"][torch.tensor(ids)], cache)


def walk_layers(
    model: LanguageModel, x: Tensor, cache: Cache, *, first: int = 0, last: int | None = None
) -> Iterator[Tensor]:
    """Yield the stream in front of layers ``first`` to ``last`` − 1, and behind the last of them.

    Gradients are kept, where the caller wants some.

    Args:
        model: with its weights where ``x`` lies.
        x: (…, tokens, width), what layer ``first`` reads; of layer 0 rows of the embedding table,
            which are scaled and get their learned places here.
        cache: what these layers have read; extended.
        first: the layer to begin with.
        last: the layer to stop before; all, if none is named.
    """
    a, w = model.architecture, model.weights
    layers = range(first, a.layers if last is None else last)
    start, count = cache.length, x.shape[-2]
    if start == 0 and a.family == "chatglm":
        cache.prompt = count - 1
    if first == 0:
        x = a.embed_scale * x
        if a.positions == "learned":
            x = x + w["positions"][start : start + count]
    sights = {
        window: _see(a, start, count, cache.prompt, window, x.device)
        for window in {a.window_of(i) for i in layers}
    }
    for i in layers:
        yield x
        x = _block(model, i, x, cache, sights[a.window_of(i)])
    cache.length += count
    yield x


def scores_of(model: LanguageModel, x: Tensor) -> Tensor:
    """Return the scores of the next token from what the last layer says, (…, vocab)."""
    return functional.linear(norm(model, "norm", x), model.weights["output.weight"])


def _block(model: LanguageModel, layer: int, x: Tensor, cache: Cache, sight: "_Sight") -> Tensor:
    a, name = model.architecture, f"layers.{layer}"
    h = norm(model, f"{name}.norm1", x)
    skip = h if a.skips_from_norm else x
    out = _attend(model, layer, h, cache, sight)
    x = a.residual_scale * skip + _behind(model, f"{name}.post_norm1", out)
    h = norm(model, f"{name}.norm2", x)
    skip = h if a.skips_from_norm else x
    return a.residual_scale * skip + _behind(model, f"{name}.post_norm2", feed(model, name, h))


def _behind(model: LanguageModel, name: str, x: Tensor) -> Tensor:
    """Normalise what is added to the stream, where a model does."""
    return norm(model, name, x) if model.architecture.has_post_norm else x


def _attend(model: LanguageModel, layer: int, x: Tensor, cache: Cache, sight: "_Sight") -> Tensor:
    a, name = model.architecture, f"layers.{layer}"
    q, k, v = (
        linear(model, f"{name}.{part}", x).reshape(*x.shape[:-1], -1, a.head_dim).transpose(-3, -2)
        for part in "qkv"
    )  # (…, heads, tokens, head_dim)
    if a.has_qk_norm:
        q, k = norm(model, f"{name}.q_norm", q), norm(model, f"{name}.k_norm", k)
    if sight.turns is not None:
        q, k = rotate(a, q, *sight.turns), rotate(a, k, *sight.turns)
    k, v = cache.extend(layer, k, v)
    mixed = functional.scaled_dot_product_attention(
        q, k, v, attn_mask=sight.mask, scale=a.query_scale, enable_gqa=a.kv_heads != a.heads
    )
    return linear(model, f"{name}.o", mixed.transpose(-3, -2).flatten(-2))


class _Sight(NamedTuple):
    """The angles of the new tokens, if any turn, and who may look at whom, if not all at all."""

    turns: tuple[Tensor, Tensor] | None
    mask: Tensor | None


def _see(
    a: Architecture, start: int, count: int, prompt: int, window: int, place: torch.device
) -> _Sight:
    angles, mask = None, None
    if a.positions != "learned":
        cos, sin = turns(a, start=start, count=count, prompt=prompt, window=window)
        angles = cos.to(place), sin.to(place)
    if count > 1 or 0 < window <= start:
        mask = visible(a, start=start, count=count, prompt=prompt, window=window).to(place)
    return _Sight(angles, mask)


def check_ask(a: Architecture, past: int, ids: Sequence[int], limit: int = 1) -> None:
    """Refuse tokens that a model cannot read behind ``past`` others.

    Raises:
        DataError: there is none, one is not in the vocabulary, or the text does not fit the
            context.
    """
    if not ids or limit < 1:
        raise DataError(f"wanted at least one token to read and write, got {len(ids)}, {limit}")
    if past + len(ids) > a.context:
        raise DataError(
            f"the text is too long: {past + len(ids)} tokens, the model's context is {a.context}"
        )
    if bad := [one for one in ids if not 0 <= one < a.vocab]:
        raise DataError(f"token ids lie between 0 and {a.vocab - 1}, got {bad[0]}")


def feed(model: LanguageModel, name: str, x: Tensor) -> Tensor:
    """Apply the two or three matrices behind the attention."""
    a = model.architecture
    gate = linear(model, f"{name}.gate", x) if a.has_gate else None
    return linear(model, f"{name}.down", activate(a, linear(model, f"{name}.up", x), gate))


def activate(a: Architecture, up: Tensor, gate: Tensor | None) -> Tensor:
    """Compute the activation, of one branch or of two."""
    match a.activation, gate:
        case "swiglu", Tensor():
            return functional.silu(gate) * up
        case "geglu_tanh", Tensor():
            return functional.gelu(gate, approximate="tanh") * up
        case "gelu_tanh", _:
            return functional.gelu(up, approximate="tanh")
    return functional.gelu(up)


def norm(model: LanguageModel, name: str, x: Tensor) -> Tensor:
    """Normalise, with the weights of a layer's norm."""
    a, weight = model.architecture, model.weights[f"{name}.weight"]
    if a.norm == "rms":
        return functional.rms_norm(x, weight.shape, weight, a.norm_eps)
    return functional.layer_norm(x, (a.width,), weight, model.weights[f"{name}.bias"], a.norm_eps)


def linear(model: LanguageModel, name: str, x: Tensor) -> Tensor:
    """Apply a matrix and, if there is one, its bias."""
    return functional.linear(x, model.weights[f"{name}.weight"], model.weights.get(f"{name}.bias"))


def common(first: Sequence[int], second: Sequence[int]) -> int:
    """Return how many tokens two texts begin with alike."""
    pairs = zip(first, second, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(first), len(second)))
