"""Run private language models between three parties in one process, and keep what they saw."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from harness import Notes, Wiretap
from tacit.llm import Architecture, Cache, LanguageModel, generate, shapes
from tacit.llm.backend.private import PrivateBackend
from tacit.llm.backend.speakers import Enter
from tacit.llm.permuted import (
    Client,
    Conversation,
    OwnerVault,
    Precision,
    open_vault,
    serve_dealer,
    serve_owner,
)
from tacit.party import Meeting, Session, run_threads
from tacit.result import Cost, Leak
from tacit.transport import Link, Patience

BRIEF = Precision(
    activation=11, weight=12, query=12, rotation=10, attention=11, span=13, reach=13, look=11
)
"""Few enough bits for a merged norm and activation, and for the lean form."""
PARTIES = ("owner", "user", "dealer")
PATIENCE = Patience(connect_s=60, silence_s=60, heartbeat_s=1, stall_s=200)
MEETING = Meeting(parties=PARTIES, job_digest=b"l" * 32, patience=PATIENCE)

FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {
        "kv_heads": 2,
        "norm": "rms",
        "activation": "swiglu",
        "positions": "rotary",
        "has_bias": False,
    },
    "gpt2": {
        "kv_heads": 4,
        "norm": "layer",
        "activation": "gelu_tanh",
        "positions": "learned",
        "has_bias": True,
    },
    "chatglm": {
        "kv_heads": 4,
        "norm": "layer",
        "activation": "gelu",
        "positions": "rotary2d",
        "has_bias": True,
    },
}
OLDER = tuple(FAMILIES)
_LLAMA = {"family": "llama", **FAMILIES["llama"]}
NEWER: dict[str, dict[str, Any]] = {
    "llama3": {**_LLAMA, "rope_factor": 8.0, "rope_context": 40},
    "qwen3": {**_LLAMA, "has_qk_norm": True, "rope_theta": 1e6},
    "gemma3": {
        **_LLAMA,
        "activation": "geglu_tanh",
        "has_qk_norm": True,
        "has_post_norm": True,
        "embed_scale": 4.0,
        "score_scale": 0.4,
        "window": 4,
        "global_every": 2,
        "rope_factor": 8.0,
        "rope_theta": 1e6,
    },
    "glm4": {**_LLAMA, "rotary_dim": 2, "has_post_norm": True, "has_bias": True},
}
"""What users have today, as small as the others."""
FAMILIES |= NEWER


def tiny(family: str, *, seed: int = 0, **changes: Any) -> LanguageModel:
    """Make a small random model."""
    sizes: dict[str, Any] = {
        "layers": 2,
        "width": 16,
        "heads": 4,
        "head_dim": 4,
        "ffn": 24,
        "vocab": 40,
        "context": 64,
    }
    rest = {"norm_eps": 1e-5, "rope_theta": 10_000.0, "tied_output": False}
    a = Architecture(**({"family": family} | sizes | rest | FAMILIES[family] | changes))
    draw = torch.Generator().manual_seed(seed)
    weights = {}
    for name, shape in shapes(a).items():
        weights[name] = 0.35 * torch.randn(shape, generator=draw)
        if "norm" in name and name.endswith("weight"):
            weights[name] += 1
    return LanguageModel(architecture=a, weights=weights)


def best(scores: Tensor) -> int:
    return int(scores.argmax())


def plainly(model: LanguageModel, ids: Sequence[int], limit: int) -> list[int]:
    """Return the greedy answer in the clear."""
    return list(generate(model, ids, choose=best, limit=limit, cache=Cache()))


@dataclass
class Spoken:
    """What came out, what it cost, who learned what, and what every party received."""

    value: Any = None
    costs: dict[str, Cost] = field(default_factory=dict)
    leaks: tuple[Leak, ...] = ()
    received: dict[str, Notes] = field(default_factory=dict)
    sent: dict[str, Notes] = field(default_factory=dict)


Talk = Callable[[Client], Any]


def speak(
    model: LanguageModel,
    talk: Talk,
    *,
    precision: Precision | None = None,
    vault: OwnerVault | None = None,
    counts: bool = False,
    wrap: Callable[[str, Link], Link] = lambda me, link: link,
    meeting: Meeting = MEETING,
    **client: Any,
) -> Spoken:
    """Let a user talk to a model: owner, user and dealer as threads."""
    out = Spoken(received={name: [] for name in PARTIES}, sent={name: [] for name in PARTIES})
    a = model.architecture

    def owner(session: Session) -> None:
        mine = vault or open_vault(model, precision=precision, counts=counts)
        serve_owner(session, mine)
        out.costs["owner"] = session.cost()

    def dealer(session: Session) -> None:
        serve_dealer(session, a, precision=precision, counts=counts)
        out.costs["dealer"] = session.cost()

    def user(session: Session) -> None:
        mine = Client(session, a, precision=precision, counts=counts, **client)
        out.value = talk(mine)
        mine.close()
        out.costs["user"] = session.cost()
        out.leaks = session.ledger.entries()

    run_threads(
        {"owner": owner, "user": user, "dealer": dealer},
        meeting,
        wrap=lambda me, link: Wiretap(wrap(me, link), out.received[me], out.sent[me]),
    )
    return out


def talk_over(session: Session, enter: Enter, talk: Callable[[PrivateBackend], Any]) -> Any:
    """Run a function of a user's backend over a session that is on already."""
    backend = PrivateBackend(lambda: nullcontext(session), enter, on_break=print, attempts=0)
    found = talk(backend)
    backend._speaker.leave()
    return found


def answering(ids: Sequence[int], limit: int) -> Talk:
    """Return a talk that reads one prompt and answers greedily."""

    def talk(client: Client) -> list[int]:
        conversation = Conversation(client)
        tokens = [token.id for token in conversation.generate(ids, best, limit=limit)]
        conversation.close()
        return tokens

    return talk


def traffic(cost: Cost, phase: str) -> Counter[tuple[str, str, str]]:
    """Add up messages and bytes by sender and receiver."""
    out: Counter[tuple[str, str, str]] = Counter()
    for one in cost.traffic:
        if one.phase == phase:
            out[one.sender, one.receiver, "messages"] += one.messages
            out[one.sender, one.receiver, "bytes"] += one.payload_bytes
    return out
