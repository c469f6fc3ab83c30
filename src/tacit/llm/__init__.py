"""Language models: checkpoints, tokenizers, plain and private generation."""

import sys

from tacit.llm.backend.announce import announce, hear
from tacit.llm.backend.dialogue import Ask, Backend, Receipt, Reply, Spent, TooLongError
from tacit.llm.backend.plain import PlainBackend
from tacit.llm.backend.sampling import Chooser, Place, Sampling, choose, chooser
from tacit.llm.model.architecture import Architecture, LanguageModel, check, parameters, shapes
from tacit.llm.model.catalogue import DEFAULT, OFFERS, Offer, find_offer
from tacit.llm.model.checkpoint import (
    DEALER_BYTES,
    OWNER_BYTES,
    USER_BYTES,
    Checkpoint,
    open_checkpoint,
)
from tacit.llm.model.plain import Cache, generate, logits, next_logits, perplexity
from tacit.llm.model.rotary import places, rotate, turns
from tacit.llm.model.template import Message, Role, prompt_ids, render
from tacit.llm.model.tokenizer import Spelling, Tokenizer, check_vocabulary
from tacit.llm.moved import find_renamed, redirect

redirect()

__all__ = [
    "DEALER_BYTES",
    "DEFAULT",
    "OFFERS",
    "OWNER_BYTES",
    "USER_BYTES",
    "Architecture",
    "Ask",
    "Backend",
    "Cache",
    "Checkpoint",
    "Chooser",
    "LanguageModel",
    "Message",
    "Offer",
    "Place",
    "PlainBackend",
    "Receipt",
    "Reply",
    "Role",
    "Sampling",
    "Spelling",
    "Spent",
    "Tokenizer",
    "TooLongError",
    "announce",
    "check",
    "check_vocabulary",
    "choose",
    "chooser",
    "find_offer",
    "generate",
    "hear",
    "logits",
    "next_logits",
    "open_checkpoint",
    "parameters",
    "perplexity",
    "places",
    "prompt_ids",
    "render",
    "rotate",
    "shapes",
    "turns",
]


def __getattr__(name: str) -> object:
    """Find what had another name in version 0.1."""
    return find_renamed(sys.modules[__name__], name)
