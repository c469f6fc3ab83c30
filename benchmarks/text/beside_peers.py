"""A DP step of adapters and a vote of decoders beside other libraries, one side in one process.

    python benchmarks/run.py text/beside_peers export CHECKPOINT FOLDER
    python benchmarks/run.py text/beside_peers step tacit|opacus|dp-lora|plain FOLDER
        [RECORDS TOKENS]
    python benchmarks/run.py text/beside_peers decode tacit|invink FOLDER [VOTERS]
    python benchmarks/run.py text/beside_peers epsilon

Needs an environment with transformers, peft, opacus, dp-lora 0.1.0 and invink 0.1.0 (which needs
Python 3.12, or one f-string of its utils.py changed). All sides train adapters of rank 4 beside the
same matrices of the same checkpoint, on the same rows; times are of the processor, one thread,
medians of steps. Our noise is cryptographic, that of the others is torch's.
"""

import contextlib
import json
import sys
import time
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

STEPS, WARM, RANK, CLIP, NOISE = 13, 8, 4, 0.5, 1.9
LAYERS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def losses_of(scores, labels):
    """Return the mean loss of every record."""
    flat = functional.cross_entropy(scores.flatten(0, 1), labels.flatten(), reduction="none")
    return flat.view(labels.shape).mean(1)


def export(checkpoint, folder):
    """Write a checkpoint of the LLaMA family with the names of tensors that transformers knows."""
    import shutil

    from safetensors.torch import save_file

    from tacit.llm import open_checkpoint

    weights = {}
    for name, weight in open_checkpoint(Path(checkpoint)).load().weights.items():
        *way, layer, kind = name.split(".") if "." in name else [name, "weight"]
        if way:
            part = "self_attn" if layer in "qkvo" else "mlp"
            norms = {"norm1": "input_layernorm", "norm2": "post_attention_layernorm"}
            layer = norms.get(layer, f"{part}.{layer}_proj")
        layer = {"embed": "embed_tokens"}.get(layer, layer)
        if layer != "output":
            weights[".".join(["model", *way, layer, kind])] = weight.float().contiguous()
    Path(folder).mkdir(parents=True, exist_ok=True)
    save_file(weights, Path(folder) / "model.safetensors", metadata={"format": "pt"})
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(Path(checkpoint) / name, Path(folder) / name)


def timed(step):
    """Return processor seconds of the median step.

    The first are left out: of 64 records ours checks that none depends on another.
    """
    found = []
    for _ in range(STEPS):
        began = time.process_time()
        step()
        found.append(time.process_time() - began)
    return sorted(found[WARM:])[len(found[WARM:]) // 2]


def peft_model(folder):
    """Return a peer's model with adapters, and its optimizer."""
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    base = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    config = LoraConfig(r=RANK, lora_alpha=RANK, lora_dropout=0.0, target_modules=list(LAYERS))
    model = get_peft_model(base, config).train()
    return model, torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=1e-4)


def step(side, folder, records=8, tokens=100):
    """Time one step of a side."""
    shape = (int(records), int(tokens) + 1)
    ids = torch.randint(0, 6400, shape, generator=torch.Generator().manual_seed(0))
    x, y = ids[:, :-1].contiguous(), ids[:, 1:].contiguous()
    loader = DataLoader(TensorDataset(x, y), batch_size=len(x))
    if side in ("tacit", "plain"):
        return _our_step(side, folder, x, y, loader)
    model, optimizer = peft_model(folder)
    if side == "opacus":
        from opacus import PrivacyEngine

        class PerRecord(nn.Module):
            reduction = "mean"

            def forward(self, scores, labels):
                found = losses_of(scores, labels)
                return found.mean() if self.reduction == "mean" else found

        wrapped, optimizer, criterion, _ = PrivacyEngine().make_private(
            module=model,
            optimizer=optimizer,
            criterion=PerRecord(),
            data_loader=loader,
            noise_multiplier=NOISE,
            max_grad_norm=CLIP,
            poisson_sampling=False,
            grad_sample_mode="ghost",
        )

        def one():
            optimizer.zero_grad()
            criterion(wrapped(x).logits, y).backward()
            optimizer.step()

        return timed(one)
    from dp_lora import DPLoRAEngine

    engine = DPLoRAEngine()
    model, optimizer, _ = engine.make_private(
        model=model,
        optimizer=optimizer,
        data_loader=loader,
        noise_multiplier=NOISE,
        max_grad_norm=CLIP,
        method="vanilla",
        poisson_sampling=False,
    )

    def one():
        optimizer.zero_grad()
        losses_of(model(x).logits, y).mean().backward()
        optimizer.step(engine.grad_sample_module.get_per_sample_grads())
        engine.grad_sample_module.clear_per_sample_grads()

    return timed(one)


