"""Text to token ids and back, a whole text or token by token."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from tacit.errors import DataError, foreign
from tacit.llm.model.gguf import Settings
from tacit.llm.model.machine import extra
from tacit.llm.model.safetensors import read_json

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
        return 1 + max(ids.values(), default=-1)

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text; names of special tokens in it become those tokens."""
        return list(_encoded(self.engine, text).ids)

    @cached_property
    def marks(self) -> frozenset[str]:
        """Return the names of special tokens, as a text would spell them."""
        known = self.engine.get_added_tokens_decoder().values()
        return frozenset(one.content for one in known if one.special)

    def encode_plain(self, text: str) -> list[int]:
        """Return the ids of a text; names of special tokens in it stay text."""
        return list(_encoded(self._plain, text).ids)

    @cached_property
    def _plain(self) -> Any:  # as `engine`; of its own, as the switch is not of one call
        engine = type(self.engine).from_str(self.engine.to_str())
        engine.encode_special_tokens = True
        return engine

    def pieces(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """Return the ids of a text as `encode` does, and where in it each token begins and ends."""
        found = _encoded(self.engine, text)
        return list(found.ids), [(int(start), int(end)) for start, end in found.offsets]

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of some ids, without special tokens."""
        text: str = self.engine.decode(list(ids), skip_special_tokens=True)
        return text


def _encoded(engine: Any, text: str) -> Any:
    try:
        return engine.encode(text, add_special_tokens=False)
    except (
        Exception
    ) as error:  # this library raises nothing narrower; TypeError for half a character
        raise DataError(f"the model's tokenizer cannot read this text: {error}") from error


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


_PIECES = "tok512.json"
_CONTROL = 3  # the type of a GGUF token that stands for no text
_USER_DEFINED = 4
_SPACE = "▁"
_QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_LLAMA3 = _QWEN2.replace(r"|\p{N}|", r"|\p{N}{1,3}|")
_CHATGLM_TEMPLATE = (
    "{% for message in messages %}{% if message.role == 'user' %}"
    "{% if messages|length > 1 %}[Round {{ loop.index0 // 2 }}]\n问：{{ message.content }}\n答："
    "{% else %}{{ message.content }}{% endif %}"
    "{% else %}{{ message.content }}\n{% endif %}{% endfor %}[gMASK]<sop>"
)


@foreign("the tokenizer of this folder cannot be used", Exception)  # its library has no narrower
def from_folder(folder: Path) -> Tokenizer:
    """Read the tokenizer of a folder.

    Raises:
        DataError: there is none, or it cannot be used.
    """
    config = _table(folder / "config.json")
    settings = _table(folder / "tokenizer_config.json")
    if (folder / "tokenizer.json").is_file():
        engine = _parse(folder / "tokenizer.json")
    elif (folder / _PIECES).is_file():
        engine = _from_pieces(_read_pieces(folder / _PIECES), add_space_prefix=True)
    else:
        raise DataError(f"{folder}: wanted a tokenizer.json, found none")
    special = _special(settings)
    generation = _table(folder / "generation_config.json")
    stops = {*_ids(config.get("eos_token_id")), *_ids(generation.get("eos_token_id"))}
    if "eos_token" in special and engine.token_to_id(special["eos_token"]) is not None:
        stops.add(engine.token_to_id(special["eos_token"]))
    template = _template(folder, settings)
    if template is None and config.get("model_type") == "chatglm":
        template = _CHATGLM_TEMPLATE
    return Tokenizer(
        engine=engine,
        starts=_starts(engine, config, settings),
        stops=frozenset(stops),
        template=template,
        special=special,
    )


def _starts(engine: Any, config: Mapping[str, Any], settings: Mapping[str, Any]) -> tuple[int, ...]:
    """Return what stands before every text, by the settings or by the tokenizer itself."""
    if "add_bos_token" not in settings and engine.post_processor is not None:
        return tuple(engine.encode("", add_special_tokens=True).ids)
    has_bos = settings.get("add_bos_token", not settings)
    return tuple(_ids(config.get("bos_token_id"))) if has_bos else ()


@foreign("the tokenizer of this GGUF file cannot be used", Exception)
def from_settings(settings: Settings) -> Tokenizer:
    """Build the tokenizer that a GGUF file describes.

    Raises:
        DataError: it is of a kind that is not known here.
    """
    tokens = settings.get("tokenizer.ggml.tokens")
    if not isinstance(tokens, list) or not all(isinstance(token, str) for token in tokens):
        raise DataError("the GGUF file has no tokenizer.ggml.tokens")
    kinds = settings.get("tokenizer.ggml.token_type") or [1] * len(tokens)
    match settings.get("tokenizer.ggml.model"):
        case "gpt2":
            engine = _from_merges(settings, tokens)
            adds_bos = False
        case "llama":
            scores = settings.get("tokenizer.ggml.scores") or [0.0] * len(tokens)
            prefix = bool(settings.get("tokenizer.ggml.add_space_prefix", True))
            engine = _from_pieces(list(zip(tokens, scores, strict=True)), add_space_prefix=prefix)
            adds_bos = True
        case other:
            raise DataError(f"wanted a tokenizer.ggml.model of gpt2 or llama, got {other!r}")
    _add_special(engine, tokens, kinds)
    bos = settings.get("tokenizer.ggml.bos_token_id")
    adds_bos = settings.get("tokenizer.ggml.add_bos_token", adds_bos) and bos is not None
    ids = {
        name: settings[f"tokenizer.ggml.{name}_token_id"]
        for name in ("bos", "eos", "eot")
        if f"tokenizer.ggml.{name}_token_id" in settings
    }
    for name, token in ids.items():
        if not 0 <= token < len(tokens):
            raise DataError(f"tokenizer.ggml.{name}_token_id is {token} of {len(tokens)} tokens")
    return Tokenizer(
        engine=engine,
        starts=(ids["bos"],) if adds_bos else (),
        stops=frozenset(ids[name] for name in ("eos", "eot") if name in ids),
        template=settings.get("tokenizer.chat_template"),
        special={f"{name}_token": tokens[token] for name, token in ids.items()},
    )


def _from_merges(settings: Settings, tokens: Sequence[str]) -> Any:
    """Build a byte-level BPE tokenizer."""
    library = extra("tokenizers")
    merges = [tuple(merge.split(" ", 1)) for merge in settings.get("tokenizer.ggml.merges", ())]
    vocabulary = {token: i for i, token in enumerate(tokens)}
    try:
        engine = library.Tokenizer(library.models.BPE(vocabulary, merges))
    except Exception as error:  # this library raises nothing narrower
        raise DataError(f"the merges do not fit the tokens: {error}") from error
    engine.pre_tokenizer = _splitter(library, settings.get("tokenizer.ggml.pre", "default"))
    engine.decoder = library.decoders.ByteLevel()
    return engine


def _splitter(library: Any, name: str) -> Any:
    """Return how a text is cut into words before merging; a wrong way is silently worse."""
    before = library.pre_tokenizers
    whole = before.ByteLevel(add_prefix_space=False, use_regex=True)
    parts = before.ByteLevel(add_prefix_space=False, use_regex=False)
    match name:
        case "default" | "gpt-2":
            return whole
        case "smollm":
            return before.Sequence([before.Digits(individual_digits=True), whole])
        case "qwen2":
            return before.Sequence([_split(library, _QWEN2), parts])
        case "llama-bpe":
            return before.Sequence([_split(library, _LLAMA3), parts])
    raise DataError(
        f"wanted a tokenizer.ggml.pre of default, gpt-2, smollm, qwen2 or llama-bpe, got {name!r}"
    )


def _split(library: Any, pattern: str) -> Any:
    return library.pre_tokenizers.Split(library.Regex(pattern), behavior="isolated")


def _from_pieces(pieces: Sequence[tuple[str, float]], *, add_space_prefix: bool) -> Any:
    """Build a BPE tokenizer with byte fallback from pieces with scores (SentencePiece).

    SentencePiece joins the neighbours whose joint piece has the highest score; ranking every way
    to make a piece by that score says the same in merges.
    """
    library = extra("tokenizers")
    vocabulary = {piece.replace(" ", _SPACE): i for i, (piece, _) in enumerate(pieces)}
    scores = {piece.replace(" ", _SPACE): score for piece, score in pieces}
    engine = library.Tokenizer(
        library.models.BPE(
            vocabulary,
            _merges(vocabulary, scores),
            unk_token=pieces[0][0],
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    spaces = [library.normalizers.Replace(" ", _SPACE)]
    strip = []
    if add_space_prefix:
        spaces.insert(0, library.normalizers.Prepend(_SPACE))
        strip = [library.decoders.Strip(" ", 1, 0)]
    engine.normalizer = library.normalizers.Sequence(spaces)
    back = [
        library.decoders.Replace(_SPACE, " "),
        library.decoders.ByteFallback(),
        library.decoders.Fuse(),
    ]
    engine.decoder = library.decoders.Sequence([*back, *strip])
    return engine


def _merges(vocabulary: Mapping[str, int], scores: Mapping[str, float]) -> list[tuple[str, str]]:
    found = [
        (-scores[piece], vocabulary[piece[:cut]], piece[:cut], piece[cut:])
        for piece in vocabulary
        for cut in range(1, len(piece))
        if piece[:cut] in vocabulary and piece[cut:] in vocabulary
    ]
    return [(left, right) for _, _, left, right in sorted(found)]


def _add_special(engine: Any, tokens: Sequence[str], kinds: Sequence[int]) -> None:
    library = extra("tokenizers")
    for kind, is_special in ((_CONTROL, True), (_USER_DEFINED, False)):
        names = [token for token, own in zip(tokens, kinds, strict=True) if own == kind]
        added = [library.AddedToken(name, special=is_special, normalized=False) for name in names]
        (engine.add_special_tokens if is_special else engine.add_tokens)(added)


def _parse(path: Path) -> Any:
    library = extra("tokenizers")
    try:
        return library.Tokenizer.from_file(str(path))
    except Exception as error:  # this library raises nothing narrower
        raise DataError(f"{path}: not a tokenizer: {error}") from error


def _read_pieces(path: Path) -> list[tuple[str, float]]:
    raw = read_json(path)
    try:
        return [(_plain_piece(str(piece)), float(score)) for piece, score in raw]
    except (TypeError, ValueError) as error:
        raise DataError(f"{path}: wanted a list of pieces with scores: {error}") from error


def _plain_piece(piece: str) -> str:
    """Write the marks of start and end as they are written everywhere else."""
    return piece.strip("\n") if re.fullmatch(r"\n</?s>\n", piece) else piece


def _table(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    found = read_json(path)
    if not isinstance(found, dict):
        raise DataError(f"{path}: wanted a table")
    return found


def _template(folder: Path, settings: Mapping[str, Any]) -> str | None:
    beside = folder / "chat_template.jinja"
    if beside.is_file():
        return beside.read_text(encoding="utf-8")
    found = settings.get("chat_template")
    if isinstance(found, list):  # several, by name
        named = {one.get("name"): one.get("template") for one in found if isinstance(one, dict)}
        found = named.get("default")
    return found if isinstance(found, str) else None


def _special(settings: Mapping[str, Any]) -> dict[str, str]:
    out = {}
    for name in ("bos_token", "eos_token", "pad_token", "unk_token"):
        token = settings.get(name)
        token = token.get("content") if isinstance(token, dict) else token
        if isinstance(token, str):
            out[name] = token
    return out


def _ids(value: object) -> list[int]:
    """Return ids that are written as one number, as a list, or not at all."""
    found = value if isinstance(value, list) else [value]
    return [token for token in found if isinstance(token, int)]
