"""Language models: checkpoints, tokenizers, plain and private generation."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tacit.llm.backend.chat import chat
    from tacit.llm.backend.dialogue import (
        Answer,
        Ask,
        Backend,
        Chat,
        Manner,
        PlainBackend,
        Receipt,
        Spent,
        TooLongError,
    )
    from tacit.llm.backend.protocol import ChatProtocol, announce, hear
    from tacit.llm.model.architecture import Architecture, LanguageModel, check, parameters, shapes
    from tacit.llm.model.checkpoint import (
        DEALER_BYTES,
        OWNER_BYTES,
        USER_BYTES,
        Checkpoint,
        open_checkpoint,
    )
    from tacit.llm.model.plain import Cache, generate, logits, next_logits, perplexity
    from tacit.llm.model.rotary import places, rotate, turns
    from tacit.llm.model.store import (
        DEFAULT,
        OFFERS,
        Offer,
        describe_model,
        find_model,
        find_offer,
        get_model,
        list_models,
    )
    from tacit.llm.model.template import Message, Role, prompt_ids, render
    from tacit.llm.model.tokenizer import Spelling, Tokenizer, check_vocabulary
    from tacit.llm.sampling import Chooser, Place, Sampling, choose, chooser

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

_FROM = {
    "backend.chat": ("chat",),
    "backend.dialogue": (
        *("Answer", "Ask", "Backend", "Chat", "Manner"),
        *("PlainBackend", "Receipt", "Spent", "TooLongError"),
    ),
    "backend.protocol": ("ChatProtocol", "announce", "hear"),
    "sampling": ("Chooser", "Place", "Sampling", "choose", "chooser"),
    "model.architecture": ("Architecture", "LanguageModel", "check", "parameters", "shapes"),
    "model.checkpoint": (
        *("DEALER_BYTES", "OWNER_BYTES", "USER_BYTES"),
        *("Checkpoint", "open_checkpoint"),
    ),
    "model.plain": ("Cache", "generate", "logits", "next_logits", "perplexity"),
    "model.rotary": ("places", "rotate", "turns"),
    "model.store": (
        *("DEFAULT", "OFFERS", "Offer", "find_offer"),
        *("describe_model", "find_model", "get_model", "list_models"),
    ),
    "model.template": ("Message", "Role", "prompt_ids", "render"),
    "model.tokenizer": ("Spelling", "Tokenizer", "check_vocabulary"),
}
_FILES = {name: file for file, names in _FROM.items() for name in names}


def __getattr__(name: str) -> object:
    """Load what is named when it is first used: who takes a model needs no chat, and no shares."""
    if name not in _FILES:
        raise AttributeError(f"module 'tacit.llm' has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_FILES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*(name for name in globals() if name.startswith("__")), *__all__})
