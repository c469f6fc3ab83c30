"""Sessions on material that was dealt before: values, costs, and all who would use it twice."""

import os
import shutil
import tracemalloc
from dataclasses import replace

import pytest
import torch

from support.crypto import complaints
from support.llm import TWO, among_three, as_user, deal, plainly, say, talk_alone, tiny
from support.mpc import Wiretap
from tacit.errors import ConfigError, DataError, DisagreementError, FrameError, RangeError
from tacit.llm import Sampling
from tacit.llm.permuted import Account
from tacit.llm.sealed import (
    Schedule,
    SealedClient,
    SealedMemory,
    open_sealed_vault,
    plan_passes,
)
from tacit.llm.sealed import dealing as dealing_module
from tacit.llm.sealed import schedule as schedule_module
from tacit.llm.sealed.dealt import DealtTable, serve_dealt_owner
from tacit.mpc.material.offline import TAG_BYTES, Material, MaterialFacts, open_material
from tacit.party import run_threads

MODEL = tiny("llama", seed=2, layers=1)
PROMPT = [1, 5, 7]


def answering(prompt=PROMPT, limit=3):
    return lambda client: say(client, SealedMemory(), prompt, limit)


@pytest.mark.parametrize(
    "family", ["llama", "gpt2", pytest.param("gemma3", marks=pytest.mark.slow)]
)
def test_tokens_are_the_plain_ones_turn_after_turn_and_back(tmp_path, family):
    model = tiny(family, seed=2, layers=2)
    path, vault, _ = deal(model, tmp_path, prompt=6, tokens=11)

    def talk(client):
        memory, other = SealedMemory(), SealedMemory()
        first = say(client, memory, PROMPT, 3)
        memory.rewind(4)  # what was read behind it is void
        return first, say(client, memory, [9, 3], 2), say(client, other, [2], 2)

    (first, second, third), _ = talk_alone(model, vault, path, talk)
    assert first == plainly(model, PROMPT, 3)
    assert second == plainly(model, [*PROMPT, first[0], 9, 3], 2)
    assert third == plainly(model, [2], 2)


@pytest.mark.parametrize("length", [1, 2, 3, 5, 7], ids=lambda one: f"{one} of 5")
def test_a_prompt_of_any_length_fits_the_chunks_that_were_dealt_for(tmp_path, monkeypatch, length):
    monkeypatch.setattr(schedule_module, "CHUNK", 2)
    path, vault, _ = deal(MODEL, tmp_path, prompt=5, tokens=5)
    prompt = [1, 5, 7, 9, 3, 8, 2][:length]
    said, leaks = talk_alone(MODEL, vault, path, answering(prompt, 2))
    assert said == plainly(MODEL, prompt, 2)
    # Beyond what was dealt for in chunks, a token is shown behind each that is read.
    shown = sum(leak.elements for leak in leaks if leak.what == "the next token")
    assert shown == 2 + max(0, length - 5)


def test_a_prompt_that_is_left_between_two_passes_can_be_asked_again(tmp_path, monkeypatch):
    monkeypatch.setattr(schedule_module, "CHUNK", 2)
    path, vault, _ = deal(MODEL, tmp_path, prompt=5, tokens=9)
    prompt = [1, 5, 7, 9, 3]

    def leave():
        raise ConnectionAbortedError

    def talk(client):
        memory = SealedMemory()
        with pytest.raises(ConnectionAbortedError):
            list(client.generate(memory, prompt, Sampling(), limit=2, between=leave))
        return say(client, memory, prompt[len(memory.read) :], 2)

    assert talk_alone(MODEL, vault, path, talk)[0] == plainly(MODEL, prompt, 2)


def test_nobody_else_learns_more_than_with_a_dealer_in_the_session(tmp_path):
    path, vault, _ = deal(MODEL, tmp_path)
    _, alone = talk_alone(MODEL, vault, path, answering())
    _, online = as_user(MODEL, answering())
    facts = [(one.to, one.what, one.elements) for one in alone]
    assert set(facts) == {(one.to, one.what, one.elements) for one in online if one.to != "dealer"}


