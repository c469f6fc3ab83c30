"""A real chat service in this process, a user that does its worst, and one that is served all the
same: nothing that a user sends ends it, and nothing of a user that is gone is kept."""

import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
import torch

from support.llm import write_model
from support.machine import free_ports, no_collector, unread_bytes
from tacit.crypto import make_identity
from tacit.errors import PartyError
from tacit.llm import ChatProtocol, Sampling, hear
from tacit.llm.backend import serving as the_module
from tacit.llm.backend.chat_file import load_chat
from tacit.llm.backend.serving import ChatSeat, serve_many
from tacit.llm.permuted import Ahead, Client, Conversation
from tacit.llm.permuted.messages import RUN
from tacit.llm.sealed import SealedClient, SealedMemory
from tacit.party import Progress, joined
from tacit.transport import Frame
from tacit.transport.frame import DATA, HEADER, make_head

USERS = ("alice", "mallory")
HONEST = [3, 1, 4, 1, 5]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("models") / "tiny")


def write_jobs(folder):
    """Write a job per user; owner and dealer are the same in both."""
    common = {role: make_identity(role, folder / role).fingerprint for role in ("owner", "dealer")}
    jobs = {}
    for user in USERS:
        lines = ["[network]", "connect_s = 20"]
        for role, port in zip(common, free_ports(2), strict=True):
            lines += [f"[parties.{role}]", f'key = "{common[role]}"']
            lines += [f'address = "127.0.0.1:{port}"']
        key = make_identity("user", folder / user).fingerprint
        lines += ["[parties.user]", f'key = "{key}"']
        jobs[user] = folder / f"{user}.toml"
        jobs[user].write_text("\n".join(lines))
    return jobs


@dataclass
class Service:
    """A running service: owner and dealer of both users."""

    folder: object
    jobs: dict
    protocol: ChatProtocol
    programs: dict = field(default_factory=lambda: {"owner": [], "dealer": []})
    notes: list = field(default_factory=list)
    ended: list = field(default_factory=list)

    @contextmanager
    def session(self, user, connect_s=20.0):
        """Meet owner and dealer as a user, up to where the model is known."""
        job = load_chat(self.jobs[user])
        seat = ChatSeat(
            job=job,
            me="user",
            identity=the_module.own_identity(job, "user", self.folder / user),
            listener=None,
            connect_s=connect_s,
        )
        with joined(
            "user",
            seat.meeting(),
            peers=job.peers("user"),
            identity=seat.identity,
            listener=None,
            progress=Progress(),
        ) as session:
            self.protocol.agree(session)
            yield session, hear(session, "owner")

    def ask(self, user, limit=4):
        """Ask as an honest user does, and leave in good order."""
        with self.session(user) as (session, architecture):
            if self.protocol.is_sealed:
                client = SealedClient(session, architecture)
                said = list(client.generate(SealedMemory(), HONEST, Sampling(), limit=limit))
                client.leave()
            else:
                client = Client(session, architecture, counts=self.protocol.counts)
                talk = Conversation(client)
                said = list(talk.generate(HONEST, best, limit=limit))
                talk.close()
                client.close()
            session.finish()
        return said

    def vault(self, user):
        return self.programs["owner"][USERS.index(user)].vault

    def account(self, role, user):
        program = self.programs[role][USERS.index(user)]
        return program.vault.account if role == "owner" else program.account


def best(scores):
    return int(scores.argmax())


@contextmanager
def serving(folder, model, monkeypatch, *, memory_bytes=None, **chosen):
    protocol = ChatProtocol(**chosen)
    service = Service(folder, write_jobs(folder), protocol)
    monkeypatch.setattr(the_module, "_WAIT_S", 60.0)
    monkeypatch.setattr(the_module, "_RETRY_S", 0.01)
    monkeypatch.setattr(the_module, "_LONGEST_RETRY_S", 0.02)
    monkeypatch.setattr(the_module, "_GLANCE_S", 0.05)
    make_program, stop = the_module._program, threading.Event()

    def watched(role, *rest, **how):
        make = make_program(role, *rest, **how)

        def made(account, folder):
            service.programs[role].append(make(account, folder))
            return service.programs[role][-1]

        return made

    monkeypatch.setattr(the_module, "_program", watched)

    def run(role):
        try:
            serve_many(
                list(service.jobs.values()),
                role,
                model=model,
                keys=folder / role,
                protocol=protocol,
                note=service.notes.append,
                memory_bytes=memory_bytes,
                stop=stop,
            )
        except BaseException as error:
            service.ended.append((role, error))

    threads = [threading.Thread(target=run, args=(role,)) for role in ("owner", "dealer")]
    for thread in threads:
        thread.start()
    try:
        yield service
    finally:
        stop.set()
        for user in USERS:  # whoever waits for a user waits no longer
            with suppress(PartyError), service.session(user, 2.0):
                raise PartyError("user", "only wakes the others")
        for thread in threads:
            thread.join(60)
    assert service.ended == []


def settled(look, wanted, seconds=20.0):
    """Wait until something has the value that it must come to."""
    limit = time.monotonic() + seconds
    while look() != wanted and time.monotonic() < limit:
        time.sleep(0.02)
    return look()


