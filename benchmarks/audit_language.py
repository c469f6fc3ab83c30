"""Memorisation and inversion of language models: canaries, extraction, hidden states.

    python benchmarks/audit_language.py --data FOLDER --out FILE.json [--quick]

Parts: ``canary`` (a PIN planted in the TREC questions and learned by a small Transformer, without
protection and with DP-SGD at ε = 8 and 2; the aim is an exposure near log2 |R| and near chance),
``extraction`` (the five rankings, on texts that stand in the corpus 1 to 20 times), ``depth``,
``length`` and ``noise`` (inversion of hidden states of a real model, figures 6.2 and 6.3 of the
seed in shape).
"""

import argparse
import gzip
import json
import lzma
import math
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parent))
import torch
from _audit_private import train_privately
from torch import Tensor, nn

from tacit.audit import seeded
from tacit.audit.embedding import (
    OptimiseEmbeddings,
    SeenHidden,
    TryTokens,
    audit_hidden,
    guess_blindly,
    move,
    sweep_noise,
)
from tacit.audit.memorisation import (
    METHODS,
    Extract,
    Format,
    SeenSpeakers,
    SmallSpeaker,
    Speech,
    audit_canaries,
    draw_canary,
    exact_exposure,
    extraction_curve,
    modelled_exposure,
    plant,
    rate_by_repetition,
    sampled_exposure,
    score_extraction,
    see_module,
    train_speaker,
)
from tacit.audit.views import Attack
from tacit.dp import Target, epsilon, least_noise
from tacit.learn.noise import DpSgd
from tacit.llm import LanguageModel, Tokenizer, open_checkpoint
from tacit.ring import Prg

Row = dict[str, Any]
PARTS = ("canary", "extraction", "depth", "length", "noise")
LENGTH = 40
DELTA = 1e-5


def questions(options: argparse.Namespace) -> tuple[list[list[int]], list[list[int]], list[str]]:
    """Return TREC questions as characters, cut and padded to one length: train, test, alphabet."""
    with gzip.open(options.data / "trec/trec.jsonl.gz", "rt", encoding="utf8") as lines:
        rows = [json.loads(line) for line in lines]
    known = sorted(set("abcdefghijklmnopqrstuvwxyz0123456789 ?'.,"))
    index = {c: i for i, c in enumerate(known)}

    def encode(text: str) -> list[int]:
        ids = [index[c] for c in text.lower() if c in index][:LENGTH]
        return ids + [index[" "]] * (LENGTH - len(ids))

    parts = {s: [encode(r["text"]) for r in rows if r["split"] == s] for s in ("train", "test")}
    train = parts["train"][:300] if options.quick else parts["train"]
    return train, parts["test"], known


def canary(options: argparse.Namespace) -> list[Row]:
    """Plant PINs, train with and without protection, and rank them."""
    train, test, known = questions(options)
    ids = {c: i for i, c in enumerate(known)}
    form = Format(
        prefix=tuple(ids[c] for c in "my pin number is "),
        alphabet=tuple(ids[c] for c in "0123456789"),
        blanks=3 if options.quick else 5,
    )
    pad = (ids[" "],) * (LENGTH - len(form.prefix) - form.blanks)
    rows = []
    for budget in options.budgets[:2] if options.quick else options.budgets:
        for times in options.copies:
            for seed in range(options.first, options.first + options.seeds):
                number = draw_canary(form, generator=seeded(seed))
                texts = torch.tensor(plant(train, (*form.text(number), *pad), times=times))
                model, spent = speaker(options, texts, len(known), budget, seed)
                seen = see_module(model, vocab=len(known), context=LENGTH)
                exact = exact_exposure(seen, form, number)
                few = sampled_exposure(seen, form, number, draws=1000, generator=seeded(seed))
                rows.append(
                    {
                        "part": "canary",
                        "epsilon": None if math.isinf(budget) else spent,
                        "delta": DELTA,
                        "times": times,
                        "seed": seed,
                        "exposure": exact.value,
                        "bits": form.bits,
                        "sampled": [few.low, few.value, few.high],
                        "modelled": modelled_exposure(
                            seen, form, number, draws=1000, generator=seeded(seed)
                        ),
                        "never_planted": audit_canaries(
                            seen, form, [(number + 7919 * k) % form.size for k in range(1, 6)]
                        ).headline.value,
                        "test_perplexity": perplexity(model, test),
                    }
                )
                report(rows[-1])
                keep(options, rows)
    return rows


