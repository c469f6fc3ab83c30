"""Language models: checkpoints, tokenizers, plain and private generation."""

from tacit.llm.backend.announce import announce, hear
from tacit.llm.backend.chat import chat
from tacit.llm.backend.dialogue import (
    Answer,
    Ask,
    Backend,
    Chat,
    Manner,
    Receipt,
    Reply,
    Spent,
    TooLongError,
)
from tacit.llm.backend.plain import PlainBackend
from tacit.llm.backend.protocol import ChatProtocol
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
from tacit.llm.model.store import describe_model, find_model, get_model, list_models
from tacit.llm.model.template import Message, Role, prompt_ids, render
from tacit.llm.model.tokenizer import Spelling, Tokenizer, check_vocabulary

__all__ = [
    "DEALER_BYTES",
    "DEFAULT",
    "OFFERS",
    "OWNER_BYTES",
    "USER_BYTES",
    "Answer",
    "Architecture",
    "Ask",
    "Backend",
    "Cache",
    "Chat",
    "ChatProtocol",
    "Checkpoint",
    "Chooser",
    "LanguageModel",
    "Manner",
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
    "chat",
    "check",
    "check_vocabulary",
    "choose",
    "chooser",
    "describe_model",
    "find_model",
    "find_offer",
    "generate",
    "get_model",
    "hear",
    "list_models",
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
