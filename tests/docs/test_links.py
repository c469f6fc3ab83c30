"""Every link of every page leads somewhere, and every section that a link names is there."""

import ast
import importlib
import re

import pages
import pytest

from docs.follow import ROOT

PAGES = [path for path in pages.list_pages() if not pages.is_translation(path)]


@pytest.mark.parametrize("path", pages.list_pages(), ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_leads_to_a_file_and_a_section(path):
    broken = []
    for link in pages.read_links(path):
        is_there = link.file.exists() and link.file.is_relative_to(ROOT)
        if not is_there or (link.anchor and link.anchor not in pages.read_anchors(link.file)):
            broken.append(link.written)
    assert not broken


def test_a_broken_link_and_a_missing_section_are_seen(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "# A page\n## The `end`, said twice\n## The `end`, said twice\n"
        "[one](#the-end-said-twice) ![two](no.png)\n```text\n[three](x.md)\n```\n`[four](y.md)`\n"
        "[five](https://example.org) [six\nseven](page.md#the-end-said-twice_1)\n"
    )
    assert pages.read_anchors(page) == {"a-page", "the-end-said-twice", "the-end-said-twice_1"}
    links = list(pages.read_links(page))
    assert [link.written for link in links] == [
        "#the-end-said-twice",
        "no.png",
        "page.md#the-end-said-twice_1",
    ]
    assert [link.file.exists() for link in links] == [True, False, True]
    changed = pages.replace_links(page.read_text(), lambda written: f"there/{written}")
    assert "[three](x.md)" in changed
    assert "![two](there/no.png)" in changed
    assert "(https://example.org)" in changed


def test_every_page_of_docs_is_in_the_list_of_pages():
    listed = {link.file for link in pages.read_links(ROOT / "docs" / "README.md")}
    docs = [path for path in PAGES if path.is_relative_to(ROOT / "docs")]
    left_out = [str(path) for path in docs if path not in listed and path.name != "README.md"]
    assert left_out == [], "add them to docs/README.md"


def test_no_page_names_a_file_of_the_repository_that_is_not_there():
    missing = []
    for path in PAGES:
        if path.name == "CHANGELOG.md":  # which tells of what is gone
            continue
        named = re.findall(
            r"`((?:examples|benchmarks|tests|locks)/[\w./-]+\.\w+)`", path.read_text()
        )
        for name in named:
            if "NAME" not in name and not (ROOT / name).exists():
                missing.append(f"{path.name}: {name}")
    assert missing == []


def test_contributing_names_files_and_folders_that_are_there():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    source = ROOT / "src" / "tacit"
    above = (ROOT, ROOT / "tests", source, *(room for room in source.iterdir() if room.is_dir()))
    named = set(re.findall(r"`([\w./-]+/[\w./-]*|\w+\.py)`", text))
    assert len(named) > 100
    missing = {
        name
        for name in named
        if not re.search("NAME|FILE|ROOM|PACKAGE", name)
        and not any((one / name).exists() for one in above)
    }
    assert missing == set()


def test_the_version_of_a_page_that_shows_figures_of_a_program_is_named():
    named = {}
    for row in (ROOT / "docs/reference/figures.md").read_text(encoding="utf-8").splitlines():
        if (found := re.match(r"\| \[[^\]]+\]\(\.\./([a-z/-]+\.md)\)", row)) is not None:
            named[found[1]] = re.findall(r"`([\w/]+)` [0-9a-f]{8} ", row)
    for path in (ROOT / "docs/explanation").glob("*.md"):
        if path.name == "attacks.md" or path.name.endswith(".zh.md"):
            continue
        text = path.read_text(encoding="utf-8")
        shown = set(re.findall(r"benchmarks/(?:run\.py )?([\w/]+)(?:\.py| |`|\))", text))
        programs = {one for one in shown - {"run"} if not one.startswith("peers")}
        assert programs <= {*named.get(f"explanation/{path.name}", ())}, path.name


@pytest.mark.filterwarnings("ignore:'click.utils:DeprecationWarning")  # Flower's
def test_every_name_that_a_page_imports_is_there():
    missing = []
    for path in PAGES:
        if path.name == "CHANGELOG.md" or path.parent.name == "reference":  # generated: signatures
            continue
        for block in re.findall(r"^```python\n(.*?)^```", path.read_text("utf-8"), re.M | re.S):
            for node in ast.walk(ast.parse(block)):
                if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tacit"):
                    found = importlib.import_module(node.module)
                    lost = [one.name for one in node.names if not hasattr(found, one.name)]
                    missing += [f"{path.name}: {node.module}.{one}" for one in lost]
    assert missing == []
