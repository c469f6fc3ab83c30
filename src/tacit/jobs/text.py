"""Run a job of kind "text": tune, measure, attack, and put a protected model beside an open one."""

import copy
import json
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch
from safetensors.torch import save

from tacit.audit.memorisation import Format, SeenSpeech, exact_exposures, proven_exposure
from tacit.audit.memorisation.canary import spell_canary
from tacit.data.metrics import put_beside
from tacit.dp.policy import Policy, by_terms, read_terms
from tacit.errors import DataError
from tacit.jobs.config import LoneJob
from tacit.jobs.kind import Asked, Kind, Outlook, Part, Screen
from tacit.jobs.text_data import FRAME, SIGNS, Loaded, load
from tacit.llm.model.module import CausalModule, language_model
from tacit.llm.model.saving import save_model
from tacit.party import Progress, Usage
from tacit.result import NOTHING_SENT, Claim, Leak, Metric, Result, Sheet
from tacit.ring import Prg
from tacit.spec import refuse, refuse_together
from tacit.text.corpus import PLACEHOLDER, Text
from tacit.text.forms import FORMS, coverage_sheet, draw_labelled
from tacit.text.front import (
    Tuned,
    enter_book,
    fine_tune,
    foresee_book,
    planned_claim,
)
from tacit.text.spec import TextSpec
from tacit.text.tune import measure_perplexity, measure_scientificity, tune
from tacit.text.vote import UNSPENT

Row = dict[str, Metric | None]
_METHODS = {
    "none": "no protection",
    "all-dp": "DP on whole texts",
    "jft": "redacted, then DP",
    "vote": "redacted; numbers by vote",
}
_OPEN = _METHODS["none"]


@dataclass(frozen=True, kw_only=True)
class TextJob(TextSpec, LoneJob):
    """A job of kind "text"."""

    alone = "texts stay with their owner: this job runs here, alone"
    does = "trains"

    def __post_init__(self) -> None:
        refuse_together(self.check_parties, super().__post_init__, self._check_limit)

    def _check_limit(self) -> None:
        is_open = self.train.method == "none" or self.report.compare == "plain"
        if self.train.most_epsilon is not None and is_open:
            refuse(
                "train.most_epsilon",
                "an open model has no ε, and its figures are in the report: set another method, "
                'and report.compare = "none"',
            )


def check_inputs(job: TextJob, parties: Sequence[str]) -> None:
    """Make sure that the files of the job are there."""
    named = {
        "data.texts": job.data.texts,
        "data.public": job.data.public,
        "data.terms": job.data.terms,
        "policy.terms": job.policy.terms,
        "model.path": job.model.path,
    }
    for key, path in named.items():
        if path is not None and not path.exists():
            raise DataError(f"{key}: no such file or folder: {path} (from {Path.cwd()})")


def forecast(job: TextJob, asked: Asked) -> Outlook:
    """Count texts and marks, and compute the noise and the claim that the training will have."""
    asked.refuse("rows", "features")
    loaded = load(job)
    corpus = loaded.mark(loaded.train)
    claim, noise = planned_claim(loaded.module, corpus, job.plan())
    table = job.train
    lines = [
        f"{len(corpus.texts):,} texts of {len(set(corpus.owners)):,} owners, canaries among them; "
        f"{corpus.marks:,} of their tokens are marked; {len(loaded.test):,} texts to measure on",
        f"{_METHODS[table.method]}, {table.epochs} epochs without noise",
    ]
    if noise:
        lines.append(
            f"Then {table.private_epochs} epochs with noise of {noise:.3f} × the clip: "
            f"ε = {claim.epsilon:.3f} at δ = {claim.delta:.3g}, for {claim.relation}"
        )
    if job.plan().method != "none":
        total = None if job.decode is None else job.decode.total
        many, spent = foresee_book(loaded.module, corpus, job.plan(), job.book(), total=total)
        lines.append(
            f"With this training {job.book().path.name}, beside the texts, counts {many}: "
            f"ε = {spent:.4g} together"
        )
    if job.decode is not None:
        event = job.plan().ballot.event
        lines.append(
            f"A token of a number costs ε = {event.epsilon:.4g}, a conversation at most "
            f"{job.decode.conversation:g}, all of them {job.decode.total:g}"
        )
    lines.append("No forecast of traffic: nothing is sent, everything runs on this machine.")
    return Outlook(
        about="text",
        lines=tuple(lines),
        leaks=_shown(job, len(loaded.test)),
        claims=(claim, _FIGURES),
    )