def test_the_dealers_noise_is_dealt_ahead_and_its_tokens_are_samples(tmp_path):
    path, vault, _ = deal(MODEL, tmp_path, reveal="sample")
    greedy, hot = SealedMemory(), SealedMemory()

    def talk(client):
        cold = say(client, greedy, PROMPT, 2)
        return cold, say(client, hot, [4], 2, temperature=2.0)

    (cold, warm), _ = talk_alone(MODEL, vault, path, talk, reveal="sample")
    assert cold == plainly(MODEL, PROMPT, 2)
    assert all(0 <= token < MODEL.architecture.vocab for token in warm)


@pytest.mark.parametrize("reveal", ["token", "sample"])
def test_a_file_has_the_forecast_bytes_and_the_meter_counted_them(tmp_path, reveal):
    path, vault, (costs, foretold) = deal(MODEL, tmp_path, prompt=4, tokens=20, reveal=reveal)
    ((size, passes),) = foretold
    assert passes == 21
    assert path.stat().st_size == size
    metered = [
        one for one in costs["dealer"].traffic if (one.sender, one.phase) == ("dealer", "offline")
    ]
    assert {one.receiver for one in metered} == {"user"}
    dealt, messages = (
        sum(getattr(one, what) for one in metered) for what in ("payload_bytes", "messages")
    )
    head = size - dealt - TAG_BYTES * messages
    assert 0 < head < 512
    (own,) = vault.material.glob("*.material")
    assert own.stat().st_size < 512


def test_what_the_user_keeps_is_uniform_given_its_key(tmp_path):
    vault = open_sealed_vault(MODEL)
    path, _, _ = deal(MODEL, tmp_path, vault=vault, prompt=24, tokens=1)
    looks = []
    original = Material.read

    def noting(self, label, count):
        words = original(self, label, count)
        looks.append(words.reshape(-1, 1))
        return words

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Material, "read", noting)
        talk_alone(MODEL, vault, path, answering([1] * 24, 1))
    large = [words for words in looks if len(words) >= 2048]
    assert len(large) >= 10
    for words in large:
        assert complaints(words) == []


def test_the_owner_is_sent_nothing_but_sizes_when_it_is_dealt_for(tmp_path):
    _, _, (costs, _) = deal(MODEL, tmp_path)
    sent = [one for one in costs["dealer"].traffic if one.receiver == "owner"]
    assert {one.phase for one in sent} == {"setup"}


def test_what_is_dealt_for_other_sizes_is_refused_before_anybody_is_asked(tmp_path):
    for wrong in ({"prompt": 60, "tokens": 5}, {"prompt": 0}, {"tokens": 0}):
        with pytest.raises(ConfigError):
            deal(MODEL, tmp_path, **wrong)
    with pytest.raises(ConfigError, match="both directions"):
        deal(tiny("chatglm", layers=1), tmp_path)
    assert not (tmp_path / "user").exists()


def test_a_full_disk_is_noticed_before_anything_is_dealt(tmp_path, monkeypatch):
    usage = shutil.disk_usage(tmp_path)._replace(free=1000)
    monkeypatch.setattr(dealing_module.shutil, "disk_usage", lambda folder: usage)
    with pytest.raises(DataError, match="1,000 are free"):
        deal(MODEL, tmp_path)
    assert list((tmp_path / "user").iterdir()) == []


def test_a_dealing_that_breaks_off_leaves_no_file_at_either_side(tmp_path, monkeypatch):
    original = dealing_module.store

    def breaking(session, plan, *, run, writer):
        if run == 2:
            raise OSError(28, "No space left on device")
        original(session, plan, run=run, writer=writer)

    monkeypatch.setattr(dealing_module, "store", breaking)
    with pytest.raises(DataError, match="No space left"):
        deal(MODEL, tmp_path)
    assert [one for one in tmp_path.rglob("*") if one.is_file()] == []


