"""What the user's side says while it waits, and what all three parties must choose alike."""

from types import SimpleNamespace

import pytest

from support.llm import LLAMA, MEETING, answering, as_user, say, speak, tiny, write_model
from support.machine import full_disk
from tacit.errors import ConfigError, DisagreementError, FrameError, InputError
from tacit.llm import ChatProtocol, Sampling, chat
from tacit.llm.backend.private import waiting
from tacit.llm.backend.programs import dealer_program, enter_by, owner_program
from tacit.llm.backend.protocol import choose_protocol
from tacit.llm.backend.serving import TokenQuota
from tacit.llm.permuted import Account, Precision, open_vault
from tacit.llm.sealed import SealedMemory, open_sealed_vault
from tacit.party import run_threads


class Notes(list):
    def tell(self, party, text):
        self.append(text)


def test_a_slow_dealer_is_told_of_at_growing_intervals_and_every_time():
    notes = Notes()
    wait = waiting(notes, "the dealer")
    for seconds in (1, 3, 4, 6, 31, 1, 3):  # the last two are another wait
        wait(seconds)
    assert [note.removeprefix("has waited for the dealer for more than ") for note in notes] == [
        "2 s",
        "30 s",
        "2 s",
    ]


def agreeing(*protocols):
    programs = zip(("owner", "user", "dealer"), protocols, strict=True)
    return run_threads({name: protocol.agree for name, protocol in programs}, MEETING)


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": "seald"},
        {"name": "sealed", "reveal": "nothing"},
        {"name": "permuted", "precision": "narrow"},
    ],
)
def test_a_word_that_is_not_known_is_no_other_protocol(wrong):
    with pytest.raises(ConfigError, match="wanted one of"):
        ChatProtocol(**wrong)


@pytest.mark.parametrize(
    "other",
    [
        {"name": "permuted"},
        {"name": "sealed", "reveal": "scores"},
    ],
)
def test_three_that_chose_otherwise_do_not(other):
    chosen = ChatProtocol(name="sealed")
    with pytest.raises(DisagreementError, match="another --protocol, --reveal or"):
        agreeing(chosen, ChatProtocol(**other), chosen)


def test_counts_are_shown_only_if_all_three_ask_for_them():
    counting = ChatProtocol(counts=True)
    agreeing(counting, counting, counting)
    with pytest.raises(DisagreementError, match="--counts"):
        agreeing(ChatProtocol(), counting, ChatProtocol())
    counting.check(Sampling(repetition_penalty=1.2))
    ChatProtocol().check(Sampling(temperature=0.5))
    with pytest.raises(ConfigError, match="all parties start with --counts"):
        ChatProtocol().check(Sampling(repetition_penalty=1.2))


def test_sealed_is_the_default_wherever_the_owner_is_someone_else():
    for role in ("owner", "user", "dealer"):
        assert choose_protocol(None, [None], role) == "sealed"
    assert choose_protocol(None, [], None) == "permuted"
    assert choose_protocol(None, [None, "sealed"], "owner") == "sealed"
    assert choose_protocol("permuted", [None], "owner") == "permuted"
    with pytest.raises(ConfigError, match=r"must be the same .* permuted, sealed"):
        choose_protocol("permuted", ["sealed"], "owner")


@pytest.mark.parametrize(
    ("protocol", "words"),
    [
        (
            ChatProtocol(),
            "the weights, against the user: no guarantee; a user who cheats can compute all of "
            "them from about 49 tokens, and nobody notices; serve only models whose weights the "
            "user may have",
        ),
        (ChatProtocol(name="sealed"), "how two scores of its choice compare"),
        (ChatProtocol(name="sealed", reveal="sample"), "drawn with the dealer's noise"),
        (ChatProtocol(name="sealed", reveal="scores"), "shown are all scores"),
    ],
)
def test_an_owner_is_told_what_it_promises_and_risks(protocol, words):
    assert words in "\n".join(protocol.words(LLAMA))


def test_a_key_gets_no_more_tokens_than_its_quota_even_after_a_restart(tmp_path):
    TokenQuota(tmp_path, "alice", 100)(60, "user")
    again, other = TokenQuota(tmp_path, "alice", 100), TokenQuota(tmp_path, "bob", 100)
    with pytest.raises(FrameError, match="asks for 41 tokens, and 40 are left of the 100"):
        again(41, "user")
    other(100, "user")
    again(40, "user")
    with pytest.raises(FrameError, match="0 are left"):
        again(1, "user")


def test_a_full_disk_does_not_make_a_quota_forget(tmp_path, monkeypatch):
    TokenQuota(tmp_path, "alice", 100)(99, "user")
    with monkeypatch.context() as patch:
        full_disk(patch, "fsync")
        for key in ("alice", "bob"):
            with pytest.raises(InputError, match="No space left"):
                TokenQuota(tmp_path, key, 1000)(1, "user")
    with pytest.raises(FrameError, match="are left"):
        TokenQuota(tmp_path, "alice", 100)(2, "user")


