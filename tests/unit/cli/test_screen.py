"""Progress as plain lines and as live rows."""

import io

import pytest
from rich.console import Console
from rich.text import Text

from tacit.cli.screen import _Doing, board, printable, say, teller, working
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
    assert printable("96\u202f% of\xa0100") == "96 % of 100"


def test_text_is_not_read_as_markup_and_not_wrapped():
    screen = console(is_terminal=False, width=20)
    say(screen, "[bold]parties[/bold] " + "x" * 50)
    assert screen.file.getvalue() == "[bold]parties[/bold] " + "x" * 50 + "\n"


def test_while_work_goes_on_the_last_line_says_what_and_for_how_long():
    screen = console(is_terminal=True)
    with working(screen, "reading the job"):
        say(screen, "training the target …")
    text = screen.file.getvalue()
    assert text.index("reading the job 0 s") < text.index("training the target … 0 s")
    silent = console(is_terminal=False)
    with working(silent, "reading the job"):
        say(silent, "training the target …")
    assert silent.file.getvalue() == "training the target …\n"


def test_what_is_said_by_count_tells_how_long_the_rest_will_take(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("tacit.cli.screen.time.monotonic", lambda: now[0])
    doing = _Doing("starting", 80)
    for done, seconds in ((1, 10.0), (2, 13.0), (3, 16.0)):
        now[0] = seconds
        doing.process_renderables([Text(f"round {done}/10  ε 1.5")])
    now[0] = 17.0
    assert doing.__rich__().plain.endswith("round 3/10  ε 1.5 1 s, about 20 s left")
    doing.process_renderables([Text("sweeping")])
    assert doing.__rich__().plain.endswith("sweeping 0 s")


@pytest.mark.parametrize("is_terminal", [False, True])
def test_work_of_this_process_says_every_stage_and_how_long_it_will_take(monkeypatch, is_terminal):
    clock = iter([0.0, 0.5, 10.0, 10.2, 40.0])
    monkeypatch.setattr("tacit.cli.screen.time.monotonic", lambda: next(clock))
    screen = console(is_terminal=is_terminal)
    tell = teller(screen)
    tell("sweeping", 0, 4)
    tell("sweeping", 0, 4)  # nothing is done yet: how long it takes is not known
    tell("sweeping", 1, 4)
    tell("sweeping", 2, 4)  # too soon after the last
    tell("sweeping", 4, 4)
    lines = Text.from_ansi(screen.file.getvalue()).plain.splitlines()
    # On a terminal `working` says how long, in a line that moves.
    tail = "" if is_terminal else ", about 30 s left"
    assert lines == ["sweeping …", f"sweeping: 1 of 4{tail}", "sweeping: 4 of 4"]
