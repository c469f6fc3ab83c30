"""Translations: which are stale, and the mark that says of which English text each was made.

    python docs/website/translations.py            lists translations whose English page has changed
    python docs/website/translations.py PAGE …     marks them as made of what the English says now

The first line of `NAME.zh.md` names the hash of `NAME.md`. Marking also points links at translated
pages, where there are any.
"""

import hashlib
import re
import sys
from pathlib import Path

from pages import ROOT, find_english, is_translation, list_pages, replace_links, resolve

_MARK = re.compile(r"<!-- translated from (?P<name>\S+), sha256 (?P<hash>[0-9a-f]{16}) -->\n")


def find_hash(path: Path) -> str:
    """Return what a translation of this page carries as its mark."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def read_mark(path: Path) -> str:
    """Return the hash that a translation carries; nothing if it has none."""
    found = _MARK.match(path.read_text(encoding="utf-8"))
    return found["hash"] if found else ""


def list_translations() -> list[Path]:
    """Return every translated page."""
    return [path for path in list_pages() if is_translation(path)]


def describe_stale() -> list[str]:
    """Say which translations were made of another text than the English page has now."""
    stale = [p for p in list_translations() if read_mark(p) != find_hash(find_english(p))]
    if not stale:
        return [f"Translations: {len(list_translations())}, all up to date"]
    lines = [f"  {path.relative_to(ROOT)}" for path in stale]
    return [f"Translations: {len(lines)} of {len(list_translations())} are stale", *lines]


def mark(path: Path) -> None:
    """Write the mark, and let links lead to pages in the same language."""

    def change(written: str) -> str:
        name, hash_sign, anchor = written.partition("#")
        here = resolve(name, path).file if name else path
        there = here.with_name(f"{find_english(here).stem}.zh.md")
        if here.suffix != ".md" or not name or not there.exists():
            return written
        return f"{Path(name).with_name(there.name)}{hash_sign}{anchor}"

    english = find_english(path)
    text = _MARK.sub("", path.read_text(encoding="utf-8"), count=1)
    line = f"<!-- translated from {english.name}, sha256 {find_hash(english)} -->\n"
    path.write_text(line + replace_links(text, change), encoding="utf-8")


if __name__ == "__main__":
    for given in map(Path, sys.argv[1:]):
        if not is_translation(given.resolve()):
            sys.exit(f"wanted a translation, such as {given.stem}.zh.md; got {given}")
        mark(given.resolve())
    print("\n".join(describe_stale()))
