"""What `private_text.py` works with: corpora, invented numbers, trainings and measures.

Rows of results are lines of JSON that several processes append to one file. Ledgers are written
down as they are; what they prove is computed from them afterwards (`claims`), by two accountants.
"""

import copy
import fcntl
import json
import lzma
import math
import time
from dataclasses import replace
from pathlib import Path

import torch

from tacit.audit.memorisation import Format, SeenSpeech, exact_exposures, proven_exposure
from tacit.audit.memorisation.canary import spell_canary
from tacit.dp import confirm, epsilon, event_from_record, event_to_record
from tacit.dp.event import Repeated
from tacit.dp.ledger import Ledger
from tacit.dp.policy import by_pattern, by_terms
from tacit.llm import LanguageModel, open_checkpoint
from tacit.llm.model.module import CausalModule
from tacit.nn import add_adapters, merge_adapters
from tacit.ring import Prg
from tacit.text.corpus import Text, enclose, mark_corpus, tokenise
from tacit.text.tune import Course, measure_perplexity, measure_scientificity, tune, tune_private

LENGTH, EPSILON = 512, 2.0
PREFIXES = (
    *("我的单号是", "我的编号是", "住院号是", "卡号是", "病历号是"),
    *("订单号为", "尾号是", "登记号是", "流水号是", "检查号是"),
)
FORMS = {
    "digits": ("0123456789", 10, 12),
    "Chinese": ("零一二三四五六七八九", 2, 10),
    "full width": ("０１２３４５６７８９", 2, 10),
}
"""Signs, prefixes and canaries per prefix of every form; six signs each."""
LONG = "您好医生，我上个月在你们医院做了{}检查，当时的报告单上面写着的号码是"
"""Before a number that extraction looks for: 20 tokens or more, as a patient would write."""
POLICY = by_pattern()
EVERY = ("q", "k", "v", "o", "gate", "up", "down")
BEGUN = time.monotonic()
DELTAS = tuple(10.0**-k for k in range(1, 9))


def say(*words):
    """Print, with the seconds since the start."""
    print(f"{time.monotonic() - BEGUN:7.1f}", *words, flush=True)


