import io
from dataclasses import replace

import pytest
from rich.console import Console

from tacit.report import preview, summarise
from tacit.result import Sheet


def show(renderable, width=120):
    file = io.StringIO()
    Console(file=file, width=width, color_system=None).print(renderable)
    return file.getvalue().replace("\u00a0", " ").replace("\u202f", "'")


@pytest.mark.parametrize(
    "figure",
    [
        "tacit inference · breast-cancer risk · additive2 · processes",
        "ε = 2 at δ = 10⁻⁵ for add or remove one record",
        "97.08 %",
        "97.66 %",
        "−0.58 points",
        "93.34 to 98.74 %",
        "68'224 B",
        "96'296 B",
        "1.48 s",
        "312 MB",
        "lab: Learned nothing but sizes.",
        "what the scores tell about the model: no guarantee",
        "ε = 2, δ = 10⁻⁵; relation: add or remove one record",
        "trained by the lab in the clear",
    ],
)
def test_the_key_figures_are_shown(example, figure):
    assert figure in show(summarise(example))


@pytest.mark.parametrize("width", [80, 120])
def test_no_line_is_wider_than_the_console_and_no_figure_is_broken(example, width):
    text = show(summarise(example), width)
    assert max(map(len, text.splitlines())) <= width
    assert "93.34 to 98.74 %" in text
    assert "…" not in text


def test_equal_costs_are_ticked_and_others_crossed(example):
    assert "✗" not in show(summarise(example))
    wrong = replace(example, metered=replace(example.metered, online_rounds=10))
    line = next(x for x in show(summarise(wrong)).splitlines() if x.startswith("online   rounds"))
    assert line.split() == ["online", "rounds", "9", "10", "✗", "differs"]


def test_hostile_names_do_not_reach_the_terminal(example):
    hostile = "[red]a[/nope]\x1b[2J"
    parties = (replace(example.parties[0], name=hostile, role=hostile), *example.parties[1:])
    metrics = (replace(example.utility[0], name=hostile),)
    text = show(summarise(replace(example, parties=parties, name=hostile, utility=metrics)))
    assert "\x1b" not in text
    assert "[red]a[/nope]" in text


def test_the_forecast_is_shown_before_anything_is_sent(example):
    text = show(preview(example.forecast), 80)
    assert [x.split() for x in text.splitlines() if x.startswith("online")] == [
        ["online", "68'224", "B", "21", "9"]
    ]
    assert "10'000 Mbit/s" in text
    assert example.forecast.plan_hash in text


def test_words_are_whole_at_eighty_columns_and_so_are_figures_where_they_fit(example):
    metrics = tuple(
        replace(example.utility[0], name=name, samples=1258)
        for name in ("input reconstruction", "gradient clusters, 1 label per class, at clinic")
    )
    threats = Sheet(
        title="Threats",
        heads=("threat", "who looks", "at what", "knowing what", "best attack", "#claimed"),
        rows=(("class representatives", "whoever", "the probability", "one", "x", "ε ≤ 3.11"),),
    )
    text = show(summarise(replace(example, utility=metrics, sheets=(threats,))), width=80)
    assert max(map(len, text.splitlines())) <= 80
    for whole in ("reconstruction", "1'258", "93.34 to 98.74 %", "representatives", "probability"):
        assert whole in text
