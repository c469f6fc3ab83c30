"""``tacit split advise``: which compressor to take for a budget of bytes."""

from dataclasses import dataclass, fields
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tacit.audit import clopper_pearson
from tacit.cli.environment import data_folders
from tacit.cli.screen import say
from tacit.errors import ConfigError
from tacit.jobs.split import SplitJob
from tacit.jobs.toml import read_toml
from tacit.spec import read_record
from tacit.split import (
    Compression,
    CompressionTrial,
    Halves,
    SplitSpec,
    cut_model,
    fitting,
    recommend,
    try_candidates,
)
from tacit.split.rows import load_whole


@dataclass(frozen=True)
class Advice:
    """The trial that is recommended, and the line of the job file that asks for it."""

    trial: CompressionTrial
    line: str


def advise_job(
    path: Path, budget_bytes: int, *, seeds: int, console: Console
) -> tuple[list[CompressionTrial], Advice]:
    """Try every kind of compressor that can keep the job's training within the budget.

    Raises:
        ConfigError: the job is not of kind "split", has several feature owners, or nothing fits.
    """
    raw = read_toml(path)
    head = raw.get("job")
    if not isinstance(head, dict) or head.get("kind") != "split":
        raise ConfigError(f'{path}: wanted a job of kind "split"')
    job = read_record(raw, SplitJob, source=str(path))
    if len(job.data.features) > 1:
        raise ConfigError(f"{path}: advice is for one feature owner, got {len(job.data.features)}")
    data = load_whole(job, data_folders())
    job, rows = job.with_classes(data.classes), data.train_x

    def make(trial: SplitSpec) -> Halves:
        return cut_model(trial.model(rows.shape[1:], trial.classes), trial, rows[:2])

    width = make(job).codec.width
    candidates = fitting(job, rows=len(rows), width=width, budget_bytes=budget_bytes)
    trials = []
    for trial in try_candidates(job, candidates, make, rows, data.train_y, seeds=seeds):
        trials.append(trial)
        say(console, f"{len(trials)}/{len(candidates)} {describe(trial.candidate.compression)}")
    best = recommend(trials)
    return trials, Advice(best, f"compress = {describe(best.candidate.compression)}")


def describe(compression: Compression) -> str:
    """Write a compressor as the job file would."""
    pairs = [f'kind = "{compression.kind}"']
    for field in fields(compression):
        value = getattr(compression, field.name)
        if field.name != "kind" and value is not None and value is not False:
            pairs.append(f"{field.name} = {str(value).lower()}")
    return "{ " + ", ".join(pairs) + " }"


def show_trials(trials: list[CompressionTrial], advice: Advice) -> Table:
    """Lay out what was tried; the recommended one is marked."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, header_style="dim")
    for head in ("", "compress", "training bytes", "accuracy", "95 % interval"):
        table.add_column(head, justify="left" if head in ("", "compress") else "right")
    for trial in trials:
        low, high = clopper_pearson(round(trial.accuracy * trial.samples), trial.samples)
        table.add_row(
            "→" if trial is advice.trial else "",
            Text(describe(trial.candidate.compression)),
            f"{trial.candidate.training_bytes:,}",
            f"{100 * trial.accuracy:.1f} %",
            f"{100 * low:.1f} to {100 * high:.1f} %",
        )
    return table
