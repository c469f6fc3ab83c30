"""The commands, in this process: exit codes and one clear message for everything."""

import shutil
import socket
import subprocess
import sys
from pathlib import Path

import click
import pytest

import tacit
from support.jobs import tacit_says
from tacit.cli.commands import group as commands
from tacit.cli.commands.group import COMMANDS
from tacit.cli.main import cli
from tacit.errors import ClaimError, PartyError

ROOT = Path(tacit.__file__).parents[2]
SEALED = ROOT / "examples" / "jobs" / "predict-breast-cancer.toml"
PERMUTED = ROOT / "examples" / "jobs" / "predict-permuted.toml"


@pytest.fixture(autouse=True)
def _work_in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def changed(path, old, new):
    text = path.read_text()
    assert old in text
    target = Path("job.toml")
    target.write_text(text.replace(old, new))
    return target


def test_the_version_is_printed(capsys):
    assert tacit_says("--version")[0] == 0
    assert capsys.readouterr().out == f"tacit {tacit.__version__}\n"


@pytest.mark.parametrize("name", [command.name for command in COMMANDS if not command.hidden])
def test_every_command_explains_itself_with_an_example(name, capsys):
    assert tacit_says(name, "--help")[0] == 0
    text = capsys.readouterr().out
    assert f"tacit {name}" in text.split("Examples:")[1]


def test_the_help_fits_80_columns_and_cuts_no_summary(capsys):
    assert tacit_says("--help")[0] == 0
    text = capsys.readouterr().out
    assert "..." not in text.split("Commands:")[1]


def test_light_commands_do_not_load_the_heavy_rooms():
    code = "import sys, tacit.cli.main; sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("arguments", [[], ["frobnicate"], ["run"], ["plan", "x", "--rows", "0"]])
def test_wrong_usage_exits_with_two(arguments):
    assert tacit_says(*arguments)[0] == 2


@pytest.mark.parametrize("command", [["run"], ["plan"], ["party", "--as", "lab"]])
def test_a_missing_job_file_is_named(command):
    code, _, err = tacit_says(*command, "none.toml")
    assert (code, err) == (2, "error: none.toml: no such file\n")


@pytest.mark.parametrize("command", [["run"], ["plan"], ["party", "--as", "lab"]])
def test_an_unknown_key_is_named_with_a_suggestion(command):
    code, _, err = tacit_says(*command, changed(SEALED, "reveal =", "revel ="))
    assert code == 2
    assert "job.toml: protocol.revel: unknown key; did you mean 'reveal'?" in err


def test_a_fresh_start_is_for_jobs_that_go_on():
    code, _, err = tacit_says("run", SEALED, "--fresh")
    assert code == 2
    assert "'demo', of kind 'infer', has none" in err


def test_a_kind_that_does_not_exist_is_refused():
    code, _, err = tacit_says("run", changed(SEALED, '"infer"', '"infr"'))
    assert code == 2
    assert "job.kind: wanted one of" in err
    assert "did you mean 'infer'?" in err


def test_a_party_that_is_not_in_the_job_is_refused():
    code, _, err = tacit_says("party", SEALED, "--as", "labb")
    assert code == 2
    assert "no party 'labb'; wanted one of hospital, lab, dealer; did you mean 'lab'?" in err


def test_a_party_needs_everyones_key():
    code, _, err = tacit_says("party", SEALED, "--as", "lab")
    assert code == 2
    assert "parties.hospital.key: missing" in err
    assert "tacit keys hospital" in err


def test_a_folder_that_is_not_ours_stops_a_run_before_it_starts():
    Path("out/demo").mkdir(parents=True)
    Path("out/demo/thesis.tex").write_text("years of work")
    code, _, err = tacit_says("run", SEALED)
    assert code == 2
    assert "thesis.tex" in err
    assert Path("out/demo/thesis.tex").read_text() == "years of work"


def test_a_data_file_that_is_not_there_stops_a_run_before_it_starts():
    job = changed(SEALED, 'set = "breast-cancer"            #', 'file = "rows.csv" #')
    code, _, err = tacit_says("run", job)
    assert code == 2
    assert "data.file: no such file: rows.csv" in err
    assert not Path("out").exists()


def test_keys_prints_the_lines_for_a_job_file_and_nothing_else():
    code, out, err = tacit_says("keys", "hospital")
    fingerprint = out.split('"')[1]
    assert code == 0
    assert out == f'[parties.hospital]\nkey = "{fingerprint}"\n'
    assert "keys/hospital.key is secret" in err
    assert tacit_says("keys", "hospital", "--show") == (0, out, "")


def test_an_existing_key_is_never_overwritten():
    tacit_says("keys", "lab", "--dir", "mine")
    before = Path("mine/lab.key").read_bytes()
    code, _, err = tacit_says("keys", "lab", "--dir", "mine")
    assert code == 2
    assert "exists already" in err
    assert Path("mine/lab.key").read_bytes() == before


