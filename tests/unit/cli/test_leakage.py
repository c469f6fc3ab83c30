"""The leakage command on example jobs."""

from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.console import Console

from tacit import report
from tacit.cli.commands.group import Edge
from tacit.cli.commands.leakage import examine
from tacit.cli.commands.serve import leakage
from tacit.errors import ConfigError
from tacit.report.headline import state_headline

JOBS = Path(__file__).parents[3] / "examples" / "jobs"


def test_a_prediction_is_examined_and_its_page_is_written(tmp_path):
    page, out = tmp_path / "page.html", tmp_path / "found.json"
    asked = [str(JOBS / "predict-permuted.toml"), "--quick", "--html", str(page), "--out", str(out)]
    edge = Edge(out=Console(), err=Console(stderr=True))
    found = CliRunner().invoke(leakage, asked, obj=edge, catch_exceptions=False)
    assert found.exit_code == 0
    assert "When permutation is not safe" in page.read_text()
    assert "nothing was revealed" not in page.read_text()
    result = report.load(out)
    assert result.kind == "leakage"
    assert state_headline(result).startswith("Strongest attack: rows recognised")
    assert sum("figure 5.2" in curve.title for curve in result.curves) == 12


@pytest.mark.slow
def test_another_protocol_can_be_looked_at():
    result = examine(JOBS / "predict-permuted.toml", protocol="sealed", is_quick=True)
    assert result.protocol == "sealed"
    assert [sheet.title for sheet in result.sheets] == [
        "How much each view has to do with the rows"
    ]


def test_jobs_of_other_kinds_are_refused():
    with pytest.raises(ConfigError, match="got kind 'serve'"):
        examine(JOBS / "serve-digits.toml", protocol=None, is_quick=True)
    with pytest.raises(ConfigError, match=r"without \[model\] layers; got a model named by layers"):
        examine(JOBS / "infer-digits.toml", protocol=None, is_quick=True)


def test_a_job_on_ciphertexts_lists_what_either_side_sees(monkeypatch):
    pytest.importorskip("tenseal", reason="tacit-ml[he] is not installed")
    monkeypatch.chdir(JOBS.parents[1])
    path = JOBS / "infer-encrypted.toml"
    result = examine(path, protocol=None, is_quick=True)
    assert (result.protocol, result.kind) == ("he", "leakage")
    assert {leak.to for leak in result.leakage if leak.kind != "size"} == {"clinic"}
    told = {(leak.to, leak.what.split(",")[0]) for leak in result.leakage if leak.kind == "size"}
    assert told == {
        ("lab", "the shape and size of the input"),
        ("clinic", "the parameters of the rings"),
    }
    assert any("lab sees ciphertexts" in claim.guarantee for claim in result.claims)
    assert "Nothing was attacked" in result.notes[0]
    assert "Nothing was attacked" in report.render(result)
    with pytest.raises(ConfigError, match="--protocol looks at shares, and 'he' has none"):
        examine(path, protocol="sealed", is_quick=True)