def run(job: TextJob, screen: Screen, search: Sequence[Path]) -> Part:
    """Tune the model, measure it beside others, and hand it out with what is promised of it."""
    usage, progress, tell = Usage(), Progress(), screen.tell
    with progress.stage("load"):
        loaded = load(job)
        corpus = loaded.mark(loaded.train)
    prg = Prg(f"tacit text {job.train.seed:05}"[-16:].encode().rjust(16))
    with progress.stage("public texts"):
        if loaded.public:
            public = loaded.mark([Text(text=t, owner=str(i)) for i, t in enumerate(loaded.public)])
            course = replace(job.plan().course, epochs=job.train.public_epochs)
            units = public.originals(length=job.data.length, by_owner=False)
            tune(loaded.module, units, course, prg=prg, note=lambda *at: tell("public texts", *at))
    rows: dict[str, Row] = {"before": _measure(job, loaded, loaded.module)}
    plan, counted = job.plan(), None
    if plan.method != "none":
        total, book = None if job.decode is None else job.decode.total, job.book()
        counted = enter_book(loaded.module, corpus, plan, book, total=total)
    if _has_open_one(job):
        with progress.stage("no protection"):
            open_one = fine_tune(
                copy.deepcopy(loaded.module), corpus, replace(plan, method="none"), prg=prg
            )
            rows[_OPEN] = _measure(job, loaded, open_one.module)
    with progress.stage("tune"):
        # Order comes from the seed, noise never does: whoever knows it could take it away.
        fresh = prg if plan.method in ("none", "vote") else None
        tuned = fine_tune(copy.deepcopy(loaded.module), corpus, plan, prg=fresh, tell=tell)
    with progress.stage("measure"):
        rows[_METHODS[plan.method]] = _measure(job, loaded, tuned.module)
    notes = [
        "Texts that are shown are invented; no text of an owner is in this report. Its figures are "
        "exact ones of the owners' texts: keep it, or pay for them elsewhere.",
    ]
    if counted is not None:
        notes.append(_counted(job, counted))
    if corpus.left_out:
        notes.append(f"{corpus.left_out} empty texts were left out.")
    if corpus.repeated:
        notes.append(f"{corpus.repeated} texts stand under more than one owner, who share their ε.")
    if tuned.second is not None:
        notes.append(f"ε computed again by {tuned.second.accountant}: {tuned.second.epsilon:.4g}.")
    result = Result(
        kind="text",
        name=job.job.name,
        protocol=_METHODS[plan.method],
        launched="one process",
        parties=(usage.report(name="here", role="trains", progress=progress),),
        forecast=None,
        metered=NOTHING_SENT,
        leakage=_shown(job, len(loaded.test)),
        claims=(tuned.claim, _FIGURES),
        utility=put_beside(
            _known(rows[_METHODS[plan.method]]), _known(rows[_OPEN] if _has_open_one(job) else {})
        ),
        sheets=(
            _side_by_side(job, rows, tuned),
            coverage_sheet(loaded.policy),
            _samples(loaded.policy),
        ),
        notes=tuple(notes),
    )
    return Part(result=result, files=_files(job, loaded, tuned))


_FIGURES = Claim(
    subject="texts of owners that were held back, towards whoever reads the figures of this report",
    guarantee="no guarantee",
    assumptions=(
        "perplexity and scientificity are exact, of models before and after, and of an open one "
        "where it stands beside them; whether a text was among those measured can show",
    ),
)


def _known(row: Row) -> list[Metric]:
    return [one for one in row.values() if one is not None]


def _shown(job: TextJob, texts: int) -> tuple[Leak, ...]:
    """List what a report tells: a figure of every model after another, and counts of texts."""
    models = ["before", _METHODS[job.train.method]]
    if _has_open_one(job):
        models.insert(1, _OPEN)
    figures = ["perplexity", *(("scientificity",) if job.data.terms is not None else ())]
    forms = () if job.canaries is None else job.canaries.forms
    figures += [f"exposure of canaries in {form}" for form in forms]
    held = f"measured on {texts} texts that were held back"
    invented = "measured on invented numbers; what the model is, shows"
    told = [
        (f"{one} of the model: {model}, exact", invented if one.startswith("exposure") else held)
        for model in models
        for one in figures
    ]
    # As much where it is 0.
    told += [
        (f"how many texts {what}, exactly", "counted while they were read")
        for what in ("are empty and were left out", "stand under more than one owner")
    ]
    return tuple(
        Leak(to="whoever reads this report", what=what, why=why, kind="output", elements=1)
        for what, why in told
    )


def _has_open_one(job: TextJob) -> bool:
    """Tell whether a model without protection is trained beside."""
    return job.report.compare == "plain" and job.plan().method != "none"


def _counted(job: TextJob, counted: tuple[int, float]) -> str:
    trainings, spent = counted
    return (
        f"{job.book().path.name}, beside the texts, counts {trainings} "
        f"{'training' if trainings == 1 else 'trainings'} on them with this one: ε = {spent:.4g} "
        f"together for what noisy parts saw of one {job.train.unit}. "
        "A copy of the texts elsewhere starts anew, as does whoever removes that file."
    )


