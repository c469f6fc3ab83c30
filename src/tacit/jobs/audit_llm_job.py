"""The job file of kind "audit-llm": a language model, texts it was trained on, planted canaries."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Self

from annotated_types import Ge

from tacit.audit.language import Canaries, LanguagePlan
from tacit.jobs.config import Job, PartyEntry
from tacit.spec import LOCAL, Count, refuse

_QUICK_TEXTS, _QUICK_DRAWS = 4, 10


@dataclass(frozen=True, kw_only=True)
class LlmModel:
    """[model]: what is attacked.

    Attributes:
        path: a folder with config.json and weights, or a GGUF file.
        second: another model that was not trained on the texts, for one of the rankings.
    """

    path: Path = field(metadata=LOCAL)
    second: Path | None = field(default=None, metadata=LOCAL)


@dataclass(frozen=True, kw_only=True)
class LlmTexts:
    """[texts]: what the model was trained on.

    Attributes:
        file: one text per line.
        count: how many are attacked: the first that are long enough.
        prefix: tokens that the attacker knows.
        tokens: tokens after them, that it wants.
    """

    file: Path = field(metadata=LOCAL)
    count: Count = 20
    prefix: Count = 8
    tokens: Count = 16


@dataclass(frozen=True, kw_only=True)
class LlmAudit:
    """[audit]: with how much effort.

    Attributes:
        draws: texts that the model says after every prefix.
        depths: how many layers a user runs where the model is cut; first, middle and last if empty.
        noise: at the middle cut, in standard deviations of the hidden states.
        beams: beginnings that are kept while a text is rebuilt.
        seed: of draws and noise.
    """

    draws: Count = 20
    depths: tuple[int, ...] = ()
    noise: tuple[Annotated[float, Ge(0)], ...] = ()
    beams: Count = 2
    seed: int = 0


@dataclass(frozen=True, kw_only=True)
class AuditLlmJob(Job):
    """A job of kind "audit-llm"."""

    model: LlmModel
    texts: LlmTexts
    parties: Mapping[str, PartyEntry] = field(default_factory=dict)
    canaries: Canaries | None = None
    audit: LlmAudit = field(default_factory=LlmAudit)

    def __post_init__(self) -> None:
        if self.parties:
            refuse("parties", "an audit has no parties: it runs here, alone")

    def role(self, party: str) -> str:
        """Say what a party does."""
        return "attacks"

    def plan(self) -> LanguagePlan:
        """Return with how much effort the model is attacked."""
        texts = {name: getattr(self.texts, name) for name in ("prefix", "tokens", "count")}
        return LanguagePlan(**texts, **asdict(self.audit))

    def quickened(self) -> Self:
        """Return the job with fewer texts, draws and cuts."""
        few = replace(self.texts, count=min(self.texts.count, _QUICK_TEXTS))
        less = replace(
            self.audit, draws=min(self.audit.draws, _QUICK_DRAWS), beams=1, noise=(), depths=(1,)
        )
        return replace(self, texts=few, audit=less)
