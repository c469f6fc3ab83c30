"""A result stands before what it was made from is thrown away: whatever fails, ε is paid once."""

import errno
import io
import json
import os
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console
from safetensors.numpy import load_file

from support.training import KilledError
from tacit.cli.launch import member, processes
from tacit.errors import DataError, InputError, PartyError
from tacit.jobs import folder
from tacit.jobs.kind import Part
from tacit.party import Meeting, Usage, run_threads
from unit.cli.test_train import job

OWNERS = ("north", "south")
STEPS = 4


@pytest.fixture
def training(tmp_path):
    """A private training of two owners with books."""
    data = {
        name: {
            "set": "digits",
            "rows": [at, at + 40],
            "book": str(tmp_path / f"{name}.book"),
            "most_epsilon": 9.0,
        }
        for name, at in (("north", 0), ("south", 40))
    }
    return job(
        job__out=str(tmp_path / "out"),
        data__owners=data,
        data__test_share=0.25,
        training__epochs=STEPS,
        training__look_every=2,
        privacy__epsilon=4.0,
        privacy__delta=1e-3,
        privacy__looks="none",
        protocol__give_to=["south"],
        report__compare="none",
    )


def run(one, path, faults=None):
    """Take part as every party does on a host of its own; the parts, or the errors instead."""
    ends = {}

    def party(session):
        me = session.me

        def publish(part):
            with folder.staged(path / me) as stage:
                member.write_files(part.files, stage)
                (faults or {}).get(f"{me} writes", lambda: None)()
                member.write_result(one, b"", part.result, stage)
            (faults or {}).get(f"{me} has published", lambda: None)()

        seat = member.Seat(
            job=one, me=me, identity=None, listener=None, launched="remote", search=()
        )
        try:
            part = member.do_part(session, seat, Usage(), publish)
            folder.discard(part.checkpoints)
            ends[me] = part
        except BaseException as error:
            ends[me] = error
            raise

    parties = tuple(one.parties)
    try:
        run_threads(dict.fromkeys(parties, party), Meeting(parties=parties, job_digest=bytes(32)))
    except (InputError, PartyError, KilledError):
        assert faults
    return ends


def full():
    error = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "result.json")
    raise InputError("cannot write result.json: No space left on device") from error


def dies():
    raise KilledError


def entries(path):
    return [len(json.loads((path / f"{one}.book").read_bytes())["tacit book"]) for one in OWNERS]


def states(path):
    return sorted(one.name for one in path.glob(".out-*.state"))


@pytest.mark.parametrize(
    ("at", "fault"),
    [
        ("north writes", full),
        ("north writes", dies),
        ("south has published", dies),
        ("helper has published", dies),
    ],
)
def test_a_result_that_one_cannot_write_is_made_again_from_the_end(training, tmp_path, at, fault):
    """On 0.2 everybody had thrown its checkpoints away by then: step 0, and ε twice."""
    ends = run(training, tmp_path, {at: fault})
    assert all(isinstance(one, BaseException) for one in ends.values())
    if fault is full:
        told = {str(ends[name]) for name in ("south", "helper")}
        assert told == {
            "party 'north' failed: its disk is full, or its files may not grow; its own output "
            "says where"
        }
    kept = [f".out-{name}.state" for name in sorted(training.parties)]
    assert states(tmp_path) == kept
    again = run(training, tmp_path)
    assert all(f"after step {STEPS}" in " ".join(one.result.notes) for one in again.values())
    assert entries(tmp_path) == [1, 1]
    assert states(tmp_path) == []
    for name in training.parties:
        assert (tmp_path / name / folder.RESULT).is_file()
    third = run(training, tmp_path / "third")  # nothing is left of it: another training
    assert not any("Taken up again" in " ".join(one.result.notes) for one in third.values())
    assert entries(tmp_path) == [2, 2]


def test_the_model_made_again_is_the_one_that_others_have_published(training, tmp_path):
    run(training, tmp_path, {"north writes": full})
    first = load_file(tmp_path / "south" / folder.MODEL)
    run(training, tmp_path)
    second = load_file(tmp_path / "south" / folder.MODEL)
    assert all((first[name] == second[name]).all() for name in first)


