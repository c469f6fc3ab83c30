"""An audit of the noisy phase: what it shows stays below ε, and does not without noise or clip."""

import copy

import pytest
import torch

from support.models import dialogues, marked, small_causal
from tacit.audit.privacy.bounds import rates_epsilon
from tacit.dp import ADD_REMOVE_CLIENT, ADD_REMOVE_CLIENT_MARKS, ghost, private
from tacit.dp.policy import by_pattern
from tacit.nn import add_adapters
from tacit.ring import Prg
from tacit.text.corpus import Text, collate
from tacit.text.tune import Course, tune_private, unit_losses

EPSILON, DELTA, TRIALS = 1.0, 1e-3, 32
SECRET = [Text(text="我的单号是541684", owner="secret")] * 10


def without_noise(monkeypatch):
    real = private.add_gaussian

    def still(values, **how):
        return values.clone(), real(values, **how)[1]

    monkeypatch.setattr(private, "add_gaussian", still)


def without_clip(monkeypatch):
    monkeypatch.setattr(ghost, "least_factor", lambda norms, clip: torch.ones_like(norms))


def found_epsilon(monkeypatch, *, stresses_marks, relation):
    """Train with and without the secret, look at the weights, and bound ε from below at 99 %.

    The attacker knows the start, every other text and the secret, and sees the model: how far it
    moved along the secret's own gradient.
    """
    start = add_adapters(small_causal(layers=1), rank=2, seed=0, only=("q", "v"))
    nets = {
        has: marked([*dialogues(6), *(SECRET if has else [])], by_pattern()).originals(
            length=32, by_owner=True, stresses_marks=stresses_marks
        )
        for has in (True, False)
    }
    alone = marked(SECRET, by_pattern()).originals(length=32, by_owner=True)
    trained = [p for p in start.parameters() if p.requires_grad]
    way = torch.autograd.grad(unit_losses(start, *collate([alone[0]])).sum(), trained)
    kept = [p.detach() for p in trained]
    noise, least = {}, private.least_noise

    def least_once(plan, target):
        key = str(plan(1.0))
        if key not in noise:
            noise[key] = least(plan, target)
        return noise[key]

    monkeypatch.setattr(private, "least_noise", least_once)
    # That rows do not mix is checked in the first training, and is not what is put to the test.
    checks, refuse = iter(range(2)), ghost.refuse_mixing
    monkeypatch.setattr(
        ghost,
        "refuse_mixing",
        lambda *call, **how: None if next(checks, None) is None else refuse(*call, **how),
    )

    def moved(has, trial):
        module = copy.deepcopy(start)
        tune_private(
            module,
            nets[has],
            Course(epochs=1, rate=1e-3, batch=7),
            epsilon=EPSILON,
            delta=DELTA,
            clip=0.003,
            relation=relation,
            prg=Prg(f"trial {has!s:5}{trial:05}".encode()),
        )
        now = [p.detach() for p in module.parameters() if p.requires_grad]
        return -sum(float(((a - b) * g).sum()) for a, b, g in zip(now, kept, way, strict=True))

    scores = {has: [moved(has, trial) for trial in range(TRIALS)] for has in (True, False)}
    few = TRIALS // 4
    line = (sum(scores[True][:few]) + sum(scores[False][:few])) / (2 * few)
    hits = sum(score > line for score in scores[True][few:])
    false = sum(score > line for score in scores[False][few:])
    rest = TRIALS - few
    return rates_epsilon(
        false_positives=false,
        outside=rest,
        true_positives=hits,
        inside=rest,
        delta=DELTA,
        confidence=0.99,
    )


@pytest.mark.parametrize("method", ["jft", pytest.param("all-dp", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "broken", [None, without_noise, pytest.param(without_clip, marks=pytest.mark.slow)]
)
def test_an_audit_contradicts_epsilon_only_where_noise_or_clip_is_gone(monkeypatch, broken, method):
    if broken is not None:
        broken(monkeypatch)
    is_jft = method == "jft"
    relation = ADD_REMOVE_CLIENT_MARKS if is_jft else ADD_REMOVE_CLIENT
    found = found_epsilon(monkeypatch, stresses_marks=is_jft, relation=relation)
    assert (found > EPSILON) == (broken is not None), found