def speaker(
    options: argparse.Namespace, texts: Tensor, vocab: int, budget: float, seed: int
) -> tuple[nn.Module, float]:
    """Train a model, with DP-SGD where the budget is finite; return what was spent."""
    torch.manual_seed(seed)
    width = 32 if options.quick else 64
    model = SmallSpeaker(vocab, LENGTH, width=width, layers=1 if options.quick else 2)
    model = model.to(options.device)
    if math.isinf(budget):
        epochs = 3 if options.quick else 30
        train_speaker(model, texts, epochs=epochs, generator=seeded(seed), rate=1e-3)
        return model, math.inf
    count, rate = (5, 0.1) if options.quick else (options.dp_steps, 0.1)

    def settings(multiplier: float) -> DpSgd:
        return DpSgd(
            steps=count,
            rate=rate,
            clip=1.0,
            multiplier=multiplier,
            learning_rate=options.dp_rate,
            momentum=0.9,
        )

    target = Target(epsilon=budget, delta=DELTA, accountant="fourier")
    # The grid of the noise costs a little on top of what is planned: plan for slightly less.
    noise = 1.001 * least_noise(lambda z: [settings(z).event], target)
    ids = texts.to(options.device)
    event = train_privately(model, ids[:, :-1], ids[:, 1:], settings(noise), prg=Prg.from_os())
    spent = epsilon([event], delta=DELTA, accountant="fourier")
    return model, float(spent.epsilon)  # type: ignore[arg-type]


