"""A loss of tokens: every token of a row has an answer, and the mean goes over all of them."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from support.mpc import ROLES
from support.training import train_plan
from tacit.data import Holding
from tacit.errors import ConfigError
from tacit.mpc import sum_forecasts
from tacit.nn import make_model, make_token_model
from tacit.party import Meeting, merge_costs, run_threads, without_setup
from tacit.training import plan_training, train, train_plain
from tacit.training.ops import PlainStepOps
from tacit.training.programs import train_step

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
    half = (ROWS // 2, (TOKENS, VOCABULARY), "classes")
    options = {
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
        "look_every": 4,
        "show_to": (ROLES.first,),
        "give_to": (ROLES.first,),
    }
    return train_plan(**{**options, **changes})


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
    assert found[ROLES.first].runs == tuple(plan_training(task).walker.runs)


class Body(nn.Module):
    """The same without its head."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(5)
        self.inner = Speaker()
        self.inner.head = nn.Identity()

    def forward(self, x):
        return self.inner(x)


OWNERS = (ROLES.first, ROLES.second, "dan")


def test_a_loss_at_the_owners_of_texts_trains_as_in_the_clear_and_shows_them_their_own(text):
    """The third owner does not compute; labels enter no plan, and the dealer sees nothing."""
    torch.manual_seed(6)
    head = torch.randn(VOCABULARY, WIDTH).double()
    rows, labels = text
    third = ROWS // 3
    task = make_task(
        model=make_token_model(Body(), (TOKENS, VOCABULARY), cap=16.0),
        holdings=tuple(Holding(name, third, (TOKENS, VOCABULARY), "classes") for name in OWNERS),
        head=head,
        batch=6,
        rate=0.3,
        give_to=("dan",),
        show_to=("dan", ROLES.first),
    )
    ledgers, costs = {}, {}

    def party(session):
        mine = {}
        if session.me in OWNERS:
            at = third * OWNERS.index(session.me)
            mine = {"rows": rows[at : at + third], "labels": labels[at : at + third]}
        found = train(session, task, **mine)
        ledgers[session.me], costs[session.me] = session.ledger.entries(), session.cost()
        return found

    names = (*OWNERS, ROLES.dealer)
    ends = run_threads(dict.fromkeys(names, party), Meeting(parties=names, job_digest=bytes(32)))
    plain = train_plain(task, rows, labels)
    assert plain[-1][1] < 0.8 * plain[0][1]
    assert ends["dan"].shown == ends[ROLES.first].shown
    for (step, loss, right), (other, wanted, share) in zip(ends["dan"].shown, plain, strict=True):
        assert step == other
        assert loss == pytest.approx(wanted, rel=0.01)
        assert right == pytest.approx(share, abs=1 / 16)
    assert {name for name, one in ends.items() if one.weights} == {"dan"}
    seen = {leak.to for leaks in ledgers.values() for leak in leaks if "hidden states" in leak.what}
    assert seen == set(OWNERS)
    for name in OWNERS:
        own = [one for one in ledgers[name] if one.to == name and "hidden states" in one.what]
        at = OWNERS.index(name)
        stepped = task.portions[at] * task.steps
        looked = task.counts(task.test_indices())[at] * len(plain)
        assert sum(one.elements for one in own) == (stepped + looked) * TOKENS * WIDTH
    forecast = sum_forecasts(ends["dan"].runs).cost
    assert forecast.traffic == without_setup(merge_costs(costs)).traffic
    assert not [plan for plan, _ in ends["dan"].runs if "labels" in str(plan.steps)]


@pytest.mark.parametrize(
    "changes",
    [
        {"accumulate": 3, "protocol": "permuted3"},
        pytest.param({"warmup": 4}, marks=pytest.mark.slow),
    ],
)
def test_parts_of_a_step_and_a_rate_that_grows_go_the_same_way(text, run_training, changes):
    task, (rows, labels) = make_task(**changes), text
    half = ROWS // 2
    mine = {ROLES.first: (rows[:half], labels[:half]), ROLES.second: (rows[half:], labels[half:])}
    private, plain = run_training(task, mine)[ROLES.first].shown, train_plain(task, rows, labels)
    whole = train_plain(make_task(), rows, labels)
    for (_, loss, _), (_, wanted, _) in zip(private, plain, strict=True):
        assert loss == pytest.approx(wanted, rel=0.01)
    is_same = plain[0][1] == pytest.approx(whole[0][1], rel=1e-9)
    assert is_same == ("accumulate" in changes)
    if "warmup" in changes:
        assert [task.rate_at(step) for step in (1, 2, 4, 5)] == [0.3, 0.5, 1.0, 1.0]


def test_a_module_of_tokens_is_taken_only_where_tokens_are_meant():
    with pytest.raises(ConfigError, match="make_token_model takes one per token"):
        make_model(Speaker(), (TOKENS, VOCABULARY))
    with pytest.raises(ConfigError, match=r"\(rows, tokens, classes\), got 2 dimensions"):
        make_token_model(nn.Linear(3, 2), (3,))
    model = make_token_model(nn.Linear(VOCABULARY, 1), (TOKENS, VOCABULARY))
    with pytest.raises(ConfigError, match="loss='softmax', got 'logistic'"):
        make_task(model=model, loss="logistic")
