import io
import itertools
import json
import subprocess
import sys
import textwrap
import zipfile
from pathlib import Path

import bench
import pytest
from bench import Case, InlinePeer, NotMeasured, VenvPeer, Worker, load_cases, prepare_environment
from bench.peers import MARKER
from rich.console import Console

from tacit.errors import ConfigError

STAYS = """
    import sys
    print("chatter before the answer", flush=True)
    for count, line in enumerate(sys.stdin):
        print('{"value": %d}' % (int(sys.argv[1]) + count), flush=True)
"""
ANSWERS_ONCE = """
    print("starting")
    print('{"value": 5}')
"""


RUN = Path(bench.__file__).parents[1] / "run.py"


def silent(what: str, done: int, total: int) -> None:
    pass


def write_script(folder: Path, text: str) -> Path:
    script = folder / "peer.py"
    script.write_text(textwrap.dedent(text))
    return script


def constant(name: str, value: float) -> InlinePeer:
    return InlinePeer(name, lambda: value)


def run_benchmark(*what: object, directory: Path = Path("unused"), **how: object) -> bench.Report:
    return bench.run_benchmark(*what, directory=directory, **how)


def only_row(case: Case, **options: object) -> bench.Row:
    settings = {"repeats": 3, "peers": False, "progress": silent, **options}
    (row,) = run_benchmark("demo", [case], **settings).rows
    return row


def test_the_warm_up_is_thrown_away_and_the_median_and_spread_are_kept():
    values = iter([1000.0, 3.0, 1.0, 2.0])
    row = only_row(Case("a", "time", "s", lambda: next(values)))
    assert (row.tacit.median, row.tacit.low, row.tacit.high) == (2.0, 1.0, 3.0)


def test_contenders_take_turns():
    order = []

    def record(name):
        return lambda: order.append(name) or 1.0

    peers = (InlinePeer("p", record("p")), InlinePeer("q", record("q")))
    only_row(Case("a", "time", "s", record("tacit"), peers), repeats=2)
    assert order == ["tacit", "p", "q"] * 3


@pytest.mark.parametrize(
    ("higher_is_better", "ours", "ratio"), [(False, 3.0, 1.5), (True, 3.0, 4.0 / 3.0)]
)
def test_the_ratio_is_to_the_best_peer_and_less_is_better(higher_is_better, ours, ratio):
    peers = (constant("p", 4.0), constant("q", 2.0))
    case = Case("a", "m", "u", lambda: ours, peers, higher_is_better=higher_is_better)
    assert only_row(case).ratio == pytest.approx(ratio)


@pytest.mark.parametrize(("goal", "met"), [(1.5, True), (1.4, False), (None, None)])
def test_with_peers_the_goal_is_on_the_ratio(goal, met):
    row = only_row(Case("a", "time", "s", lambda: 3.0, (constant("p", 2.0),), goal=goal))
    assert row.met is met


@pytest.mark.parametrize(
    ("higher_is_better", "goal", "met"),
    [(False, 3.0, True), (False, 2.9, False), (True, 3.0, True), (True, 3.1, False)],
)
def test_without_peers_the_goal_is_on_the_value(higher_is_better, goal, met):
    case = Case("a", "m", "u", lambda: 3.0, goal=goal, higher_is_better=higher_is_better)
    row = only_row(case)
    assert row.met is met
    assert row.ratio is None


def test_a_zero_that_cannot_be_divided_by_leaves_the_goal_undecided():
    row = only_row(Case("a", "time", "s", lambda: 3.0, (constant("p", 0.0),), goal=1.0))
    assert (row.ratio, row.met) == (None, None)


def test_a_peer_that_is_not_run_leaves_the_goal_undecided_and_says_how_to_run_it(tmp_path):
    peer = VenvPeer("p", (), tmp_path / "never-started.py", ())
    row = only_row(Case("a", "time", "s", lambda: 1.0, (peer,), goal=1.0))
    assert (row.peers, row.ratio, row.met) == ({"p": None}, None, None)
    assert "--peers" in row.why_not["p"]


def test_a_contender_that_declines_is_a_row_with_a_reason():
    def decline() -> float:
        raise NotMeasured("no GPU")

    row = only_row(Case("a", "time", "s", decline, (constant("p", 1.0),), goal=1.0))
    assert (row.tacit, row.met, row.why_not) == (None, None, {"tacit": "no GPU"})


def test_a_bug_of_ours_is_not_hidden():
    def broken() -> float:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        only_row(Case("a", "time", "s", broken))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0])
def test_values_that_are_no_measurements_are_refused(value):
    with pytest.raises(ConfigError, match=r"'a'.*finite"):
        only_row(Case("a", "time", "s", lambda: value))
    row = only_row(Case("a", "time", "s", lambda: 1.0, (constant("p", value),)))
    assert row.peers == {"p": None}
    assert "finite" in row.why_not["p"]


