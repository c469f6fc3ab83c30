"""A training that is taken up again draws no mask twice, whatever a restarting party does."""

import os
from dataclasses import replace

import pytest
import torch

from support.mpc import MEETING, PARTIES, ROLES, Wiretap
from support.training import changed
from tacit import ring
from tacit.errors import DataError, DisagreementError, InputError, RangeError
from tacit.party import run_threads
from tacit.training import ShareCheckpoint, StateFolder, loop, schedule, train
from tacit.training.schedule import TrainingWalk

SMALL = 1 << 40
"""A difference of weights is below this in size, a uniform word with probability 2^-23."""
TOLERANCE = 2.0**-8
"""Two trainings round differently; a wrong share would be off by about 2^46."""


class StoppedError(Exception):
    """Stands for a kill."""


def attend(task, inputs, folders):
    """Train once, to the first checkpoint; give what bob saw opened, by the name of the message."""
    sent, received = [], []

    def party(session):
        rows, labels = inputs.get(session.me, (None, None))
        return train(session, task, rows=rows, labels=labels, folder=folders[session.me])

    with pytest.raises(StoppedError):
        run_threads(
            dict.fromkeys(PARTIES, party),
            MEETING,
            wrap=lambda me, link: Wiretap(link, received, sent) if me == ROLES.second else link,
        )
    theirs = {tag.split(" from ")[0]: words for tag, words in received if ROLES.first in tag}
    mine = {tag.split(" to ")[0]: words for tag, words in sent if ROLES.first in tag}
    return {
        tag: mine[tag] + theirs[tag]
        for tag in mine.keys() & theirs.keys()
        if mine[tag].shape == theirs[tag].shape and mine[tag].dtype == torch.int64
    }


def differences(before, after):
    """List the messages of which two openings differ by numbers instead of by uniform words."""
    gaps = {tag: after[tag] - before[tag] for tag in before.keys() & after.keys()}
    wide = {tag: gap for tag, gap in gaps.items() if gap.numel() >= 8}
    assert len(wide) > 20
    return [tag for tag, gap in wide.items() if int(gap.abs().max()) < SMALL]


def test_a_party_that_restarts_with_other_rows_sees_fresh_masks(
    make_task, digits, tmp_path, monkeypatch
):
    rows, labels = digits
    half = len(rows) // 2
    task = make_task(protocol="sealed", give_to=())
    folders = {name: StateFolder(tmp_path / name, "b") for name in PARTIES}
    # Bob tells nobody that its rows are others, not even its own folder.
    monkeypatch.setattr(loop, "hash_work", lambda *_: "the same, I swear")

    def stop(self, checkpoint):
        raise StoppedError

    monkeypatch.setattr(StateFolder, "save", stop)
    honest = (rows[:half], labels[:half])
    opened = [
        attend(task, {ROLES.first: honest, ROLES.second: (mine, labels[half:])}, folders)
        for mine in (rows[half:], 1 - rows[half:])
    ]
    assert differences(*opened) == []


def halved(digits):
    rows, labels = digits
    half = len(rows) // 2
    return {
        ROLES.first: (rows[:half], labels[:half]),
        ROLES.second: (rows[half:], labels[half:]),
    }


def folders_in(path, binding="b"):
    return {name: StateFolder(path / name, binding) for name in PARTIES}


def whole(ends, frac_bits):
    """Put the shares of both parties together."""
    first, second = (ends[name].shares for name in ROLES.computing)
    return {name: ring.decode(first[name] + second[name], frac_bits=frac_bits) for name in first}


def die_at(monkeypatch, party, step, is_written):
    """Let a party die at a look, before or after it has written its checkpoint."""
    save = StateFolder.save

    def dying(self, checkpoint):
        dies = (self.path.name, checkpoint.step) == (party, step)
        if is_written or not dies:
            save(self, checkpoint)
        if dies:
            raise StoppedError

    monkeypatch.setattr(StateFolder, "save", dying)


ALICE, BOB = ROLES.computing
KILLS = {
    "one look apart": ("permuted3", "adam", ((BOB, 2, False),)),
    # Both have a checkpoint of one step, but of different attempts: they do not belong together.
    "one look apart, twice": ("sealed", "momentum", ((BOB, 2, False), (ALICE, 2, False))),
    "before both kept one, twice": ("sealed", "sgd", ((BOB, 1, False), (ALICE, 1, False))),
    "after everything was kept": ("sealed", "sgd", ((ALICE, 4, True),)),
}


