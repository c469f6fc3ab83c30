"""Every family, form and precision of private inference keeps the same contract."""

import pytest

from support.llm import BRIEF, FAMILIES, answering, plainly, speak, tiny, traffic
from tacit.llm import Cache, next_logits
from tacit.llm.permuted import (
    FORMS,
    Batch,
    Precision,
    fit_precision,
    layer_messages,
    offline_cost,
    pass_cost,
)
from tacit.llm.permuted.blueprint import Blueprint
from tacit.llm.permuted.fitting import fit_reach

PROMPT = [1, 5, 7, 9, 3]
LIMIT = 8
PRECISIONS = {
    "default": Precision(),
    "forty bits": Precision(activation=13, weight=15, reach=12),
    "brief": BRIEF,
    "fitted": fit_reach(10, 10),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("family", FAMILIES)
def test_tokens_and_scores_are_those_of_the_plain_model(family, form):
    """Scores up to their order, which the user does not know."""
    model, shown = tiny(family, seed=14), []
    said = speak(model, answering(PROMPT, LIMIT, shown), form=form).value
    assert said == plainly(model, PROMPT, LIMIT)
    cache, ids = Cache(), PROMPT
    for mine, token in zip(shown, said, strict=True):
        theirs, ids = next_logits(model, ids, cache).double(), [token]
        assert float((mine.sort().values - theirs.sort().values).abs().max()) < 2e-3


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("vocab", [40, 43])
def test_greedy_answers_survive_every_precision_on_offer(precision, vocab):
    model = tiny("llama", seed=1, vocab=vocab, ffn=25)  # odd widths: words that are not aligned
    spoken = speak(model, answering(PROMPT, LIMIT), precision=PRECISIONS[precision])
    assert spoken.value == plainly(model, PROMPT, LIMIT)


def batches(plan, form, block):
    """List the batches that an answer of LIMIT tokens takes, and the runs of each."""
    prompt = len(PROMPT) - 1 if plan.architecture.family == "chatglm" else 0
    common = {"prompt": prompt, "number": 0}
    yield Batch(past=0, rows=len(PROMPT), masked_kv=0, form=None, **common)
    past, masked_kv, left = len(PROMPT), len(PROMPT), LIMIT - 1
    while left:
        batch = Batch(past=past, rows=min(block, left), masked_kv=masked_kv, form=form, **common)
        yield batch
        past, masked_kv, left = batch.end, batch.masked_after(batch.runs), left - batch.rows


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("family", "precision", "counts"),
    [
        *((name, "default", False) for name in FAMILIES),
        ("llama", "brief", False),
        ("llama", "default", True),
        ("gpt2", "brief", True),
    ],
)
def test_metered_traffic_is_what_the_forecast_says(family, form, precision, counts):
    model = tiny(family)
    plan = Blueprint(model.architecture, PRECISIONS[precision], counts=counts)
    spoken = speak(
        model, answering(PROMPT, LIMIT), form=form, precision=plan.precision, counts=counts
    )
    costs = [
        pass_cost(plan, batch, run) for batch in batches(plan, form, 8) for run in range(batch.runs)
    ]
    online = traffic(spoken.costs["user"], "online")
    vocab = model.architecture.vocab
    # The last token is only named: a command of four words, and the table.
    assert online == {
        ("owner", "user", "messages"): sum(c.to_user_messages for c in costs) + 1,
        ("owner", "user", "bytes"): sum(c.to_user_bytes for c in costs) + 4 * vocab,
        ("user", "owner", "messages"): sum(c.to_owner_messages for c in costs) + 1,
        ("user", "owner", "bytes"): sum(c.to_owner_bytes for c in costs) + 32,
    }
    chain = sum(cost.chain for cost in costs)
    assert chain + 1 <= spoken.costs["user"].online_rounds <= chain + 2


@pytest.mark.parametrize("counts", [False, True])
@pytest.mark.parametrize("form", FORMS)
def test_metered_material_is_what_the_forecast_says(form, counts):
    model = tiny("llama")
    plan = Blueprint(model.architecture, fit_precision(model), counts=counts)
    spoken = speak(model, answering(PROMPT, LIMIT), form=form, counts=counts)
    costs = [offline_cost(plan, batch) for batch in batches(plan, form, 8)]
    dealt = traffic(spoken.costs["dealer"], "offline")
    notes = 64 * (len(costs) + 1)  # the user's batches, passed on
    assert dealt["dealer", "owner", "bytes"] == sum(c.dealer_to_owner_bytes for c in costs) + notes
    assert dealt["dealer", "user", "bytes"] == sum(c.dealer_to_user_bytes for c in costs)
    fixed = traffic(spoken.costs["owner"], "offline")["user", "owner", "bytes"]
    assert fixed == sum(c.user_to_owner_bytes for c in costs)


@pytest.mark.parametrize(
    ("family", "precision", "form", "most"),
    [
        ("gpt2", "default", "resent", 8),
        ("chatglm", "default", "resent", 8),
        ("llama", "default", "resent", 8),
        ("llama", "brief", "resent", 6),
        ("gpt2", "default", "incremental", 12),
        ("chatglm", "default", "incremental", 12),
        ("llama", "default", "incremental", 12),
        ("llama", "brief", "incremental", 10),
        ("qwen3", "brief", "incremental", 10),
        ("gemma3", "brief", "resent", 12),
        ("glm4", "default", "incremental", 16),
    ],
)
def test_a_layer_takes_no_more_messages_than_promised(family, precision, form, most):
    """Two models that differ by one layer, and the meter: what is left is that layer."""
    chosen = PRECISIONS[precision]
    counts = []
    for layers in (1, 2):
        model = tiny(family, layers=layers)
        spoken = speak(model, answering(PROMPT, LIMIT), form=form, precision=chosen)
        online = traffic(spoken.costs["user"], "online")
        counts.append(sum(n for key, n in online.items() if key[2] == "messages"))
    plan = Blueprint(model.architecture, chosen)
    per_step = (counts[1] - counts[0] - layer_messages(plan, None)) / (LIMIT - 1)
    assert per_step == layer_messages(plan, form) <= most


def test_counting_tokens_costs_no_message():
    def messages(counts):
        spoken = speak(tiny("llama"), answering(PROMPT, LIMIT), counts=counts)
        online = traffic(spoken.costs["user"], "online")
        return {key: n for key, n in online.items() if key[2] == "messages"}

    assert messages(True) == messages(False)


def test_the_dealer_takes_no_part_online():
    spoken = speak(tiny("llama"), answering(PROMPT, LIMIT))
    assert traffic(spoken.costs["dealer"], "online") == {}
