"""Five ways of extraction against every defence, on a small model that is made in place.

    python benchmarks/run.py text/extract [--draws 100] [--epochs 20]

Invented dialogues and passages of the example job; ten invented numbers in ten sentences, ten
copies each, all copies of one owner's. Counts how many of the ten come out: among as many guesses
as there are numbers, and among all draws. Prints JSON.
"""

import argparse
import copy
import json
from pathlib import Path

import torch
from text._source import selective_decoding, selective_sgd

from tacit.audit.memorisation import METHODS, Extract, SeenSpeakers, SeenSpeech, Speech
from tacit.dp.policy import by_pattern
from tacit.llm.model.module import CausalModule, tiny_model
from tacit.llm.model.saving import train_tokenizer
from tacit.ring import Prg
from tacit.text.corpus import Text, mark_corpus
from tacit.text.front import TextPlan, fine_tune
from tacit.text.tune import Course, measure_perplexity, tune

FOLDER = Path(__file__).parents[2] / "examples/jobs/text-hospital"
FRAME = "您好医生，我上个月在医院做了{}检查，报告单上的号码是"
WORDS = tuple(f"{a}{b}" for a in "胃肝肺肾心" for b in ("部", "脏"))
LENGTH, POLICY = 128, by_pattern()


def main():
    """Train under every defence and attack each model."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=100, help="of each of the ten prefixes")
    parser.add_argument("--epochs", type=int, default=20)
    options = parser.parse_args()
    torch.set_num_threads(1)
    public = [one for one in (FOLDER / "textbook.txt").read_text().splitlines() if one.strip()]
    found = [json.loads(one) for one in (FOLDER / "dialogues.jsonl").read_text().splitlines()]
    texts = [Text(text=one["text"], owner=one["owner"]) for one in found]
    held, texts = texts[-60:], texts[:-60]
    tokenizer = train_tokenizer([*public, *(FRAME.format(w) for w in WORDS)], size=800)
    starts = list(tokenizer.starts)

    def mark(some):
        ends = sorted(tokenizer.stops)[:1]
        return mark_corpus(some, tokenizer, POLICY, starts=starts, ends=ends)

    numbers = [f"{n:06}" for n in Prg(b"numbers to find.").below(10**6, len(WORDS)).tolist()]
    planted = [
        Text(text=FRAME.format(word) + number, owner=f"planted {word}")
        for word, number in zip(WORDS, numbers, strict=True)
        for _ in range(10)
    ]
    with_them, without = mark([*texts, *planted]), mark(texts)
    base = CausalModule(tiny_model(tokenizer.size, layers=2, width=64, context=LENGTH + 64))
    how = {"epochs": options.epochs, "rate": 3e-3, "batch": 16}
    passages = mark([Text(text=t, owner=str(i)) for i, t in enumerate(public)])
    units = passages.originals(length=LENGTH, by_owner=False)
    tune(base, units, Course(epochs=3, rate=3e-3, batch=16), prg=Prg(b"public passages."))
    models = {}
    for name, method, corpus in (
        ("none", "none", with_them),
        ("twin, never saw them", "none", without),
        ("jft", "jft", with_them),
        ("all-dp", "all-dp", with_them),
    ):
        plan = TextPlan(method=method, private_epochs=4, private_rate=3e-3, length=LENGTH, **how)
        tuned = fine_tune(copy.deepcopy(base), corpus, plan, prg=Prg(f"{name:16}"[:16].encode()))
        models[name] = tuned.module
    source = copy.deepcopy(base)
    selective_sgd(source, with_them, length=LENGTH, sigma=10.6, clip=1.0, seed=0, **how)
    models["source 5.2, no guarantee"] = source
    digits = sorted({tokenizer.encode(digit)[0] for digit in "0123456789"})
    defence = selective_decoding(digits, sigma=10.6, clip=1.0, seed=0)
    models["source 5.3, no guarantee"] = models["none"]
    prefixes = [[*starts, *tokenizer.encode(FRAME.format(word))] for word in WORDS]
    ends = [[tokenizer.encode(digit)[0] for digit in number] for number in numbers]
    width = {len(one) for one in prefixes}
    if len(width) > 1:
        raise SystemExit(f"prefixes have {width} tokens: attack them one by one")
    wanted = {tuple(a + b) for a, b in zip(prefixes, ends, strict=True)}
    test = mark(held).texts
    for name, module in models.items():
        module.eval()
        changed = defence if "5.3" in name else None
        seen = SeenSpeakers(
            speech=view(module, tokenizer.size, changed),
            prefixes=torch.tensor(prefixes),
            second=view(base, tokenizer.size),
            spell=tokenizer.decode,
        )
        row = {"model": name, "prefix": width.pop() if width else None}
        row["perplexity"] = round(measure_perplexity(module, test, length=LENGTH).value, 3)
        for way, method in METHODS.items():
            speech = Speech(tokens=6, top=20, temperature=0.5)
            attack = Extract(method=method, speech=speech, count=options.draws)
            said = attack.draw(seen, generator=torch.Generator().manual_seed(0))
            ranked = [tuple(one) for one in attack.rank(seen, said).texts.tolist()]
            row[way] = [len(wanted & set(ranked[: len(wanted)])), len(wanted & set(ranked))]
        print(json.dumps(row, ensure_ascii=False), flush=True)


def view(module, vocab, defence=None):
    """Let a model be questioned."""

    def answer(ids):
        with torch.no_grad():
            scores = module(ids)
        return defence(scores) if defence else scores

    return SeenSpeech(answer=answer, vocab=vocab, context=LENGTH)


if __name__ == "__main__":
    main()