@pytest.fixture(scope="module")
def service(tmp_path_factory, model):
    """A service whose broken sessions are forgotten at once, for all attacks of this file."""
    with (
        pytest.MonkeyPatch.context() as patch,
        serving(tmp_path_factory.mktemp("jobs"), model, patch) as running,
    ):
        running.answer = running.ask("alice")
        for program in running.programs["owner"]:
            program.vault.allowance = replace(program.vault.allowance, keep_s=0.0)
        yield running


def batch(**changes):
    """Return the words of a batch, as they travel."""
    facts = {
        "number": 0,
        "past": 0,
        "rows": 4,
        "prompt": 0,
        "masked_kv": 0,
        "form": -1,
        "scored": 1,
    }
    return torch.tensor([0, *(facts | changes).values()])


def opened(client, index=0, number=7, kept=0):
    """Open a conversation by hand, with a key."""
    send = client.session.send
    send("dealer", "llm/open", torch.tensor([index, number, kept]), phase="setup")
    send("dealer", f"key{index}/user", torch.zeros(16, dtype=torch.uint8), phase="setup")


def ordered(client, index=0, **changes):
    client.session.send("dealer", f"ctl{index}/batch", batch(**changes), phase="offline")


def wait_for_the_end(client):
    """Wait until a party has closed the session."""
    client.session.recv("owner", "never/0", (1,))


def rows_that_nobody_wrote(client):
    opened(client)
    ordered(client, past=20, rows=1)
    wait_for_the_end(client)


def rows_beyond_every_message(client):
    opened(client)
    ordered(client, rows=250, scored=250, number=2**62)
    ordered(client, rows=2**40)
    wait_for_the_end(client)


def fifty_conversations(client):
    for index in range(50):
        opened(client, index, number=index)
    wait_for_the_end(client)


def one_conversation_fifty_times(client):
    for index in range(50):
        opened(client, index)
    wait_for_the_end(client)


def two_dozen_orders(client):
    # Through the real supply, so that the owner gets all of the material.
    client.ahead = Ahead(block=1, blocks=24)
    talk = Conversation(client)
    list(talk.generate(HONEST, best, limit=40))


def a_past_without_end(client):
    opened(client, kept=1)
    words = torch.cat([torch.tensor([2**62]), batch(form=1)[1:]])
    client.session.send("dealer", "ctl0/past", words.unsqueeze(0), phase="setup")
    wait_for_the_end(client)


def a_past_of_another_length(client):
    opened(client, kept=2**62)
    client.session.send("dealer", "ctl0/past", torch.zeros((3, 8), dtype=torch.int64))
    wait_for_the_end(client)


def a_conversation_that_is_not_kept(client):
    opened(client, kept=1)
    words = torch.cat([torch.tensor([1]), batch()[1:]])
    client.session.send("dealer", "ctl0/past", words.unsqueeze(0), phase="setup")
    wait_for_the_end(client)


def a_key_of_another_type(client):
    client.session.send("dealer", "llm/open", torch.tensor([0, 7, 0]), phase="setup")
    client.session.send("dealer", "key0/user", torch.zeros(16, dtype=torch.int32), phase="setup")
    wait_for_the_end(client)


def a_command_that_is_none(client):
    opened(client)
    client.session.links["owner"].send("run0/next", Frame("i32", (2, 2), memoryview(bytes(16))))
    wait_for_the_end(client)


def a_command_out_of_turn(client):
    opened(client)
    words = torch.tensor([RUN, -(2**63), 2**63 - 1, 0]).view(torch.uint8)
    client.session.send("owner", "run0/next", words)
    wait_for_the_end(client)


def an_answer_of_another_shape(client):
    talk = Conversation(client)
    talk._asking.talk.send_bytes = lambda values: client.session.send(
        "owner", "run0/data", torch.zeros((3, 5), dtype=torch.uint8)
    )
    list(talk.generate(HONEST, best, limit=3))


def another_tag_on_the_way(client):
    opened(client)
    client.session.send("owner", "run0/other", torch.zeros(32, dtype=torch.uint8))
    wait_for_the_end(client)


def gone_in_the_middle_of_a_round(client):
    talk = Conversation(client)
    tokens = talk.generate(HONEST, best, limit=20)
    next(tokens)
    for link in client.session.links.values():
        link.kill()
    tokens.close()


def gone_with_conversations_open(client):
    for index in range(5):
        opened(client, index, number=index)
    for link in client.session.links.values():
        link.kill()


def noise_instead_of_frames(client):
    client.session.links["owner"]._outlet._sink.send(b"\xff" * 4096)
    client.session.links["dealer"]._outlet._sink.send(bytes(range(256)))
    wait_for_the_end(client)


def a_length_beyond_all_memory(client):
    head = make_head(DATA, "setup", "llm/open", "i64", (2**50,))
    outlet = client.session.links["dealer"]._outlet
    sent = HEADER.pack(head.static, 0, outlet._sequence, head.payload_bytes)
    outlet._sink.send(sent + head.label)
    wait_for_the_end(client)


