"""Private chats as a user has them: real processes, real links, real exit codes."""

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest
from safetensors.torch import load_file, save_file

from support.llm import write_model
from support.machine import free_ports
from support.processes import Program
from tacit.crypto import make_identity

COMMAND = [sys.executable, "-m", "tacit"]
# One thread per process: three parties share the cores.
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
ASK = ("--prompt", "hello", "--max-tokens", "6")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("models") / "tiny")


def start(folder, *arguments, typed=None):
    if typed is None:
        return Program(*arguments, folder=folder)
    return subprocess.Popen(
        [*COMMAND, *map(str, arguments)],
        cwd=folder,
        env=ENVIRONMENT,
        stdin=typed,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process):
    out, err = process.communicate(timeout=240)
    return process.returncode, out, err


def wait_for(stream, words, process=None):
    for line in stream:
        if words in line:
            return line
    said = "" if process is None else f":\n{process.stderr.read()}"
    raise AssertionError(f"the process ended without saying {words!r}{said}")


def children_of(process):
    shown = subprocess.run(
        ["ps", "-ww", "-o", "pid=,args=", "--ppid", str(process.pid)],
        capture_output=True,
        text=True,
        check=False,
    )
    found = [line.split(None, 1) for line in shown.stdout.splitlines()]
    return {("owner" if "--as owner" in args else "dealer"): int(pid) for pid, args in found}


def is_alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def wait_gone(pids):
    limit = time.monotonic() + 60
    while any(map(is_alive, pids)) and time.monotonic() < limit:
        time.sleep(0.1)
    return [pid for pid in pids if is_alive(pid)]


def plain_answer(folder, model):
    code, out, err = finish(start(folder, "chat", "--plain", "--model", model, *ASK))
    assert code == 0, err
    return out.split("\n")[0]


def test_a_private_chat_says_what_the_plain_one_says_and_what_was_learned(tmp_path, model):
    code, out, err = finish(start(tmp_path, "chat", "--model", model, *ASK))
    assert code == 0, err
    answer, speed, first, after, *learned = out.strip().split("\n")
    assert answer == plain_answer(tmp_path, model)
    assert "tokens/s" in speed
    assert first.startswith("first token: ")
    assert "round trips" in after
    assert [line.split(" learned: ")[0] for line in learned] == ["user", "dealer", "owner"]
    assert "how many tokens" in learned[1]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_penalty_in_a_private_chat_is_that_of_a_plain_one(tmp_path, model):
    how = ("--repetition-penalty", 2, "--temperature", 0.7, "--seed", 5)
    answers = []
    for mode in (["--plain"], ["--counts"]):
        code, out, err = finish(start(tmp_path, "chat", *mode, "--model", model, *ASK, *how))
        assert code == 0, err
        answers.append(out.split("\n")[0])
    assert answers[0] == answers[1] != plain_answer(tmp_path, model)


def learned_by(lines):
    """Return what each party learned, out of the lines under an answer."""
    pairs = [line.split(" learned: ") for line in lines if " learned: " in line]
    return dict(pairs)


def test_a_sealed_chat_says_what_the_plain_one_says_and_shows_tokens_alone(tmp_path, model):
    ask = ("--prompt", "hello", "--max-tokens", 2)
    process = start(tmp_path, "chat", "--protocol", "sealed", "--model", model, *ask)
    code, out, err = finish(process)
    assert code == 0, err
    assert out.split("\n")[0] == plain_answer(tmp_path, model)[:2]
    learned = learned_by(out.split("\n"))
    assert set(learned) == {"user", "owner", "dealer"}
    assert "the next token" in learned["user"]
    assert "order" not in learned["user"]
    assert learned["owner"] == "how many tokens are read, taken back and written, and when"


@pytest.mark.slow
def test_a_model_with_a_missing_tensor_is_refused_by_name_before_anyone_connects(tmp_path):
    broken = write_model(tmp_path / "broken")
    tensors = load_file(broken / "model.safetensors")
    del tensors["model.layers.1.mlp.up_proj.weight"]
    save_file(tensors, broken / "model.safetensors")
    code, out, err = finish(start(tmp_path, "chat", "--model", broken, *ASK))
    assert code == 2
    assert "party 'owner'" in err
    assert "no tensor 'model.layers.1.mlp.up_proj.weight'" in err
    assert "user    connecting" not in err
    assert out == ""