def test_an_answer_ends_where_the_material_does_and_the_next_is_refused(tmp_path):
    path, vault, _ = deal(MODEL, tmp_path, prompt=3, tokens=2)

    def talk(client):
        memory = SealedMemory()
        client._on_empty = lambda: empty.append(True)
        said = say(client, memory, PROMPT, 9)
        with pytest.raises(DataError, match="enough for 0 more"):
            say(client, memory, [4], 1)
        return said

    empty = []
    said, _ = talk_alone(MODEL, vault, path, talk)
    assert said == plainly(MODEL, PROMPT, 3)
    assert empty == [True]


def test_a_pass_out_of_range_is_void_and_the_session_goes_on(tmp_path, monkeypatch):
    path, vault, _ = deal(MODEL, tmp_path)
    original, strange = SealedClient._check_range, [1]

    def once(self, counts):
        if strange:
            strange.pop()
            raise RangeError("a row was too long")
        original(self, counts)

    monkeypatch.setattr(SealedClient, "_check_range", once)

    def talk(client):
        memory = SealedMemory()
        with pytest.raises(RangeError):
            say(client, memory, [9, 9, 9], 1)
        return say(client, memory, PROMPT, 2)

    said, _ = talk_alone(MODEL, vault, path, talk)
    assert said == plainly(MODEL, PROMPT, 2)


# Attacks: two values under one mask tell their difference, so no file may serve twice.


def test_a_user_that_restores_its_file_is_refused_by_the_owners_own_record(tmp_path):
    path, vault, _ = deal(MODEL, tmp_path)
    copy = path.with_name("copy.material")
    shutil.copy2(path, copy)
    talk_alone(MODEL, vault, path, answering())
    with pytest.raises(DisagreementError, match="used already"):
        talk_alone(MODEL, vault, copy, answering([2, 2, 2]))


def test_an_owner_that_restores_its_file_is_refused_by_the_users_own_record(tmp_path):
    path, vault, _ = deal(MODEL, tmp_path)
    (own,) = vault.material.glob("*.material")
    kept = own.read_bytes()
    talk_alone(MODEL, vault, path, answering())
    own.write_bytes(kept)
    own.with_name(own.name + ".used").unlink()
    with pytest.raises(DataError, match="used already"):
        talk_alone(MODEL, vault, path, answering([2, 2, 2]))


@pytest.mark.parametrize("who", ["owner", "user"])
def test_a_session_that_breaks_off_has_used_the_files_at_both_sides(tmp_path, monkeypatch, who):
    path, vault, _ = deal(MODEL, tmp_path)
    original = DealtTable.compute

    def breaking(self, step, inputs, kept):
        if self.session.me == who and step.past > 0:
            raise RuntimeError("the machine stops")
        return original(self, step, inputs, kept)

    with monkeypatch.context() as patch:
        patch.setattr(DealtTable, "compute", breaking)
        with pytest.raises(RuntimeError):
            talk_alone(MODEL, vault, path, answering())
    (own,) = vault.material.glob("*.material")
    for file, me in ((path, "user"), (own, "owner")):
        with pytest.raises(DataError, match="used already"), open_material(file, me=me):
            pass


def test_a_meeting_that_comes_to_nothing_leaves_the_files_fresh(tmp_path):
    path, vault, _ = deal(MODEL, tmp_path)
    other = open_sealed_vault(tiny("llama", seed=2, layers=1, ffn=32))
    other.material = vault.material
    with pytest.raises(DisagreementError, match="another model"):
        talk_alone(MODEL, other, path, answering())
    said, _ = talk_alone(MODEL, vault, path, answering())
    assert said == plainly(MODEL, PROMPT, 3)


def test_files_that_were_not_dealt_together_are_refused_and_stay_fresh(tmp_path):
    path, vault, _ = deal(MODEL, tmp_path / "one")
    _, stranger, _ = deal(MODEL, tmp_path / "two")
    with pytest.raises(DisagreementError, match="never dealt with this owner"):
        talk_alone(MODEL, stranger, path, answering())
    (mine,), (theirs,) = (one.material.glob("*.material") for one in (vault, stranger))
    kept = mine.read_bytes()
    mine.write_bytes(theirs.read_bytes())  # under the name that the user asks for
    with pytest.raises(DisagreementError, match="another material"):
        talk_alone(MODEL, vault, path, answering())
    mine.write_bytes(kept)
    assert talk_alone(MODEL, vault, path, answering())[0] == plainly(MODEL, PROMPT, 3)


