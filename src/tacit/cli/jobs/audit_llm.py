"""``tacit audit`` of a language model: what it says by heart, and what its layers show."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

import torch
from rich.console import Console
from torch import Tensor

from tacit.audit import Finding, build_result
from tacit.audit.embedding import ATTACKS, TryTokens, see_hidden, sweep_depth, sweep_noise
from tacit.audit.memorisation import (
    METHODS,
    Format,
    SeenSpeakers,
    SeenSpeech,
    Speech,
    audit_canaries,
    audit_extraction,
    see_checkpoint,
)
from tacit.cli.jobs.audit_llm_job import AuditLlmJob, LlmCanaries
from tacit.cli.jobs.audit_sides import no_claim
from tacit.cli.jobs.kind import Part
from tacit.cli.screen import say
from tacit.errors import ConfigError, DataError
from tacit.llm import LanguageModel, Tokenizer, open_checkpoint
from tacit.party import Progress, Usage
from tacit.result import Curve, Result, Sheet

_INVERTED = 4
"""Texts whose hidden states are turned back; each takes a step per token of the vocabulary."""


def check_inputs(job: AuditLlmJob, parties: Sequence[str]) -> None:
    """Make sure that the files of the job are there."""
    if not job.texts.file.is_file():
        raise DataError(f"texts.file: no such file: {job.texts.file} (from {Path.cwd()})")
    for key, path in {"model.path": job.model.path, "model.second": job.model.second}.items():
        if path is not None and not path.exists():
            raise DataError(f"{key}: no such file or folder: {path} (from {Path.cwd()})")


def run(job: AuditLlmJob, console: Console, search: Sequence[Path]) -> Part:
    """Audit a job of kind "audit-llm"."""
    return Part(result=audit_language(job, console))


def audit_language(job: AuditLlmJob, console: Console, *, is_quick: bool = False) -> Result:
    """Extract training texts, rank canaries, and turn hidden states back into texts.

    Raises:
        DataError: no text is long enough, or a file is not what it should be.
        ConfigError: the tokenizer does not spell the canaries a character at a time.
    """
    usage, progress = Usage(), Progress()
    job = job.quickened() if is_quick else job
    with progress.stage("load"):
        checkpoint = open_checkpoint(job.model.path)
        model, tokenizer = checkpoint.load(), checkpoint.tokenizer()
        corpus = read_texts(job.texts.file, tokenizer)
        targets = choose_targets(job, corpus, context=model.architecture.context)
        planted = None if job.canaries is None else form_of(job.canaries, tokenizer)
    seen = see_checkpoint(model)
    with progress.stage("compute"):
        say(console, f"extracting {len(targets)} texts …", "dim")
        findings = list(_extract(job, seen, tokenizer, targets, corpus))
        if planted is not None:
            say(console, "ranking canaries …", "dim")
            findings.append(audit_canaries(seen, *planted))
        say(console, "inverting hidden states …", "dim")
        found, curves, notes = _invert(job, model, targets)
    result = build_result(
        job.job.name,
        [*findings, *found],
        settings=(_settings_sheet(job),),
        curves=curves,
        notes=notes,
        reports=(usage.report(name="auditor", role="attacks", progress=progress),),
    )
    return replace(result, claims=(no_claim("each training text"),))


def read_texts(path: Path, tokenizer: Tokenizer) -> list[list[int]]:
    """Return the ids of every line that is not empty."""
    try:
        lines = path.read_text(encoding="utf8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"texts.file: {path}: wanted text in UTF-8: {error}") from error
    return [list(tokenizer.encode(line)) for line in lines if line.strip()]


def choose_targets(job: AuditLlmJob, corpus: Sequence[list[int]], *, context: int) -> Tensor:
    """Return the first texts that are long enough, cut to one length."""
    size = job.texts.prefix + job.texts.tokens
    if size > context:
        raise ConfigError(
            f"texts: prefix and tokens make {size}, more than the {context} that the model can take"
        )
    chosen = list(dict.fromkeys(tuple(ids[:size]) for ids in corpus if len(ids) >= size))
    if not chosen:
        longest = max((len(ids) for ids in corpus), default=0)
        raise DataError(
            f"texts.file: wanted texts of at least {size} tokens (prefix and tokens), the longest "
            f"of {len(corpus)} has {longest}"
        )
    return torch.tensor(chosen[: job.texts.count])


def form_of(canaries: LlmCanaries, tokenizer: Tokenizer) -> tuple[Format, list[int]]:
    """Return the format of the canaries and the numbers of the planted ones."""
    prefix = tuple(tokenizer.encode(canaries.sentence))
    alphabet = []
    for one in canaries.alphabet:
        *before, last = tokenizer.encode(canaries.sentence + one)
        if tuple(before) != prefix:
            raise ConfigError(
                f"canaries.alphabet: the tokenizer does not spell {one!r} there as one "
                "token; end the sentence with a character that stands alone"
            )
        alphabet.append(last)
    form = Format(prefix=prefix, alphabet=tuple(alphabet), blanks=len(canaries.planted[0]))
    numbers = []
    for secret in canaries.planted:
        number = 0
        for one in secret:
            number = number * len(alphabet) + canaries.alphabet.index(one)
        if tuple(tokenizer.encode(canaries.sentence + secret)) != form.text(number):
            raise ConfigError(
                f"canaries.planted: the tokenizer does not spell {secret!r} a character at a time"
            )
        numbers.append(number)
    return form, numbers


def _extract(
    job: AuditLlmJob,
    seen: SeenSpeech,
    tokenizer: Tokenizer,
    targets: Tensor,
    corpus: Sequence[list[int]],
) -> tuple[Finding, ...]:
    second = job.model.second
    view = SeenSpeakers(
        speech=seen,
        prefixes=targets[:, : job.texts.prefix],
        second=None if second is None else see_checkpoint(open_checkpoint(second).load()),
        spell=lambda ids: tokenizer.decode(list(ids)),
    )
    return audit_extraction(
        view,
        targets,
        methods=METHODS,
        speech=Speech(tokens=job.texts.tokens),
        count=job.audit.draws,
        corpus=corpus,
        seed=job.audit.seed,
    )


def _invert(
    job: AuditLlmJob, model: LanguageModel, targets: Tensor
) -> tuple[tuple[Finding, ...], tuple[Curve, ...], tuple[str, ...]]:
    if model.architecture.family == "chatglm":
        return (), (), ("Hidden states were not inverted: this model looks in both directions.",)
    top, ids = model.architecture.layers, targets[:_INVERTED]
    attacks = {"tokens in turn": TryTokens(beams=job.audit.beams), "blind": ATTACKS["blind"]}
    depths = job.audit.depths or tuple(sorted({1, (top + 1) // 2, top}))
    found, curves = sweep_depth(model, ids, attacks=attacks, depths=depths, seed=job.audit.seed)
    if job.audit.noise:
        middle = (top + 1) // 2
        spread = float(see_hidden(model, ids, depth=middle).hidden.std())
        _, drawn = sweep_noise(
            model,
            ids,
            "tokens in turn",
            attacks["tokens in turn"],
            depth=middle,
            scales=[spread * share for share in job.audit.noise],
            seed=job.audit.seed,
        )
        curves = (*curves, *drawn)
    return found, curves, ()


def _settings_sheet(job: AuditLlmJob) -> Sheet:
    """Write down what a repetition needs; canaries are secrets and stay out."""
    tables = {"model": asdict(job.model), "texts": asdict(job.texts), "audit": asdict(job.audit)}
    return Sheet(
        title="Settings",
        heads=("setting", "value"),
        rows=tuple(
            (f"{name}.{key}", str(value))
            for name, table in tables.items()
            for key, value in table.items()
            if value is not None
        ),
        caption="The same settings give the same numbers on the same kind of machine.",
    )