def _measure(job: TextJob, loaded: Loaded, module: torch.nn.Module) -> Row:
    held, length = loaded.mark(loaded.test), job.data.length
    row: Row = {"perplexity": measure_perplexity(module, held.texts, length=length)}
    if job.data.terms is not None:
        row["scientificity"] = measure_scientificity(
            module,
            [one.text for one in loaded.test],
            loaded.tokenizer,
            by_terms(read_terms(job.data.terms)),
            length=length,
            policy=loaded.policy,
            starts=loaded.starts,
        )
    if job.canaries is not None:
        for form in job.canaries.forms:
            row[f"exposure, {form}"] = _expose(job, loaded, module, form)
    return row


def _expose(job: TextJob, loaded: Loaded, module: torch.nn.Module, form: str) -> Metric:
    table = job.canaries
    assert table is not None  # noqa: S101  the caller has looked

    def answer(ids: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            scores: torch.Tensor = module(ids)
        return scores

    a = loaded.module.architecture
    seen = SeenSpeech(answer=answer, vocab=a.vocab, context=a.context)
    prefix = [*loaded.starts, *loaded.tokenizer.pieces(FRAME)[0]]
    signs = [loaded.tokenizer.pieces(sign)[0] for sign in SIGNS[form]]
    view, spelled = spell_canary(seen, prefix, signs, blanks=table.signs)
    values = [one.value for one in exact_exposures(view, spelled, loaded.canaries[form])]
    return Metric(
        name=f"exposure of canaries in {form}",
        value=sum(values) / len(values),
        unit="bits",
        samples=len(values),
        note=f"1.44 of one never seen, at most {spelled.bits:.1f}; all fillings are ranked",
    )


def _side_by_side(job: TextJob, rows: dict[str, Row], tuned: Tuned) -> Sheet:
    names = list(next(iter(rows.values())))
    lines = []
    for label, row in rows.items():
        is_ours = label == _METHODS[job.train.method]
        spent = f"{tuned.claim.epsilon:.3g}" if is_ours and tuned.claim.epsilon else "–"
        if label == _OPEN:
            spent = "no guarantee"
        shown = [_interval(row[name]) for name in names]
        lines.append((label, *shown, spent))
    bound = ""
    claim = tuned.claim
    if job.canaries is not None and claim.epsilon is not None and claim.delta is not None:
        digits = tuple(range(10))
        form = Format(prefix=(1,), alphabet=digits, blanks=job.canaries.signs)
        most = proven_exposure(form, [(claim.epsilon, claim.delta)])
        bound = f" The claim allows {most:.2f} bits of mean exposure; a number never seen has 1.44."
    return Sheet(
        title="Beside each other",
        heads=("model", *(f"# {name}" for name in names), "# ε"),
        rows=tuple(lines),
        caption=f"Perplexity on texts of owners that were held back.{bound}",
    )


def _interval(metric: Metric | None) -> str:
    if metric is None or metric.value is None:
        return "not measured"
    around = "" if metric.low is None else f" ({metric.low:.3g} to {metric.high:.3g})"
    return f"{metric.value:.4g}{around}"


def _samples(policy: Policy) -> Sheet:
    """Show invented sentences with what is marked in colour."""
    prg, rows = Prg(b"invented samples"), []
    for form in FORMS:
        text, _ = draw_labelled(form, 1, prg=prg)[0]
        shown, at = "", 0
        for start, end, _ in policy(text):
            shown += f"{text[at:start]}⟦{text[start:end]}⟧"
            at = end
        rows.append((form, shown + text[at:]))
    return Sheet(
        title="What is marked",
        heads=("form", "an invented sentence"),
        rows=tuple(rows),
        caption=f"What is coloured is {PLACEHOLDER} or a random number where no noise is.",
    )


def _files(job: TextJob, loaded: Loaded, tuned: Tuned) -> dict[str, str | bytes]:
    """Return the model as files of the result folder; voters are for whoever answers, alone."""
    assert isinstance(tuned.module, CausalModule)  # noqa: S101  adapters are merged
    with tempfile.TemporaryDirectory(prefix="tacit-") as scratch:
        save_model(Path(scratch), language_model(tuned.module), loaded.tokenizer)
        files: dict[str, str | bytes] = {p.name: p.read_bytes() for p in Path(scratch).iterdir()}
    if job.decode is not None:
        files["voters.safetensors"] = save(
            {
                f"{number}/{name}/{side}": weight.contiguous()
                for number, one in enumerate(tuned.voters)
                for name, pair in one.items()
                for side, weight in zip(("down", "up"), pair, strict=True)
            }
        )
        settings = {**asdict(job.decode), "layers": list(job.plan().layers)}
        files["decode.json"] = json.dumps({**settings, "patterns": list(job.policy.patterns)})
        files["spent.json"] = UNSPENT  # from the beginning: one that is missing was taken away
    return files


KIND = Kind(record=TextJob, check_inputs=check_inputs, forecast=forecast, run=run)