def test_names_must_tell_the_contenders_apart():
    with pytest.raises(ConfigError, match="names of their own"):
        Case("a", "time", "s", lambda: 1.0, (constant("tacit", 1.0),))


def test_a_peer_name_cannot_leave_its_folder(tmp_path):
    with pytest.raises(ConfigError, match="letters, digits"):
        VenvPeer("../up", (), tmp_path, ())


@pytest.mark.parametrize(("cases", "repeats"), [([], 1), ([Case("a", "t", "s", float)], 0)])
def test_nothing_to_measure_is_refused(cases, repeats):
    with pytest.raises(ConfigError, match="at least one"):
        run_benchmark("demo", cases, repeats=repeats, peers=False, progress=silent)


def test_progress_counts_every_step_once():
    seen = []
    cases = [Case(name, "t", "s", lambda: 1.0, (constant("p", 1.0),)) for name in "ab"]

    def progress(what, done, total):
        seen.append((done, total))

    run_benchmark("demo", cases, repeats=2, peers=False, progress=progress)
    assert seen == [(step, 12) for step in range(13)]


def test_the_json_holds_the_promised_keys_and_null_for_what_was_not_measured(tmp_path):
    peers = (constant("p", 2.0), VenvPeer("q", (), tmp_path, ()))
    cases = [Case("a", "time", "s", lambda: 1.0, peers, goal=0.6)]
    report = run_benchmark("demo", cases, repeats=2, peers=False, progress=silent)
    content = json.loads(report.to_json())
    assert set(content) == {"name", "machine", "rows"}
    assert set(content["machine"]) == {"cpu", "cores", "memory_bytes", "python", "torch", "gpu"}
    (row,) = content["rows"]
    promised = {"case": "a", "metric": "time", "unit": "s", "tacit": 1.0, "ratio": 0.5}
    promised |= {"goal": 0.6, "met": True, "peers": {"p": 2.0, "q": None}}
    assert row | promised == row
    assert (row["low"], row["high"], row["repeats"]) == (1.0, 1.0, 2)


def test_the_table_shows_marks_reasons_and_brackets(tmp_path):
    cases = [
        Case("good", "time", "s", lambda: 1.0, (constant("p", 1.0),), goal=1.0),
        Case("bad [x]", "rate", "B/s", lambda: 1.0, goal=9.0, higher_is_better=True),
        Case("open", "time", "s", lambda: 1.0, (VenvPeer("q", (), tmp_path, ()),), goal=1.0),
    ]
    report = run_benchmark("demo", cases, repeats=1, peers=False, progress=silent)
    console = Console(width=200, record=True, file=(tmp_path / "screen").open("w"))
    with console.file:
        console.print(bench.render(report))
    text = console.export_text()
    for expected in ("✓ met", "✗ missed", "bad [x]", "≥ 9 B/s", "≤ 1 ×", "q not measured: run"):
        assert expected in text


def test_the_table_cuts_nothing_on_80_columns(tmp_path):
    cases = [
        Case(
            "a matmul with a rather long name, 1024 by 1024",
            "throughput",
            "MB/s",
            lambda: 12345.678,
            (constant("plain-torch", 1234567.8), VenvPeer("another", (), tmp_path, ())),
            goal=1.5,
        )
    ]
    report = run_benchmark("demo", cases, repeats=1, peers=False, progress=silent)
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(bench.render(report))
    text = console.export_text()
    assert "…" not in text
    whole = "".join(text.split())
    for word in ("throughput", "plain-torch", "1.235e+06", "another", "✓met", "≤1.5×"):
        assert word in whole


def test_cases_are_loaded_by_path(tmp_path):
    (tmp_path / "room").mkdir()
    (tmp_path / "room" / "fast.py").write_text(
        "from bench import Case\n"
        "def cases(quick):\n"
        "    return [Case('n', 't', 's', lambda: 1.0)] * (1 if quick else 2)\n"
    )
    assert len(load_cases("room/fast", tmp_path, quick=True)) == 1
    assert len(load_cases("room/fast", tmp_path, quick=False)) == 2


def test_an_unknown_benchmark_is_refused_with_the_known_ones_and_a_suggestion(tmp_path):
    (tmp_path / "room").mkdir()
    for name in ("ring", "transport", "_private"):
        (tmp_path / "room" / f"{name}.py").write_text("def cases(quick): return []\n")
    (tmp_path / "room" / "script.py").touch()
    with pytest.raises(
        ConfigError, match=r"room/ring, .*; did you mean 'room/transport'\?"
    ) as caught:
        load_cases("room/tranport", tmp_path, quick=True)
    assert "_private" not in str(caught.value)
    with pytest.raises(ConfigError, match="a program of its own"):
        load_cases("room/script", tmp_path, quick=True)


