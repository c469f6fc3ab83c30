"""What a job of kind "text" reads: texts, a model and its words, and planted canaries."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tacit.dp.policy import Policy
from tacit.errors import DataError
from tacit.files import refuse_endless
from tacit.llm import Tokenizer, open_checkpoint
from tacit.llm.model.module import CausalModule, tiny_model
from tacit.llm.model.saving import train_tokenizer
from tacit.ring import Prg
from tacit.text.corpus import Marked, Text, mark_corpus
from tacit.text.forms import HAN
from tacit.text.spec import TextCanaries, TextSpec

SIGNS = {
    "digits": "0123456789",
    "full-width digits": "０１２３４５６７８９",
    "Chinese digits": HAN,
}
FRAME = "我的单号是"
_LARGEST_BYTES = 1 << 30


@dataclass(frozen=True, kw_only=True, eq=False)
class Loaded:
    """What is trained, on what, and what is measured on."""

    module: CausalModule
    tokenizer: Tokenizer
    policy: Policy
    public: tuple[str, ...]
    train: tuple[Text, ...]
    test: tuple[Text, ...]
    canaries: dict[str, tuple[int, ...]]

    @property
    def starts(self) -> list[int]:
        """Return the ids before every text."""
        bos = self.tokenizer.special.get("bos_token", "")
        return list(self.tokenizer.starts) or self.tokenizer.encode(bos)

    def mark(self, texts: Sequence[Text]) -> Marked:
        """Mark and spell texts."""
        ends = sorted(self.tokenizer.stops)[:1]
        return mark_corpus(texts, self.tokenizer, self.policy, starts=self.starts, ends=ends)


def load(spec: TextSpec) -> Loaded:
    """Read everything, hold owners back to measure on, and plant canaries.

    Raises:
        DataError: a file is not what it should be.
    """
    texts = read_texts(spec.data.texts)
    public = () if spec.data.public is None else _lines(spec.data.public)
    if spec.model.path is not None:
        checkpoint = open_checkpoint(spec.model.path)
        tokenizer, model = checkpoint.tokenizer(), checkpoint.load()
    else:
        tokenizer = train_tokenizer(public, size=spec.model.vocabulary)
        sizes = {"layers": spec.model.layers, "width": spec.model.width}
        model = tiny_model(tokenizer.size, context=spec.data.length + 64, **sizes)
    owners = list(dict.fromkeys(one.owner for one in texts))
    held = max(1, round(spec.data.test_share * len(owners)))
    if len(owners) < 2:
        raise DataError(
            f"{spec.data.texts}: wanted texts of two owners or more, to measure on those of some; "
            f"got {len(owners)}"
        )
    aside = set(owners[-held:])
    canaries = _draw(spec.canaries) if spec.canaries else {}
    train = [one for one in texts if one.owner not in aside]
    return Loaded(
        module=CausalModule(model),
        tokenizer=tokenizer,
        policy=spec.policy.policy(),
        public=public,
        train=(*train, *_planted(canaries, spec.canaries)),
        test=tuple(one for one in texts if one.owner in aside),
        canaries=canaries,
    )


def read_texts(path: Path) -> list[Text]:
    """Read JSON lines of texts; one without an owner is an owner's of its own.

    Raises:
        DataError: a line that is no such record, by its number; its content is not shown.
    """
    found = []
    for number, line in enumerate(_lines(path), start=1):
        try:
            record = json.loads(line)
            text, owner = record["text"], record.get("owner", f"line {number}")
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise DataError(
                f'{path}, line {number}: wanted {{"text": …, "owner": …}}, got something else'
            ) from error
        if not isinstance(text, str) or not isinstance(owner, str):
            raise DataError(f"{path}, line {number}: text and owner are strings")
        found.append(Text(text=text, owner=owner))
    return found


def _lines(path: Path) -> tuple[str, ...]:
    refuse_endless(path)
    try:
        if path.stat().st_size > _LARGEST_BYTES:
            raise DataError(f"{path}: wanted at most {_LARGEST_BYTES >> 30} GiB of text")
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: wanted UTF-8, byte {error.start} is not; convert it") from error
    return tuple(line for line in lines if line.strip())


def _draw(table: TextCanaries) -> dict[str, tuple[int, ...]]:
    prg = Prg.from_os()
    most = 10**table.signs
    return {form: tuple(prg.permutation(most)[: table.count].tolist()) for form in table.forms}


def _planted(canaries: dict[str, tuple[int, ...]], table: TextCanaries | None) -> list[Text]:
    if table is None:
        return []
    return [
        Text(text=FRAME + spell(form, number, table.signs), owner=f"canary {form} {number}")
        for form, numbers in canaries.items()
        for number in numbers
        for _ in range(table.copies)
    ]


def spell(form: str, number: int, signs: int) -> str:
    """Write a number in a form."""
    return "".join(SIGNS[form][int(digit)] for digit in f"{number:0{signs}}")
