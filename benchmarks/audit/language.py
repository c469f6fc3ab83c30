"""Memorisation and inversion of language models: extraction and hidden states.

    python benchmarks/run.py audit/language --data FOLDER --out FILE.json [--quick]

Parts: ``extraction`` (the five rankings, on questions that stand in the corpus 1 to 20 times),
``depth``, ``length`` and ``noise`` (inversion of hidden states of a real model, figures 6.2 and 6.3
of the seed in shape). Canaries: ``audit_canaries.py``.
"""

import argparse
import gzip
import json
import lzma
import math
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from audit._texts import KNOWN, LENGTH, Course, questions, teach
from torch import Tensor

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
    SeenSpeakers,
    Speech,
    eidetic_counts,
    extraction_curve,
    plant,
    rate_by_repetition,
    score_extraction,
    see_module,
)
from tacit.audit.views import Attack
from tacit.llm import LanguageModel, Tokenizer, open_checkpoint

Row = dict[str, Any]
PARTS = ("extraction", "depth", "length", "noise")
PREFIX = 12


def extraction(options: argparse.Namespace) -> list[Row]:
    """Extract texts that were repeated, with all five methods."""
    train, _ = questions(options.data, most=300 if options.quick else None)
    half = len(train) // 2
    per = 2 if options.quick else 20
    times = (1, 2, 5, 10, 20)
    secrets = train[: per * len(times)]
    repeated = [times[i // per] for i in range(len(secrets))]
    corpus = [*train[len(secrets) : half]]
    for text, count in zip(secrets, repeated, strict=True):
        corpus = plant(corpus, text, times=count)
    course = Course.quick(options.device) if options.quick else Course(device=options.device)
    first, _ = teach(course, torch.tensor(corpus), math.inf, 0)
    second, _ = teach(course, torch.tensor(train[half:]), math.inf, 1)
    speakers = [see_module(one, vocab=len(KNOWN), context=LENGTH) for one in (first, second)]
    # The second model never saw the secrets: what it says of them too was not learned by heart.
    views = {
        name: SeenSpeakers(
            speech=speech,
            prefixes=torch.tensor(secrets)[:, :PREFIX],
            second=other,
            spell=lambda ids: "".join(KNOWN[i] for i in ids),
        )
        for name, speech, other in (
            ("trained on them", speakers[0], speakers[1]),
            ("not trained on them", speakers[1], speakers[0]),
        )
    }
    rows = []
    for name in METHODS:
        for model, seen in views.items():
            rows.append(_extracted(options, name, model, seen, secrets, repeated, corpus))
            keep(options, rows)
    return rows


def _extracted(
    options: argparse.Namespace,
    name: str,
    model: str,
    seen: SeenSpeakers,
    secrets: list[list[int]],
    repeated: list[int],
    corpus: list[list[int]],
) -> Row:
    """Draw, rank, and count the secrets that came out."""
    speech = Speech(tokens=LENGTH - PREFIX, top=20, temperature=1.0)
    attack = Extract(method=METHODS[name], speech=speech, count=5 if options.quick else 200)
    drawn = attack(seen, generator=seeded(0))
    targets = torch.tensor(secrets)
    wanted = {tuple(text) for text in secrets}
    hits = [text for text in drawn.texts.tolist() if tuple(text) in wanted]
    row: Row = {
        "part": "extraction",
        "name": name,
        "model": model,
        "drawn": len(drawn.texts),
        "within_targets": asdict(score_extraction(name, drawn, targets, guesses=len(targets))),
        "ever": asdict(score_extraction(name, drawn, targets, guesses=len(drawn.texts))),
        "by_repetition": rate_by_repetition(drawn, targets, repeated, name=name).points,
        "eidetic": eidetic_counts(hits, corpus),
    }
    report(row)
    return {**row, "curve": extraction_curve(name, drawn, targets).points}


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
    parser.add_argument("--search-steps", type=int, default=1000, help="of optimised embeddings")
    parser.add_argument("--quick", action="store_true", help="tiny models, few steps")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    work: dict[str, Callable[[argparse.Namespace], list[Row]]] = {
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
