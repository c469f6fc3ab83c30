"""Translations have the code, the pictures, the links and the sections of the English page.

A page whose English text has changed since is stale: it is named, and not held to anything else.
"""

import re

import pages
import pytest
import translations

from docs.follow import ROOT, read_blocks

PAGES = translations.list_translations()


@pytest.fixture(params=PAGES, ids=[str(path.relative_to(ROOT)) for path in PAGES])
def path(request):
    english = pages.find_english(request.param)
    assert english.exists()
    mark = translations.read_mark(request.param)
    assert mark, "the first line says of which text it was made: docs/website/translations.py"
    if mark != translations.find_hash(english):
        pytest.skip("stale: the English page has changed since")
    return request.param


def test_a_translation_has_the_blocks_and_sections_of_the_english_page(path):
    ours, theirs = (one.read_text() for one in (path, pages.find_english(path)))
    assert read_blocks(ours) == read_blocks(theirs)
    levels = [[level for level, _ in pages.read_headings(text)] for text in (ours, theirs)]
    assert levels[0] == levels[1]
    for pattern in (r"(!\[)[^\]]*\]\(([^)]+)\)", r"^(\|)(?:[ :-]+\|)+$"):
        found = [
            re.findall(pattern, pages.drop_code(text), re.MULTILINE) for text in (ours, theirs)
        ]
        assert len(found[0]) == len(found[1]), pattern


def test_a_translation_links_to_what_the_english_page_links_to(path):
    ours, theirs = (
        sorted((pages.find_english(link.file), link.anchor) for link in pages.read_links(one))
        for one in (path, pages.find_english(path))
    )
    # A page that links to itself does so in its own language.
    english = pages.find_english(path)
    assert ours == [(english if one == path else one, anchor) for one, anchor in theirs]


def test_a_translation_is_in_chinese(path):
    text = re.sub(r"`[^`\n]*`|\]\([^)]*\)", "", pages.drop_code(path.read_text()))
    chinese = len(re.findall(r"[\u4e00-\u9fff]", text))
    assert chinese > 0.25 * len(text)


def test_marking_a_translation_writes_the_hash_and_points_links_at_translations(tmp_path):
    for name, text in (("a.md", "# A\n[b](b.md)\n"), ("b.md", "# B\n"), ("b.zh.md", "# 乙\n")):
        (tmp_path / name).write_text(text)
    page = tmp_path / "a.zh.md"
    page.write_text("# 甲\n[乙](b.md) [自己](#a) [别处](c.md)\n")
    for _ in range(2):  # marking again changes nothing
        translations.mark(page)
        assert translations.read_mark(page) == translations.find_hash(tmp_path / "a.md")
        assert page.read_text().endswith("# 甲\n[乙](b.zh.md) [自己](#a) [别处](c.md)\n")


def test_an_english_page_bears_no_mark_and_links_to_english_pages():
    for page in (one for one in pages.list_pages() if not pages.is_translation(one)):
        assert not translations.read_mark(page), page
        assert not [x for x in pages.read_links(page) if pages.is_translation(x.file)], page
