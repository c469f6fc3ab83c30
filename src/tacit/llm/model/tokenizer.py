"""Text to token ids and back, a whole text or token by token."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tacit.errors import DataError

_BROKEN = "\ufffd"
_LARGEST_PADDING = 1024


@dataclass(frozen=True, kw_only=True, eq=False)
class Tokenizer:
    """A model's vocabulary, with the ids that mean something to a chat.

    ``starts`` are put before every text, ``stops`` end an answer; ``template`` is the Jinja source
    that lays out a conversation, if the model has one.
    """

    engine: Any  # a tokenizers.Tokenizer; the library has no types
    starts: tuple[int, ...]
    stops: frozenset[int]
    template: str | None
    special: dict[str, str]

    @property
    def size(self) -> int:
        """Return one more than the largest id."""
        ids: dict[str, int] = self.engine.get_vocab(with_added_tokens=True)
        return 1 + max(ids.values())

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text; names of special tokens in it become those tokens."""
        ids: list[int] = self.engine.encode(text, add_special_tokens=False).ids
        return ids

    @cached_property
    def marks(self) -> frozenset[str]:
        """Return the names of special tokens, as a text would spell them."""
        known = self.engine.get_added_tokens_decoder().values()
        return frozenset(one.content for one in known if one.special)

    def encode_plain(self, text: str) -> list[int]:
        """Return the ids of a text; names of special tokens in it stay text."""
        ids: list[int] = self._plain.encode(text, add_special_tokens=False).ids
        return ids

    @cached_property
    def _plain(self) -> Any:  # as `engine`; of its own, as the switch is not of one call
        engine = type(self.engine).from_str(self.engine.to_str())
        engine.encode_special_tokens = True
        return engine

    def pieces(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """Return the ids of a text as `encode` does, and where in it each token begins and ends."""
        found = self.engine.encode(text, add_special_tokens=False)
        return list(found.ids), [(int(start), int(end)) for start, end in found.offsets]

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of some ids, without special tokens."""
        text: str = self.engine.decode(list(ids), skip_special_tokens=True)
        return text


class Spelling:
    """Turn ids into text as they come, and never show half a character.

    What a token means can depend on the one before (a space, or the rest of a character in
    UTF-8), so each step decodes the tokens since the last whole text once more.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._ids: list[int] = []
        self._shown = 0  # ids whose text was returned

    def push(self, token: int) -> str:
        """Take the next id and return what can be shown by now; may be nothing."""
        self._ids.append(token)
        text = self._new_text()
        if text.endswith(_BROKEN):
            return ""
        self._keep_last()
        return text

    def finish(self) -> str:
        """Return what was held back, complete or not."""
        text = self._new_text()
        self._keep_last()
        return text

    def _new_text(self) -> str:
        before = self._tokenizer.decode(self._ids[: self._shown])
        return self._tokenizer.decode(self._ids)[len(before) :]

    def _keep_last(self) -> None:
        self._ids = self._ids[self._shown :]
        self._shown = len(self._ids)


def check_vocabulary(tokenizer: Tokenizer, vocab: int) -> None:
    """Refuse a tokenizer that cannot be that of a model with so many tokens.

    A model may have a few more rows than its tokenizer has ids, for the sake of round numbers.

    Raises:
        DataError: the sizes are too far apart.
    """
    padding = min(_LARGEST_PADDING, vocab // 64)
    if not vocab - padding <= tokenizer.size <= vocab:
        raise DataError(
            f"the tokenizer has {tokenizer.size} tokens and the model {vocab}: "
            "it is the tokenizer of another model"
        )
