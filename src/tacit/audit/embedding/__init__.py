"""Embedding inversion: the text behind the hidden states of a cut language model."""

from tacit.audit.embedding.attacks import (
    Defence,
    OptimiseEmbeddings,
    SeenHidden,
    TryTokens,
    add_noise,
    guess_blindly,
    move,
    nearest,
    optimise_embeddings,
    run_head,
    run_layers,
    see_hidden,
    try_tokens,
)
from tacit.audit.embedding.game import (
    ATTACKS,
    THREAT,
    agreement,
    audit_hidden,
    score_tokens,
    sweep_depth,
    sweep_noise,
)
from tacit.llm import Cache

__all__ = [
    "ATTACKS",
    "THREAT",
    "Cache",
    "Defence",
    "OptimiseEmbeddings",
    "SeenHidden",
    "TryTokens",
    "add_noise",
    "agreement",
    "audit_hidden",
    "guess_blindly",
    "move",
    "nearest",
    "optimise_embeddings",
    "run_head",
    "run_layers",
    "score_tokens",
    "see_hidden",
    "sweep_depth",
    "sweep_noise",
    "try_tokens",
]