@pytest.mark.slow
def test_the_command_lists_runs_and_refuses(tmp_path):
    def says(*words):
        command = [sys.executable, str(RUN), *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout, done.stderr

    code, listed, _ = says("--list")
    assert code == 0
    names = [line.split()[0] for line in listed.splitlines()]
    assert {"ring/products", "llm/gpu", "verify/robustness"} <= set(names)
    assert not {"run", "bench/case", "llm/_shapes"} & set(names)
    assert "usage: sweep.py" in says("verify/sweep", "--help")[1]
    code, _, error = says("nothing-of-that-name")
    assert (code, "available: " in error) == (2, True)
    assert says()[0] == 2
    rows = tmp_path / "rows.json"
    assert says("ring/products", "--quick", "--repeats", "1", "--out", str(rows))[0] == 0
    assert json.loads(rows.read_text())["rows"]


def test_a_script_that_stays_is_started_once_and_asked_many_times(tmp_path):
    with Worker([sys.executable, str(write_script(tmp_path, STAYS)), "7"]) as worker:
        assert [worker.measure() for _ in range(3)] == [7.0, 8.0, 9.0]


def test_a_script_that_answers_once_is_started_for_every_measurement(tmp_path):
    with Worker([sys.executable, str(write_script(tmp_path, ANSWERS_ONCE))]) as worker:
        assert [worker.measure() for _ in range(3)] == [5.0, 5.0, 5.0]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("raise SystemExit('out of luck')", "exit code 1: out of luck"),
        ("print('no json here')", "exit code 0"),
        ("print('{\"value\": true}')", "wanted a number"),
        ('print(\'{"value": "3"}\')', "wanted a number"),
        ("import time; time.sleep(60)", r"no answer within 0\.3 s"),
    ],
)
def test_a_script_without_an_answer_is_not_measured(tmp_path, monkeypatch, text, reason):
    monkeypatch.setattr("bench.peers.GRACE_S", 0.1)
    timeout_s = 0.3 if "sleep" in text else 60
    script = write_script(tmp_path, text)
    with (
        Worker([sys.executable, str(script)], timeout_s=timeout_s) as worker,
        pytest.raises(NotMeasured, match=reason),
    ):
        worker.measure()


def test_a_script_that_dies_between_measurements_is_not_restarted_in_silence(tmp_path):
    text = "import sys; sys.stdin.readline(); print('{\"value\": 1}', flush=True); sys.exit(3)"
    with Worker([sys.executable, str(write_script(tmp_path, text))]) as worker:
        assert worker.measure() == 1.0
        with pytest.raises(NotMeasured, match="exit code 3"):
            worker.measure()


def test_an_environment_is_made_once_and_a_half_built_one_again(tmp_path):
    peer = VenvPeer("p", (), tmp_path, ())
    python = prepare_environment(peer, tmp_path)
    keepsake = tmp_path / "p" / "keepsake"
    keepsake.touch()
    assert prepare_environment(peer, tmp_path) == python
    assert keepsake.exists()
    (tmp_path / "p" / MARKER).unlink()
    assert prepare_environment(peer, tmp_path) == python
    assert not keepsake.exists()


def make_wheel(folder: Path) -> Path:
    wheel = folder / "tinypeer-1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("tinypeer.py", "VALUE = 4\n")
        info = "tinypeer-1.dist-info"
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: tinypeer\nVersion: 1\n")
        tags = "Wheel-Version: 1.0\nGenerator: us\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        archive.writestr(f"{info}/WHEEL", tags)
        archive.writestr(f"{info}/RECORD", "")
    return wheel


@pytest.mark.slow
def test_peers_are_installed_and_measured_and_a_failing_one_does_not_stop_the_run(tmp_path):
    script = write_script(
        tmp_path, "import tinypeer\nwhile input(): print('{\"value\": %d}' % tinypeer.VALUE)"
    )
    offline = ("--no-index",)
    good = VenvPeer("good", (str(make_wheel(tmp_path)),), script, (), offline)
    bad = VenvPeer("bad", ("tinypeer-that-does-not-exist",), script, (), offline)
    case = Case("a", "time", "s", lambda: 2.0, (good, bad), goal=0.5)
    row = only_row(case, peers=True, directory=tmp_path)
    assert (row.peers["good"].median, row.peers["bad"]) == (4.0, None)
    assert (row.ratio, row.met) == (0.5, True)
    assert row.why_not["bad"].startswith("installing failed: ")
    assert "tinypeer-that-does-not-exist" in row.why_not["bad"]


def test_one_name_for_two_environments_is_refused(tmp_path):
    peers = itertools.starmap(VenvPeer, [("p", ("a",), tmp_path, ()), ("p", ("b",), tmp_path, ())])
    cases = [Case(f"c{i}", "t", "s", lambda: 1.0, (peer,)) for i, peer in enumerate(peers)]
    with pytest.raises(ConfigError, match="two lists of requirements"):
        run_benchmark("demo", cases, repeats=1, peers=True, progress=silent, directory=tmp_path)
