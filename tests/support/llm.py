"""Small random language models, and private talks with them between three parties in threads."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models
from torch import Tensor

from support.mpc import ALICE, BOB, CAROL, Notes, Wiretap, simulate
from tacit.llm import Architecture, Cache, LanguageModel, Sampling, generate, shapes
from tacit.llm.backend.private import PrivateBackend
from tacit.llm.backend.programs import Enter
from tacit.llm.parties import Seats
from tacit.llm.permuted import (
    Client,
    Conversation,
    OwnerVault,
    Precision,
    open_vault,
    serve_dealer,
    serve_owner,
)
from tacit.llm.sealed import (
    Pass,
    SealedClient,
    open_sealed_vault,
    serve_dealt_owner,
    serve_sealed_dealer,
    serve_sealed_owner,
)
from tacit.llm.sealed.passes import told_words
from tacit.llm.sealed.program import Passing
from tacit.llm.sealed.schedule import Schedule
from tacit.mpc.material.offline import open_material
from tacit.party import Meeting, Session, run_threads
from tacit.result import Cost, Leak
from tacit.transport import Link, Patience

# Models of every architecture

LLAMA = Architecture(
    family="llama",
    layers=2,
    width=16,
    heads=4,
    kv_heads=2,
    head_dim=8,
    ffn=24,
    vocab=64,
    context=32,
    norm="rms",
    norm_eps=1e-5,
    activation="swiglu",
    positions="rotary",
    rope_theta=10000.0,
    tied_output=True,
    has_bias=False,
)
GPT2 = replace(
    LLAMA,
    family="gpt2",
    kv_heads=4,
    head_dim=4,
    norm="layer",
    activation="gelu_tanh",
    positions="learned",
    has_bias=True,
)
CHATGLM = replace(GPT2, family="chatglm", positions="rotary2d", tied_output=False)
ARCHITECTURES = {
    "llama": LLAMA,
    "qwen2": replace(LLAMA, has_bias=True, tied_output=False),
    "gpt2": GPT2,
    "chatglm": CHATGLM,
}


def make_model(architecture, seed=0):
    generator = torch.Generator().manual_seed(seed)
    weights = {
        name: torch.randn(shape, generator=generator) * (0.3 if len(shape) > 1 else 1.0)
        for name, shape in shapes(architecture).items()
    }
    if architecture.tied_output:
        weights["output.weight"] = weights["embed"]
    return LanguageModel(architecture=architecture, weights=weights)


LLAMA_CONFIG = {
    "model_type": "llama",
    "num_hidden_layers": 2,
    "hidden_size": 16,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "intermediate_size": 24,
    "vocab_size": 64,
    "max_position_embeddings": 32,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": True,
    "hidden_act": "silu",
}


def llama_tensors(model):
    names = {"norm1": "input_layernorm", "norm2": "post_attention_layernorm"}
    names |= {p: f"self_attn.{p}_proj" for p in "qkvo"}
    names |= {p: f"mlp.{p}_proj" for p in ("gate", "up", "down")}
    out = {"model.embed_tokens.weight": model.weights["embed"]}
    for key, w in model.weights.items():
        if key.startswith("layers."):
            _, i, part, kind = key.split(".")
            if kind == "bias" and part not in "qkv":
                continue
            out[f"model.layers.{i}.{names[part]}.{kind}"] = w
    out["model.norm.weight"] = model.weights["norm.weight"]
    if not model.architecture.tied_output:
        out["lm_head.weight"] = model.weights["output.weight"]
    return out


def write_model(folder, *, vocab=64):
    """Write a whole small model with a tokenizer of letters; its texts mean nothing."""
    letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 "
    config = {**LLAMA_CONFIG, "max_position_embeddings": 256, "eos_token_id": 63}
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    save_file(llama_tensors(make_model(LLAMA)), folder / "model.safetensors")
    engine = Tokenizer(models.BPE({c: i for i, c in enumerate([*letters, "."][:vocab])}, []))
    engine.decoder = decoders.Fuse()
    engine.save(str(folder / "tokenizer.json"))
    return folder


# Permuted talks, and what every party saw

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


def answering(ids: Sequence[int], limit: int, shown: list[Tensor] | None = None) -> Talk:
    """Return a talk that reads one prompt and answers greedily; notes the scores it is shown."""

    def choose(scores: Tensor) -> int:
        if shown is not None:
            shown.append(scores)
        return best(scores)

    def talk(client: Client) -> list[int]:
        conversation = Conversation(client)
        tokens = list(conversation.generate(ids, choose, limit=limit))
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


# Sealed chats

ERROR = 0.05
"""How far sealed scores of the small random models here may be from plain ones."""


def among_three(
    model,
    talk,
    *,
    vault=None,
    reveal="token",
    device="cpu",
    account=None,
    meeting=MEETING,
    **how,
):
    """Run a function of a sealed client beside an owner and a dealer.

    Returns:
        What it gave, and the sessions of all three by name.
    """
    vault = vault or open_sealed_vault(model, reveal=reveal)
    sessions, facts = {}, {"reveal": reveal, "device": device}

    def use(session):
        client = SealedClient(session, model.architecture, **facts)
        found = talk(client)
        client.leave()
        return found

    programs = {
        "owner": lambda session: serve_sealed_owner(session, vault, device=device),
        "user": use,
        "dealer": lambda session: serve_sealed_dealer(
            session, model.architecture, account=account, **facts
        ),
    }

    def noted(name):
        def run(session):
            sessions[name] = session
            return programs[name](session)

        return run

    return run_threads({name: noted(name) for name in programs}, meeting, **how)["user"], sessions


def as_user(model, talk, **how):
    """Run a function of a sealed client; return what it gave and what the user's ledger says."""
    found, sessions = among_three(model, talk, **how)
    return found, sessions["user"].ledger.entries()