def test_an_owner_whose_bounds_have_changed_does_not_use_what_was_dealt(tmp_path):
    path, vault, _ = deal(MODEL, tmp_path)
    vault.bounds = {name: 2 * bound for name, bound in vault.bounds.items()}
    with pytest.raises(DataError, match="other bounds"):
        talk_alone(MODEL, vault, path, answering())
    assert not path.with_name(path.name + ".used").exists()


def test_two_chats_on_one_file_at_once_are_one_too_many(tmp_path):
    path, vault, _ = deal(MODEL, tmp_path)
    os.link(path, tmp_path / "other name")
    with open_material(path, me="user"), pytest.raises(DataError, match="in use"):
        talk_alone(MODEL, vault, tmp_path / "other name", answering())


def test_a_truncated_file_is_refused_and_the_owners_stays_fresh(tmp_path):
    path, vault, _ = deal(MODEL, tmp_path)
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 1)
    with pytest.raises(DataError, match="damaged"):
        talk_alone(MODEL, vault, path, answering())
    assert list(vault.material.glob("*.used")) == []


def ask_alone(path, vault, ask):
    """Run a user that says what it likes once the files are begun."""

    def use(session):
        with open_material(path, me="user") as material:
            ask(SealedClient(session, MODEL.architecture, material=material)._table)

    programs = {"owner": lambda session: serve_dealt_owner(session, vault), "user": use}
    run_threads(programs, TWO)


@pytest.mark.parametrize("words", [[0, 4], [0, -1], [-2, 0], [1, 0], [99, 0]], ids=str)
def test_a_user_that_asks_for_slots_that_are_not_there_is_refused(tmp_path, words):
    path, vault, _ = deal(MODEL, tmp_path)

    def ask(table):
        table.session.send("owner", "llm/pass", torch.tensor(words))
        table.session.recv("owner", "llm/answer", (1,))

    with pytest.raises(FrameError, match=r"void tokens"):
        ask_alone(path, vault, ask)


def test_an_owner_keeps_the_keys_of_so_many_sessions_and_no_more(tmp_path, monkeypatch):
    monkeypatch.setattr(dealing_module, "_MOST_UNUSED", 1)
    path, vault, _ = deal(MODEL, tmp_path)
    path.rename(tmp_path / "first")
    with pytest.raises(FrameError, match="use it first"):
        deal(MODEL, tmp_path, vault=vault)


def test_an_identity_that_an_owner_knows_is_not_dealt_for_again(tmp_path, monkeypatch):
    known = Schedule(prompt=4, tokens=6)
    monkeypatch.setattr(schedule_module, "_draw_identity", lambda: known.identity)
    path, vault, _ = deal(MODEL, tmp_path)
    talk_alone(MODEL, vault, path, answering())
    for file in (path, path.with_name(path.name + ".used")):
        file.unlink()
    with pytest.raises(DataError, match="exists, or was used"):
        deal(MODEL, tmp_path, vault=vault)


def test_one_identity_is_dealt_for_once_in_a_session_whatever_the_sizes(tmp_path):
    """The identity makes the keys: a user read differences of masks off two dealings."""

    def ask(client):
        first = Schedule(prompt=4, tokens=1)
        client.fetch_material(first, tmp_path / "one.material")
        client.fetch_material(replace(first, prompt=3), tmp_path / "two.material")

    vault, sent = open_sealed_vault(MODEL).for_user(None, tmp_path / "owner"), []

    def wrap(me, link):
        return Wiretap(link, [], sent) if me == "dealer" else link

    with pytest.raises(FrameError, match="in this session already"):
        among_three(MODEL, ask, vault=vault, wrap=wrap)
    tags = [tag for tag, _ in sent if tag.startswith("deal/")]
    assert len(tags) == len(set(tags)) > 20