def test_a_key_that_is_not_the_one_in_the_job_is_refused():
    _, lines, _ = tacit_says("keys", "lab")
    job = changed(SEALED, "[parties.lab]\n", lines)
    shutil.rmtree("keys")
    tacit_says("keys", "lab")
    code, _, err = tacit_says("run", job)
    assert code == 2
    assert "parties.lab.key" in err


def write_job_with_keys():
    text = SEALED.read_text()
    for name in ("hospital", "lab", "dealer"):
        text = text.replace(f"[parties.{name}]\n", tacit_says("keys", name)[1])
    Path("job.toml").write_text(text)


def test_a_port_in_use_is_refused_with_a_message():
    write_job_with_keys()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        at = f"127.0.0.1:{taken.getsockname()[1]}"
        code, _, err = tacit_says("party", "job.toml", "--as", "lab", "--listen", at)
    assert code == 2
    assert f"cannot listen on {at}" in err


def test_a_listening_address_that_is_none_is_refused():
    write_job_with_keys()
    code, _, err = tacit_says("party", "job.toml", "--as", "lab", "--listen", "somewhere")
    assert code == 2
    assert err.startswith("error: --listen: wanted host:port")
    assert "'somewhere'" in err


def test_a_plan_says_what_will_be_sent_and_revealed():
    code, out, _ = tacit_says("plan", PERMUTED)
    assert code == 0
    for word in ("171 rows of 30 features", "helper", "Mbit/s", "no guarantee", "hospital:"):
        assert word in out


def test_a_plan_for_one_network_and_given_sizes_needs_no_data():
    job = changed(SEALED, 'set = "breast-cancer"            #', 'file = "rows.csv" #')
    code, _, err = tacit_says("plan", job)
    assert code == 2
    assert "--rows and --features" in err
    sizes = ("--rows", 10, "--features", 3)
    code, out, _ = tacit_says("plan", job, *sizes, "--rtt-ms", 40, "--mbit", 80)
    assert code == 0
    assert "10 rows of 3 features" in out
    assert out.count("Mbit/s") == 1


def test_a_network_is_given_whole_or_not_at_all():
    assert tacit_says("plan", SEALED, "--mbit", 80)[0] == 2


def test_a_plan_of_a_job_that_could_overflow_is_refused():
    code, _, err = tacit_says("plan", changed(SEALED, "frac_bits = 20", "frac_bits = 31"))
    assert code == 2
    assert err.startswith("error: ")


@pytest.mark.parametrize("text", ['{"schema": 1', "[]", '{"schema": 99}', "\x00"])
def test_a_broken_result_is_refused(text):
    Path("result.json").write_text(text)
    code, _, err = tacit_says("report", "result.json")
    assert code == 2
    assert err.startswith("error: result.json: ")
    assert not Path("report.html").exists()


@pytest.mark.parametrize(("shell", "word"), [("bash", "complete -o"), ("zsh", "#compdef tacit")])
def test_completion_prints_a_script(shell, word, capsys):
    assert tacit_says("completion", shell)[0] == 0
    assert word in capsys.readouterr().out


def test_the_parties_of_a_job_are_completed():
    context = click.Context(commands.party)
    context.args = [str(PERMUTED)]
    found = commands._complete_party(context, commands.party.params[1], "h")
    assert [item.value for item in found] == ["hospital", "helper"]


def test_an_unreadable_job_completes_to_nothing():
    context = click.Context(commands.party)
    assert commands._complete_party(context, commands.party.params[1], "h") == []


@pytest.fixture
def broken_command(request):
    error = getattr(request, "param", ZeroDivisionError("oh"))

    @click.command()
    def broken():
        raise error

    cli.add_command(broken)
    yield
    del cli.commands["broken"]


@pytest.mark.usefixtures("broken_command")
def test_a_bug_is_one_message_and_a_file(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    code, out, err = tacit_says("broken")
    assert (code, out) == (1, "")
    assert err.startswith("error: internal error: ZeroDivisionError: oh\n")
    assert "Traceback" not in err
    (file,) = tmp_path.glob("tacit-error-*.txt")
    assert file.name in err
    assert "Traceback" in file.read_text()


@pytest.mark.usefixtures("broken_command")
def test_debugging_shows_the_traceback():
    code, _, err = tacit_says("--debug", "broken")
    assert code == 1
    assert "Traceback" in err


@pytest.mark.usefixtures("broken_command")
@pytest.mark.parametrize(
    ("broken_command", "wanted"),
    [
        (KeyboardInterrupt(), (130, "stopped\n")),
        (ClaimError("more than was said"), (3, "error: more than was said\n")),
        (PartyError("lab", "\x1b[2J"), (4, "error: party 'lab' failed: \ufffd[2J\n")),
        (OSError(28, "No space left on device"), (2, "error: No space left on device\n")),
    ],
    indirect=["broken_command"],
)
def test_every_ending_is_one_message(wanted):
    code, out, err = tacit_says("broken")
    assert (code, err) == wanted
    assert out == ""