class Started:
    """Stands for `tacit run` of a job whose parties have come to their end."""

    def __init__(self, monkeypatch, path):
        self.state = path / ".out-north.state" / "mark"
        self.state.mkdir(parents=True)
        (self.state / "step-4.npz").touch()
        one = SimpleNamespace(
            job=SimpleNamespace(name="j", kind="train"),
            out=path / "out",
            parties={"north": None},
            role=lambda name: "",
        )
        self.kind = SimpleNamespace(check_inputs=lambda *_: None, run=None, keeps=lambda _: True)
        said = {"event": "done", "checkpoints": [str(self.state)]}
        self.is_there = []
        monkeypatch.setattr(processes, "load_job", lambda _: one)
        monkeypatch.setattr(processes, "check_fresh", lambda *_: None)
        for module in (processes, member):
            monkeypatch.setattr(module, "kind_of", lambda _: self.kind)
        monkeypatch.setattr(processes, "_run_children", lambda *_: (SimpleNamespace(final=said),))
        monkeypatch.setattr(processes, "_join", lambda *_: None)
        (path / "job.toml").touch()
        self.path = path

    def run(self):
        processes.run_job(
            self.path / "job.toml", keys=self.path, out=None, console=Console(quiet=True)
        )


@pytest.mark.parametrize("fails", ["write_result", "_flush", "_join"])
def test_run_discards_checkpoints_when_its_folder_is_on_the_disk(tmp_path, monkeypatch, fails):
    started = Started(monkeypatch, tmp_path)

    def failing(*_):
        assert started.state.exists()
        raise DataError("no")

    def written(job, source, result, stage):
        (stage / folder.RESULT).write_text('{"schema": 1, "version": "", "parties": []}')

    monkeypatch.setattr(processes, "write_result", written)
    with monkeypatch.context() as patch:
        patch.setattr(folder if fails == "_flush" else processes, fails, failing)
        with pytest.raises(DataError):
            started.run()
    assert started.state.exists()
    assert not (tmp_path / "out").exists()
    started.run()
    assert (tmp_path / "out" / folder.RESULT).exists()
    assert not started.state.parent.exists()


@pytest.mark.parametrize("has_published", [True, False])
def test_who_has_published_is_told_so_when_another_fails(
    training, tmp_path, monkeypatch, has_published
):
    def sit(seat, reporter, publish):
        if has_published:
            publish(Part(result=None))
        raise PartyError("south", "its disk is full")

    def written(job, source, result, stage):
        (stage / folder.RESULT).touch()

    path, said = tmp_path / "job.toml", io.StringIO()
    path.touch()
    for name, stub in {
        "load_job": lambda _: training,
        "check_parties": lambda *_: None,
        "own_seat": lambda *_, **__: nullcontext(),
        "take_seat": sit,
        "write_result": written,
    }.items():
        monkeypatch.setattr(member, name, stub)
    console = Console(file=said, width=400)
    with pytest.raises(PartyError, match="its disk is full"):
        member.run_alone(path, "north", keys=tmp_path, out=None, at=None, console=console)
    assert ("The result of 'north' is in" in said.getvalue()) == has_published
    assert (tmp_path / "out-north").exists() == has_published


def test_one_job_started_twice_is_refused_while_the_first_runs(tmp_path, monkeypatch):
    """On 0.2 both wrote checkpoints into one folder; the second died of a file that was gone."""
    started = Started(monkeypatch, tmp_path)
    monkeypatch.setattr(
        processes,
        "write_result",
        lambda job, source, result, stage: folder.write_text(
            stage / folder.RESULT, '{"schema": 1, "version": "", "parties": []}'
        ),
    )
    tried = []

    def again(*_):
        if not tried:
            tried.append("started")
            with pytest.raises(InputError, match=r"party 'north' of job 'j' .* runs already, as"):
                started.run()
        return (SimpleNamespace(final={}),)

    monkeypatch.setattr(processes, "_run_children", again)
    started.run()
    assert tried == ["started"]
    started.kind.keeps = None  # nothing is kept, nobody is in another's way
    tried.clear()

    def beside(*_):
        if not tried:
            tried.append("started")
            started.run()
        return (SimpleNamespace(final={}),)

    monkeypatch.setattr(processes, "_run_children", beside)
    started.run()
    assert not list(tmp_path.glob("*.lock"))


def test_discarding_takes_away_what_it_is_told_to_and_nothing_beside_it(tmp_path):
    for name in (".out-a.state/one", ".out-a.state/two", "data/one"):
        (tmp_path / name).mkdir(parents=True)
    folder.discard([tmp_path / ".out-a.state" / "one", tmp_path / "data" / "one"])
    left = {str(one.relative_to(tmp_path)) for one in tmp_path.rglob("*")}
    assert left == {".out-a.state", ".out-a.state/two", "data"}
    folder.discard([tmp_path / ".out-a.state" / "two"])
    assert not (tmp_path / ".out-a.state").exists()
    assert Part(result=None).checkpoints == ()
    assert folder.state_of(Path("x") / "out", "a") == Path.cwd() / "x" / ".out-a.state"
