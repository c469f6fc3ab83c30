"""What was foreseen, what was written down, and what came in: three accounts of a run, one sum.

Shipped jobs are run with every party a thread and every link tapped. The ledger must be the
forecast, entry by entry, and nothing may have come in that is neither in it nor a uniform word.
"""

import shutil
from pathlib import Path

import pytest

from observer import Observer
from tacit.cli.jobs.kind import Place
from tacit.cli.jobs.kinds import kind_of, load_job
from tacit.cli.jobs.outlook import Asked
from tacit.learn.private import merge_results
from tacit.party import Meeting, Usage, run_threads
from tacit.transport import Patience

JOBS = Path(__file__).parents[2] / "examples" / "jobs"
PATIENCE = Patience(connect_s=60, silence_s=300, heartbeat_s=1, stall_s=600)
BY_CIPHER = ("fit-cipher",)
"""Jobs whose published protocols send what they show as it is; a plan says the most it can be."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Give a copy of the example jobs, in which what one of them leaves is there for the next."""
    found = tmp_path_factory.mktemp("jobs")
    for path in JOBS.glob("*.toml"):
        shutil.copy(path, found)
    return found


class Run:
    """One run of a job: what every party's ledger says, and what crossed its links."""

    def __init__(self, path, monkeypatch):
        monkeypatch.chdir(path.parent)
        self.job = load_job(path)
        self.observer = Observer(monkeypatch)

        def party(session):
            usage = Usage()
            place = Place(
                search=(),
                launched="threads",
                report=lambda: usage.report(name=session.me, role="", progress=session.progress),
                out=path.parent / "at" / session.me / path.stem,
            )
            return kind_of(self.job).take_part(session, self.job, place)

        parties = tuple(self.job.parties)
        meeting = Meeting(parties=parties, job_digest=bytes(32), patience=PATIENCE)
        parts = run_threads(dict.fromkeys(parties, party), meeting, wrap=self.observer.tap)
        self.results = {me: part.result for me, part in parts.items()}
        self.job.out.mkdir(parents=True, exist_ok=True)
        for part in parts.values():
            for name, content in part.files.items():
                data = content.encode() if isinstance(content, str) else content
                (self.job.out / name).write_bytes(data)

    def foreseen(self):
        return entries(kind_of(self.job).forecast(self.job, Asked()).leaks)

    def written(self):
        return entries(merge_results(tuple(self.results.values())).leakage)


def entries(leaks):
    return {(one.to, one.what, one.why, one.kind): one.elements for one in leaks}


def check(run, name):
    written, foreseen = run.written(), run.foreseen()
    if name in BY_CIPHER:
        assert written.keys() == foreseen.keys()
        assert all(count <= foreseen[entry] for entry, count in written.items())
    else:
        assert written == foreseen
    for me in run.job.parties:
        ledger = run.results[me].leakage
        assert not run.observer.unsaid(me, ledger)
        shown = sum(one.elements for one in ledger if one.to == me and one.kind != "size")
        assert run.observer.plain(me).total() <= (shown if name in BY_CIPHER else 0)


@pytest.mark.parametrize(
    "name", ["predict-breast-cancer", "predict-permuted", "fit-columns", "split-private"]
)
def test_the_ledger_is_what_was_foreseen_and_all_that_came(name, folder, monkeypatch):
    check(Run(folder / f"{name}.toml", monkeypatch), name)


def test_so_it_is_of_a_training_by_columns_and_of_questions_to_its_model(folder, monkeypatch):
    for name in ("train-columns", "predict-columns"):
        check(Run(folder / f"{name}.toml", monkeypatch), name)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fit-cipher", "split", "split-defended", "train-private"])
def test_so_it_is_of_slower_jobs(name, folder, monkeypatch):
    check(Run(folder / f"{name}.toml", monkeypatch), name)


@pytest.mark.slow
def test_so_it_is_of_a_training_and_of_every_way_to_ask_its_model(folder, monkeypatch):
    for name in ("train-digits", "predict", "infer-digits", "infer-alone"):
        check(Run(folder / f"{name}.toml", monkeypatch), name)