def read_lines(path):
    """Read a compressed file of JSON lines."""
    with lzma.open(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


class Bench:
    """Data, the tokenizer and the pretrained model."""

    def __init__(self, options):
        self.options, self.device = options, torch.device(options.device)
        self.quick = options.quick
        data = Path(options.data)
        checkpoint = open_checkpoint(data / "lm_minimind2_small")
        model = checkpoint.load()
        if self.quick:  # one layer, to see that everything runs
            few = {n: w for n, w in model.weights.items() if n[:8] not in _later(8)}
            model = LanguageModel(architecture=replace(model.architecture, layers=1), weights=few)
        self.tokenizer, self.base = checkpoint.tokenizer(), CausalModule(model)
        # The model has never seen a text that does not begin so.
        self.starts = self.tokenizer.encode("<|im_start|>")
        self.ends = self.tokenizer.encode("<|im_end|>")
        found = read_lines(data / "dialogue_toyhom.jsonl.xz")
        order = Prg(b"split of dialogs").permutation(len(found)).tolist()
        texts = [f"{found[i]['ask']}\n{found[i]['answer']}" for i in order]
        if self.quick:
            texts = [text[:60] for text in texts[:60]]
        tenth = len(texts) // 10
        self.train = [Text(text=t, owner=f"patient {i}") for i, t in enumerate(texts[: -2 * tenth])]
        self.chosen_by, self.test = texts[-2 * tenth : -tenth], texts[-tenth:]
        names = ("disease", "drug", "symptom", "check", "physical_examination")
        words = {
            term
            for name in names
            for term in (data / "terms" / f"{name}.txt").read_text(encoding="utf-8").split()
            if 2 <= len(term) <= 12
        }
        self.words = sorted(words)
        self.terms = by_terms(self.words)

    def books(self):
        """Cut the textbooks into passages of whole lines; the last 400 are held back."""
        passages = []
        for chapter in read_lines(Path(self.options.data) / "textbooks.jsonl.xz"):
            held = ""
            for line in (one.strip() for one in chapter["text"].split("\n")):
                if len(held) + len(line) > 400:
                    passages.append(held)
                    held = ""
                held = f"{held}\n{line}" if held else line
            passages.append(held)
        found = [one[:500] for one in passages if len(one) >= 30]
        order = Prg(b"split of a book.").permutation(len(found)).tolist()
        found = [found[i] for i in order]
        return (found[:20], found[-5:]) if self.quick else (found[:-400], found[-400:])

    def mark(self, texts, policy=POLICY):
        """Mark and spell texts as this model knows them."""
        return mark_corpus(texts, self.tokenizer, policy, starts=self.starts, ends=self.ends)

    def record(self, **row):
        """Append a row."""
        torch.cuda.empty_cache()  # others share the device; nothing where there is none
        row["at_s"] = round(time.monotonic() - BEGUN, 1)
        line = json.dumps(row, ensure_ascii=False)
        say(line[:400])
        with Path(self.options.out).open("a", encoding="utf-8") as out:
            fcntl.flock(out, fcntl.LOCK_EX)
            out.write(line + "\n")

    def fresh(self, module):
        """Copy a model onto the device."""
        return copy.deepcopy(module).to(self.device)

    def saved(self, name):
        """Return a model that another process has saved."""
        found = copy.deepcopy(self.base)
        path = Path(self.options.work) / f"{name}.pt"
        found.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
        return found.to(self.device)

    def save(self, name, module):
        """Save a model for other processes; it appears when it is whole."""
        path = Path(self.options.work) / f"{name}.pt"
        torch.save(module.state_dict(), path.with_suffix(".part"))
        path.with_suffix(".part").rename(path)

    # Numbers that are planted.

    def canaries(self, seed):
        """Draw the numbers of a seed: (form, prefix) to six-digit numbers."""
        out = {}
        for form, (_, prefixes, each) in FORMS.items():
            for prefix in PREFIXES[:prefixes]:
                prg = Prg(f"{form[:6]:6}{PREFIXES.index(prefix):04}{seed:06}".encode())
                out[form, prefix] = prg.below(10**6, 1 if self.quick else each).tolist()
        return out

    def long_texts(self, seed):
        """Return ten texts, of one length before their number, and their prefixes."""
        by_size = {}
        for word in self.words:
            if 3 <= len(word) <= 4:
                size = len(self.tokenizer.encode(LONG.format(word)))
                by_size.setdefault(size, []).append(word)
        words = max(by_size.values(), key=len)[:: max(1, len(max(by_size.values(), key=len)) // 10)]
        numbers = Prg(f"long {seed:011}".encode()).below(10**6, 10).tolist()
        prefixes = [LONG.format(word) for word in words[:10]]
        return prefixes, [p + f"{n:06}" for p, n in zip(prefixes, numbers, strict=True)]

    def planted(self, seed):
        """Write canaries and long texts, ten copies of each, all of one owner's."""
        copies, texts = (2 if self.quick else 10), []
        for (form, prefix), numbers in self.canaries(seed).items():
            for n in numbers:
                filled = "".join(FORMS[form][0][int(d)] for d in f"{n:06}")
                owner = f"canary {form} {prefix} {n}"
                texts += [Text(text=prefix + filled, owner=owner)] * copies
        for i, text in enumerate(self.long_texts(seed)[1]):
            texts += [Text(text=text, owner=f"long {i}")] * copies
        return texts

    # Training.

    def tune(self, module, units, seed, course):
        """Train all weights without protection."""
        began, (rate, batch, epochs) = time.monotonic(), course
        course = Course(epochs=1 if self.quick else epochs, rate=rate, batch=batch)
        prg = Prg(f"tuning {seed:09}".encode())
        tune(module, units, course, prg=prg, is_half=self.device.type == "cuda")
        say(f"tuned on {len(units)} units in {time.monotonic() - began:.1f} s")
        return module

    def private(self, module, units, *, rate, epochs, relation, seed, clip=0.5, batch=512, rank=4):
        """Tune adapters beside every matrix under privacy; the merged model, and its ledger."""
        adapted = add_adapters(module, rank=rank, seed=seed, only=EVERY).to(self.device)
        began, delta = time.monotonic(), 1 / (10 * len(units))
        course = Course(epochs=1 if self.quick else epochs, rate=rate, batch=batch, at_once=1 << 15)
        private = tune_private(
            adapted,
            units,
            course,
            epsilon=EPSILON,
            delta=delta,
            clip=clip,
            relation=relation,
            prg=Prg(f"noise {seed:010}".encode()),
            is_half=self.device.type == "cuda",
        )
        steps = len(private.ledger)
        seconds = time.monotonic() - began
        say(f"{steps} private steps, {seconds / steps:.3f} s each")
        return merge_adapters(adapted), {
            "event": event_to_record(private.ledger.entries[0].event),
            "steps": steps,
            "delta": delta,
            "units": len(units),
            "noise": private.multiplier,
            "seconds": seconds,
        }

    # Measures.

    def view(self, module, defence=None):
        """Let a model be questioned."""

        def answer(ids):
            with torch.no_grad():
                scores = module(ids.to(self.device))
            return defence(scores) if defence else scores

        return SeenSpeech(answer=answer, vocab=6400, context=LENGTH)

    def exposures(self, seen, canaries, forms, prefixes):
        """Rank the numbers of some forms and prefixes among all; every exposure in bits."""
        found, blanks = {}, 2 if self.quick else 6
        for (form, prefix), numbers in canaries.items():
            if form in forms and prefix in prefixes:
                spellings = [self.tokenizer.encode(sign) for sign in FORMS[form][0]]
                ids = (*self.starts, *self.tokenizer.encode(prefix))
                view, spelled = spell_canary(seen, ids, spellings, blanks=blanks)
                ranked = exact_exposures(view, spelled, [n % 10**blanks for n in numbers])
                found.setdefault(form, []).extend(round(one.value, 3) for one in ranked)
        return found

    def measure(self, module, *, texts=None, canaries=None, forms=("digits",), prefixes=PREFIXES):
        """Return perplexity on texts, of marked and of other tokens, and exposures."""
        module.eval()
        held = self.mark([Text(text=t, owner="") for t in texts or self.test]).texts
        row, how = {}, {"length": LENGTH, "batch": 64}
        for name, marks in (("perplexity", None), ("marked", True), ("unmarked", False)):
            found = measure_perplexity(module, held, marks=marks, **how)
            row[name] = [round(x, 4) for x in (found.value, found.low or 0, found.high or 0)]
        if canaries:
            began = time.monotonic()
            row["exposure"] = self.exposures(self.view(module), canaries, forms, prefixes)
            row["exposure_s"] = round(time.monotonic() - began, 1)
        return row

    def science(self, module, held):
        """Return scientificity and perplexity on texts nobody has trained on."""
        spelled = [tokenise(self.tokenizer, text, POLICY(text)) for text in held]
        spelled = [enclose(one, self.starts, self.ends) for one in spelled]
        how = {"length": LENGTH, "batch": 64}
        found = measure_scientificity(
            module, held, self.tokenizer, self.terms, policy=POLICY, starts=self.starts, **how
        )
        plain = measure_perplexity(module, spelled, **how)
        return {
            "scientificity": [found.value, found.low, found.high, found.samples],
            "perplexity": [plain.value, plain.low, plain.high],
        }


def claims(rows):
    """Compute what every ledger proves: ε twice, and the mean exposure that it allows."""
    form, known = Format(prefix=(1,), alphabet=tuple(range(10)), blanks=6), {}
    for row in rows:
        ledger = row.get("ledger")
        if not ledger:
            continue
        key = json.dumps([ledger["event"], ledger["steps"], ledger["delta"]])
        if key not in known:
            events = Ledger()
            events.record(Repeated(event=event_from_record(ledger["event"]), count=ledger["steps"]))
            claim = epsilon(events, delta=ledger["delta"], accountant="fourier")
            second = confirm(events, claim)
            curve = [(epsilon(events, delta=d, accountant="fourier").epsilon, d) for d in DELTAS]
            known[key] = {
                "epsilon": claim.epsilon,
                "delta": claim.delta,
                "relation": str(claim.relation),
                "second": [second.accountant, second.epsilon],
                "proven_bits": proven_exposure(form, [*curve, (claim.epsilon, claim.delta)]),
            }
        row["claim"] = known[key]
    return rows


def mean_interval(values):
    """Return the mean and its 95 % interval by the normal law; nothing beside it for one value."""
    mean = sum(values) / len(values)
    if len(values) < 2:
        return mean, None
    spread = math.sqrt(sum((v - mean) ** 2 for v in values) / (len(values) - 1))
    return mean, 1.96 * spread / math.sqrt(len(values))


def _later(layers):
    return tuple(f"layers.{i}"[:8] for i in range(1, layers))
