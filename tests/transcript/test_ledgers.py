"""What was foreseen, what was written down, and what came in: three accounts of a run, one sum.

Shipped jobs are run with every party a thread and every link tapped. The ledger must be the
forecast, entry by entry, and nothing may have come in that is neither in it nor a uniform word.
"""

import shutil
from functools import partial
from pathlib import Path

import pytest

from support.crypto import short_key
from support.observer import Observer
from tacit.cli.environment import data_folders
from tacit.jobs.kind import Asked, Place
from tacit.jobs.kinds import kind_of, load_job
from tacit.learners.cipher import regression
from tacit.party import Meeting, Usage, merge_results, run_threads
from tacit.transport import Patience
from unit.cli.test_fit import by_cipher, job, of_names
from unit.cli.test_fit_blocks import both

JOBS = Path(__file__).parents[2] / "examples" / "jobs"
SOURCE = Path(__file__).parents[2] / "src" / "tacit"
PATIENCE = Patience(connect_s=60, silence_s=300, heartbeat_s=1, stall_s=600)
BESIDE = {
    "inference/service/client.py": "the number of a visit: coins",
    "inference/service/queue.py": "a digest of what is served",
    "inference/service/server.py": "`QUESTION` and `BATCH`, every time",
    "training/schedule.py": "words drawn from common coins: who has others stops",
    "learners/cipher/exchange.py": "a public key, whose size is a fact",
    "llm/backend/protocol.py": "the architecture, as a fact has said",
    "llm/permuted/client.py": "a conversation and its passes, which the ledger has by tokens",
    "llm/permuted/conversation.py": "the end of a conversation",
    "llm/permuted/dealer.py": "that a conversation begins",
    "llm/permuted/setup.py": "keys of masks, and weights under them",
    "llm/sealed/dealt.py": "for how many tokens was dealt, which the ledger has",
    "party/enclave.py": "nonces and quotes",
    "party/session.py": "facts, digests and seeds",
}
"""What sends before a run begins, and what it is."""
ROWS = {
    "bank": {"set": "breast-cancer", "rows": [0, 40], "columns": [0, 3]},
    "shop": {"set": "breast-cancer", "rows": [40, 80], "columns": [0, 3]},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Give a copy of the example jobs, in which what one of them leaves is there for the next."""
    found = tmp_path_factory.mktemp("jobs") / "jobs"
    return shutil.copytree(JOBS, found, ignore=shutil.ignore_patterns("out"))


class Run:
    """One run of a job: what every party's ledger says, and what crossed its links."""

    def __init__(self, made, folder, monkeypatch):
        monkeypatch.chdir(folder)
        self.job = made
        self.observer = Observer(monkeypatch)

        def party(session):
            usage = Usage()
            place = Place(
                search=data_folders(),
                launched="threads",
                report=lambda: usage.report(name=session.me, role="", progress=session.progress),
                out=folder / "at" / session.me / made.job.name,
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


def check(made, folder, monkeypatch):
    """Run a job, and hold forecast, ledger and what came beside each other."""
    run = Run(made, folder, monkeypatch)
    written, foreseen = run.written(), run.foreseen()
    is_by_cipher = getattr(made, "is_by_cipher", False)
    if is_by_cipher and "boosting" in made.learner.kind:  # trees may end before their depth
        assert written.keys() == foreseen.keys()
        assert all(count <= foreseen[entry] for entry, count in written.items())
    else:
        assert written == foreseen
    for me in run.job.parties:
        ledger = run.results[me].leakage
        assert not run.observer.unsaid(me, ledger)
        shown = sum(one.elements for one in ledger if one.to == me and one.kind != "size")
        is_open = is_by_cipher or getattr(made.data, "matching", "exact") != "exact"
        assert run.observer.plain(me).total() <= (shown if is_open else 0)


def test_whoever_tells_something_before_a_run_is_known():
    found = {
        path.relative_to(SOURCE).as_posix()
        for path in SOURCE.rglob("*.py")
        if 'phase="setup"' in path.read_text(encoding="utf-8")
    }
    assert found == BESIDE.keys(), "numbers go by Session.publish, which writes them down"


@pytest.mark.parametrize(
    "name", ["predict-breast-cancer", "predict-permuted", "fit-columns", "split-private"]
)
def test_the_ledger_is_what_was_foreseen_and_all_that_came(name, folder, monkeypatch):
    check(load_job(folder / f"{name}.toml"), folder, monkeypatch)


def test_so_it_is_of_a_training_by_columns_and_of_questions_to_its_model(folder, monkeypatch):
    for name in ("train-columns", "predict-columns"):
        check(load_job(folder / f"{name}.toml"), folder, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["fit-cipher", "split", "split-defended", "train-private", "train-resnet"]
)
def test_so_it_is_of_slower_jobs(name, folder, monkeypatch):
    check(load_job(folder / f"{name}.toml"), folder, monkeypatch)


@pytest.mark.slow
def test_so_it_is_of_a_training_and_of_every_way_to_ask_its_model(folder, monkeypatch):
    for name in ("train-digits", "predict", "infer-digits", "infer-alone"):
        check(load_job(folder / f"{name}.toml"), folder, monkeypatch)


REGRESSION = {
    "kind": "logistic-regression",
    "standardise": True,
    "parameters": {"max_iter": 2},
}
SCALED = {"coefficients": ["bank", "dealer"], "scaling": ["dealer"]}


@pytest.mark.parametrize(
    "make",
    [
        job,
        partial(job, data__matching="helper"),
        both,
        partial(job, data={"split": "rows", "owners": ROWS}, reveal={"coefficients": ["bank"]}),
        partial(job, learner=REGRESSION, reveal=SCALED),
    ],
    ids=["exact", "helper", "blocks", "rows", "scaling"],
)
def test_so_it_is_of_fits_however_rows_are_divided_and_matched(make, tmp_path, monkeypatch):
    check(make(), tmp_path, monkeypatch)


@pytest.mark.parametrize("matching", ["exact", "fuzzy", "hidden"])
def test_so_it_is_of_a_regression_by_a_cipher(matching, tmp_path, monkeypatch):
    pytest.importorskip("gmpy2")
    pytest.importorskip("tenseal")
    monkeypatch.setattr(regression, "make_key", short_key)
    learner = {"kind": "logistic-regression", "parameters": {"max_iter": 2}}
    made = by_cipher(learner=learner) if matching == "exact" else of_names(tmp_path, matching)
    check(made, tmp_path, monkeypatch)
