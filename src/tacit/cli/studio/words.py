"""The words of the page in English and Chinese.

What results and plans say about a run, claims among them, stays as the program wrote it: a claim
has one wording.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources

LANGUAGES = {"en": "English", "zh": "中文"}


@dataclass(frozen=True)
class Words:
    """Says things in one language."""

    language: str

    def __call__(self, text: str, **values: object) -> str:
        """Return a text of the catalogue with its values filled in."""
        found = _catalogue(self.language).get(text, text)
        return found.format(**values) if values else found


def choose(wanted: str | None, accepted: str) -> Words:
    """Choose a language: the one that was switched to, else what the browser would have."""
    if wanted in LANGUAGES:
        return Words(wanted)
    first = accepted.strip().lower()
    return Words("zh" if first.startswith("zh") else "en")


@cache
def _catalogue(language: str) -> Mapping[str, str]:
    if language == "en":
        return {}
    file = resources.files("tacit.cli.studio").joinpath(f"{language}.toml")
    return tomllib.loads(file.read_text(encoding="utf-8"))
