"""The follower of pages notices what a page promises and does not keep; every page can be read."""

import re

import pytest

from docs.follow import (
    ROOT,
    PageError,
    find_missing,
    follow,
    list_pages,
    read_blocks,
    split_commands,
)

PAGES = list_pages()


def write(folder, text):
    page = folder / "page.md"
    page.write_text(text.replace("'''", "```"))
    return page


def test_a_page_that_keeps_its_word_passes(tmp_path):
    text = """
<!-- file: words.txt -->
'''text
one two
'''
'''console
$ cat words.txt
one …
$ sleep 60 &
$ printf 'a  1\\nb\\n'
a 1
…
b
'''
<!-- not run: needs a telescope -->
'''console
$ false
'''
'''python
assert open("words.txt").read() == "one two\\n"
'''
"""
    assert follow(write(tmp_path, text)) == ["$ false  (needs a telescope)"]


@pytest.mark.parametrize(
    ("block", "word"),
    [
        ("console\n$ false", "exit code 1"),
        ("console\n$ echo b\na", "did not print 'a'"),
        ("console\n$ echo a b\nb\na", "did not print 'a'"),
        ("python\nassert False", "exit code 1"),
        ("console\n$ false &\nready", "ended with 1"),
        ("console\n$ false &\n$ sleep 0.5", "false &: exit code 1"),
    ],
)
def test_a_page_that_breaks_its_word_fails(tmp_path, block, word):
    with pytest.raises(PageError, match=word):
        follow(write(tmp_path, f"'''{block}\n'''\n"))


def test_promised_lines_stand_in_their_order_with_anything_for_dots():
    assert find_missing("ε 1.25  accuracy 90 %\ndone", ["ε … accuracy", "done"]) is None
    assert find_missing("done ε", ["ε", "done"]) == "done"
    assert split_commands("$ a \\\n  b\nx\n$ c\n") == [("a   b", ["x"]), ("c", [])]


def test_the_first_lines_of_the_readme_print_the_ledger_that_stands_below_them(tmp_path):
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    begins = text.index("<!-- file: ask.py -->")
    assert follow(write(tmp_path, text[begins : text.index("`answer.values`")])) == []


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_every_block_of_a_page_says_what_it_is(path):
    text = path.read_text()
    blocks = read_blocks(text)
    assert not re.search(r"^ +```", text, re.MULTILINE), "indented blocks are not followed"
    assert len(blocks) * 2 == text.count("\n```") + text.startswith("```")
    for block in blocks:
        assert block.kind in ("console", "python", "toml", "text"), f"{path}: {block.body[:40]}"
        if block.kind == "console" and not block.mark:
            assert split_commands(block.body), f"{path}: no command in {block.body[:40]}"
        if block.mark:
            assert block.word.strip(), f"{path}: a mark without a reason"
