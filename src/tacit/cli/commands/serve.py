"""The commands around prediction services and their leakage: ``serve``, ``ask``, ``leakage``."""

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tacit.cli.screen import say, working

if TYPE_CHECKING:
    from tacit.cli.commands.group import Edge

_PATH = click.Path(path_type=Path)
_JOB = click.argument("job", type=_PATH)
_KEYS = click.option(
    "--keys", type=_PATH, default=Path("keys"), show_default=True, help="Folder with the keys."
)


@click.command(
    epilog="\b\nExamples:\n  tacit serve job.toml\n"
    "  tacit serve job.toml --as north --keys ~/keys\n"
    "  tacit serve job.toml --client ann.zip --as ann"
)
@_JOB
@click.option("--as", "name", help="The party to be; all of them, in this process, if not given.")
@_KEYS
@click.option("--listen", "at", metavar="HOST:PORT", help="Listen here, not on my job address.")
@click.option("--out", type=_PATH, help="Write what was done, as JSON, when the service ends.")
@click.option(
    "--client",
    "bundle",
    type=_PATH,
    metavar="FILE.zip",
    help="Serve nothing: write what a client needs to ask, of several the one of --as.",
)
@click.pass_obj
def serve(
    edge: "Edge",
    job: Path,
    name: str | None,
    keys: Path,
    at: str | None,
    out: Path | None,
    bundle: Path | None,
) -> None:
    """Answer clients from a model of which two servers hold shares.

    One of the two may own the model.

    Without --as everything runs here, and keys that JOB does not name are taken from the folder
    of keys or made there. What --client writes holds fingerprints, addresses, and names and units
    of columns: no weight, no key, and nothing of other clients.
    """
    if bundle is not None:
        _write_bundle(edge, job, bundle, name=name, keys=keys)
        return
    with working(edge.err, "starting"):
        from tacit import report
        from tacit.cli.environment import data_folders
        from tacit.jobs.serve import serve_as, serve_here, stopping

    def note(text: str) -> None:
        say(edge.err, text)

    with stopping() as stop:
        if name is None:
            result = serve_here(job, keys=keys, note=note, stop=stop, search=data_folders())
        else:
            result = serve_as(
                job, name, keys=keys, at=at, note=note, stop=stop, search=data_folders()
            )
    edge.out.print(report.summarise(result))
    if out is not None:
        report.save(result, out)


def _write_bundle(edge: "Edge", job: Path, out: Path, *, name: str | None, keys: Path) -> None:
    """Write the archive of a client, and say by what its receiver can tell it from another."""
    from tacit.jobs.bundle import find_client, write_bundle
    from tacit.jobs.serve import load_service

    service = load_service(job)
    client = find_client(service, name)
    content = write_bundle(out, service, client, keys)
    say(edge.out, f"{out}: for {client}, {len(content):,} bytes")
    say(edge.out, f"sha256 {hashlib.sha256(content).hexdigest()}: tell {client} by another way")


@click.command(
    epilog="\b\nExamples:\n  tacit ask job.toml rows.csv --as ann --out answers.csv\n"
    "  tacit ask ann.zip rows.csv"
)
@_JOB
@click.argument("rows", type=_PATH)
@click.option("--as", "name", help="The client to be, where JOB names several.")
@_KEYS
@click.option("--label", help="Column with the true classes, which stays here.")
@click.option("--out", type=_PATH, help="Write the answers to this CSV file.")
@click.pass_obj
def ask(
    edge: "Edge",
    job: Path,
    rows: Path,
    name: str | None,
    keys: Path,
    label: str | None,
    out: Path | None,
) -> None:
    """Ask the service of JOB about ROWS, a file. JOB may be what `tacit serve --client` wrote.

    Each server gets a share of every row, which alone is random; the answers are put together here.
    """
    with working(edge.err, "asking"):
        from tacit.cli.commands.ask import ask as ask_service
        from tacit.jobs.folder import write_text
        from tacit.report.format import show_quantity

        said = 0

        def tell(done: int, total: int) -> None:
            nonlocal said
            if done < total and (tenth := 10 * done // total) > said:  # many blocks, few lines
                said = tenth
                say(edge.err, f"asked about {done}/{total} rows")

        reply = ask_service(job, rows, me=name, keys=keys, label=label, tell=tell)
    answers = reply.to_csv(head="prediction")
    if out is None:
        say(edge.out, answers.rstrip())
    else:
        write_text(out, answers)
        say(edge.out, f"Answers: {out}")
    for metric in reply.measure():
        value = show_quantity(metric.value, metric.unit)
        say(edge.err, f"{metric.name} {value} of {metric.samples} rows")


@click.command(
    epilog="\b\nExamples:\n  tacit leakage examples/jobs/train-digits.toml --html leakage.html"
)
@_JOB
@click.option("--protocol", help="Look at another protocol than that of JOB.")
@click.option("--quick", is_flag=True, help="Look at fewer rows.")
@click.option("--html", type=_PATH, help="Write the page here.")
@click.option("--out", type=_PATH, help="Write the findings as JSON.")
@click.pass_obj
def leakage(
    edge: "Edge", job: Path, protocol: str | None, quick: bool, html: Path | None, out: Path | None
) -> None:
    """Measure what the parties of JOB could infer.

    JOB is of kind train or predict, and all of its data must be here: this is for whoever decides
    which protocol is safe enough, not for the parties. Real runs are watched and attacked. Of a job
    with protocol he or enclave, what either side sees is listed.
    """
    with working(edge.err, "starting"):
        from tacit import report
        from tacit.cli.commands.leakage import examine

        def note(text: str) -> None:
            say(edge.err, text)

        result = examine(job, protocol=protocol, is_quick=quick, note=note)
    edge.out.print(report.summarise(result))
    if html is not None:
        report.write(result, html)
        say(edge.out, f"Report: {html}")
    if out is not None:
        report.save(result, out)


COMMANDS: tuple[click.Command, ...] = (serve, ask, leakage)
