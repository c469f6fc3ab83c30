"""How well the patterns see invented sentences of every form, at least 500 of each."""

import pytest

from tacit.dp.policy import by_pattern
from tacit.errors import ConfigError
from tacit.ring import Prg
from tacit.text.forms import FORMS, coverage_sheet, draw_labelled, in_han, measure_recall

SEEN = [form for form in FORMS if form != "names of people"]


@pytest.mark.parametrize("form", SEEN)
def test_the_patterns_see_every_form_of_number(form):
    sample = draw_labelled(form, 500, prg=Prg(b"a labelled sampl"))
    found = measure_recall(by_pattern(), sample, name=form)
    assert found.samples == 500
    assert found.low > 0.99


def test_a_report_says_what_is_not_covered():
    rows = {form: said for form, said, *_ in coverage_sheet(by_pattern("digits")).rows}
    assert rows["digits"] == rows["full-width digits"] == "covered"
    assert rows["Chinese digits"] == rows["ages in Chinese"] == "not covered"
    assert {form: said for form, said, *_ in coverage_sheet(by_pattern()).rows} == {
        form: "not covered" if form == "names of people" else "covered" for form in FORMS
    }


def test_numbers_are_read_as_people_do():
    assert [in_han(n) for n in (0, 7, 10, 15, 20, 105, 110, 1001, 2030)] == [
        *("零", "七", "十", "十五", "二十", "一百零五", "一百一十", "一千零一", "二千零三十"),
    ]


def test_an_unknown_form_is_refused():
    with pytest.raises(ConfigError, match="one of digits"):
        draw_labelled("poems", 1, prg=Prg.from_os())
