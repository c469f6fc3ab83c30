"""The commands about this host and what lies and runs on it."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from tacit.cli.screen import say, working

if TYPE_CHECKING:
    from tacit.cli.commands.group import Edge

_PATH = click.Path(path_type=Path)


@click.command(epilog="\b\nExamples:\n  tacit runs\n  tacit runs out/fl-digits")
@click.argument("folder", type=_PATH, default=Path("out"))
@click.option("--ledger", is_flag=True, help="Add up ε by data set and relation instead.")
@click.pass_obj
def runs(edge: "Edge", folder: Path, ledger: bool) -> None:
    """List the results below FOLDER, newest first."""
    from tacit.cli.commands.runs import lay_ledger, lay_runs

    if ledger:
        edge.out.print(lay_ledger(folder))
        return
    found = lay_runs(folder)
    if not found.row_count:
        say(edge.out, f"There is no result below {folder}.")
        return
    edge.out.print(found)


@click.command(epilog="\b\nExamples:\n  tacit allow net.py")
@click.argument("code", type=_PATH)
@click.pass_obj
def allow(edge: "Edge", code: Path) -> None:
    """Let jobs run CODE, a file of Python that you have read.

    It is known by its SHA-256: once it changes, no job runs it before you allow it again.
    """
    from tacit.nn.code import allow as note
    from tacit.nn.code import consents

    digest = note(code)
    say(edge.out, f"Jobs of yours may run {code}, as long as its sha256 is {digest}.")
    say(edge.err, f"Listed in {consents()}; take its line out to undo it.", "dim")


@click.command(
    epilog="\b\nExamples:\n  tacit doctor\n  tacit doctor --job job.toml --as lab\n"
    "  tacit doctor --wait 0.0.0.0:7000      on one host\n"
    "  tacit doctor --reach lab.example:7000  on the other"
)
@click.option("--job", type=_PATH, help="Try the addresses of this job's parties, too.")
@click.option("--as", "name", help="The party of the job that runs on this host.")
@click.option("--wait", "waits_at", metavar="HOST:PORT", help="Answer callers for a while.")
@click.option("--seconds", type=click.FloatRange(0.1, 3600), default=60.0, show_default=True)
@click.option("--reach", "calls", metavar="HOST:PORT", help="Call a host that waits.")
@click.pass_obj
def doctor(
    edge: "Edge",
    job: Path | None,
    name: str | None,
    waits_at: str | None,
    seconds: float,
    calls: str | None,
) -> None:
    """Say what this host has and lacks, and whom it reaches."""
    from tacit.cli.commands.doctor import examine, reach, wait

    if waits_at is not None and calls is not None:
        raise click.UsageError("--wait and --reach are for two hosts: give one of them.")
    if name is not None and job is None:
        raise click.UsageError("--as names a party of a job: give --job, too.")
    if waits_at is not None:
        say(edge.err, f"waiting on {waits_at} for {seconds:g} s …")
        edge.out.print(wait(waits_at, seconds=seconds))
    elif calls is not None:
        edge.out.print(reach(calls))
    else:
        edge.out.print(examine(job=job, me=name))


@click.command(epilog="\b\nExamples:\n  tacit examples\n  tacit examples fl-digits --to mine.toml")
@click.argument("name", required=False)
@click.option("--to", "target", type=_PATH, help="The file to write.  [default: its own name]")
@click.pass_obj
def examples(edge: "Edge", name: str | None, target: Path | None) -> None:
    """List the examples, or copy the one called NAME."""
    from tacit.cli.commands.examples import copy_example, list_examples, summarise_example

    if name is None:
        for known, path in list_examples().items():
            say(edge.out, f"{known:28} {summarise_example(path)}")
        return
    path = copy_example(name, target)
    command = "tacit run" if path.suffix == ".toml" else "python"
    say(edge.out, f"Written: {path}. Run it with: {command} {path}")


@click.command(
    epilog="\b\nExamples:\n  tacit worker --for sha256:… --listen 0.0.0.0:7300 --device cuda"
)
@click.option(
    "--for", "key", required=True, help="The key of the party that I multiply for, as it is pinned."
)
@click.option("--listen", "at", required=True, metavar="HOST:PORT", help="Where I wait for it.")
@click.option("--as", "name", default="worker", show_default=True, help="Which key is mine.")
@click.option(
    "--keys", type=_PATH, default=Path("keys"), show_default=True, help="Folder with my key."
)
@click.option("--device", default="cpu", show_default=True, help="Where I multiply, e.g. cuda.")
@click.option("--once", "is_once", is_flag=True, help="End after one job.")
@click.pass_obj
def worker(
    edge: "Edge", key: str, at: str, name: str, keys: Path, device: str, is_once: bool
) -> None:
    """Multiply for a party, which checks every product.

    The party names this worker in its job file, as [parties.NAME.worker] with address and key. A
    worker sees what its party sees, shares and masked values, and counts as that party.
    """
    from tacit.cli.launch.worker import run_worker
    from tacit.crypto import parse_fingerprint

    run_worker(
        key=parse_fingerprint(key),
        name=name,
        keys=keys,
        at=at,
        device=device,
        is_once=is_once,
        tell=lambda text: say(edge.err, text),
    )


@click.command(epilog="\b\nExamples:\n  tacit hosts job.toml\n  tacit hosts job.toml --to trial")
@click.argument("job", type=_PATH)
@click.option(
    "--to", "target", type=_PATH, help="Folder to make.  [default: hosts/NAME of the job]"
)
@click.pass_obj
def hosts(edge: "Edge", job: Path, target: Path | None) -> None:
    """Try JOB as between hosts: a folder for each party, here.

    Each has a new key and a copy of the job with the keys of all and addresses of this machine. The
    printed lines start all parties, from this folder.
    """
    with working(edge.err, "making keys"):
        from tacit.cli.commands.trial import make_hosts

        lines = make_hosts(job, target)
    for line in lines:
        say(edge.out, line)
    note = "For a trial: all keys were made here. Between real hosts each party makes its own."
    say(edge.err, note, "dim")


COMMANDS = (examples, runs, hosts, allow, doctor, worker)
