"""Ten Transformers as people write them: planned for a training as they are, or refused by name."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from support.mpc import ROLES
from support.training import train_plan
from tacit.data import Holding
from tacit.errors import InputError
from tacit.nn import as_input, make_any_model
from tacit.training import plan_training
from tacit.training.ops import PlainStepOps
from tacit.training.programs import train_step

WIDTH, TOKENS, WORDS, ROWS = 8, 4, 7, 6


def split(x, heads):
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


class Attend(nn.Module):
    def __init__(self, heads=2, groups=2, *, is_causal=True, bias=True):
        super().__init__()
        self.heads, self.groups, self.is_causal = heads, groups, is_causal
        side = WIDTH // heads
        self.q = nn.Linear(WIDTH, WIDTH, bias=bias)
        self.k, self.v = (nn.Linear(WIDTH, groups * side, bias=bias) for _ in range(2))
        self.out = nn.Linear(WIDTH, WIDTH, bias=bias)

    def forward(self, x):
        q, k, v = split(self.q(x), self.heads), split(self.k(x), self.groups), self.v(x)
        k = k.repeat_interleave(self.heads // self.groups, dim=1)
        v = split(v, self.groups).repeat_interleave(self.heads // self.groups, dim=1)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=self.is_causal)
        return self.out(mixed.transpose(1, 2).flatten(2))


class Block(nn.Module):
    """With norms before (GPT-2, LLaMA) or after (BERT), and a network in the middle."""

    def __init__(self, attend, norm, inner, *, is_first=True):
        super().__init__()
        self.attend, self.inner, self.is_first = attend, inner, is_first
        self.one, self.two = norm(WIDTH), norm(WIDTH)

    def forward(self, x):
        if self.is_first:
            x = x + self.attend(self.one(x))
            return x + self.inner(self.two(x))
        x = self.one(x + self.attend(x))
        return self.two(x + self.inner(x))


class Gated(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate, self.up = (nn.Linear(WIDTH, 12, bias=False) for _ in range(2))
        self.down = nn.Linear(12, WIDTH, bias=False)

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


def dense(act):
    return nn.Sequential(nn.Linear(WIDTH, 12), act(), nn.Linear(12, WIDTH), nn.Dropout(0.1))


class Decoder(nn.Module):
    """Ids in, scores of the next ones out; the head may be the table."""

    def __init__(self, *blocks, is_tied=False):
        super().__init__()
        self.table = nn.Embedding(WORDS, WIDTH)
        self.places = nn.Parameter(torch.zeros(TOKENS, WIDTH))
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(WIDTH, WORDS, bias=False)
        if is_tied:
            self.head.weight = self.table.weight

    def forward(self, ids):
        return self.head(self.blocks(self.table(ids) + self.places))


class Classifier(nn.Module):
    """Torch's own encoder over numbers, and the mean of its tokens."""

    def __init__(self, **options):
        super().__init__()
        layer = nn.TransformerEncoderLayer(WIDTH, 2, 12, batch_first=True, **options)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, 3)

    def forward(self, x):
        return self.head(self.encoder(x).mean(dim=1))


class Vit(nn.Module):
    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(1, WIDTH, 2, 2)
        self.token = nn.Parameter(4 * torch.rand(1, 1, WIDTH))
        self.block = Block(Attend(is_causal=False), nn.LayerNorm, dense(nn.GELU))
        self.head = nn.Linear(WIDTH, 3)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat((self.token.expand(x.shape[0], -1, -1), x), dim=1)
        return self.head(self.block(x)[:, 0])


class Experts(nn.Module):
    """Sends every token to the expert that scores best: which one is a step of a value."""

    def __init__(self):
        super().__init__()
        self.route, self.one, self.two = (nn.Linear(WIDTH, n) for n in (2, WIDTH, WIDTH))

    def forward(self, x):
        best = self.route(x).argmax(dim=-1, keepdim=True)
        return torch.where(best == 0, self.one(x), self.two(x))


class Branching(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        return self.inner(x) if x.sum() > 0 else x


def gpt2():
    return Block(Attend(), nn.LayerNorm, dense(nn.GELU))


IDS, NUMBERS, PICTURES = (TOKENS,), (TOKENS, WIDTH), (1, 4, 4)
TAKEN = {
    "GPT-2": (lambda: Decoder(gpt2(), gpt2()), IDS),
    "GPT-2, tied head": (lambda: Decoder(gpt2(), is_tied=True), IDS),
    "LLaMA": (lambda: Decoder(Block(Attend(4, 2, bias=False), nn.RMSNorm, Gated())), IDS),
    "decoder with ReLU, norms behind": (
        lambda: Decoder(Block(Attend(), nn.LayerNorm, dense(nn.ReLU), is_first=False)),
        IDS,
    ),
    "BERT": (
        lambda: Block(Attend(is_causal=False), nn.LayerNorm, dense(nn.GELU), is_first=False),
        NUMBERS,
    ),
    "torch's encoder": (lambda: Classifier(), NUMBERS),
    "torch's encoder, norms in front, GELU": (
        lambda: Classifier(norm_first=True, activation="gelu"),
        NUMBERS,
    ),
    "ViT": (Vit, PICTURES),
}
REFUSED = {
    "experts by argmax": (lambda: Decoder(Experts()), IDS, "argmax"),
    "a branch on values": (lambda: Decoder(Branching()), IDS, "trace"),
}


def task_of(model, rows=ROWS):
    return train_plan(
        roles=ROLES,
        protocol="sealed",
        model=model,
        holdings=(Holding(ROLES.first, 2 * rows, model.inputs, "classes"),),
        split="rows",
        test_rows=rows,
        batch=rows,
        cap=4.0,
        bound=float(WORDS),
        weight_bound=2.0,
    )


@pytest.mark.parametrize("name", TAKEN)
def test_a_transformer_is_planned_as_it_is_and_takes_torchs_step(name):
    build, inputs = TAKEN[name]
    torch.manual_seed(4)
    module = build().eval().double()
    with torch.no_grad():
        for value in module.parameters():
            value.mul_(0.5)
    task = task_of(make_any_model(module, inputs, cap=16.0))
    assert plan_training(task).walker.runs
    rows = torch.rand(ROWS, *inputs).double()
    rows = (rows * WORDS).floor() if inputs == IDS else rows
    labels = torch.arange(ROWS * (inputs[0] if task.model.tokens else 1)) % task.classes
    hot = F.one_hot(labels, task.classes).double().reshape(ROWS, *task.label_shape)
    weights = {key: value.double() for key, value in task.model.initial.items()}
    changed, _ = train_step(PlainStepOps(), task, weights, {}, rows, hot, rate=0.5)
    scores = module(as_input(module, rows))
    F.cross_entropy(scores.flatten(0, -2), labels).backward()
    with torch.no_grad():
        for value in module.parameters():
            value.sub_(0.5 * value.grad)
    state = task.model.state(changed)
    for key, value in module.named_parameters():
        torch.testing.assert_close(state[key].double(), value, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_trained_is_refused_by_its_name(name):
    build, inputs, words = REFUSED[name]
    with pytest.raises(InputError, match=words):
        make_any_model(build(), inputs)