def kill_in_the_middle(folder, model, role):
    """Chat twice, kill a party in the middle of the second answer, and go on to the end."""
    process = start(folder, "chat", "--model", model, "--max-tokens", 24)
    talk(process, "hello")
    wait_for(process.stdout, "dealer learned")
    pids = children_of(process)
    talk(process, "again")
    process.stdout.read(3)  # the answer has begun
    os.kill(pids[role], signal.SIGKILL)
    wait_for(process.stdout, "dealer learned", process)
    talk(process, "and again")
    wait_for(process.stdout, "dealer learned", process)
    pids |= {f"new {name}": pid for name, pid in children_of(process).items()}
    code, _, err = finish(process)
    assert wait_gone(pids.values()) == []
    return code, err, pids


def talk(process, text):
    process.stdin.write(text + "\n")
    process.stdin.flush()


def test_a_dealer_that_is_killed_in_the_middle_of_an_answer_is_started_again(tmp_path, model):
    code, err, pids = kill_in_the_middle(tmp_path, model, "dealer")
    assert code == 0, err
    assert "dealer  killed by signal 9 (SIGKILL); starting it again" in err
    assert "meeting again" in err
    assert pids["new dealer"] != pids["dealer"]
    assert pids["new owner"] == pids["owner"]


@pytest.mark.slow
def test_an_owner_that_is_killed_in_the_middle_of_an_answer_is_started_again(tmp_path, model):
    code, err, pids = kill_in_the_middle(tmp_path, model, "owner")
    assert code == 0, err
    assert "owner   killed by signal 9 (SIGKILL); starting it again" in err
    assert pids["new owner"] != pids["owner"]


@pytest.mark.slow
def test_an_answer_that_was_interrupted_by_a_death_is_the_plain_one(tmp_path, model):
    long = ("--prompt", "hello", "--max-tokens", "40")
    process = start(tmp_path, "chat", "--model", model, *long)
    begun = process.stdout.read(3)
    os.kill(children_of(process)["dealer"], signal.SIGKILL)
    code, out, err = finish(process)
    assert code == 0, err
    assert "starting it again" in err
    _, plain, _ = finish(start(tmp_path, "chat", "--plain", "--model", model, *long))
    assert (begun + out).split("\n")[0] == plain.split("\n")[0]


@pytest.mark.slow
def test_an_interrupt_ends_everyone(tmp_path, model):
    process = start(tmp_path, "chat", "--model", model, "--max-tokens", 6)
    process.stdin.write("hello\n")
    process.stdin.flush()
    wait_for(process.stdout, "dealer learned")
    pids = children_of(process)
    process.send_signal(signal.SIGINT)
    code, _, err = finish(process)
    assert code == 130
    assert err.strip().split("\n")[-1] == "stopped"
    assert wait_gone(pids.values()) == []


def write_job(folder, name="chat", head='[chat]\nprotocol = "permuted"'):
    """Write a job for three parties with keys under folder/keys-ROLE; the user does not listen."""
    owner, dealer = free_ports(2)
    lines = [head, "[network]", "connect_s = 60"]
    for role, port in (("owner", owner), ("user", None), ("dealer", dealer)):
        keys = folder / f"{name}-{role}"
        lines += [f"[parties.{role}]", f'key = "{make_identity(role, keys).fingerprint}"']
        lines += [] if port is None else [f'address = "127.0.0.1:{port}"']
    path = folder / f"{name}.toml"
    path.write_text("\n".join(lines))
    return path


def be(folder, job, role, *more):
    keys = folder / f"{job.stem}-{role}"
    return start(folder, "chat", "--as", role, "--job", job, "--keys", keys, *more)