def test_material_is_dealt_in_the_midst_of_a_chat_that_has_ordered_a_token(tmp_path):
    def talk(client):
        memory = SealedMemory()
        answer = client.generate(memory, PROMPT, Sampling(), limit=4)
        first = [next(answer), next(answer)]
        answer.close()  # the third token was ordered already
        client.fetch_material(Schedule(prompt=3, tokens=1), tmp_path / "mine" / "chat.material")
        return [*first, *say(client, memory, first[-1:], 1)]

    vault = open_sealed_vault(MODEL).for_user(None, tmp_path / "owner")
    said, leaks = as_user(MODEL, talk, vault=vault)
    assert said == plainly(MODEL, PROMPT, 3)
    assert {leak.to for leak in leaks if "material was dealt" in leak.what} == {"owner", "dealer"}


@pytest.mark.parametrize(
    ("about", "identity"), [("99999999999 1", "5"), ("0 1", "5"), ("1 1", "f" * 32), ("1 1", "-1")]
)
def test_a_header_with_sizes_that_cannot_be_is_refused_before_it_is_planned(about, identity):
    facts = MaterialFacts(identity=identity, party="user", plans="", about=about, body_bytes=0)
    with pytest.raises(DataError, match="not that of a sealed chat"):
        schedule_module.read_about(facts)


def test_an_owner_without_a_folder_deals_with_nobody(tmp_path):
    vault = open_sealed_vault(MODEL)
    with pytest.raises(FrameError, match="does not keep"):
        deal(MODEL, tmp_path, vault=vault, folder=None)


def test_no_generator_of_a_file_is_used_twice_in_two_dealings_of_a_session(tmp_path):
    """Two files of one session, or of two, share no word."""
    one, _, _ = deal(MODEL, tmp_path / "one")
    two, _, _ = deal(MODEL, tmp_path / "two")
    left, right = (path.read_bytes()[-4000:] for path in (one, two))
    # 4,000 uniform bytes agree in 45 places or more with chance below 1e-9.
    assert sum(a == b for a, b in zip(left, right, strict=True)) < 45


def test_no_run_of_a_file_is_used_twice(tmp_path):
    path, vault, _ = deal(MODEL, tmp_path)
    numbers = []
    original = Material.run

    def noting(self, number):
        numbers.append((self.facts.party, number))
        return original(self, number)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Material, "run", noting)
        talk_alone(MODEL, vault, path, answering())
    assert len(set(numbers)) == len(numbers) == 6


@pytest.mark.parametrize("who", ["owner", "dealer"])
def test_plans_that_memory_has_no_room_for_are_refused_before_they_are_made(tmp_path, who):
    """Six words of a user: of 32 layers they would ask for a gigabyte at each of the two."""
    few = Account(most=1_000_000)
    vault = open_sealed_vault(MODEL).for_user(few if who == "owner" else None, tmp_path)
    account = few if who == "dealer" else None

    def ask(client):
        client.fetch_material(Schedule(prompt=30, tokens=30), tmp_path / "user.material")

    with pytest.raises(FrameError, match=r"'user'.*is the most"):
        among_three(MODEL, ask, vault=vault, account=account)
    assert few.used == 0
    assert list(tmp_path.glob("*.material")) == []


def test_what_plans_take_is_no_more_than_is_counted():
    vault, schedule = open_sealed_vault(tiny("gemma3", layers=2)), Schedule(prompt=20, tokens=20)
    tracemalloc.start()
    plans = plan_passes(vault, schedule.passes()[:4])
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    most = schedule.plan_bytes(vault.architecture) / 5  # one chunk, three rooms, one to spare
    assert taken < most * len(plans)


def test_nobody_plans_for_more_tokens_than_a_file_is_dealt_for():
    """Six words of a user would otherwise be gigabytes of plans at owner and dealer."""
    model = replace(MODEL.architecture, context=131072)
    words = Schedule(prompt=1, tokens=schedule_module.MOST_TOKENS).words()
    with pytest.raises(FrameError, match="4096 that a file is dealt for"):
        schedule_module.read_schedule(words, sender="user", architecture=model)
