"""Encoders, and a small causal model with invented dialogues."""

import re
import runpy
from pathlib import Path

import torch

from tacit.llm.model.module import CausalModule, tiny_model
from tacit.ring import Prg
from tacit.text.corpus import Text, mark_corpus

# Encoders: the example's BERT, small and random, or with the weights of MiniLM

ROOT = Path(__file__).resolve().parents[2]
MINILM = ROOT.parent / "shared" / "data" / "minilm_l6_int8"
Bert = runpy.run_path(str(ROOT / "examples" / "private_encoder.py"))["Bert"]


def small_bert(seed=0, *, vocab=50, context=16, width=32, heads=4, ffn=64, layers=2):
    """Return a random BERT whose weights are as large as those of trained ones."""
    torch.manual_seed(seed)
    model = Bert(vocab, context, width, heads, ffn, layers).eval()
    for name, one in model.named_parameters():
        if "norm" not in name:
            torch.nn.init.normal_(one, std=0.1 if one.dim() > 1 else 0.05)
    return model.requires_grad_(False)


def minilm():
    """Return all-MiniLM-L6-v2 with its weights as eight bits hold them, and its tokenizer.

    In the file matrices have no names; they stand in the order in which they are used.
    """
    import onnx
    from onnx import numpy_helper
    from tokenizers import Tokenizer

    graph = onnx.load(str(MINILM / "model.onnx")).graph
    found = {
        one.name: torch.from_numpy(numpy_helper.to_array(one).copy()) for one in graph.initializer
    }

    def table(name):
        return found[f"{name}_q"].float() * found[f"{name}_scale"]

    numbers = sorted(int(one[1]) for name in found if (one := re.fullmatch(r"val_(\d+)_q", name)))
    matrices = iter([table(f"val_{number}").T for number in numbers])
    state = {
        "words.weight": table("inner.embeddings.word_embeddings.weight"),
        "positions.weight": table("inner.embeddings.position_embeddings.weight"),
        "types.weight": found["inner.embeddings.token_type_embeddings.weight"],
    }
    names = {
        "query": "attention.self.query",
        "key": "attention.self.key",
        "value": "attention.self.value",
        "out": "attention.output.dense",
        "up": "intermediate.dense",
        "down": "output.dense",
    }
    norms = {"norm1": "attention.output.LayerNorm", "norm2": "output.LayerNorm"}
    for kind in ("weight", "bias"):
        state[f"norm.{kind}"] = found[f"inner.embeddings.LayerNorm.{kind}"]
    for layer in range(6):
        inner = f"inner.encoder.layer.{layer}"
        for ours, theirs in names.items():
            state[f"layers.{layer}.{ours}.weight"] = next(matrices)
            state[f"layers.{layer}.{ours}.bias"] = found[f"{inner}.{theirs}.bias"]
        for ours, theirs in norms.items():
            for kind in ("weight", "bias"):
                state[f"layers.{layer}.{ours}.{kind}"] = found[f"{inner}.{theirs}.{kind}"]
    model = Bert(30_522, 512, 384, 12, 1536, 6).eval()
    model.load_state_dict(state)
    return model.requires_grad_(False), Tokenizer.from_file(str(MINILM / "tokenizer.json"))


# Private text

SIGNS = sorted(
    set("我的单号是今年岁了吃药片头痛医生您好。，□患者每天一二三四五六七八九零十0123456789 \n")
)


class Signs:
    """A tokenizer of single characters; 0 pads, and stands for what is not known."""

    size = len(SIGNS) + 1

    def pieces(self, text):
        ids = [SIGNS.index(one) + 1 if one in SIGNS else 0 for one in text]
        return ids, [(i, i + 1) for i in range(len(ids))]


def dialogues(count, *, seed=b"invented dialogs"):
    prg = Prg(seed)
    out = []
    for n in range(count):
        age, dose = int(prg.below(90, 1)) + 5, int(prg.below(9, 1)) + 1
        out.append(
            Text(text=f"医生您好，我今年{age}岁，头痛。每天吃药{dose}片。", owner=f"owner {n}")
        )
    return out


def small_causal(seed=0, **sizes):
    return CausalModule(tiny_model(Signs.size, **{"width": 32, "seed": seed, **sizes}))


def marked(texts, policy):
    return mark_corpus(texts, Signs(), policy)


def ids_of(text):
    return torch.tensor(Signs().pieces(text)[0])
