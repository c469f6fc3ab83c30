"""A small causal model and invented dialogues, for tests of private text."""

import torch

from tacit.llm.model.module import CausalModule, tiny_model
from tacit.ring import Prg
from tacit.text.corpus import Text, mark_corpus

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


def small(seed=0, **sizes):
    return CausalModule(tiny_model(Signs.size, **{"width": 32, "seed": seed, **sizes}))


def marked(texts, policy):
    return mark_corpus(texts, Signs(), policy)


def ids_of(text):
    return torch.tensor(Signs().pieces(text)[0])
