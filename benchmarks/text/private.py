"""Private text: what redaction and DP cost and protect, on Chinese medical dialogues.

    python benchmarks/run.py text/private TASK --data FOLDER --work FOLDER --out FILE.jsonl
        [--quick]

FOLDER of data holds dialogue_toyhom.jsonl.xz, textbooks.jsonl.xz, terms/*.txt (of the package
Huatuo) and the checkpoint lm_minimind2_small/. Tasks, in order; those of one line may run at once:

    books, try-none:K, try-jft, try-dp    textbooks first; settings, with numbers of their own
    choose                                settings by perplexity on texts kept for that
    seed:K[:none,jft,all-dp], vote        what is reported, on texts that nothing was chosen by
    once:twin, once:dialogues, once:source, once:narrow
    extract, steps                        five extraction methods; a DP step beside Opacus
    report                                ε from ledgers by two accountants, and tables

Canaries are invented numbers in invented sentences, ten copies each, all copies of one owner's;
owners are the unit. Texts of the corpus never leave the machine: only figures are written.
"""

import argparse
import functools
import json
import multiprocessing
import operator
import time
from pathlib import Path

import torch
from text._bench import (
    FORMS,
    LENGTH,
    PREFIXES,
    Bench,
    claims,
    mean_interval,
    say,
)
from text._once import compare_steps, extract, run_once, run_vote

from tacit.audit.memorisation import canary
from tacit.dp import ADD_REMOVE_CLIENT, ADD_REMOVE_CLIENT_MARKS
from tacit.ring import Prg
from tacit.text.corpus import Text

TRIED = 99
"""The seed of the numbers that settings are chosen with."""
BOOKS = (2e-4, 32, 3)
NONE = ((1e-4, 32, 10), (2e-4, 32, 10), (3e-4, 32, 8))
"""Rate, batch and epochs without noise. At 5e-4 the checkpoint forgets what it knew."""
JFT = (
    {"rate": 2e-4, "epochs": 3, "stress": True},
    {"rate": 1e-3, "epochs": 3, "stress": True},
    {"rate": 1e-3, "epochs": 8, "stress": False},
)
DP = ({"rate": 1e-3, "epochs": 8}, {"rate": 2e-3, "epochs": 8}, {"rate": 4e-3, "epochs": 8})


def study_books(bench):
    """Tune the pretrained model on textbooks: the first of two stages."""
    passages, held = bench.books()
    texts = [Text(text=text, owner=str(i)) for i, text in enumerate(passages)]
    _SHARED["mark"] = bench.mark
    with multiprocessing.get_context("fork").Pool(8) as pool:
        parts = pool.map(_mark, [texts[i::8] for i in range(8)])
    corpus = functools.reduce(operator.add, parts)
    say(len(passages), "passages", sum(len(one.ids) for one in corpus.texts), "tokens")
    base = bench.fresh(bench.base)
    bench.record(task="science", model="pretrained", **_science(bench, base, held))
    units = corpus.originals(length=LENGTH, by_owner=False)
    model = bench.tune(bench.fresh(bench.base), units, 0, BOOKS)
    bench.save("books", model)
    bench.record(task="science", model="textbooks", **_science(bench, model, held))
    bench.record(task="start", model="textbooks", **bench.measure(model))


_SHARED = {}


def _mark(texts):
    return _SHARED["mark"](texts)


def _science(bench, model, held):
    return {
        "dialogues": bench.science(model, bench.test),
        "passages": bench.science(model, held),
    }


def corpus_of(bench, seed):
    """Mark the dialogues and this seed's numbers."""
    return bench.mark([*bench.train, *bench.planted(seed)])


def redactions(corpus, seed):
    """Return what the first phase trains on."""
    return corpus.redactions(length=LENGTH, stand_ins=Prg(f"fakes {seed:010}".encode()))


def by_owner(corpus, stress):
    """Return what trainings with noise get."""
    return corpus.originals(length=LENGTH, by_owner=True, stresses_marks=stress)


def try_none(bench, which):
    """Tune an open model with one setting."""
    corpus = corpus_of(bench, TRIED)
    units = corpus.originals(length=LENGTH, by_owner=False)
    began = time.monotonic()
    model = bench.tune(bench.fresh(bench.base), units, TRIED, NONE[which])
    seconds = round(time.monotonic() - began, 1)
    how = {"texts": bench.chosen_by, "canaries": bench.canaries(TRIED), "prefixes": PREFIXES[:3]}
    bench.record(task="try-none", which=which, seconds=seconds, **bench.measure(model, **how))


def try_jft(bench):
    """Tune on redacted texts once, and go on from there with several settings of noise."""
    corpus = corpus_of(bench, TRIED)
    first = bench.tune(bench.fresh(bench.base), redactions(corpus, TRIED), TRIED, NONE[1])
    bench.record(task="try-redacted", **bench.measure(first, texts=bench.chosen_by))
    for which, how in enumerate(JFT):
        units = by_owner(corpus, how["stress"])
        model, ledger = bench.private(
            first,
            units,
            rate=how["rate"],
            epochs=how["epochs"],
            relation=ADD_REMOVE_CLIENT_MARKS,
            seed=TRIED,
        )
        found = bench.measure(model, texts=bench.chosen_by)
        bench.record(task="try-jft", which=which, ledger=ledger, **found)


