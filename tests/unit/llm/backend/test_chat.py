"""A chat from Python: the same words wherever the parties are, and what each side learned."""

import threading

import pytest

from support.llm import write_model
from support.machine import free_port
from tacit.crypto import make_identity
from tacit.errors import ConfigError, FrameError
from tacit.llm import ChatProtocol, Sampling, chat
from tacit.llm.backend import programs
from tacit.llm.backend.chat_file import ROLES, ChatParty, write_chat
from tacit.llm.backend.serving import serve_once


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("models") / "tiny")


def said(model, *texts, limit=3, **how):
    with chat(model, limit=limit, **how) as talk:
        return [str(talk.say(text)) for text in texts]


@pytest.mark.parametrize("protocol", ["permuted", "sealed"])
def test_every_protocol_says_what_the_plain_model_says(model, protocol):
    texts, limit = (("hi", "again"), 3) if protocol == "permuted" else (("hi",), 1)
    heard = said(model, *texts, limit=limit, protocol=protocol)
    assert heard == said(model, *texts, limit=limit, protocol="plain")


@pytest.mark.slow
def test_owner_and_dealer_may_be_processes(model):
    assert said(model, "hello", parties="processes") == said(model, "hello", protocol="plain")


def test_a_chat_tells_what_it_cost_and_what_each_side_learned(model):
    with chat(model, limit=4) as talk:
        first = talk.say("hello")
        assert list(first)
        before = talk.spent
        assert before.payload_bytes >= first.receipt.prompt_spent.payload_bytes > 0
        assert before.round_trips > 0
        assert before.offline_bytes > 0
        assert set(talk.learned) == {"user", "owner", "dealer"}
        assert any("how many tokens" in leak.what for leak in talk.learned["owner"])
        assert "no guarantee" in " ".join(claim.guarantee for claim in talk.claims)
        talk.say("again").receipt  # noqa: B018 - reads the answer
        assert talk.spent.payload_bytes > before.payload_bytes
        assert [one.role for one in talk.messages] == ["user", "assistant"] * 2


def test_an_answer_that_is_left_ends_there_and_the_talk_goes_on(model):
    with chat(model, limit=9) as talk:
        left = talk.say("hello")
        piece = next(iter(left))
        assert str(talk.say("again"))
        assert talk.messages[1].content == piece
        with pytest.raises(RuntimeError, match="left before its end"):
            left.receipt  # noqa: B018 - reading it is the test


def test_an_answer_that_is_open_when_the_chat_ends_is_closed_first(model):
    with chat(model, limit=9) as talk:
        left = iter(talk.say("hello"))
        piece = next(left)
    assert list(left) == []
    assert [one.content for one in talk.messages] == ["hello", piece]


def test_an_error_of_ours_leaves_no_step_in_the_air(model):
    def fail(answer):
        next(answer)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), chat(model, limit=9) as talk:
        fail(left := iter(talk.say("hello")))
    assert list(left) == []


def test_the_cause_is_told_and_not_that_somebody_went_away(model, monkeypatch):
    def refuse(session, vault):
        raise FrameError("user", "is not welcome")

    monkeypatch.setattr(programs, "serve_owner", refuse)
    with pytest.raises(FrameError, match="is not welcome"), chat(model):
        pass


def test_what_the_protocol_does_not_offer_is_refused_before_a_model_is_read(model, monkeypatch):
    monkeypatch.setattr("tacit.llm.backend.chat.open_checkpoint", None)
    with (
        pytest.raises(ConfigError, match="--counts"),
        chat(model, sampling=Sampling(repetition_penalty=2.0)),
    ):
        pass


def free_address():
    return f"127.0.0.1:{free_port()}"


def test_a_chat_file_and_keys_are_enough_between_hosts(model, tmp_path):
    parties = {
        role: ChatParty(
            key=make_identity(role, tmp_path / role).fingerprint, address=free_address()
        )
        for role in ROLES
    }
    job, failed = tmp_path / "chat.toml", []
    write_chat(job, parties)

    def serve(role):
        try:
            serve_once(
                job,
                role,
                model=model if role == "owner" else None,
                keys=tmp_path / role,
                protocol=ChatProtocol(name="sealed"),
                note=lambda text: None,
            )
        except Exception as error:  # shown by the assertion below
            failed.append(error)

    threads = [threading.Thread(target=serve, args=(role,)) for role in ("owner", "dealer")]
    for thread in threads:
        thread.start()
    heard = said(model, "hello", parties=job, keys=tmp_path / "user")
    for thread in threads:
        thread.join(60)
    assert failed == []
    assert heard == said(model, "hello", protocol="plain")


def test_a_key_that_the_file_does_not_know_is_refused(model, tmp_path):
    parties = {
        role: ChatParty(key=make_identity(role, tmp_path / role).fingerprint) for role in ROLES
    }
    write = {role: ChatParty(key=one.key, address=free_address()) for role, one in parties.items()}
    write_chat(tmp_path / "chat.toml", write)
    make_identity("user", tmp_path / "other")
    with pytest.raises(ConfigError, match="the chat knows 'user' by the key"):
        said(model, "hello", parties=tmp_path / "chat.toml", keys=tmp_path / "other")