def _our_step(side, folder, x, y, loader):
    from tacit.dp import ADD_REMOVE_RECORD
    from tacit.dp.ghost import Ghost
    from tacit.dp.private import Private, PrivateLoader
    from tacit.llm import open_checkpoint
    from tacit.llm.model.module import CausalModule
    from tacit.nn import add_adapters
    from tacit.ring import Prg

    names = [name.removesuffix("_proj") for name in LAYERS]
    model = CausalModule(open_checkpoint(Path(folder)).load())
    model = add_adapters(model, rank=RANK, seed=0, only=names)
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=1e-4)
    if side == "plain":

        def one():
            optimizer.zero_grad()
            losses_of(model(x), y).mean().backward()
            optimizer.step()

        return timed(one)
    batches = PrivateLoader(loader, rate=1.0, steps=STEPS, at_once=None, prg=Prg(b"s" * 16))
    private = Private(
        Ghost(model),
        optimizer,
        batches,
        noise=(NOISE, CLIP),
        delta=1e-5,
        relation=ADD_REMOVE_RECORD,
    )

    def one():
        for rows, labels in private.loader:
            private.step(losses_of(model(rows), labels))

    return timed(one)


def decode(side, folder, voters=8):
    """Return tokens that are voted on per second of the processor."""
    voters, count = int(voters), 24
    if side == "invink":
        import invink

        texts = [f"医生您好，我今年{20 + i}岁，头痛。" for i in range(voters)]
        how = {"max_toks": count, "num": 1, "batch_size": voters + 1, "epsilon": 10.0}
        more = {"dtype": "float32", "device_map": -1, "allow_download": False}

        def run(tokens, seed):
            began = time.process_time()
            asked = {**how, "max_toks": tokens, "random_seed": seed}
            with contextlib.redirect_stdout(sys.stderr):
                found = invink.generate(texts, folder, "病人的问题", **asked, **more)
            return time.process_time() - began, found.lens[0]

        # Loading, and reading the prompts, are in both; a text may end early.
        run(1, 0)  # the first is slow
        short, few = run(1, 0)
        long, many = max((run(4 + count, seed) for seed in range(4)), key=lambda one: one[1])
        return (many - few) / (long - short)
    from tacit.llm import open_checkpoint
    from tacit.llm.model.module import CausalModule
    from tacit.ring import Prg
    from tacit.text.decode import _Reading, find_places, option_scores
    from tacit.text.vote import Ballot, count_votes, draw, stack_voters

    checkpoint = open_checkpoint(Path(folder))
    module, tokenizer = CausalModule(checkpoint.load()), checkpoint.tokenizer()
    chance = torch.Generator().manual_seed(0)
    widths = {name: one for name, one in module.named_modules() if name.endswith((".q", ".v"))}
    adapters = [
        {
            name: (
                torch.empty(RANK, one.in_features).normal_(std=0.02, generator=chance),
                torch.empty(one.out_features, RANK).normal_(std=0.02, generator=chance),
            )
            for name, one in widths.items()
        }
        for _ in range(voters + 1)
    ]
    stacked = stack_voters(module, adapters, layers=("q", "v"))
    ballot, places, prg = Ballot(voters=voters), find_places(tokenizer), Prg(b"t" * 16)
    reading = _Reading(
        stacked, voters + 1, tokenizer.encode("医生您好，我今年"), torch.device("cpu")
    )
    with torch.no_grad():
        reading.scores([])
        began = time.process_time()
        for _ in range(count):
            odds = option_scores(reading.scores([]), places.alphabet, can_end=True)
            index = draw(count_votes(odds[-1], odds[:-1], ballot), prg)
            reading.ids.append(places.alphabet[min(index, len(places.alphabet) - 1)])
    return count / (time.process_time() - began)


def epsilons():
    """Compute ε of the run's settings: our accountant, and those of Opacus and dp-lora."""
    from opacus.accountants import PRVAccountant

    from tacit.dp import epsilon
    from tacit.dp.event import Repeated
    from tacit.dp.private import step_event

    rate, steps, delta, noise = 512 / 5988, 96, 1 / 59880, 1.9
    event = step_event(290_816, multiplier=noise, clip=CLIP, rate=rate)
    found = {"tacit": epsilon([Repeated(event=event, count=steps)], delta=delta).epsilon}
    prv = PRVAccountant()
    prv.history = [(noise, rate, steps)]
    found["opacus"] = prv.get_epsilon(delta=delta)
    try:
        from dp_lora.accounting.accountant import PrivacyAccountant

        theirs = PrivacyAccountant(noise_multiplier=noise, sample_rate=rate, delta=delta)
        for _ in range(steps):
            theirs.step()
        found["dp-lora"] = theirs.get_epsilon()
    except Exception as error:  # a peer that does not run is said
        found["dp-lora"] = f"{type(error).__name__}: {error}"
    return found


def main():
    """Run one side, and print it."""
    torch.set_num_threads(1)
    what, *rest = sys.argv[1:]
    tasks = {"export": export, "step": step, "decode": decode, "epsilon": epsilons}
    print(json.dumps({what: tasks[what](*rest), "of": rest}))


if __name__ == "__main__":
    main()