def say(client, memory, ids, limit, **sampling):
    return list(client.generate(memory, ids, Sampling(**sampling), limit=limit))


# Sealed chats whose material was dealt before, in files

TWO = replace(MEETING, parties=("owner", "user"))


def deal(model, at, *, prompt=4, tokens=6, reveal="token", vault=None, folder="owner"):
    """Have the three meet, and return the user's file, the owner's vault and the costs."""
    vault = vault or open_sealed_vault(model, reveal=reveal)
    vault.material = None if folder is None else at / folder
    path = at / "user" / "chat.material"
    foretold = []

    def ask(client):
        wish = Schedule(prompt=prompt, tokens=tokens)
        client.fetch_material(wish, path, forecast=lambda *told: foretold.append(told))

    _, sessions = among_three(model, ask, vault=vault, reveal=reveal)
    return path, vault, ({name: one.cost() for name, one in sessions.items()}, foretold)


def talk_alone(model, vault, path, talk, *, reveal="token", **how):
    """Run a function of a client, with an owner beside it and no dealer."""

    def use(session):
        with open_material(path, me="user") as material:
            client = SealedClient(session, model.architecture, reveal=reveal, material=material)
            found = talk(client)
            client.leave()
            return found, session.ledger.entries()

    programs = {"owner": lambda session: serve_dealt_owner(session, vault), "user": use}
    return run_threads(programs, TWO, **how)["user"]


# What a corrupt party of one sealed pass receives


def overhear_sealed(corrupt, *, ids=(7,) * 16, seed=0):
    """Run one pass with a corrupt party: P0 owns the model, P1 the text."""
    vault = open_sealed_vault(tiny("llama", layers=1, seed=seed))
    passing = Passing(
        architecture=vault.architecture,
        bounds=vault.bounds,
        gain_bits=vault.gain,
        reveal="token",
        seats=Seats(owner=ALICE, user=BOB, dealer=CAROL),
    )
    order = Pass(conversation=0, past=0, rows=len(ids), prompt=0, is_scored=True)
    vocab = vault.architecture.vocab
    wishes = {"slopes": torch.ones(2, vocab), "noise": torch.zeros(1, vocab)}
    inputs = {ALICE: vault.weights, BOB: passing.inputs(list(ids)) | wishes}
    told = told_words(vault.architecture, order)
    return simulate(lambda ops: passing.run(ops, order), inputs=inputs, corrupt=corrupt, told=told)
