"""No key is a user here and a dealer there, in the jobs of one owner on one machine."""

import os

import pytest

from tacit.errors import ConfigError
from tacit.llm.backend.chat_file import ChatParty, load_chat, write_chat
from tacit.llm.backend.roster import enrol


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
    lines = (tmp_path / "owner.roles").read_text().split("\n")
    lines = [line for line in lines if line]
    assert lines == [f"dealer {key('d')}", f"user {key('a')}", f"user {key('b')}"]
    assert (tmp_path / "owner.roles").stat().st_mode & 0o077 == 0


def test_a_user_who_deals_for_another_is_refused(tmp_path, job):
    jobs = job("alice", user="a", dealer="b") | job("bob", user="b", dealer="d")
    with pytest.raises(ConfigError, match=r"is the user in .*bob.toml and the dealer in .*alice"):
        enrol(jobs, tmp_path)
    assert (tmp_path / "owner.roles").read_text() == ""


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
    with pytest.raises(ConfigError, match="must be writable"):
        enrol(job("alice", user="a", dealer="d"), tmp_path / "none")


@pytest.mark.parametrize("room", [0, 40, 150])
def test_what_a_full_disk_did_not_take_is_noted_the_next_time(tmp_path, job, monkeypatch, room):
    jobs, real = job("bob", user="b", dealer="d"), os.write
    with monkeypatch.context() as full:
        full.setattr(os, "write", lambda held, text: real(held, text[:room]))
        with pytest.raises(ConfigError, match="no room"):
            enrol(jobs, tmp_path)
    enrol(jobs, tmp_path)
    with pytest.raises(ConfigError, match=r"owner\.roles"):
        enrol(job("alice", user="a", dealer="b"), tmp_path)
