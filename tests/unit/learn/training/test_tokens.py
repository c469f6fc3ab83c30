"""A loss of tokens: every token of a row has an answer, and the mean goes over all of them."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from harness import ROLES
from tacit.errors import ConfigError
from tacit.learn.training import (
    Holding,
    TrainTask,
    make_model,
    make_token_model,
    plan_training,
    train_plain,
)
from tacit.learn.training.programs import train_step
from tacit.learn.training.verbs import PlainStepOps

VOCABULARY, TOKENS, WIDTH, ROWS = 5, 4, 8, 24


class Speaker(nn.Module):
    """A causal attention between an embedding of one-hot rows and a head over the vocabulary."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(VOCABULARY, WIDTH, bias=False)
        self.positions = nn.Parameter(torch.randn(TOKENS, WIDTH) * 0.1)
        self.qkv, self.norm = nn.Linear(WIDTH, 3 * WIDTH), nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, x):
        x = self.embed(x) + self.positions
        q, k, v = self.qkv(x)[:, None].chunk(3, dim=-1)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.head(self.norm(x + mixed.squeeze(1)))


@pytest.fixture
def text():
    """Return rows of one-hot tokens that count upwards, and the tokens that follow them."""
    ids = (torch.arange(ROWS)[:, None] + torch.arange(TOKENS + 1)) % VOCABULARY
    hot = F.one_hot(ids, VOCABULARY).double()
    return hot[:, :-1], hot[:, 1:]


def make_task(**changes):
    torch.manual_seed(5)
    half = (ROWS // 2, (TOKENS, VOCABULARY), True)
    options = {
        "name": "t",
        "roles": ROLES,
        "protocol": "sealed",
        "model": make_token_model(Speaker(), (TOKENS, VOCABULARY), cap=16.0),
        "holdings": (Holding(ROLES.first, *half), Holding(ROLES.second, *half)),
        "split": "rows",
        "test_rows": 4,
        "batch": 5,
        "epochs": 3,
        "rate": 1.0,
        "cap": 4.0,
        "watch_every": 4,
        "show_to": (ROLES.first,),
        "give_to": (ROLES.first,),
    }
    return TrainTask(**{**options, **changes})


def test_a_step_goes_down_the_mean_cross_entropy_of_all_tokens(text):
    task, (rows, labels) = make_task(cap=None), (text[0][:5], text[1][:5])
    torch.manual_seed(5)
    module = Speaker().double()
    F.cross_entropy(module(rows).flatten(0, 1), labels.flatten(0, 1)).backward()
    weights = {name: value.double() for name, value in task.model.initial.items()}
    changed, _ = train_step(PlainStepOps(), task, weights, {}, rows, labels, rate=0.5)
    for name, value in module.named_parameters():
        wanted = weights[name.replace(".", "/")] - 0.5 * value.grad
        torch.testing.assert_close(changed[name.replace(".", "/")], wanted, atol=1e-6, rtol=1e-5)


def test_a_small_language_model_trains_in_private_as_in_the_clear(text, run_training):
    task, (rows, labels) = make_task(), text
    half = ROWS // 2
    mine = {ROLES.first: (rows[:half], labels[:half]), ROLES.second: (rows[half:], labels[half:])}
    found = run_training(task, mine)
    private, plain = found[ROLES.first].shown, train_plain(task, rows, labels)
    assert plain[-1][1] < 0.7 * plain[0][1]
    for (step, loss, right), (other, wanted, share) in zip(private, plain, strict=True):
        assert step == other
        assert loss == pytest.approx(wanted, rel=0.01)
        # Of 16 tokens that are kept for measuring one may be a near tie.
        assert right == pytest.approx(share, abs=1 / 16)
    assert found[ROLES.first].runs == tuple(plan_training(task).runs)


def test_a_module_of_tokens_is_taken_only_where_tokens_are_meant():
    with pytest.raises(ConfigError, match="make_token_model takes one per token"):
        make_model(Speaker(), (TOKENS, VOCABULARY))
    with pytest.raises(ConfigError, match=r"\(rows, tokens, classes\), got 2 dimensions"):
        make_token_model(nn.Linear(3, 2), (3,))
    model = make_token_model(nn.Linear(VOCABULARY, 1), (TOKENS, VOCABULARY))
    with pytest.raises(ConfigError, match="loss='softmax', got 'logistic'"):
        make_task(model=model, loss="logistic")