@pytest.mark.parametrize(("protocol", "kind", "kills"), KILLS.values(), ids=KILLS)
def test_a_training_that_was_killed_ends_with_the_same_model(
    make_task, run_training, digits, tmp_path, monkeypatch, protocol, kind, kills
):
    task = make_task(protocol=protocol, look_every=1, give_to=(), optimiser=kind, rate=2.0**-5)
    folders = folders_in(tmp_path)
    for kill in kills:
        with monkeypatch.context() as patch:
            die_at(patch, *kill)
            with pytest.raises(StoppedError):
                run_training(task, halved(digits), folders=folders)
    resumed = run_training(task, halved(digits), folders=folders)
    unbroken = run_training(task, halved(digits))
    assert [step for step, *_ in resumed[ALICE].shown] == [1, 2, 3, 4]
    found = whole(resumed, task.frac_bits)
    for name, value in whole(unbroken, task.frac_bits).items():
        torch.testing.assert_close(found[name], value, atol=TOLERANCE, rtol=0.0)


def test_shares_are_masked_anew_when_a_training_goes_on(
    make_task, run_training, digits, tmp_path, monkeypatch
):
    task, folders = make_task(give_to=()), folders_in(tmp_path)
    kept = []
    begin = schedule.TrainingWorker.begin

    def noting(self, checkpoint, folder=None):
        begin(self, checkpoint, folder)
        if checkpoint is not None:
            kept.append((checkpoint.shares, {n: s.words for n, s in self._shares.items()}))

    monkeypatch.setattr(schedule.TrainingWorker, "begin", noting)
    with monkeypatch.context() as patch:
        die_at(patch, BOB, 4, True)
        with pytest.raises(StoppedError):
            run_training(task, halved(digits), folders=folders)
    assert run_training(task, halved(digits), folders=folders)[BOB].resumed_at in (2, 4)
    (old, new), (other_old, other_new) = kept
    for name in old:
        assert not (old[name] == new[name]).any()
        assert torch.equal(old[name] + other_old[name], new[name] + other_new[name])


def test_no_key_is_left_on_the_disk(make_task, run_training, digits, tmp_path):
    folders = folders_in(tmp_path)
    run_training(make_task(), halved(digits), folders=folders)
    names = {path.name for folder in folders.values() for path in folder.path.iterdir()}
    assert names == {"start.json", "step-2.npz", "step-4.npz"}


def test_a_party_without_its_checkpoints_is_named(make_task, run_training, digits, tmp_path):
    task, folders = make_task(), folders_in(tmp_path)
    run_training(task, halved(digits), folders=folders)
    folders[BOB].remove()
    with pytest.raises(DisagreementError, match="bob"):
        run_training(task, halved(digits), folders=folders)


def test_a_start_that_left_no_checkpoint_is_started_anew(make_task, run_training, digits, tmp_path):
    task, folders = make_task(epochs=1), folders_in(tmp_path)
    work = loop.hash_work(TrainingWalk(task), named(ALICE, digits))
    folders[ALICE].begin(work, bound=task.spec.weight_bound)
    assert run_training(task, halved(digits), folders=folders)[ALICE].resumed_at == 0


def named(party, digits):
    rows, labels = halved(digits)[party]
    return {f"rows of {party}": rows, f"labels of {party}": labels}


def test_checkpoints_of_other_data_are_not_used(make_task, run_training, digits, tmp_path):
    run_training(make_task(), halved(digits), folders=folders_in(tmp_path))
    with pytest.raises(InputError, match="other data"):
        folders_in(tmp_path, "another")[ALICE].is_begun("w")


@pytest.mark.parametrize("change", ["weights", "rows", "order", "rate"])
def test_shares_of_one_training_are_not_taken_for_another(
    make_task, run_training, digits, tmp_path, change
):
    rows, labels = digits
    task, kept = make_task(), folders_in(tmp_path)
    for party, folder in kept.items():
        mine = named(party, digits) if party in ROLES.computing else {}
        folder.begin(loop.hash_work(TrainingWalk(task), mine), bound=task.spec.weight_bound)
        folder.save(ShareCheckpoint(step=2, attempt=7, shares={}, shown=()))
    if change == "weights":
        name, first = next(iter(task.model.initial.items()))
        model = replace(task.model, initial={**task.model.initial, name: first + 2.0**-10})
        task = changed(task, model=model)
    elif change == "rows":
        rows = rows.clone()
        rows[0, 0] += 2.0**-10
    elif change == "order":
        task = changed(task, seed=task.spec.training.seed + 1)
    else:
        task = changed(task, rate=task.spec.training.rate / 2)
    with pytest.raises(InputError, match="begun with other"):
        run_training(task, halved((rows, labels)), folders=kept)


def test_folders_of_two_starts_do_not_go_together(make_task, run_training, digits, tmp_path):
    one, two = folders_in(tmp_path / "one"), folders_in(tmp_path / "two")
    for kept in (one, two):
        run_training(make_task(), halved(digits), folders=kept)
    with pytest.raises(DisagreementError, match="another start"):
        run_training(make_task(), halved(digits), folders={**one, BOB: two[BOB]})


def stop_at_its_bound(make_task, run_training, digits, folders):
    """Train until a weight is beyond half of a bound that is too small."""
    task = make_task(rate=2.0, epochs=2, weight_bound=1.0, give_to=(), look_every=1)
    with pytest.raises(RangeError) as caught:
        run_training(task, halved(digits), folders=folders)
    return task, str(caught.value)


