"""What one seed of `private_text.py` shows: twins, the source, the vote, extraction, steps."""

import math
import time
from pathlib import Path

import torch
from text._bench import EVERY, FORMS, LENGTH, POLICY, PREFIXES, say
from text._source import selective_decoding, selective_sgd
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from tacit.audit.memorisation import METHODS, Extract, SeenSpeakers, SeenSpeech, Speech, extraction
from tacit.dp import make_private
from tacit.dp.policy import by_pattern
from tacit.nn import add_adapters
from tacit.ring import Prg
from tacit.text.corpus import Text, mark_corpus
from tacit.text.decode import (
    BudgetedWriter,
    _Reading,
    decoder_losses,
    find_places,
    option_scores,
)
from tacit.text.tune import Course
from tacit.text.vote import (
    Ballot,
    Budget,
    count_votes,
    draw,
    stack_voters,
    train_voters,
)

SIGMA, CLIP = 10.6, 1.0
"""The source's noise and clip."""


def run_once(bench, course, corpus, piece):
    """Train a twin without canaries, one without textbooks, the source's, or a narrow policy."""
    started, canaries = bench.saved("books"), bench.canaries(0)
    if piece in ("twin", "dialogues"):
        units = bench.mark(bench.train).originals(length=LENGTH, by_owner=False)
        start = started if piece == "twin" else bench.fresh(bench.base)
        model = bench.tune(start, units, 0, course)
        found = {"dialogues": bench.science(model, bench.test)}
        found["passages"] = bench.science(model, bench.books()[1])
        label = "textbooks, dialogues" if piece == "twin" else piece
        bench.record(task="science", model=label, **found)
        if piece == "twin":
            bench.save("seed0 twin", model)
            row = bench.measure(model, canaries=canaries)
            bench.record(task="twin", method="twin, never saw them", **row)
    elif piece == "source":
        selective_sgd(  # two passes and clipping per step: fewer of them than the others get
            started,
            corpus,
            epochs=1 if bench.quick else 6,
            rate=course[0],
            batch=64,
            length=LENGTH,
            sigma=SIGMA,
            clip=CLIP,
            seed=0,
        )
        bench.save("seed0 source 5.2", started)
        row = bench.measure(started, canaries=canaries)
        bench.record(task="source", method="source 5.2", **row)
    elif piece == "decoding":
        few = {key: v for key, v in canaries.items() if key[1] in PREFIXES[:2]}
        view = bench.view(bench.saved("seed0 none"), source_defence(bench))
        bits = bench.exposures(view, few, ("digits",), PREFIXES)
        bench.record(task="source", method="source 5.3", exposure=bits)
    else:
        narrow = bench.mark([*bench.train, *bench.planted(0)], policy=by_pattern("digits"))
        units = narrow.redactions(length=LENGTH, stand_ins=Prg(b"fakes of narrow."))
        model = bench.tune(started, units, 0, course)
        row = bench.measure(model, canaries=canaries, forms=FORMS)
        bench.record(task="narrow", method="redacted, digits alone", **row)


def source_defence(bench):
    """Return the source's selective decoding."""
    digits = sorted({i for d in "0123456789" for i in bench.tokenizer.encode(d)})
    return selective_decoding(digits, sigma=SIGMA, clip=CLIP, seed=0)


