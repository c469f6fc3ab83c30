"""Sealed passes, recorded once and played for every token, by a stand-in for CUDA graphs."""

import gc
import weakref
from hashlib import sha256

import pytest
import torch

from support.cuda import OperationTape, patch_numpy, playing_passes
from support.llm import FAMILIES, as_user, deal, plainly, say, talk_alone, tiny
from support.mpc import ALICE, BOB, CAROL, ROLES
from support.mpc import MEETING as HARNESS
from tacit.errors import TacitError
from tacit.llm.sealed import SealedMemory, table
from tacit.mpc import PROTOCOLS, OpeningCache, attend, make_plan
from tacit.mpc.material import recorded_dealing, recording
from tacit.mpc.material.recorder import Next, Recorder
from tacit.party import Session, run_threads
from tacit.ring import Prg


@pytest.fixture
def played(monkeypatch):
    """Record passes on the processor."""
    return playing_passes(monkeypatch)


@pytest.mark.parametrize("family", ["llama", pytest.param("gpt2", marks=pytest.mark.slow)])
def test_tokens_are_the_plain_ones_when_passes_are_played(family, played):
    model = tiny(family, seed=2, layers=1)
    said, leaks = as_user(model, lambda client: say(client, SealedMemory(), [1, 5, 7], 5))
    assert said == plainly(model, [1, 5, 7], 5)
    # The prompt is read once; of the tokens behind it the first is recorded.
    assert [was_played for me, was_played, _ in played if me == "user"] == [False, True, True, True]
    assert len([me for me, _, _ in played if me == "dealer"]) == 4
    outputs = [leak for leak in leaks if leak.kind == "output" and "token" in leak.what]
    assert [leak.elements for leak in outputs] == [5]


@pytest.mark.slow
def test_what_is_taken_back_and_another_conversation_leave_nothing_behind(played):
    model = tiny("llama", seed=2, layers=1)

    def talk(client):
        one, other = SealedMemory(), SealedMemory()
        first = say(client, one, [1, 5, 7], 3)
        second = say(client, other, [9, 4, 2], 3)
        third = say(client, one, [first[-1]], 2)
        one.rewind(2)
        return first, second, third, say(client, one, [9], 4)

    (first, second, third, fourth), _ = as_user(model, talk)
    assert first + third == plainly(model, [1, 5, 7], 5)
    assert second == plainly(model, [9, 4, 2], 3)
    assert fourth == plainly(model, [1, 5, 9], 4)
    assert any(was_played for _, was_played, _ in played)


@pytest.mark.slow
def test_a_longer_text_is_recorded_anew_with_what_was_read(played, monkeypatch):
    monkeypatch.setattr("tacit.llm.sealed.passes.ROOM", 4)
    model = tiny("llama", seed=2, layers=1)
    said, _ = as_user(model, lambda client: say(client, SealedMemory(), [1, 5, 7], 7))
    assert said == plainly(model, [1, 5, 7], 7)
    # Rooms for 4, 8 and 12 tokens; every other pass of the user is played.
    ways = [was_played for me, was_played, _ in played if me == "user"]
    assert ways == [False, False, True, True, True, False]


def test_the_memory_of_a_recording_is_gone_before_the_next_is_made(played, monkeypatch):
    """A card has no room for many, and passes are made while no cycles are collected."""
    monkeypatch.setattr("tacit.llm.sealed.passes.ROOM", 4)
    kinds = (recording.Recording, recorded_dealing.RecordedDealing)
    made = {kind: [] for kind in kinds}

    def noting(kind, original):
        def init(self, *args, tape, **kwargs):  # every party has a tape of its own
            assert all(one() is None for of, one in made[kind] if of is tape)
            original(self, *args, tape=tape, **kwargs)
            kept = self._draws if kind is kinds[1] else self
            made[kind].append((tape, weakref.ref(kept)))

        return init

    for kind in kinds:
        monkeypatch.setattr(kind, "__init__", noting(kind, kind.__init__))
    gc.disable()
    try:
        model = tiny("llama", seed=2, layers=1)
        as_user(model, lambda client: say(client, SealedMemory(), [1, 5, 7], 6))
    finally:
        gc.enable()
    assert [len(made[kind]) for kind in kinds] == [4, 2]