def test_a_training_that_stopped_at_its_bound_goes_on_with_a_larger_one(
    make_task, run_training, digits, tmp_path
):
    folders = folders_in(tmp_path)
    task, words = stop_at_its_bound(make_task, run_training, digits, folders)
    kept = max(folders[ALICE].steps())
    assert f"from the checkpoint after step {kept};" in words
    raised = changed(task, weight_bound=8.0)
    ends = run_training(raised, halved(digits), folders=folders)
    assert ends[ALICE].resumed_at == kept
    found = whole(ends, task.frac_bits)
    for name, value in whole(run_training(raised, halved(digits)), task.frac_bits).items():
        torch.testing.assert_close(found[name], value, atol=TOLERANCE, rtol=0.0)
    with pytest.raises(InputError, match="can be raised, not lowered"):
        run_training(task, halved(digits), folders=folders)


def test_weights_are_spoken_of_before_they_stop_the_training(
    make_task, run_training, digits, tmp_path
):
    told = {}

    def party(session):
        told[session.me] = lines = []
        session.progress._listener = lambda stage, *_: lines.append(stage)
        rows, labels = halved(digits).get(session.me, (None, None))
        return train(session, task, rows=rows, labels=labels)

    task = make_task(rate=2.0, epochs=2, weight_bound=1.0, give_to=(), look_every=1)
    with pytest.raises(RangeError):
        run_training(task, {}, patch=party)
    warned = [any("weights near half" in line for line in told[name]) for name in PARTIES]
    assert dict(zip(PARTIES, warned, strict=True)) == {ALICE: True, BOB: True, "carol": False}


def test_a_fresh_start_discards_checkpoints_if_all_parties_do(
    make_task, run_training, digits, tmp_path
):
    folders = folders_in(tmp_path)
    run_training(make_task(), halved(digits), folders=folders)
    corrected = make_task(rate=0.25, weight_bound=2.0)

    def start(fresh):
        def party(session):
            rows, labels = halved(digits).get(session.me, (None, None))
            how = {"folder": folders[session.me], "is_fresh": session.me in fresh}
            return train(session, corrected, rows=rows, labels=labels, **how)

        return run_training(corrected, {}, patch=party)

    with pytest.raises(InputError, match="can be raised, not lowered"):
        start(fresh=())
    before = folders[ALICE].attempts()
    with pytest.raises((InputError, DisagreementError)):
        start(fresh=(ALICE, "carol"))
    assert folders[ALICE].attempts() == before  # one party alone loses nothing
    assert start(fresh=PARTIES)[ALICE].resumed_at == 0
    assert set(folders[ALICE].attempts().values()).isdisjoint(before.values())


def test_a_start_that_failed_before_its_first_look_is_in_nobodys_way(
    make_task, run_training, digits, tmp_path
):
    for folder in folders_in(tmp_path, "the wrong job").values():
        folder.begin("w", bound=64.0)
    ends = run_training(make_task(), halved(digits), folders=folders_in(tmp_path))
    assert ends[ALICE].resumed_at == 0


def test_shares_are_not_kept_where_others_could_write(tmp_path):
    folder = StateFolder(tmp_path / "state", "b")
    folder.path.mkdir()
    folder.path.chmod(0o777)
    with pytest.raises(InputError, match="others can write"):
        folder.begin("w", bound=4.0)
    folder.path.chmod(0o700)
    (folder.path / ".start.json.part").symlink_to(tmp_path / "elsewhere")
    folder.begin("w", bound=4.0)
    assert not (tmp_path / "elsewhere").exists()
    assert folder.is_begun("w")


def test_a_damaged_checkpoint_is_refused(tmp_path):
    folder = StateFolder(tmp_path / "state", "b")
    folder.begin("w", bound=4.0)
    folder.save(ShareCheckpoint(step=3, attempt=7, shares={"w": torch.arange(4)}, shown=()))
    file = folder.path / "step-3.npz"
    assert folder.attempts() == {3: 7}
    assert oct(file.stat().st_mode)[-3:] == "600"
    assert oct(folder.path.stat().st_mode)[-3:] == "700"
    file.write_bytes(file.read_bytes()[:-3] + b"xyz")
    with pytest.raises(DataError, match="damaged"):
        folder.load(3)


@pytest.mark.parametrize("name", ["start.json", "noise.key", "opened", "step-1.npz"])
def test_what_is_taken_up_is_a_file_and_no_pipe_that_never_ends(tmp_path, name):
    folder = StateFolder(tmp_path, "binding")
    os.mkfifo(tmp_path / name)
    reads = {
        "start.json": folder.bound,
        "noise.key": lambda: folder.noise(is_new=False),
        "opened": folder.opened,
        "step-1.npz": folder.attempts,
    }
    with pytest.raises(InputError):
        reads[name]()
