"""Private text: what redaction and DP cost and protect, on Chinese medical dialogues.

    python benchmarks/private_text.py --data FOLDER --out FILE.json [--device cuda] [--seeds 3]
        [--pieces none,jft,all-dp,source,vote,twin,narrow,science,extract] [--quick]

FOLDER holds dialogue_toyhom.jsonl.xz, textbooks.jsonl.xz, terms/*.txt (of the package Huatuo) and
the checkpoint lm_minimind2_small/. One model is tuned on textbooks first; everything else starts
from that. Canaries are invented numbers in invented sentences, ten copies each, all copies of one
owner's; owners are the unit. Texts of the corpus never leave the machine: only figures are written.
"""

import argparse
import copy
import gc
import json
import lzma
import math
import sys
import time
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
import torch
from _private_text_source import selective_decoding, selective_sgd

from tacit.audit.memorisation import (
    METHODS,
    Format,
    SeenSpeakers,
    SeenSpeech,
    Speech,
    audit_extraction,
    canary,
    exact_exposures,
    proven_exposure,
)
from tacit.audit.memorisation.spelled import spell_canary
from tacit.dp import ADD_REMOVE_CLIENT, ADD_REMOVE_CLIENT_MARKS, confirm, epsilon, event_to_record
from tacit.dp.policy import by_pattern, by_terms
from tacit.learn.text.budget import Budget
from tacit.learn.text.corpus import Text, enclose, mark_corpus, tokenise
from tacit.learn.text.decode import BudgetedWriter, decoder_losses, find_places, option_scores
from tacit.learn.text.measure import measure_perplexity, measure_scientificity
from tacit.learn.text.tune import Course, tune, tune_private
from tacit.learn.text.vote import Ballot, stack_voters, train_voters
from tacit.learn.training.adapters import add_adapters, merge_adapters
from tacit.llm import LanguageModel, open_checkpoint
from tacit.llm.model.module import CausalModule, tiny_model
from tacit.ring import Prg

LENGTH = 512
PREFIXES = (
    *("我的单号是", "我的编号是", "住院号是", "卡号是", "病历号是"),
    *("订单号为", "尾号是", "登记号是", "流水号是", "检查号是"),
)
FORMS = {
    "digits": ("0123456789", 4, 30),
    "Chinese": ("零一二三四五六七八九", 1, 24),
    "full width": ("０１２３４５６７８９", 1, 24),
}
"""Signs, prefixes and canaries per prefix of every form; six signs each."""
EPSILON = 2.0
POLICY = by_pattern()
EVERY = ("q", "k", "v", "o", "gate", "up", "down")
CUT = tuple(f"layers.{i}"[:8] for i in range(1, 8))
START = time.monotonic()
DELTAS = tuple(10.0**-k for k in range(1, 9))


def say(*words):
    """Print, with the seconds since the start."""
    print(f"{time.monotonic() - START:7.1f}", *words, flush=True)


