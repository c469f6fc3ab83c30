"""Lay out a conversation as the one text that a model continues."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NoReturn

from tacit.errors import DataError, foreign
from tacit.llm.model.machine import extra
from tacit.llm.model.tokenizer import Tokenizer

Role = Literal["system", "user", "assistant"]
_LARGEST_TEXT = 1 << 22


@dataclass(frozen=True, kw_only=True)
class Message:
    """One turn of a conversation."""

    role: Role
    content: str


def prompt_ids(tokenizer: Tokenizer, messages: Sequence[Message]) -> list[int]:
    """Return the tokens after which the model's answer begins.

    A template writes the marks of a start itself; without one they are put before the text.
    A message that spells a special token stays text: what somebody pastes opens no turn. Whoever
    wants those tokens writes them with `Tokenizer.encode`.
    """
    text = render(tokenizer, messages)
    if any(mark in message.content for message in messages for mark in tokenizer.marks):
        ids = _apart(tokenizer, messages, text)
    else:
        ids = tokenizer.encode(text)
    return ids if tokenizer.template is not None else [*tokenizer.starts, *ids]


def _apart(tokenizer: Tokenizer, messages: Sequence[Message], text: str) -> list[int]:
    """Encode what the template writes and what messages say each by itself."""
    # Where each message stands is seen in a layout with a stand-in for every one of them.
    told = [replace(one, content=f"\ue000{at}\ue001") for at, one in enumerate(messages)]
    written = re.split("\ue000(\\d+)\ue001", render(tokenizer, told))
    for as_laid_out in (str, str.strip):  # templates take messages as they are, or trim them
        parts = list(written)
        parts[1::2] = [as_laid_out(messages[int(at)].content) for at in written[1::2]]
        if "".join(parts) == text:
            both = (tokenizer.encode, tokenizer.encode_plain)
            return [one for at, part in enumerate(parts) for one in both[at % 2](part)]
    raise DataError(
        "a message spells one of the model's special tokens, and its chat template changes "
        "messages, so that they cannot be kept apart; leave out "
        + ", ".join(sorted(tokenizer.marks))
    )


...


def render(tokenizer: Tokenizer, messages: Sequence[Message]) -> str:
    """Lay out a conversation with the model's template; without one, simply join the texts.

    A template is a program that comes with the model, so it runs in a sandbox: it sees the
    conversation and nothing else.

    Raises:
        DataError: the template cannot be used, or refuses this conversation.
    """
    if not messages:
        raise DataError("wanted at least one message, got none")
    if tokenizer.template is None:
        return "\n".join(message.content for message in messages)
    jinja = extra("jinja2")
    with foreign("the model's chat template fails", jinja.TemplateError):
        text: str = _compile(tokenizer.template).render(
            messages=[{"role": one.role, "content": one.content} for one in messages],
            add_generation_prompt=True,
            **tokenizer.special,
        )
    if len(text) > _LARGEST_TEXT:
        raise DataError(f"the model's chat template wrote {len(text)} characters")
    return text


def _compile(template: str) -> Any:  # a jinja2.Template; typed, but only where it is installed
    sandbox = extra("jinja2.sandbox")
    # No autoescape: what is rendered is a prompt, not a page.
    world = sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    world.filters["tojson"] = _to_json
    world.globals["raise_exception"] = _refuse
    return world.from_string(template)


def _to_json(value: object, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _refuse(message: str) -> NoReturn:
    raise DataError(f"the model's chat template refuses this conversation: {message}")