def frames_of_all_kinds(client):
    """Send a hundred frames that a seeded generator makes up."""
    draw = np.random.default_rng(11)
    opened(client)
    tags = ("run0/next", "ctl0/batch", "fix0/0.head", "llm/open", "he0/keys", "key1/user", "x/y")
    for _ in range(100):
        dtype = ("u8", "i32", "i64")[draw.integers(3)]
        shape = tuple(int(n) for n in draw.integers(0, 9, draw.integers(4)))
        data = draw.bytes(int(np.prod(shape)) * {"u8": 1, "i32": 4, "i64": 8}[dtype])
        link = client.session.links[("owner", "dealer")[draw.integers(2)]]
        link.send(tags[draw.integers(len(tags))], Frame(dtype, shape, memoryview(data)))
    wait_for_the_end(client)


ATTACKS = [
    rows_that_nobody_wrote,
    rows_beyond_every_message,
    fifty_conversations,
    one_conversation_fifty_times,
    two_dozen_orders,
    a_past_without_end,
    a_past_of_another_length,
    a_conversation_that_is_not_kept,
    a_key_of_another_type,
    a_command_that_is_none,
    a_command_out_of_turn,
    an_answer_of_another_shape,
    another_tag_on_the_way,
    gone_in_the_middle_of_a_round,
    gone_with_conversations_open,
    noise_instead_of_frames,
    a_length_beyond_all_memory,
    frames_of_all_kinds,
]


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda one: one.__name__)
def test_whatever_a_user_sends_the_others_are_served_and_nothing_of_it_is_kept(service, attack):
    before = len(service.notes)
    with suppress(PartyError), service.session("mallory") as (session, architecture):
        attack(Client(session, architecture, counts=service.protocol.counts))
        raise PartyError("user", "has said what it came to say")
    assert service.ask("alice") == service.answer
    assert service.ended == []
    for role in ("owner", "dealer"):
        assert settled(lambda role=role: service.account(role, "mallory").used, 0) == 0
    assert settled(lambda: service.vault("mallory").conversations, {}) == {}
    assert settled(threads_of_conversations, 0) == 0
    told = [note for note in service.notes[before:] if note.startswith("mallory (sha256:")]
    assert any("waiting" in note for note in told)


def test_what_a_user_sent_that_nobody_read_is_gone_with_its_session(service):
    with no_collector():
        for _ in range(5):
            with suppress(PartyError), service.session("mallory") as (session, architecture):
                for role in ("owner", "dealer"):
                    for number in range(8):
                        junk = Frame("u8", (1 << 20,), memoryview(bytes(1 << 20)))
                        session.links[role].send(f"junk{number}/1", junk)
                    session.links[role].send("llm/open", Frame("u8", (0,), memoryview(b"")))
                wait_for_the_end(Client(session, architecture, counts=service.protocol.counts))
            assert settled(lambda: unread_bytes() < 1 << 20, True)
    assert service.ask("alice") == service.answer


def threads_of_conversations():
    names = ("tacit-material", "tacit-serve", "tacit-deal")
    return sum(thread.name.startswith(names) for thread in threading.enumerate())


def words_that_are_no_pass(session, client):
    session.send("owner", "llm/pass", torch.tensor([7, 0, 2**62, -1, 9, 0]))
    session.recv("owner", "never/0", (1,))


def a_pass_that_counts_on_nothing(session, client):
    for peer in ("owner", "dealer"):
        session.send(peer, "llm/pass", torch.tensor([7, 20, 1, 0, 1, 0]))
    session.recv("owner", "never/0", (1,))


def gone_in_the_middle_of_a_pass(session, client):
    for _ in client():
        for link in session.links.values():
            link.kill()


def test_a_sealed_service_outlives_its_users_too(tmp_path, model, monkeypatch):
    with serving(tmp_path, model, monkeypatch, name="sealed") as service:
        answer = service.ask("alice", limit=1)
        for program in service.programs["owner"]:
            program.vault.allowance = replace(program.vault.allowance, keep_s=0.0)
        for attack in (
            words_that_are_no_pass,
            a_pass_that_counts_on_nothing,
            gone_in_the_middle_of_a_pass,
        ):
            with suppress(PartyError), service.session("mallory") as (session, architecture):
                attack(session, step_by_step(session, architecture))
        assert service.ask("alice", limit=1) == answer
        for role in ("owner", "dealer"):
            assert settled(lambda role=role: service.account(role, "mallory").used, 0) == 0


def step_by_step(session, architecture):
    """Begin as an honest user does; returns what goes on talking."""
    client, memory = SealedClient(session, architecture), SealedMemory()
    return lambda: client.generate(memory, HONEST, Sampling(), limit=3)


def test_a_user_that_wants_more_memory_than_it_may_have_is_told(tmp_path, model, monkeypatch):
    with serving(tmp_path, model, monkeypatch, memory_bytes=100_000) as service:
        with pytest.raises(PartyError, match=r"is the most|too much here"):
            service.ask("mallory")
        assert service.account("owner", "mallory").used <= 50_000
        assert any("'user' failed" in note and "mallory" in note for note in service.notes)
