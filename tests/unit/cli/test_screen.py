"""Progress as plain lines and as live rows."""

import io

import pytest
from rich.console import Console

from tacit.cli.screen import board, printable, say
from tacit.party import Progress

ROLES = {"hospital": "data owner", "lab": "model owner"}


def console(*, is_terminal, width=80):
    return Console(file=io.StringIO(), force_terminal=is_terminal, width=width)


def test_without_a_terminal_there_is_one_line_per_stage():
    screen = console(is_terminal=False)
    with board(screen, ROLES) as shown:
        for done in range(5):
            shown.show("lab", "compute", done, 5)
        shown.show("lab", "done", 0, 0)
    lines = screen.file.getvalue().splitlines()
    assert [line.split("s  ", 1)[1] for line in lines] == ["lab       computing", "lab       done"]


def test_on_a_terminal_every_party_has_a_row_that_fits_80_columns():
    screen = console(is_terminal=True)
    with board(screen, ROLES) as shown:
        shown.show("hospital", "compute", 3, 10)
        shown.show("lab", "failed", 0, 0)
    text = screen.file.getvalue()
    assert "hospital" in text
    assert "failed" in text
    assert "…" not in text


@pytest.mark.parametrize("is_terminal", [False, True])
def test_a_note_is_a_line_of_its_own(is_terminal):
    screen = console(is_terminal=is_terminal)
    with board(screen, ROLES) as shown:
        shown.note("stopping [soon]")
    assert screen.file.getvalue().count("stopping [soon]\n") == 1


@pytest.mark.parametrize("is_terminal", [False, True])
def test_what_a_party_tells_is_a_line_that_stays(is_terminal):
    screen = console(is_terminal=is_terminal)
    with board(screen, ROLES) as shown:
        progress = Progress(lambda *where: shown.show("lab", *where))
        with progress.stage("train", 9) as advance:
            progress.tell("resumed at step 4 of 9", 4, 9)
            advance(5)
    assert screen.file.getvalue().count("resumed at step 4 of 9\n") == 1


def test_a_stage_without_words_is_shown_by_its_name():
    screen = console(is_terminal=False)
    with board(screen, ROLES) as shown:
        shown.show("lab", "polish", 0, 0)
    assert "polish" in screen.file.getvalue()


def test_what_a_terminal_would_obey_is_replaced():
    assert printable("a\x1b[2Jb\u202ec\nd") == "a\ufffd[2Jb\ufffdc\nd"


def test_text_is_not_read_as_markup_and_not_wrapped():
    screen = console(is_terminal=False, width=20)
    say(screen, "[bold]parties[/bold] " + "x" * 50)
    assert screen.file.getvalue() == "[bold]parties[/bold] " + "x" * 50 + "\n"
