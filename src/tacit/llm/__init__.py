"""Language models: checkpoints, tokenizers, plain and private generation."""

from tacit.llm.announce import announce, hear
from tacit.llm.architecture import Architecture, LanguageModel, check, parameters, shapes
from tacit.llm.catalogue import DEFAULT, OFFERS, Offer, find_offer
from tacit.llm.checkpoint import (
    DEALER_BYTES,
    OWNER_BYTES,
    USER_BYTES,
    Checkpoint,
    open_checkpoint,
)
from tacit.llm.clear import PlainVoice
from tacit.llm.dialogue import Ask, Receipt, Reply, Spent, TooLongError, Voice
from tacit.llm.plain import Cache, generate, logits, next_logits, perplexity
from tacit.llm.rotary import places, rotate, turns
from tacit.llm.sampling import Chooser, Place, Sampling, choose, chooser
from tacit.llm.template import Message, Role, prompt_ids, render
from tacit.llm.tokenizer import Spelling, Tokenizer, check_vocabulary

__all__ = [
    "DEALER_BYTES",
    "DEFAULT",
    "OFFERS",
    "OWNER_BYTES",
    "USER_BYTES",
    "Architecture",
    "Ask",
    "Cache",
    "Checkpoint",
    "Chooser",
    "LanguageModel",
    "Message",
    "Offer",
    "Place",
    "PlainVoice",
    "Receipt",
    "Reply",
    "Role",
    "Sampling",
    "Spelling",
    "Spent",
    "Tokenizer",
    "TooLongError",
    "Voice",
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