@pytest.mark.slow
def test_three_parties_with_keys_of_their_own_chat(tmp_path, model):
    job = write_job(tmp_path)
    owner = be(tmp_path, job, "owner", "--model", model)
    dealer = be(tmp_path, job, "dealer")
    code, out, err = finish(be(tmp_path, job, "user", "--model", model, *ASK))
    assert code == 0, err
    assert out.split("\n")[0] == plain_answer(tmp_path, model)
    (owner_code, _, owner_err), (dealer_code, _, _) = finish(owner), finish(dealer)
    assert (owner_code, dealer_code) == (0, 0)
    assert "the weights, against the user: no guarantee; a user who cheats can" in owner_err


@pytest.mark.slow
def test_parties_that_chose_other_protocols_do_not_begin(tmp_path, model):
    job = write_job(tmp_path, head="")
    owner = be(tmp_path, job, "owner", "--model", model, "--protocol", "permuted")
    dealer = be(tmp_path, job, "dealer")
    user = be(tmp_path, job, "user", "--model", model, "--protocol", "sealed", *ASK)
    code, out, err = finish(user)
    assert code == 4, err
    assert "another --protocol, --reveal or --counts" in err
    assert out == ""
    assert 0 not in [finish(one)[0] for one in (owner, dealer)]


@pytest.mark.slow
def test_the_tokenizer_of_another_model_is_refused_before_any_weight_is_sent(tmp_path, model):
    job = write_job(tmp_path)
    owner = be(tmp_path, job, "owner", "--model", model)
    dealer = be(tmp_path, job, "dealer")
    other = write_model(tmp_path / "other", vocab=40)
    config = json.loads((other / "config.json").read_text()) | {"vocab_size": 40}
    (other / "config.json").write_text(json.dumps(config))
    (other / "model.safetensors").unlink()
    code, out, err = finish(be(tmp_path, job, "user", "--model", other, *ASK))
    assert code == 2, err
    assert "tokenizer has 40 tokens and the model 64" in err
    assert "masked weights" not in err
    assert out == ""
    for one in (owner, dealer):
        finish(one)


def test_a_key_that_the_others_do_not_know_is_refused(tmp_path, model):
    job = write_job(tmp_path)
    make_identity("user", tmp_path / "other")
    code, _, err = finish(
        start(
            tmp_path,
            *("chat", "--as", "user", "--job", job, "--keys", tmp_path / "other"),
            *("--model", model, *ASK),
        )
    )
    assert code == 2
    assert "the chat knows 'user' by the key" in err


def serve(folder, job, role, model):
    keys = folder / f"{job.stem}-{role}"
    more = ("--model", model) if role == "owner" else ()
    server = start(folder, "serve-llm", job, "--as", role, "--keys", keys, *more)
    wait_for(server.stderr, "waiting for users")  # a user's patience is for the network
    return server


def stop(servers):
    for server in servers:
        server.send_signal(signal.SIGINT)
    return [finish(server)[0] for server in servers]


@pytest.mark.slow
def test_a_conversation_goes_on_after_the_dealer_was_replaced(tmp_path, model):
    job = write_job(tmp_path)
    servers = [serve(tmp_path, job, role, model) for role in ("owner", "dealer")]
    user = be(tmp_path, job, "user", "--model", model, "--max-tokens", 6)
    try:
        user.stdin.write("hello\n")
        user.stdin.flush()
        wait_for(user.stdout, "dealer learned")
        servers[1].kill()
        finish(servers.pop())
        servers.append(serve(tmp_path, job, "dealer", model))
        user.stdin.write("again\n")
        user.stdin.flush()
        wait_for(user.stdout, "dealer learned")
        code, _, err = finish(user)
    finally:
        user.kill()
        codes = stop(servers)
    assert code == 0, err
    assert "meeting again" in err
    assert codes == [130, 130]


