"""Build the site: `make docs`. It takes in every page of docs, and fails on a broken link.

Pages are laid out in `out/docs/pages` with links that lead within the site: the README is its first
page, and a file of the repository that a page links to becomes a page of the site. The order of
pages is that of docs/README.md; a page that it does not list comes last in its section.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from notebooks import to_markdown
from pages import (
    ROOT,
    drop_code,
    find_english,
    is_outside,
    is_translation,
    list_pages,
    name_anchors,
    read_links,
    replace_links,
    resolve,
)
from search import divide_index, mend_search
from translations import describe_stale

OUT = ROOT / "out" / "docs"
STAGE = OUT / "pages"
SITE = OUT / "site"
_HERE = Path(__file__).parent
# What a search puts first: where a word is looked up, then where it is used; last, what was.
_BOOSTS = {
    "CHANGELOG.md": 0.05,
    "docs/explanation/attacks.md": 0.3,
    "docs/howto": 2.0,
    "docs/reference/commands.md": 3.0,
    "docs/reference/job-file.md": 4.0,
    "docs/tutorial": 2.0,
}
_PROJECT = ("CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")
_SECTIONS = {
    "tutorial": "Tutorial",
    "howto": "How-to",
    "explanation": "Explanation",
    "reference": "Reference",
}
# What a browser would fetch from elsewhere; links that a reader follows are not meant.
_FETCHED = re.compile(
    r"""<(?:script|img|iframe|source)[^>]*\ssrc=["']?(?:https?:)?//[^"' >]+"""
    r"""|<link[^>]*rel=["']?(?:stylesheet|pre)[^>]*href=["']?(?:https?:)?//[^"' >]+"""
    r"""|url\(["']?(?:https?:)?//[^)]+|@import[^;]*//[^;]+"""
)


def place(path: Path) -> Path:
    """Return where a file of the repository lies among the staged pages."""
    inside = path.relative_to(ROOT)
    language = ".zh" if is_translation(path) else ""
    english = find_english(path).relative_to(ROOT)
    if str(english) == "README.md":
        return STAGE / f"index{language}.md"
    if str(english) == "docs/README.md":
        return STAGE / f"contents{language}.md"
    if str(english) in _PROJECT:
        return STAGE / "project" / f"{english.stem.lower()}{language}.md"
    if inside.parts[0] == "docs":
        return STAGE.joinpath(*inside.parts[1:])
    if path.suffix == ".ipynb":
        return STAGE / "notebooks" / f"{path.stem}.md"
    # Dots would be read as a language: tree_model.py is not a page in "py".
    return STAGE / "files" / inside.with_name(f"{inside.name.replace('.', '_')}.md")


def lay_out() -> None:
    """Write every page, picture and linked file to where the site wants it."""
    shutil.rmtree(OUT, ignore_errors=True)
    STAGE.mkdir(parents=True)
    for path in (ROOT / "docs" / "images").rglob("*"):
        if path.suffix in (".png", ".svg"):
            _copy(path)
    for name in ("website.css", "iframe-worker.js", "search.js"):
        shutil.copy(_HERE / name, STAGE)
    linked: set[Path] = set()
    for path in list_pages():
        if not path.is_relative_to(ROOT / "examples"):
            linked |= _write_page(path)
    done: set[Path] = set()
    while left := {path for path in linked if not place(path).exists()} - done:
        done |= left
        for path in left:
            linked |= _write_page(path) if path.suffix == ".md" else _write_source(path)


def _copy(path: Path) -> None:
    place(path).parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(path, place(path))


def _write_page(path: Path) -> set[Path]:
    """Stage one page; return the files that it links to."""
    text = path.read_text(encoding="utf-8")
    there = place(path)

    def change(written: str) -> str:
        link = resolve(written, path)
        if not link.file.exists() or not written.partition("#")[0]:
            return written
        target = place(find_english(link.file))
        name = os.path.relpath(target, there.parent)
        return f"{name}#{link.anchor}" if link.anchor else name

    if is_translation(path):
        text = text.partition("\n")[2]  # the mark: a title is what a page begins with
        text = _name_sections(text, find_english(path))
    inside = find_english(path).relative_to(ROOT)
    if boost := _BOOSTS.get(str(inside), _BOOSTS.get(str(inside.parent))):
        text = f"---\nsearch:\n  boost: {boost}\n---\n{text}"
    there.parent.mkdir(parents=True, exist_ok=True)
    there.write_text(_loosen_lists(replace_links(text, change)), encoding="utf-8")
    return {link.file for link in read_links(path) if link.file.exists()}