@pytest.mark.slow
def test_a_session_on_dealt_material_is_recorded_as_well(played, tmp_path):
    model = tiny("llama", seed=2, layers=1)
    path, vault, _ = deal(model, tmp_path, prompt=3, tokens=4)
    said, _ = talk_alone(
        model, vault, path, lambda client: say(client, SealedMemory(), [1, 5, 7], 4)
    )
    assert said == plainly(model, [1, 5, 7], 4)
    assert [was_played for me, was_played, _ in played if me == "user"] == [False, True, True]


def test_every_message_is_what_it_is_without_a_recording(played, monkeypatch):
    """With the same generators: so transcripts and costs of `sealed` hold for recorded passes."""
    model = tiny("llama", seed=2, layers=1)

    def alike(session, job_digest):
        pairs = {peer: "".join(sorted((session.me, peer))) for peer in session.peers}
        return {peer: Prg(sha256(pair.encode()).digest()[:16]) for peer, pair in pairs.items()}

    def listen(to_record):
        sent, original = {}, Session.send
        if not to_record:
            monkeypatch.setattr(table, "recorder_on", lambda *_: None)
            monkeypatch.setattr(table, "dealing_on", lambda *_: None)

        def send(self, to, tag, values, **how):
            if tag.startswith(("run/", "deal/")):
                sent[self.me, to, tag] = values.clone()
            return original(self, to, tag, values, **how)

        with monkeypatch.context() as patch:
            patch.setattr("tacit.party.session._pair_generators", alike)
            patch.setattr(Session, "send", send)
            as_user(model, lambda client: say(client, SealedMemory(), [1, 5, 7], 4))
        return sent

    with_recording, without = listen(to_record=True), listen(to_record=False)
    assert any(was_played for _, was_played, _ in played)
    assert with_recording.keys() == without.keys()
    assert all(torch.equal(with_recording[one], without[one]) for one in without)


def test_material_is_used_once(played, monkeypatch):
    model = tiny("llama", seed=2, layers=1)
    original = recording.Recording.load
    loads = []

    def forgetful(self, material, given):
        if not loads.count(self.session.me) > 1:
            original(self, material, given)
        loads.append(self.session.me)

    monkeypatch.setattr(recording.Recording, "load", forgetful)
    with pytest.raises(TacitError, match="masks are used once"):
        as_user(model, lambda client: say(client, SealedMemory(), [1, 5, 7], 5))


def test_a_step_that_draws_while_it_runs_is_not_recorded(monkeypatch):
    """What both parties draw for an outside receiver would be the same words in every run."""
    patch_numpy(monkeypatch)

    def program(ops):
        x = ops.input("x", owner=ALICE, shape=(3,), bound=4.0)
        ops.open(ops.scale(x, 2.0), to=(CAROL,), what="y", why="test")

    plan = make_plan(program, PROTOCOLS["sealed"], ROLES, frac_bits=16)

    def party(session):
        if session.me == CAROL:
            return attend(session, plan, run=session.begin_run(), inputs={})
        recorder = Recorder(session, torch.device("cpu"), tape=OperationTape)
        now = Next(plan, session.begin_run())
        facts = {"inputs": {"x": torch.ones(3).double()}, "told": {}, "cache": OpeningCache()}
        return recorder.compute(now, program, **facts)

    with pytest.raises(TacitError, match="draws while it runs"):
        run_threads(dict.fromkeys((ALICE, BOB, CAROL), party), HARNESS)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("reveal", ["token", "sample"])
def test_tokens_on_a_card_are_the_plain_ones(family, reveal):
    model = tiny(family, seed=2, layers=1)
    others = {"temperature": 0.0} if reveal == "sample" else {}

    def talk(client):
        one, other = SealedMemory(), SealedMemory()
        first = say(client, one, [1, 5, 7], 16, **others)
        second = say(client, other, [9, 4, 2], 3, **others)
        return first, second

    (first, second), _ = as_user(model, talk, reveal=reveal, device="cuda")
    assert first == plainly(model, [1, 5, 7], 16)
    assert second == plainly(model, [9, 4, 2], 3)
