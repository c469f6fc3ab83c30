"""What a program asks of the local endpoint, checked."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from tacit.errors import InputError
from tacit.llm import Ask, Manner, Message, Role, Sampling

N = TypeVar("N", int, float)
_ROLES: Mapping[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
}
_NEUTRAL: Mapping[str, tuple[object, ...]] = {
    "n": (1,),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "logprobs": (False,),
    "logit_bias": ({},),
    "tools": ([],),
    "response_format": ({"type": "text"},),
}
"""What clients send although it changes nothing; with another value it would."""
_MOST_STOPS = 16
_IGNORED = {"model", "user", "stream_options", "store", "metadata", "tool_choice"}


@dataclass(frozen=True, kw_only=True)
class Request:
    """A checked request."""

    ask: Ask
    is_streamed: bool


def read_request(body: object, manner: Manner) -> Request:
    """Read the body of a completion request; what it leaves out is as on the command line.

    Raises:
        InputError: a value is missing, of the wrong type, or asks for something we cannot do.
    """
    if not isinstance(body, dict):
        raise InputError("wanted a JSON object")
    left = {key: value for key, value in body.items() if value is not None and key not in _IGNORED}
    for key, allowed in _NEUTRAL.items():
        if left.pop(key, allowed[0]) not in allowed:
            raise InputError(f"{key} is not supported here")
    messages = tuple(_messages(left.pop("messages", None)))
    if manner.system is not None and messages[0].role != "system":
        messages = (Message(role="system", content=manner.system), *messages)
    limit = left.pop("max_completion_tokens", None) or left.pop("max_tokens", manner.limit)
    left.pop("max_tokens", None)
    ask = Ask(
        messages=messages,
        sampling=_sampling(left, manner.sampling),
        limit=_number(limit, "max_tokens", int),
        stops=_stops(left.pop("stop", [])),
    )
    is_streamed = left.pop("stream", False)
    if not isinstance(is_streamed, bool):
        raise InputError(f"stream must be true or false, got {is_streamed!r}")
    if left:
        raise InputError(f"{min(left)} is not known here")
    return Request(ask=ask, is_streamed=is_streamed)


def _sampling(left: dict[str, object], default: Sampling) -> Sampling:
    def take(key: str, kind: type[N]) -> N:
        return _number(left.pop(key, getattr(default, key)), key, kind)

    seed = left.pop("seed", default.seed)
    return Sampling(
        temperature=take("temperature", float),
        top_k=take("top_k", int),
        top_p=take("top_p", float),
        repetition_penalty=take("repetition_penalty", float),
        seed=None if seed is None else _number(seed, "seed", int),
    )


def _stops(raw: object) -> tuple[str, ...]:
    texts = [raw] if isinstance(raw, str) else raw
    if not isinstance(texts, list) or len(texts) > _MOST_STOPS:
        raise InputError(f"stop must be a text or a list of at most {_MOST_STOPS} texts")
    return tuple(_text(one, "stop") for one in texts)


def _messages(raw: object) -> list[Message]:
    if not isinstance(raw, list) or not raw:
        raise InputError("messages must be a list with at least one message")
    out = []
    for i, one in enumerate(raw):
        if not isinstance(one, dict):
            raise InputError(f"messages[{i}] must be an object")
        out.append(Message(role=_role(one.get("role"), i), content=_content(one.get("content"), i)))
    return out


def _role(raw: object, i: int) -> Role:
    if not isinstance(raw, str) or raw not in _ROLES:
        wanted = ", ".join(_ROLES)
        raise InputError(f"messages[{i}].role must be one of {wanted}, got {raw!r}")
    return _ROLES[raw]


def _content(raw: object, i: int) -> str:
    """Read the text of a message, written as one text or as parts."""
    if isinstance(raw, list):
        parts = [part if isinstance(part, dict) else {} for part in raw]
        if any(part.get("type") != "text" for part in parts):
            raise InputError(f"messages[{i}].content may hold text only")
        return "".join(_text(part.get("text"), f"messages[{i}].content") for part in parts)
    return _text(raw, f"messages[{i}].content")


def _text(raw: object, key: str) -> str:
    if not isinstance(raw, str):
        raise InputError(f"{key} must be a text, got {type(raw).__name__}")
    return raw


def _number(raw: object, key: str, kind: type[N]) -> N:
    wanted = (int, float) if kind is float else (int,)
    if not isinstance(raw, wanted) or isinstance(raw, bool):
        raise InputError(f"{key} must be a number, got {raw!r}")
    try:
        return kind(raw)
    except OverflowError as error:
        raise InputError(f"{key} is too large") from error