def _write_source(path: Path) -> set[Path]:
    """Stage a file of the repository as a page that shows it."""
    there = place(path)
    there.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".ipynb":
        there.write_text(_loosen_lists(to_markdown(path)), encoding="utf-8")
        return set()
    if path.is_dir():
        body = "\n".join(f"- `{one.name}`" for one in sorted(path.iterdir()))
    elif path.suffix in (".png", ".svg"):
        return set()
    else:
        kind = {".py": "python", ".toml": "toml", ".sh": "bash"}.get(path.suffix, "text")
        body = f"````{kind}\n{path.read_text(encoding='utf-8')}\n````"
    head = "---\nsearch:\n  exclude: true\n---\n"
    there.write_text(f"{head}# `{path.relative_to(ROOT)}`\n\n{body}\n", encoding="utf-8")
    return set()


def _name_sections(text: str, english: Path) -> str:
    """Give the headings of a translation the anchors of the English page."""
    anchors = iter(name_anchors(english.read_text(encoding="utf-8")))
    lines, plain = text.splitlines(), drop_code(text).splitlines()
    for at, line in enumerate(plain):
        if re.match(r"#{1,6} ", line):
            anchor = next(anchors, "")
            lines[at] = f"{lines[at]} {{ #{anchor} }}" if anchor else lines[at]
    return "\n".join(lines) + "\n"


def _loosen_lists(text: str) -> str:
    """Write lists as Python-Markdown wants them: a line above, four spaces for each level."""
    lines, found = text.splitlines(), []
    plain = drop_code(text).splitlines()
    in_list = False
    for line, shown in zip(lines, plain, strict=True):
        is_item = re.match(r" *([-*]|\d+\.) ", shown) is not None
        if is_item and not in_list and found and found[-1].strip():
            found.append("")
        if shown.strip():
            in_list = is_item or (in_list and shown.startswith("  "))
        indent = len(line) - len(line.lstrip(" "))
        found.append(" " * indent + line if in_list and shown.strip() else line)
    return "\n".join(found) + "\n"


def build_nav() -> list[object]:
    """Return the order of pages: that of docs/README.md, then what it does not list."""
    listed: dict[str, list[str]] = {}
    section = ""
    index = ROOT / "docs" / "README.md"
    for line in index.read_text(encoding="utf-8").splitlines():
        title = re.match(r"\*\*([^*]+)\*\*", line)
        section = title[1] if title else section
        for written in re.findall(r"\]\(([^)\s]+\.(?:md|ipynb))\)", line):
            if not is_outside(written):
                page = place(resolve(written, index).file)
                listed.setdefault(section, []).append(str(page.relative_to(STAGE)))
    seen = {page for pages in listed.values() for page in pages}
    staged = sorted(STAGE.rglob("*.md"))
    for path in staged:
        name = str(path.relative_to(STAGE))
        folder = path.relative_to(STAGE).parts[0]
        if not is_translation(path) and name not in seen and folder in _SECTIONS:
            listed.setdefault(_SECTIONS[folder], []).append(name)
    project = [f"project/{Path(name).stem.lower()}.md" for name in _PROJECT]
    files = [str(one.relative_to(STAGE)) for one in staged if one.is_relative_to(STAGE / "files")]
    home = ["index.md", "contents.md"]
    return [
        {"Home": home},
        *({title: pages} for title, pages in listed.items()),
        {"Project": [*project, *([{"Files": files}] if files else [])]},
    ]


def find_fetched() -> list[str]:
    """Return what the built pages would fetch from elsewhere; offline there is nothing."""
    found = []
    for path in [*SITE.rglob("*.html"), *SITE.rglob("*.css")]:
        for one in _FETCHED.finditer(path.read_text(encoding="utf-8")):
            found.append(f"{path.relative_to(SITE)}: {one[0][:100]}")
    return found


def main() -> int:
    """Lay the pages out, build the site, and look at what came out."""
    lay_out()
    config = {
        "INHERIT": os.path.relpath(_HERE / "mkdocs.yml", OUT),
        "docs_dir": "pages",
        "site_dir": "site",
        "nav": build_nav(),
    }
    (OUT / "mkdocs.yml").write_text(json.dumps(config, indent=1), encoding="utf-8")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet"]
    # Material prints an announcement of its makers unless it is told not to.
    quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(command, cwd=OUT, env=quiet)
    if built.returncode:
        return 1
    divide_index(SITE)
    mend_search(SITE)
    if fetched := find_fetched():
        print("These pages would fetch something from elsewhere:", *fetched, sep="\n  ")
        return 1
    print("\n".join(describe_stale()))
    print(
        f"Site: {(SITE / 'index.html').relative_to(ROOT)}, {len(list(SITE.rglob('*.html')))} pages"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