@pytest.mark.parametrize(
    "damaged",
    [
        b"alice 90\n",
        *(b'{"tacit quota": {"bob": 5, "alice": %s}}' % one for one in (b'"9O"', b"null", b"-1")),
        b"\xff\x00",
    ],
    ids=["of 0.2", "letter", "no count", "negative", "no text"],
)
def test_a_damaged_quota_is_refused_and_gives_nobody_a_fresh_one(tmp_path, damaged):
    file = tmp_path / "owner.tokens"
    file.write_bytes(damaged)
    with pytest.raises(InputError, match="damaged"):
        TokenQuota(tmp_path, "alice", 100)(1, "user")
    assert file.read_bytes() == damaged


@pytest.mark.parametrize("name", ["permuted", "sealed"])
def test_an_owner_counts_the_tokens_of_its_user_before_it_computes_them(name):
    model, counted = tiny("llama", layers=1, seed=2, vocab=12), []
    asking = {
        "permuted": lambda model, account: speak(
            model, answering([1, 5, 7], 8), vault=open_vault(model).for_user(account)
        ),
        "sealed": lambda model, account: as_user(
            model,
            lambda client: say(client, SealedMemory(), [1, 5, 7], 8),
            vault=open_sealed_vault(model).for_user(account),
        ),
    }

    def quota(tokens, user):
        counted.append(tokens)
        if sum(counted) > 5:
            raise FrameError(user, "no more")

    account = Account(quota=quota)
    with pytest.raises(FrameError, match="no more"):
        asking[name](model, account)
    assert counted[0] == 3


def test_the_owner_chooses_the_precision_by_option_or_else_by_its_files():
    assert ChatProtocol().bits(["fitted"]) is None
    assert ChatProtocol().bits(["wide", "wide"]) == Precision()
    assert ChatProtocol(precision="wide").bits(["fitted", "wide"]) == Precision()
    with pytest.raises(ConfigError, match=r"must be the same in all files .* fitted, wide"):
        ChatProtocol().bits(["fitted", "wide"])


@pytest.mark.parametrize(
    ("chosen", "role", "words"),
    [
        ({"name": "sealed", "reveal": "sample"}, "dealer", ["sealed", "--reveal", "sample"]),
        ({"precision": "wide"}, "owner", ["--reveal", "token", "--precision", "wide"]),
        ({"precision": "wide"}, "dealer", ["permuted", "--reveal", "token"]),
        ({"counts": True}, "owner", ["token", "--counts"]),
    ],
)
def test_options_survive_the_way_to_a_child_and_only_the_owner_gets_a_precision(
    chosen, role, words
):
    assert ChatProtocol(**chosen).arguments(role)[-len(words) :] == words


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"reveal": "scores"}, "--protocol sealed"),
        ({"reveal": "sample"}, "--protocol sealed"),
        ({"name": "sealed", "counts": True}, "--protocol permuted"),
        ({"name": "sealed", "precision": "wide"}, "--precision belongs to --protocol permuted"),
    ],
)
def test_settings_of_another_protocol_are_refused(wrong, words):
    with pytest.raises(ConfigError, match=words):
        ChatProtocol(**wrong)


@pytest.mark.parametrize(
    ("device", "words"),
    [("tpu0", "wanted cpu, cuda or cuda:N"), ("meta", "wanted cpu"), ("cuda:9", "finds 2 CUDA")],
)
def test_a_device_that_is_not_here_is_refused_before_a_model_is_read(monkeypatch, device, words):
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    with pytest.raises(ConfigError, match=words):
        ChatProtocol(device=device)


def test_the_device_reaches_the_parties(monkeypatch, tmp_path):
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    protocol, seen = ChatProtocol(device="cuda"), {}
    assert protocol.arguments("dealer")[-2:] == ["--device", "cuda"]

    def note(role):
        def called(*what, **how):
            seen[role] = how["device"]
            return SimpleNamespace(masked=None)

        return called

    monkeypatch.setattr("tacit.llm.backend.programs.open_vault", note("owner"))
    monkeypatch.setattr("tacit.llm.backend.programs.serve_dealer", note("dealer"))
    monkeypatch.setattr("tacit.llm.backend.programs.hear", lambda *what: LLAMA)
    monkeypatch.setattr("tacit.llm.backend.programs.Client", note("user"))
    owner_program(write_model(tmp_path / "tiny"), protocol, None)
    session = SimpleNamespace(agree=lambda *what: None)
    dealer_program(protocol)(Account()).serve(session)
    enter_by(protocol, lambda seconds: None)(session, LLAMA)
    assert seen == {"owner": "cuda", "user": "cuda", "dealer": "cuda"}


@pytest.mark.gpu
def test_a_chat_on_a_gpu_says_what_it_says_on_the_cpu(tmp_path):
    model = write_model(tmp_path / "tiny")

    def answer(device):
        with chat(model, protocol=ChatProtocol(device=device)) as talk:
            return list(talk.backend.speak([1, 5, 7], sampling=Sampling(), limit=4))

    assert answer("cuda") == answer("cpu")