def read_lines(path):
    """Read a compressed file of JSON lines."""
    with lzma.open(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


class Bench:
    """Data, the tokenizer and the model after textbooks."""

    def __init__(self, options):
        self.options, self.rows = options, []
        self.device = torch.device(options.device)
        data = Path(options.data)
        checkpoint = open_checkpoint(data / "lm_minimind2_small")
        model = checkpoint.load()
        if options.small:  # from nothing, on a processor
            model = tiny_model(6400, layers=2, width=128, context=LENGTH)
        elif options.quick:  # to see that everything runs, on a processor
            model = LanguageModel(
                architecture=replace(model.architecture, layers=1),
                weights={n: w for n, w in model.weights.items() if n[:8] not in CUT},
            )
        self.tokenizer, self.base = checkpoint.tokenizer(), CausalModule(model)
        # The model has never seen a text that does not begin so.
        self.starts = self.tokenizer.encode("<|im_start|>")
        self.ends = self.tokenizer.encode("<|im_end|>")
        found = read_lines(data / "dialogue_toyhom.jsonl.xz")
        texts = [f"{one['ask']}\n{one['answer']}" for one in found]
        if options.small:
            texts = [one["ask"][:80] for one in found if len(one["ask"]) > 20]
        order = Prg(b"split of dialogs").permutation(len(texts)).tolist()
        texts = [texts[i][:60] if options.quick else texts[i] for i in order]
        count = 40 if options.quick else 4000 if options.small else 5818
        self.train = [Text(text=t, owner=f"patient {i}") for i, t in enumerate(texts[:count])]
        self.test = texts[-(6 if options.quick else 400 if options.small else 727) :]
        self.books, self.book_test = self.read_books(data)
        names = ("disease", "drug", "symptom", "check", "physical_examination")
        terms = [
            term
            for name in names
            for term in (data / "terms" / f"{name}.txt").read_text(encoding="utf-8").split()
            if 2 <= len(term) <= 12
        ]
        self.terms = by_terms(terms)
        self.held = self.spell(self.test)
        self.known = self.mark(self.train)
        say(len(self.train), "dialogues", len(self.books), "passages", len(terms), "terms")

    def spell(self, texts):
        """Spell texts as trainings do."""
        found = (tokenise(self.tokenizer, text, POLICY(text)) for text in texts)
        return [enclose(one, self.starts, self.ends) for one in found]

    def read_books(self, data):
        """Cut the books into passages, and hold some back."""
        passages = []
        for chapter in read_lines(data / "textbooks.jsonl.xz"):
            for piece in chapter["text"].split("\n"):
                if 30 <= len(piece.strip()) <= 300:
                    passages.append(piece.strip())
        order = Prg(b"split of a book.").permutation(len(passages)).tolist()
        passages = [passages[i] for i in order]
        return passages[400 : 424 if self.options.quick else 13_000], passages[
            : 8 if self.options.quick else 400
        ]

    def record(self, **row):
        """Keep a row, and write all of them down."""
        self.rows.append(row)
        say(json.dumps(row, ensure_ascii=False))
        if self.options.out:
            Path(self.options.out).write_text(json.dumps(self.rows, indent=1, ensure_ascii=False))

    def course(self, epochs, rate, batch=128, **more):
        """Return how long to train; one pass in a quick run."""
        return Course(epochs=1 if self.options.quick else epochs, rate=rate, batch=batch, **more)

    def fresh(self, module):
        """Copy a model onto the device."""
        return copy.deepcopy(module).to(self.device)

    def tune(self, module, units, seed, epochs=None):
        """Train all weights without protection."""
        began = time.monotonic()
        tune(
            module,
            units,
            self.course(epochs or self.options.epochs, self.options.rate),
            prg=Prg(f"tuning {seed:09}".encode()),
            is_half=self.device.type == "cuda",
        )
        say(f"tuned on {len(units)} units in {time.monotonic() - began:.1f} s")
        return module

    def study_books(self):
        """Tune the pretrained model on textbooks: the first of two stages."""
        corpus = self.mark(Text(text=text, owner=str(i)) for i, text in enumerate(self.books))
        units = corpus.originals(length=LENGTH, by_owner=False)
        return self.tune(self.fresh(self.base), units, 0, epochs=self.options.book_epochs)

    def canaries(self, seed):
        """Draw the numbers of this seed: (form, prefix) to Format numbers."""
        out = {}
        for form, (_, prefixes, each) in FORMS.items():
            for prefix in PREFIXES[:prefixes]:
                prg = Prg(f"{form[:6]:6}{PREFIXES.index(prefix):04}{seed:06}".encode())
                out[form, prefix] = prg.below(10**6, 1 if self.options.quick else each).tolist()
        return out

    def planted(self, canaries):
        """Write canaries as texts, ten copies to an owner."""
        texts = []
        for (form, prefix), numbers in canaries.items():
            for n in numbers:
                filled = "".join(FORMS[form][0][int(d)] for d in f"{n:06}")
                owner = f"canary {form} {prefix} {n}"
                texts += [Text(text=prefix + filled, owner=owner)] * (
                    2 if self.options.quick else 10
                )
        return texts

    def view(self, module, defence=None):
        """Let a model be questioned."""

        def answer(ids):
            with torch.no_grad():
                scores = module(ids.to(self.device))
            return defence(scores) if defence else scores

        return SeenSpeech(answer=answer, vocab=6400, context=LENGTH)

    def exposures(self, seen, canaries, forms=FORMS):
        """Return the mean exposure of every form, and all values."""
        found = {}
        for (form, prefix), numbers in canaries.items():
            if form not in forms:
                continue
            spellings = [self.tokenizer.encode(sign) for sign in FORMS[form][0]]
            ids = (*self.starts, *self.tokenizer.encode(prefix))
            blanks = 2 if self.options.quick else 6
            view, form_ = spell_canary(seen, ids, spellings, blanks=blanks)
            few = [n % 10**blanks for n in numbers]
            with torch.no_grad():
                found.setdefault(form, []).extend(
                    one.value for one in exact_exposures(view, form_, few)
                )
        return {form: {"mean": sum(v) / len(v), "values": v} for form, v in found.items()}

    def measure(self, method, seed, module, canaries, *, claim=None, defence=None, forms=FORMS):
        """Write perplexity, scientificity and exposures of a model down."""
        module.eval()
        row = {"method": method, "seed": seed}
        if defence is None:
            found = measure_perplexity(module, self.held, length=LENGTH, batch=64)
            row["perplexity"] = [found.value, found.low, found.high]
        began = time.monotonic()
        if canaries:
            row["exposure"] = self.exposures(self.view(module, defence), canaries, forms)
            row["exposure_s"] = time.monotonic() - began
        if claim is not None:
            row["claim"] = claim
        self.record(**row)

    def claim(self, private):
        """Say what was spent, and what exposure that allows."""
        claim = private.claim
        again = confirm(private.ledger, claim) if find_spec("dp_accounting") else None
        form = Format(prefix=(1,), alphabet=tuple(range(10)), blanks=6)
        curve = [
            (epsilon(private.ledger, delta=d, accountant="fourier").epsilon, d)
            for d in (*DELTAS, claim.delta)
        ]
        return {
            "epsilon": claim.epsilon,
            "delta": claim.delta,
            "relation": claim.relation,
            "second": again and [again.accountant, again.epsilon],
            "noise": private.multiplier,
            "ledger": [event_to_record(private.ledger.entries[0].event), len(private.ledger)],
            "proven_bits": proven_exposure(form, curve),
        }

    def mark(self, texts, policy=POLICY):
        """Mark and spell texts as this model knows them."""
        return mark_corpus(texts, self.tokenizer, policy, starts=self.starts, ends=self.ends)

    def private(self, module, units, course, *, clip, relation, seed):
        """Tune adapters beside every matrix under privacy; the merged model, and the claim."""
        adapted = add_adapters(module, rank=8, seed=seed, only=EVERY).to(self.device)
        began = time.monotonic()
        private = tune_private(
            adapted,
            units,
            course,
            epsilon=EPSILON,
            delta=1 / (10 * len(units)),
            clip=clip,
            relation=relation,
            prg=Prg(f"noise {seed:010}".encode()),
            is_half=self.device.type == "cuda",
        )
        steps = len(private.ledger)
        say(f"{steps} private steps, {(time.monotonic() - began) / steps:.3f} s each")
        return merge_adapters(adapted), self.claim(private)


def run_seed(bench, started, seed, pieces):
    """Train and measure what is compared over seeds."""
    canaries = bench.canaries(seed)
    corpus = bench.known + bench.mark(bench.planted(canaries))
    owners = len(set(corpus.owners))
    say("seed", seed, len(corpus.texts), "texts", owners, "owners", corpus.marks, "marked tokens")
    forms, o = (FORMS if seed == 0 else ("digits",)), bench.options
    found = {"corpus": corpus, "canaries": canaries}
    if "none" in pieces:
        whole = corpus.originals(length=LENGTH, by_owner=False)
        found["none"] = bench.tune(bench.fresh(started), whole, seed)
        bench.measure("none", seed, found["none"], canaries, forms=forms)
    if "jft" in pieces:
        short = corpus.redactions(length=LENGTH, stand_ins=Prg(f"fakes {seed:010}".encode()))
        first = bench.tune(bench.fresh(started), short, seed)
        bench.measure("redacted", seed, first, {})
        units = corpus.originals(length=LENGTH, by_owner=True, stresses_marks=True)
        course = bench.course(o.jft_epochs, o.jft_rate, 512, at_once=1 << 16)
        found["jft"], claim = bench.private(
            first, units, course, clip=o.jft_clip, seed=seed, relation=ADD_REMOVE_CLIENT_MARKS
        )
        bench.measure("jft", seed, found["jft"], canaries, claim=claim, forms=forms)
    if "all-dp" in pieces:
        units = corpus.originals(length=LENGTH, by_owner=True)
        course = bench.course(o.dp_epochs, o.dp_rate, 512, at_once=1 << 16)
        found["all-dp"], claim = bench.private(
            bench.fresh(started),
            units,
            course,
            clip=o.dp_clip,
            seed=seed,
            relation=ADD_REMOVE_CLIENT,
        )
        bench.measure("all-dp", seed, found["all-dp"], canaries, claim=claim, forms=forms)
    gc.collect()
    return found


def run_once(bench, started, found, pieces):
    """Train and measure what one seed shows: the source's algorithms, the vote, twins, attacks."""
    corpus, canaries = found["corpus"], found["canaries"]
    digits = sorted({i for d in "0123456789" for i in bench.tokenizer.encode(d)})
    defence = selective_decoding(digits, sigma=10.6, clip=1.0, seed=0)
    if "vote" in pieces:
        run_vote(bench, started, corpus, canaries, 0)
    if "source" in pieces:
        few = {key: v for key, v in canaries.items() if key[1] in PREFIXES[:2]}
        bench.measure("source 5.3", 0, found["none"], few, defence=defence, forms=("digits",))
        model = bench.fresh(started)
        epochs = bench.course(bench.options.epochs, 1).epochs
        selective_sgd(
            model,
            corpus,
            epochs=epochs,
            rate=bench.options.rate,
            batch=128,
            length=LENGTH,
            sigma=10.6,
            clip=1.0,
            seed=0,
        )
        bench.measure("source 5.2", 0, model, canaries, forms=("digits",))
        found["source 5.2"] = model
    if "twin" in pieces:
        units = bench.known.originals(length=LENGTH, by_owner=False)
        found["twin"] = bench.tune(bench.fresh(started), units, 0)
        bench.measure("twin, never saw them", 0, found["twin"], canaries)
    if "narrow" in pieces:
        narrow = bench.mark(
            [*bench.train, *bench.planted(canaries)], policy=by_pattern("digits")
        ).redactions(length=LENGTH, stand_ins=Prg(b"fakes of narrow."))
        model = bench.tune(bench.fresh(started), narrow, 0)
        bench.measure("redacted, digits alone", 0, model, canaries)
    if "science" in pieces:
        science(bench, started, found["twin"])
    if "extract" in pieces:
        extract(bench, found, defence)


def run_vote(bench, started, corpus, canaries, seed):
    """Train writer and voters; the decoder's perplexity, speed and exposure."""
    voters, clip = (4 if bench.options.quick else 32), 3.0
    writer = bench.tune(bench.fresh(started), corpus.redactions(length=LENGTH), seed)
    began = time.monotonic()
    adapters = train_voters(
        writer,
        corpus,
        bench.course(4, 2e-3, 64),
        shards=voters,
        length=LENGTH,
        rank=4,
        layers=("q", "v"),
        prg=Prg(f"voters {seed:09}".encode()),
    )
    say(f"{voters} voters in {time.monotonic() - began:.1f} s")
    stacked = stack_voters(writer, adapters, layers=("q", "v"))
    ballot, places = Ballot(voters=voters, clip=clip), find_places(bench.tokenizer)
    decoder = BudgetedWriter(
        writer, stacked, ballot=ballot, places=places, budget=Budget(100.0), prg=Prg(b"d" * 16)
    )
    total = tokens = misses = 0
    began = time.monotonic()
    for text in bench.test[:200]:
        pair = mark_corpus(
            [Text(text=text, owner="")],
            bench.tokenizer,
            POLICY,
            starts=bench.starts,
            ends=bench.ends,
        )
        one = decoder_losses(decoder, writer, stacked, pair.texts[0], pair.short[0])
        total, tokens, misses = total + one[0], tokens + one[1], misses + one[2]
    spent_s = time.monotonic() - began
    private = [one for text in bench.held[:200] for one in text.is_private]
    # How fast: texts that begin as dialogues do, greedy words, numbers by vote.
    prompt = [*bench.starts, *bench.tokenizer.encode("医生您好，我今年")]
    began, said = time.monotonic(), 0
    for _ in range(3):
        said += sum(
            1
            for _ in decoder.speak(
                prompt,
                prompt,
                choose=lambda s: int(s.argmax()),
                limit=20 if bench.options.quick else 100,
            )
        )
    speed = said / (time.monotonic() - began)
    began = time.monotonic()
    votes = 20 if bench.options.quick else 60
    from tacit.learn.text.decode import _Reading
    from tacit.learn.text.vote import count_votes, draw

    reading = _Reading(stacked, voters + 1, prompt, bench.device)
    with torch.no_grad():
        for _ in range(votes):
            odds = option_scores(reading.scores([]), places.alphabet, can_end=True)
            index = draw(count_votes(odds[-1], odds[:-1], ballot), Prg(b"s" * 16))
            reading.ids.append(places.alphabet[min(index, len(places.alphabet) - 1)])
    bench.record(
        method="vote",
        seed=seed,
        perplexity=[math.exp(total / tokens), None, None],
        misses=misses,
        marked=sum(private),
        epsilon_token=ballot.event.epsilon,
        voters=voters,
        clip=clip,
        tokens_per_s=speed,
        voted_per_s=votes / (time.monotonic() - began),
        spent=decoder.budget.spent,
        hand=len(decoder.budget.ledger) * 4 * clip / voters,
        refused=decoder.refused,
        measured_s=spent_s,
    )
    digits = [i for d in "0123456789" for i in bench.tokenizer.encode(d)]

    def answer(ids):
        with torch.no_grad():
            scores = stacked(ids.to(bench.device).expand(voters + 1, *ids.shape))[:, :, -1]
        odds = scores.double().log_softmax(-1)[..., digits].log_softmax(-1)
        mean = odds[-1] + (odds[:-1] - odds[-1]).clamp(-clip, clip).mean(0)
        out = torch.full((len(ids), 1, 6400), -torch.inf, dtype=torch.double)
        out[:, 0, digits] = mean.cpu()
        return out.expand(-1, ids.shape[1], -1)  # only the last is asked for

    few = {key: v for key, v in canaries.items() if key == ("digits", PREFIXES[0])}
    if seed == 0:
        view = SeenSpeech(answer=answer, vocab=6400, context=LENGTH)
        canary._BLOCK = 512
        bench.record(method="vote, exposure", seed=seed, exposure=bench.exposures(view, few))
        canary._BLOCK = 8192


def science(bench, started, both):
    """Scientificity with and without textbooks, on dialogues and on passages nobody has seen."""
    units = bench.known.originals(length=LENGTH, by_owner=False)
    models = {
        "pretrained": bench.fresh(bench.base),
        "dialogues": bench.tune(bench.fresh(bench.base), units, 0),
        "textbooks": started,
        "textbooks, dialogues": both,
    }
    for name, model in models.items():
        row = {}
        for where, held in (("dialogues", bench.test), ("textbooks", bench.book_test)):
            found = measure_scientificity(
                model,
                held,
                bench.tokenizer,
                bench.terms,
                length=LENGTH,
                policy=POLICY,
                batch=64,
                starts=bench.starts,
            )
            spelled = bench.spell(held)
            plain = measure_perplexity(model, spelled, length=LENGTH, batch=64)
            row[where] = {
                "scientificity": [found.value, found.low, found.high, found.samples],
                "perplexity": [plain.value, plain.low, plain.high],
            }
        bench.record(method="science", model=name, **row)


def extract(bench, found, defence):
    """Five methods against the models: what comes out after 20 tokens of training texts."""
    spelled = [[*bench.starts, *bench.tokenizer.encode(one.text)] for one in bench.train]
    chosen = [ids for ids in spelled if len(ids) >= 31][:10]
    prefixes = torch.tensor([ids[:20] for ids in chosen])
    targets = torch.tensor([ids[:30] for ids in chosen])
    second = bench.view(bench.fresh(bench.base))
    names = ("none", "jft", "all-dp", "source 5.2", "twin")
    views = {name: bench.view(found[name]) for name in names if name in found}
    views["source 5.3"] = bench.view(found["none"], defence)
    for name, view in views.items():
        seen = SeenSpeakers(
            speech=view, prefixes=prefixes, second=second, spell=bench.tokenizer.decode
        )
        found = audit_extraction(
            seen,
            targets,
            methods=METHODS,
            count=4 if bench.options.quick else 1000,
            speech=Speech(tokens=10, top=20, temperature=0.5),
        )
        bench.record(
            method="extraction",
            model=name,
            found={one.attack: [m.value for m in one.metrics] for one in found},
        )


def main():
    """Run what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", required=True)
    parser.add_argument("--out")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument(
        "--pieces", default="none,jft,all-dp,source,vote,twin,narrow,science,extract"
    )
    parser.add_argument("--jft-rate", type=float, default=1e-3)
    parser.add_argument("--jft-epochs", type=int, default=3)
    parser.add_argument("--jft-clip", type=float, default=0.5)
    parser.add_argument("--dp-rate", type=float, default=2e-3)
    parser.add_argument("--dp-epochs", type=int, default=8)
    parser.add_argument("--dp-clip", type=float, default=0.5)
    parser.add_argument("--small", action="store_true", help="a model of a million weights")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--rate", type=float, default=5e-4)
    parser.add_argument("--book-epochs", type=int, default=1)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = True
    canary._BLOCK = 8192
    bench, pieces = Bench(options), options.pieces.split(",")
    bench.measure("pretrained", 0, bench.fresh(bench.base), {})
    started = bench.study_books()
    bench.measure("textbooks", 0, started, {})
    first = {}
    for seed in range(options.seeds):
        found = run_seed(bench, started, seed, pieces)
        first = first or found
    run_once(bench, started, first, pieces)
    say("done")


if __name__ == "__main__":
    main()
