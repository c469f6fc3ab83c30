"""No key is a user here and a dealer there, in the jobs of one owner on one machine."""

import json

import pytest

from support.machine import full_disk
from tacit.errors import ConfigError, InputError
from tacit.llm.backend.chat_file import ChatParty, load_chat, write_chat
from tacit.llm.backend.serving import enrol


def key(letter):
    return f"sha256:{letter * 64}"


@pytest.fixture
def job(tmp_path):
    def write(name, *, user, dealer):
        keys = {"owner": "0", "user": user, "dealer": dealer}
        path = tmp_path / f"{name}.toml"
        entries = {
            role: ChatParty(address="127.0.0.1:4000", key=key(letter))
            for role, letter in keys.items()
        }
        write_chat(path, entries)
        return {path: load_chat(path)}

    return write


def test_one_dealer_may_serve_many_users(tmp_path, job):
    jobs = job("alice", user="a", dealer="d") | job("bob", user="b", dealer="d")
    enrol(jobs, tmp_path)
    enrol(jobs, tmp_path)
    names = json.loads((tmp_path / "owner.roles").read_bytes())["tacit roster"]
    assert sorted(names) == [f"dealer {key('d')}", f"user {key('a')}", f"user {key('b')}"]
    assert (tmp_path / "owner.roles").stat().st_mode & 0o077 == 0


def test_a_user_who_deals_for_another_is_refused(tmp_path, job):
    jobs = job("alice", user="a", dealer="b") | job("bob", user="b", dealer="d")
    with pytest.raises(ConfigError, match=r"is the user in .*bob.toml and the dealer in .*alice"):
        enrol(jobs, tmp_path)
    assert not (tmp_path / "owner.roles").exists()


@pytest.mark.parametrize("is_user_first", [True, False])
def test_it_is_refused_when_the_two_jobs_are_served_at_different_times(
    tmp_path, job, is_user_first
):
    both = job("bob", user="b", dealer="d"), job("alice", user="a", dealer="b")
    first, second = both if is_user_first else both[::-1]
    enrol(first, tmp_path)
    with pytest.raises(ConfigError, match=r"owner\.roles"):
        enrol(second, tmp_path)
    enrol(first, tmp_path)


def test_who_is_two_of_three_in_one_job_is_refused(job):
    for user, dealer in (("a", "a"), ("0", "d"), ("a", "0")):
        with pytest.raises(ConfigError, match=r"is the same as that of"):
            job("alice", user=user, dealer=dealer)


def test_a_folder_that_cannot_be_written_is_said(tmp_path, job):
    with pytest.raises(InputError, match="must be there and writable"):
        enrol(job("alice", user="a", dealer="d"), tmp_path / "none")


def test_what_a_full_disk_did_not_take_is_noted_the_next_time(tmp_path, job, monkeypatch):
    jobs = job("bob", user="b", dealer="d")
    with monkeypatch.context() as patch:
        full_disk(patch, "fsync")
        with pytest.raises(InputError, match="No space left"):
            enrol(jobs, tmp_path)
    enrol(jobs, tmp_path)
    with pytest.raises(ConfigError, match=r"owner\.roles"):
        enrol(job("alice", user="a", dealer="b"), tmp_path)


@pytest.mark.parametrize(
    "damaged",
    [b"user sha256:a\n", b"{}", b"\xff\xfe\n", b'{"tacit quota": {"a": 1}}'],
    ids=["of 0.2", "no roster", "no text", "a quota"],
)
def test_a_damaged_list_is_refused_and_forgets_nobody(tmp_path, job, damaged):
    (tmp_path / "owner.roles").write_bytes(damaged)
    with pytest.raises(InputError, match="damaged"):
        enrol(job("alice", user="a", dealer="d"), tmp_path)
    assert (tmp_path / "owner.roles").read_bytes() == damaged