@pytest.mark.slow
def test_servers_have_two_users_at_once(tmp_path, model):
    alice = write_job(tmp_path, "alice")
    text = alice.read_text()
    for port in free_ports(2):
        text = re.sub(r"127\.0\.0\.1:\d+(?!\d|;)", f"127.0.0.1:{port};", text, count=1)
    bob = tmp_path / "bob.toml"
    bob.write_text(text.replace(";", ""))
    servers = [
        start(
            tmp_path,
            *("serve-llm", alice, bob, "--as", role, "--keys", tmp_path / f"alice-{role}"),
            *(("--model", model) if role == "owner" else ()),
        )
        for role in ("owner", "dealer")
    ]
    keys = tmp_path / "alice-user"
    try:
        for server in servers:
            wait_for(server.stderr, "waiting for users")
        users = [
            start(
                tmp_path,
                *("chat", "--as", "user", "--job", job, "--keys", keys, "--model", model, *ASK),
            )
            for job in (alice, bob)
        ]
        ends = [finish(user) for user in users]
    finally:
        stop(servers)
    answer = plain_answer(tmp_path, model)
    assert [code for code, _, _ in ends] == [0, 0], [err for _, _, err in ends]
    assert [out.split("\n")[0] for _, out, _ in ends] == [answer] * 2


@pytest.mark.slow
def test_servers_stay_up_for_the_next_conversation_and_serve_an_endpoint(tmp_path, model):
    job = write_job(tmp_path)
    servers = [serve(tmp_path, job, role, model) for role in ("owner", "dealer")]
    try:
        code, first, err = finish(be(tmp_path, job, "user", "--model", model, *ASK))
        assert code == 0, err
        (port,) = free_ports(1)
        user = be(tmp_path, job, "user", "--model", model, "--endpoint", f"127.0.0.1:{port}")
        wait_for(user.stdout, "listening on")
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        body = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 6}
        connection.request(
            "POST",
            "/v1/chat/completions",
            json.dumps(body),
            {"Content-Type": "application/json"},
        )
        answer = json.loads(connection.getresponse().read())
        connection.close()
        assert answer["choices"][0]["message"]["content"] == first.split("\n")[0]
        assert answer["tacit"]["first_token"]["round_trips"] > 0
        user.send_signal(signal.SIGINT)
        assert finish(user)[0] == 130
        assert all(server.poll() is None for server in servers)
    finally:
        codes = stop(servers)
    assert codes == [130, 130]


def test_a_sealed_chat_is_dealt_for_and_then_held_without_the_dealer(tmp_path, model):
    job = write_job(tmp_path, head='[chat]\nprotocol = "sealed"')
    keys = {role: tmp_path / f"chat-{role}" for role in ("owner", "user", "dealer")}
    file = tmp_path / "private" / "chat.material"

    def deal(*more):
        line = ("deal", job, "--keys", keys["user"], "--prompt", 40, "--tokens", 3, "--out", file)
        return finish(start(tmp_path, *line, *more))

    others = [be(tmp_path, job, "owner", "--model", model), be(tmp_path, job, "dealer")]
    code, out, err = deal()
    assert code == 0, err
    assert [finish(one)[0] for one in others] == [0, 0]
    size = file.stat().st_size
    assert f"will have {size:,} bytes, for 4 passes" in err
    assert f"{size:,} bytes" in out
    code, _, err = deal()  # nobody else is up, and nobody is waited for
    assert code == 2
    assert "choose another name" in err

    dealt = ("--material", keys["owner"] / "dealt")
    copy = file.with_name("copy.material")
    copy.write_bytes(file.read_bytes())
    copy.chmod(0o600)

    def ask(path):
        owner = be(tmp_path, job, "owner", "--model", model, *dealt)
        ask = ("--material", path, "--model", model, "--prompt", "hello", "--max-tokens", 3)
        user = finish(be(tmp_path, job, "user", *ask))
        return user, finish(owner)

    (code, out, err), (owner_code, _, owner_err) = ask(file)
    assert (code, owner_code) == (0, 0), err + owner_err
    assert out.split("\n")[0] == plain_answer(tmp_path, model)[:3]
    assert set(learned_by(out.split("\n"))) == {"user", "owner"}
    # The user goes back to a copy: the owner's own record refuses.
    (code, out, err), (owner_code, _, owner_err) = ask(copy)
    assert (code, owner_code) == (4, 4), err + owner_err
    assert "used already" in err
    assert out.strip() == ""
    # And the file itself is refused before anybody is met.
    line = ("--material", file, "--model", model, "--prompt", "hello")
    code, _, err = finish(be(tmp_path, job, "user", *line))
    assert code == 2
    assert "used already" in err
