"""The search of the built site: an index for each language, Chinese words, Material's mistakes."""

import json
import re
from pathlib import Path

_WORDS = Path(__file__).with_name("words.zh.txt")
_Entry = dict[str, str]


def divide_index(site: Path) -> None:
    """Write an index for each language: its pages, and in Chinese those that are English alone."""
    folder = site / "search"
    index = json.loads((folder / "search_index.json").read_text(encoding="utf-8"))
    words = set(_WORDS.read_text(encoding="utf-8").split())
    english, chinese = [], []
    for entry in index["docs"]:
        (chinese if entry["location"].startswith("zh/") else english).append(entry)
    translated = {_page(entry) for entry in chinese}
    for entry in english:
        there = {**entry, "location": f"zh/{entry['location']}"}
        if _page(there) not in translated and (site / _page(there)).exists():
            chinese.append(there)
    for entry in chinese:
        for key in ("title", "text"):
            entry[key] = cut_words(entry[key], words)
    for language, entries in (("en", english), ("zh", chinese)):
        text = json.dumps({**index, "docs": entries}, ensure_ascii=False)
        there = folder / language
        there.mkdir(exist_ok=True)
        (there / "search_index.json").write_text(text, encoding="utf-8")
        (there / "search_index.js").write_text(f"var __index = {text}", encoding="utf-8")
    for name in ("search_index.json", "search_index.js"):
        (folder / name).unlink()


def _page(entry: _Entry) -> str:
    return entry["location"].partition("#")[0]


def cut_words(text: str, words: set[str]) -> str:
    """Put invisible spaces between the words of Chinese text, or its characters."""
    longest = max(map(len, words))

    def cut(found: re.Match[str]) -> str:
        run, parts, at = found[0], [], 0
        while at < len(run):
            ends = range(min(len(run), at + longest), at + 1, -1)
            end = next((end for end in ends if run[at:end] in words), at + 1)
            parts.append(run[at:end])
            at = end
        return "\u200b" + "\u200b".join(parts) + "\u200b"

    return re.sub("[\u4e00-\u9fff]+", cut, text)


def mend_search(site: Path) -> None:
    """Correct six places of Material's search, or say that it is another Material.

    A Chinese query is cut up to its last character, which two loops leave out; words that are
    followed by another get one asterisk and not two, with which they count as missing on every
    page that has them. A single letter gets none: "a" would find all that begins so. A page reads
    the index of its own language.
    """
    scripts = site / "assets" / "javascripts"
    (worker,) = (scripts / "workers").glob("search.*.min.js")
    (bundle,) = scripts.glob("bundle.*.min.js")
    _replace(worker, "for(let o=s+1;o<t.length;o++)", "for(let o=s+1;o<=t.length;o++)")
    _replace(worker, "n[a]&&a<t.length-1&&", "n[a]&&a<t.length&&")
    _replace(worker, '.join("* ")', '.join(" ")')
    _replace(worker, r"/(^[+-]|[~^]\d+$)/", r"/(^[+-]|[~^]\d+$|^\w$)/")
    for name in ("search_index.js", "search_index.json"):
        _replace(bundle, f'"search/{name}"', f"`search/${{document.documentElement.lang}}/{name}`")


def _replace(path: Path, wrong: str, right: str) -> None:
    text = path.read_text(encoding="utf-8")
    if text.count(wrong) != 1:
        raise SystemExit(
            f"{path.name} has not {wrong} once: look into this Material for what to mend"
        )
    path.write_text(text.replace(wrong, right), encoding="utf-8")
