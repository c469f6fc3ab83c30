"""The pictures of protocols are those of the plans; every protocol has one that a page shows."""

import xml.dom.minidom

import diagrams
import pages
import pytest
import sequence

from docs.follow import ROOT

DRAWN = diagrams.draw_all()


@pytest.mark.parametrize("path", DRAWN, ids=lambda path: path.stem)
def test_a_picture_is_not_stale_and_a_page_shows_it(path):
    assert path.read_text() == DRAWN[path], "run `make reference`"
    xml.dom.minidom.parseString(DRAWN[path])  # noqa: S318 - ours
    shown = {link.file for page in (ROOT / "docs").rglob("*.md") for link in pages.read_links(page)}
    assert path in shown


def test_a_picture_has_every_byte_of_the_plan():
    text = DRAWN[diagrams.FOLDER / "permuted3.svg"].replace("\N{NO-BREAK SPACE}", " ")
    # 16 values of 6 bytes from each party to the helper, 16 words of 8 bytes back.
    assert text.count("permuted, masked, 96 B") == 2
    assert "one share of the results, 128 B" in text
    assert "sees 16 values: the inputs of relu" in text


def test_what_two_parties_send_at_once_is_one_arrow_with_two_heads():
    parties = (sequence.Party("a"), sequence.Party("b"))
    one = sequence.Diagram("t", parties, (sequence.Sent("a", "b", "x < y"),))
    both = sequence.Diagram("t", parties, (sequence.Sent("a", "b", "x < y", is_both=True),))
    assert sequence.draw(one).count("<path") == 1
    assert sequence.draw(both).count("<path") == 2
    assert "x &lt; y" in sequence.draw(both)