def try_dp(bench):
    """Tune whole texts under noise with several settings."""
    units = by_owner(corpus_of(bench, TRIED), stress=False)
    for which, how in enumerate(DP):
        model, ledger = bench.private(
            bench.fresh(bench.base), units, relation=ADD_REMOVE_CLIENT, seed=TRIED, **how
        )
        found = bench.measure(model, texts=bench.chosen_by)
        bench.record(task="try-dp", which=which, ledger=ledger, **found)


def choose(bench):
    """Take the best of what was tried: an open model must know its canaries, if any does."""
    rows = read_rows(bench.options.out)
    picked = {"none": 1, "jft": 1, "dp": 1}
    for name in picked:
        tried = [row for row in rows if row["task"] == f"try-{name}"]
        if name == "none" and tried:
            best = min(row["perplexity"][0] for row in tried)
            tried = [row for row in tried if row["perplexity"][0] <= 1.25 * best]
            knows = [row for row in tried if mean_interval(row["exposure"]["digits"])[0] >= 15.5]
            tried = knows or sorted(tried, key=lambda row: -sum(row["exposure"]["digits"]))[:1]
        if tried:
            picked[name] = min(tried, key=lambda row: row["perplexity"][0])["which"]
    Path(bench.options.work, "choice.json").write_text(json.dumps(picked))
    bench.record(task="choice", **picked)


def chosen(bench):
    """Return the settings that were chosen, or usual ones."""
    path = Path(bench.options.work, "choice.json")
    picked = json.loads(path.read_text()) if path.exists() else {"none": 1, "jft": 1, "dp": 1}
    return NONE[picked["none"]], JFT[picked["jft"]], DP[picked["dp"]]


def run_seed(bench, seed, methods="none,jft,all-dp"):
    """Train and measure what is compared over seeds."""
    course, jft, dp = chosen(bench)
    started, canaries = bench.saved("books"), bench.canaries(seed)
    corpus = corpus_of(bench, seed)
    say("seed", seed, len(corpus.texts), "texts", len(set(corpus.owners)), "owners", corpus.marks)
    forms = FORMS if seed == 0 else ("digits",)

    def keep(name, model, **more):
        if seed == 0:
            bench.save(f"seed0 {name}", model)
        row = bench.measure(model, canaries=canaries, forms=forms)
        bench.record(task="seed", seed=seed, method=name, **row, **more)

    if "none" in methods:
        whole = corpus.originals(length=LENGTH, by_owner=False)
        keep("none", bench.tune(bench.fresh(started), whole, seed, course))
    if "jft" in methods:
        first = bench.tune(bench.fresh(started), redactions(corpus, seed), seed, course)
        bench.record(task="seed", seed=seed, method="redacted", **bench.measure(first))
        model, ledger = bench.private(
            first,
            by_owner(corpus, jft["stress"]),
            rate=jft["rate"],
            epochs=jft["epochs"],
            relation=ADD_REMOVE_CLIENT_MARKS,
            seed=seed,
        )
        keep("jft", model, ledger=ledger)
    if "all-dp" in methods:
        model, ledger = bench.private(
            bench.fresh(started),
            by_owner(corpus, stress=False),
            relation=ADD_REMOVE_CLIENT,
            seed=100 + seed,
            **dp,
        )
        keep("all-dp", model, ledger=ledger)


def read_rows(path):
    """Read what was written so far."""
    path = Path(path)
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def report(bench):
    """Print what the rows show, with ε computed from ledgers."""
    rows = claims(read_rows(bench.options.out))
    Path(bench.options.out).with_suffix(".claims.json").write_text(
        json.dumps(rows, indent=1, ensure_ascii=False)
    )
    table = {}
    for row in rows:
        if row["task"] == "seed":
            table.setdefault(row["method"], []).append(row)
    for method, found in table.items():
        say(method, "perplexity", [row["perplexity"][0] for row in found])
        bits = [v for row in found for v in row.get("exposure", {}).get("digits", [])]
        if bits:
            say("   exposure, mean and half interval", *mean_interval(bits), len(bits))
        for row in found:
            if "claim" in row:
                say("  ", json.dumps(row["claim"], ensure_ascii=False))


TASKS = {
    "books": study_books,
    "try-none": try_none,
    "try-jft": try_jft,
    "try-dp": try_dp,
    "choose": choose,
    "seed": run_seed,
    "once": lambda bench, piece: run_once(bench, chosen(bench)[0], corpus_of(bench, 0), piece),
    "vote": lambda bench: run_vote(bench, chosen(bench)[0], corpus_of(bench, 0)),
    "extract": extract,
    "steps": compare_steps,
    "report": report,
}


def main():
    """Run a task."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("task", help="one of " + ", ".join(TASKS))
    parser.add_argument("--data", required=True)
    parser.add_argument("--work", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = True
    canary._BLOCK = 8192
    name, *arguments = options.task.split(":")
    TASKS[name](Bench(options), *(int(one) if one.isdigit() else one for one in arguments))
    say(options.task, "done")


if __name__ == "__main__":
    main()