def extraction(options: argparse.Namespace) -> list[Row]:
    """Extract texts that were repeated, with all five methods."""
    train, _, known = questions(options)
    half = len(train) // 2
    per = 2 if options.quick else 20
    times = (1, 2, 5, 10, 20)
    secrets = train[: per * len(times)]
    repeated = [times[i // per] for i in range(len(secrets))]
    corpus = [*train[len(secrets) : half]]
    for text, count in zip(secrets, repeated, strict=True):
        corpus = plant(corpus, text, times=count)
    first, _ = speaker(options, torch.tensor(corpus), len(known), math.inf, 0)
    second, _ = speaker(options, torch.tensor(train[half:]), len(known), math.inf, 1)
    seen = SeenSpeakers(
        speech=see_module(first, vocab=len(known), context=LENGTH),
        prefixes=torch.tensor(secrets)[:, :12],
        second=see_module(second, vocab=len(known), context=LENGTH),
        spell=lambda ids: "".join(known[i] for i in ids),
    )
    targets = torch.tensor(secrets)
    rows = []
    for name, method in METHODS.items():
        speech = Speech(tokens=LENGTH - 12, top=20, temperature=1.0)
        attack = Extract(method=method, speech=speech, count=5 if options.quick else 200)
        drawn = attack(seen, generator=seeded(0))
        rows.append(
            {
                "part": "extraction",
                "name": name,
                "drawn": len(drawn.texts),
                "within_targets": asdict(
                    score_extraction(name, drawn, targets, guesses=len(targets))
                ),
                "ever": asdict(score_extraction(name, drawn, targets, guesses=len(drawn.texts))),
                "curve": extraction_curve(name, drawn, targets).points,
                "by_repetition": rate_by_repetition(drawn, targets, repeated, name=name).points,
            }
        )
        report({k: v for k, v in rows[-1].items() if k not in ("curve",)})
    return rows


def depth(options: argparse.Namespace) -> list[Row]:
    """Invert hidden states after every layer."""
    model, ids = texts_of(options, 24)
    layers = options.depths or range(1, model.architecture.layers + 1)
    rows = []
    for name, attack in inverters(options).items():
        for d in list(layers)[:2] if options.quick else layers:
            rows.append(inverted(model, ids, name, attack, d, {"part": "depth"}))
            keep(options, rows)
    return rows


def length(options: argparse.Namespace) -> list[Row]:
    """Invert texts of several lengths, as in figure 6.2."""
    rows = []
    for tokens in (4, 8) if options.quick else options.lengths:
        model, ids = texts_of(options, tokens)
        top = model.architecture.layers
        for d in (1,) if options.quick else options.depths or (top // 2, top):
            name = "optimised embeddings"
            extra = {"part": "length", "tokens": tokens}
            attack = inverters(options)[name]
            rows.append(inverted(model, ids, name, attack, d, extra))
            keep(options, rows)
    return rows


def noise(options: argparse.Namespace) -> list[Row]:
    """Invert under noise, beside how often the next token stays the same, as in figure 6.3."""
    model, ids = texts_of(options, 24)
    top = model.architecture.layers
    spread = None
    rows = []
    for name, attack in inverters(options).items():
        for d in (1,) if options.quick else options.depths or (top // 2, top - 1):
            spread = hidden_spread(model, ids, d)
            shares = (0.0, 1.0) if options.quick else (0.0, 0.1, 0.3, 0.5, 1.0, 2.0, 4.0)
            scales = [spread * share for share in shares]
            findings, (_, useful) = sweep_noise(model, ids, name, attack, depth=d, scales=scales)
            for share, found, (_, kept) in zip(shares, findings, useful.points, strict=True):
                metric = asdict(found.headline)
                rows.append(
                    {
                        "part": "noise", "name": name, "depth": d, "noise_per_deviation": share,
                        "tokens": metric, "next_token_unchanged": kept,
                    }
                )  # fmt: skip
                report({**rows[-1], "tokens": metric["value"]})
            keep(options, rows)
    return rows


def inverters(options: argparse.Namespace) -> dict[str, Attack[SeenHidden, Tensor]]:
    """Return the attacks with their settings."""
    search = OptimiseEmbeddings(steps=20 if options.quick else options.search_steps, fits=1e-7)
    known: dict[str, Attack[SeenHidden, Tensor]] = {
        "optimised embeddings": search,
        "tokens in turn": TryTokens(beams=1 if options.quick else options.beams),
        "blind": guess_blindly,
    }
    return {name: attack for name, attack in known.items() if name in options.attacks}


def inverted(
    model: LanguageModel,
    ids: Tensor,
    name: str,
    attack: Attack[SeenHidden, Tensor],
    at: int,
    extra: Row,
) -> Row:
    """Attack once and return the row."""
    begun = time.perf_counter()
    found = audit_hidden(model, ids, name, attack, depth=at)
    row = {
        **extra, "name": name, "depth": at, "recovered": found.headline.value,
        "low": found.headline.low, "high": found.headline.high, "texts": len(ids),
        "seconds": time.perf_counter() - begun,
    }  # fmt: skip
    report(row)
    return row


def hidden_spread(model: LanguageModel, ids: Tensor, at: int) -> float:
    """Return the standard deviation of the hidden states at a depth."""
    from tacit.audit.embedding import see_hidden

    return float(see_hidden(model, ids, depth=at).hidden.std())


def texts_of(options: argparse.Namespace, tokens: int) -> tuple[LanguageModel, Tensor]:
    """Return the model on its device and texts of exactly so many tokens."""
    checkpoint = open_checkpoint(options.data / options.model)
    model, tokenizer = move(checkpoint.load(), options.device), checkpoint.tokenizer()
    count = 2 if options.quick else options.texts
    chosen = [ids for text in lines(options) if len(ids := encode(tokenizer, text)) >= tokens]
    return model, torch.tensor([ids[:tokens] for ids in chosen[:count]], device=options.device)


def encode(tokenizer: Tokenizer, text: str) -> list[int]:
    """Return the ids of a text."""
    return list(tokenizer.encode(text))


def lines(options: argparse.Namespace) -> list[str]:
    """Return questions of patients, for the Chinese model, or English questions joined."""
    if "stories" in options.model:
        with gzip.open(options.data / "trec/trec.jsonl.gz", "rt", encoding="utf8") as found:
            rows = [json.loads(line)["text"] for line in found]
        return [" ".join(rows[i : i + 8]) for i in range(0, len(rows), 8)]
    path = options.data / "zh_medical_dialogue/dialogue_toyhom.jsonl.xz"
    with lzma.open(path, "rt", encoding="utf8") as found:
        pairs = [json.loads(line) for line in found]
    return [pair["ask"] + pair["answer"] for pair in pairs[:2000]]


def perplexity(model: nn.Module, texts: list[list[int]]) -> float:
    """Return exp of the mean loss per character on texts that were not trained on."""
    seen = see_module(model, vocab=0, context=LENGTH)
    return math.exp(float(seen.losses(torch.tensor(texts)).mean()))


def keep(options: argparse.Namespace, rows: list[Row]) -> None:
    """Write the rows that are there, after those of the parts before."""
    if options.out:
        options.out.write_text(json.dumps([*options.done, *rows], indent=1))


def report(row: Row) -> None:
    """Show a result in one line."""
    print(json.dumps(row), flush=True)


def main() -> None:
    """Run the parts that were asked for and write all rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=PARTS)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--model", default="lm_minimind2_small", help="folder of the real model")
    parser.add_argument(
        "--attacks", nargs="+", default=["optimised embeddings", "tokens in turn", "blind"]
    )
    parser.add_argument("--depths", type=int, nargs="+", help="layers that the user runs")
    parser.add_argument("--lengths", type=int, nargs="+", default=[4, 8, 16, 32, 64, 128])
    parser.add_argument("--texts", type=int, default=10, help="texts that are inverted")
    parser.add_argument("--beams", type=int, default=4, help="beginnings that are kept")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--budgets", type=float, nargs="+", default=[math.inf, 8.0, 2.0])
    parser.add_argument("--copies", type=int, nargs="+", default=[1, 10], help="of a canary")
    parser.add_argument("--search-steps", type=int, default=1000, help="of optimised embeddings")
    parser.add_argument("--dp-steps", type=int, default=300)
    parser.add_argument("--dp-rate", type=float, default=0.5, help="learning rate of DP-SGD")
    parser.add_argument("--quick", action="store_true", help="tiny models, one seed, few steps")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if options.quick:
        options.seeds = 1
    work: dict[str, Callable[[argparse.Namespace], list[Row]]] = {
        "canary": canary,
        "extraction": extraction,
        "depth": depth,
        "length": length,
        "noise": noise,
    }
    options.done = []
    for part in options.parts:
        options.done += work[part](options)
        keep(options, [])


if __name__ == "__main__":
    main()
