"""Audits of language models from a job file: what is read, attacked, refused and reported."""

import pytest
from rich.console import Console

from support.jobs import tacit_says
from support.llm import write_model
from tacit import report
from tacit.cli.screen import OnConsole
from tacit.errors import ConfigError, DataError
from tacit.jobs.audit import AuditLlmJob, audit_job, check_llm_inputs, run
from tacit.spec import read_record

SILENT = OnConsole(Console(quiet=True))
TEXTS = ["hello world again", "abcdefghijklmnop", "", "hello world again", "a short"]


@pytest.fixture
def raw(tmp_path):
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS))
    return {
        "job": {"name": "talk", "kind": "audit-llm", "out": str(tmp_path / "out")},
        "model": {"path": str(write_model(tmp_path / "tiny"))},
        "texts": {"file": str(tmp_path / "texts.txt"), "prefix": 3, "tokens": 4, "count": 2},
        "canaries": {"sentence": "my pin is ", "planted": ["ab", "ca"], "alphabet": "abc"},
        "audit": {"draws": 3, "depths": [1, 2], "noise": [0.0, 9.0]},
    }


def job_of(raw, **tables):
    for name, table in tables.items():
        raw = {**raw, name: {**raw.get(name, {}), **table}}
    return read_record(raw, AuditLlmJob, source="job.toml")


def test_texts_canaries_and_hidden_states_are_attacked(raw):
    result = run(job_of(raw), SILENT, ()).result
    names = [row[0] for row in result.sheets[0].rows]
    assert names[0] == "inversion of hidden states"  # every token: the strongest is first
    assert set(names[1:]) == {"extraction of training texts", "canary exposure"}
    assert {curve.title for curve in result.curves} == {
        *("Texts extracted", "Tokens recovered by depth", "Noise at a cut after 1 layers"),
    }
    named = {metric.name: metric.value for metric in result.utility}
    assert named["tokens in turn, 2 layers: tokens recovered"] == 1
    assert result.claims[0].guarantee == "no guarantee"
    assert "ab" not in [value for row in result.sheets[-1].rows for value in row]
    assert report.from_json(report.to_json(result), source="test") == result


def test_the_same_job_finds_the_same(raw):
    job = job_of(raw, audit={"noise": []})
    first, again = (run(job, SILENT, ()).result for _ in range(2))
    assert first.utility == again.utility


def test_a_second_model_brings_the_fifth_ranking(raw, tmp_path):
    alone, _ = audit_job(job_of(raw), SILENT, (), is_quick=True)
    second = job_of(raw, model={"second": str(write_model(tmp_path / "other"))})
    both, _ = audit_job(second, SILENT, (), is_quick=True)
    assert not any("second model" in metric.name for metric in alone.utility)
    assert any("second model" in metric.name for metric in both.utility)


@pytest.mark.parametrize(
    ("tables", "text"),
    [
        ({"canaries": {"planted": ["ab", "a"]}}, "one length"),
        ({"audit": {"noise": [-1.0]}}, r"noise\[0\]: wanted a number of at least 0"),
        ({"parties": {"lab": {}}}, "an audit has no parties"),
    ],
)
def test_settings_without_meaning_are_refused(raw, tables, text):
    with pytest.raises(ConfigError, match=text):
        job_of(raw, **tables)


@pytest.mark.parametrize(
    ("tables", "text"),
    [
        ({"texts": {"file": "nowhere.txt"}}, "texts.file: no such file"),
        ({"model": {"second": "nowhere"}}, "model.second: no such file or folder"),
    ],
)
def test_files_that_are_not_there_are_named(raw, tables, text):
    with pytest.raises(DataError, match=text):
        check_llm_inputs(job_of(raw, **tables), ())


def test_the_command_writes_the_page(raw, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.toml").write_text(
        '[job]\nname = "talk"\nkind = "audit-llm"\n[model]\npath = "tiny"\n'
        '[texts]\nfile = "texts.txt"\nprefix = 3\ntokens = 4\n'
    )
    code, out, _ = tacit_says("audit", "job.toml", "--quick", "--html", "page.html")
    assert code == 0
    assert "inversion of hidden states" in (tmp_path / "page.html").read_text()
    assert "Report: page.html" in out
