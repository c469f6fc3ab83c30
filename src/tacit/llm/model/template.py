"""Lay out a conversation as the one text that a model continues."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NoReturn

from tacit.errors import DataError
from tacit.llm.model.extras import extra
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
    """
    ids = tokenizer.encode(render(tokenizer, messages))
    return ids if tokenizer.template is not None else [*tokenizer.starts, *ids]


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
    try:
        text: str = _compile(tokenizer.template).render(
            messages=[{"role": one.role, "content": one.content} for one in messages],
            add_generation_prompt=True,
            **tokenizer.special,
        )
    except (jinja.TemplateError, TypeError, ValueError, KeyError, OverflowError) as error:
        raise DataError(f"the model's chat template fails: {error}") from error
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