def run_vote(bench, course, corpus):
    """Train writer and voters; the decoder's perplexity, speed and exposure."""
    voters, clip = (4 if bench.quick else 32), 3.0
    writer = bench.tune(bench.saved("books"), corpus.redactions(length=LENGTH), 0, course)
    began = time.monotonic()
    adapters = train_voters(
        writer,
        corpus,
        Course(epochs=1 if bench.quick else 4, rate=1e-3, batch=32),
        shards=voters,
        length=LENGTH,
        rank=4,
        layers=("q", "v"),
        prg=Prg(b"voters of seed 0"),
    )
    trained_s = time.monotonic() - began
    stacked = stack_voters(writer, adapters, layers=("q", "v"))
    ballot, places = Ballot(voters=voters, clip=clip), find_places(bench.tokenizer)
    decoder = BudgetedWriter(
        writer, stacked, ballot=ballot, places=places, budget=Budget(100.0), prg=Prg(b"d" * 16)
    )
    total = tokens = misses = marked = 0
    for text in bench.test[: 3 if bench.quick else 150]:
        pair = mark_corpus(
            [Text(text=text, owner="")],
            bench.tokenizer,
            POLICY,
            starts=bench.starts,
            ends=bench.ends,
        )
        one = decoder_losses(decoder, writer, stacked, pair.texts[0], pair.short[0])
        total, tokens, misses = total + one[0], tokens + one[1], misses + one[2]
        marked += pair.marks
    # How fast: texts that begin as dialogues do, greedy words, numbers by vote.
    prompt = [*bench.starts, *bench.tokenizer.encode("医生您好，我今年")]
    began, said = time.monotonic(), 0
    limit = 20 if bench.quick else 100
    for _ in range(3):
        said += sum(
            1 for _ in decoder.speak(prompt, prompt, choose=lambda s: int(s.argmax()), limit=limit)
        )
    speed = said / (time.monotonic() - began)
    votes, reading = 20 if bench.quick else 60, _Reading(stacked, voters + 1, prompt, bench.device)
    began = time.monotonic()
    with torch.no_grad():
        for _ in range(votes):
            odds = option_scores(reading.scores([]), places.alphabet, can_end=True)
            index = draw(count_votes(odds[-1], odds[:-1], ballot), Prg(b"s" * 16))
            reading.ids.append(places.alphabet[min(index, len(places.alphabet) - 1)])
    voted = votes / (time.monotonic() - began)
    bench.record(
        task="vote",
        perplexity=[math.exp(total / tokens), None, None],
        misses=misses,
        marked=marked,
        epsilon_token=ballot.event.epsilon,
        voters=voters,
        clip=clip,
        trained_s=trained_s,
        tokens_per_s=speed,
        voted_per_s=voted,
        spent=decoder.budget.spent,
        hand=len(decoder.budget.ledger) * 4 * clip / voters,
        refused=decoder.refused,
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

    view = SeenSpeech(answer=answer, vocab=6400, context=LENGTH)
    from tacit.audit.memorisation import canary

    canary._BLOCK = 512
    found = bench.exposures(view, bench.canaries(0), ("digits",), PREFIXES[:1])
    bench.record(task="vote", method="vote, exposure", exposure=found)


def extract(bench):
    """Five methods against every defence: which of ten planted numbers come out."""
    extraction._BLOCK = 1000
    run_once(bench, None, None, "decoding")
    prefixes, texts = bench.long_texts(0)
    spelled = [[*bench.starts, *bench.tokenizer.encode(one)] for one in prefixes]
    ends = [[bench.tokenizer.encode(d)[0] for d in text[-6:]] for text in texts]
    wanted = {tuple(a + b) for a, b in zip(spelled, ends, strict=True)}
    begins = torch.tensor(spelled)
    second = bench.view(bench.fresh(bench.base))
    views = {}
    for name in ("none", "twin", "jft", "all-dp", "source 5.2"):
        if Path(bench.options.work, f"seed0 {name}.pt").exists():
            views[name] = bench.view(bench.saved(f"seed0 {name}"))
    if "none" in views:
        views["source 5.3"] = bench.view(bench.saved("seed0 none"), source_defence(bench))
    for name, view in views.items():
        seen = SeenSpeakers(
            speech=view, prefixes=begins, second=second, spell=bench.tokenizer.decode
        )
        found, said = {}, {}
        for method, how in METHODS.items():
            attack = Extract(
                method=how,
                speech=Speech(tokens=6, top=20, temperature=0.5),
                count=4 if bench.quick else 1000,
            )
            if how.is_decaying not in said:
                chance = torch.Generator().manual_seed(0)
                said[how.is_decaying] = attack.draw(seen, generator=chance)
            texts = [tuple(one) for one in attack.rank(seen, said[how.is_decaying]).texts.tolist()]
            found[method] = [len(wanted & set(texts[: len(wanted)])), len(wanted & set(texts))]
        bench.record(task="extract", model=name, of=len(wanted), found=found)


def compare_steps(bench):
    """Time a DP step of adapters: ours, Opacus' ghost clipping, and one without privacy."""
    records, tokens, steps = (2, 16, 3) if bench.quick else (64, 200, 12)
    ids = torch.randint(0, 6400, (records, tokens + 1), generator=torch.Generator().manual_seed(0))
    x, y = (one.contiguous().to(bench.device) for one in (ids[:, :-1], ids[:, 1:]))

    def losses_of(scores, labels):
        flat = functional.cross_entropy(
            scores.flatten(0, 1).float(), labels.flatten(), reduction="none"
        )
        return flat.view(labels.shape).mean(1)

    class PerRecord(nn.Module):
        reduction = "mean"

        def forward(self, scores, labels):
            found = losses_of(scores, labels)
            return found.mean() if self.reduction == "mean" else found

    def now():
        if bench.device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()

    def waited(step):
        began = now()
        step()
        return now() - began

    def fresh():
        module = add_adapters(bench.base, rank=4, seed=0, only=EVERY).to(bench.device)
        trained = [p for p in module.parameters() if p.requires_grad]
        return module, torch.optim.Adam(trained, lr=1e-4)

    times = {}
    module, optimizer = fresh()
    loader = DataLoader(TensorDataset(x.cpu(), y.cpu()), batch_size=records)
    how = {"epsilon": 50.0, "delta": 1e-5, "epochs": steps, "clip": 0.5}
    private = make_private(module, optimizer, loader, **how)
    times["ours"] = []
    for _ in range(steps):
        for rows, labels in private.loader:
            began = now()
            private.step(losses_of(module(rows.to(bench.device)), labels.to(bench.device)))
            times["ours"].append(now() - began)
    private.remove()
    module, optimizer = fresh()

    def plain():
        optimizer.zero_grad()
        losses_of(module(x), y).mean().backward()
        optimizer.step()

    times["plain"] = [waited(plain) for _ in range(steps)]
    try:
        from opacus import PrivacyEngine

        module, optimizer = fresh()
        module.train()
        wrapped, dp_optimizer, criterion, _ = PrivacyEngine().make_private(
            module=module,
            optimizer=optimizer,
            criterion=PerRecord(),
            data_loader=loader,
            noise_multiplier=private.multiplier,
            max_grad_norm=0.5,
            poisson_sampling=False,
            grad_sample_mode="ghost",
        )

        def opacus():
            dp_optimizer.zero_grad()
            criterion(wrapped(x), y).backward()
            dp_optimizer.step()

        times["opacus"] = [waited(opacus) for _ in range(steps)]
    except Exception as error:
        say("opacus", type(error).__name__, error)
    medians = {name: sorted(one[2:])[len(one[2:]) // 2] for name, one in times.items()}
    bench.record(task="steps", records=records, tokens=tokens, seconds=medians)
