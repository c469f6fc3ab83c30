"""The noise that is added is the noise that is claimed: every aggregator, every mechanism.

A check counts draws against the claimed shape; of noise as it is claimed one check in a million
fails, and seeds are fixed. `test_noise_mutations.py` removes and halves every draw in turn and
wants these checks to notice.
"""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import gamma

from support.federated import make_spec
from tacit.audit.privacy import (
    audit_federated_rounds,
    audit_rounds,
    laplace_tail,
    try_count,
    try_noise,
)
from tacit.dp import (
    GAUSSIANS,
    REPLACE_CLIENT,
    DpSgd,
    QuantileClip,
    SparseVector,
    add_binomial,
    add_discrete_gaussian,
    add_laplace,
    follow_quantile,
    select_above,
    train_dp_sgd,
)
from tacit.federated import (
    Learner,
    Privacy,
    Training,
    find_aggregator,
    round_config,
)
from tacit.federated.adaptive import Selection, show_contributions, upload_selected
from tacit.federated.objective import (
    _Objective,
    _released,
    fit_private_logistic,
)
from tacit.federated.records import train_records
from tacit.ring import Prg
from tacit.training.noise import draw_alone, draw_noise, share_noise

DRAWS = 400  # half of the noise is then noticed with a chance above 1 - 1e-9

POLICIES = {
    "plain, central": ("plain", {"kind": "central"}),
    "plain, central, binomial": ("plain", {"kind": "central", "mechanism": "binomial"}),
    "plain, central, following clip": ("plain", {"kind": "central", "quantile": 0.5}),
    "masked, central": ("masked", {"kind": "central"}),
    "masked, local": ("masked", {"kind": "local"}),
    "encrypted, central": ("encrypted", {"kind": "central"}),
    "keyed, central": ("keyed", {"kind": "central"}),
    "plain, local": ("plain", {"kind": "local"}),
    "plain, local, laplace": ("plain", {"kind": "local", "mechanism": "laplace"}),
    "plain, local, nbafl": ("plain", {"kind": "local", "mechanism": "nbafl", "records": 50}),
    "plain, local-adaptive": ("plain", {"kind": "local-adaptive"}),
    "shuffled, direction": ("shuffled", {"kind": "shuffle"}),
    "shuffled, coordinate": ("shuffled", {"kind": "shuffle", "method": "coordinate"}),
}


def prg(label="noise"):
    return Prg(b"a key for tests.").fork(label)


def policy(name, **changes):
    aggregator, asked = POLICIES[name]
    settings = {"clip": 0.5, "epsilon": 8.0, "delta": 1e-3, **asked, **changes}
    return make_spec(
        clients=4,
        rounds=1,
        aggregator=aggregator,
        privacy=Privacy(**settings),
        minimum=4,
        drop_rate=0.0,
        colluding_share=0.0,
    )


def rounds_have_their_noise(name):
    found = audit_federated_rounds(policy(name), trials=DRAWS, prg=prg(name))
    assert not found.is_contradicted, found.note


def matches(noise, deviation, tail=None):
    shape = {} if tail is None else {"tail": tail}
    found = try_noise(np.asarray(noise, np.float64).reshape(-1), deviation=deviation, **shape)
    assert not found.is_contradicted, found


def downlink_has_its_noise():
    """NbAFL's server adds noise of its own, which no claim counts on."""
    terms = round_config(policy("plain, local, nbafl"), DRAWS)
    bare = replace(terms, mechanism=replace(terms.mechanism, grid=None, downlink_sigma=3.0))
    server = find_aggregator("plain").make_server(bare, prg())
    matches(server.aggregate().mean, 3.0)


def additive_noise_is_its_event(kind):
    noisy, _ = GAUSSIANS[kind](
        torch.ones(DRAWS), sigma=2.0, l2_sensitivity=1.0, relation=REPLACE_CLIENT, prg=prg()
    )
    matches(noisy - 1, 2.0)


def laplace_noise_is_its_event():
    noisy, _ = add_laplace(
        torch.ones(DRAWS), scale=2.0, l1_sensitivity=1.0, relation=REPLACE_CLIENT, prg=prg()
    )
    matches(noisy - 1, 2.0 * 2**0.5, laplace_tail)


def whole_noise_is_its_event():
    zeros, options = torch.zeros(DRAWS, dtype=torch.int64), {"relation": REPLACE_CLIENT}
    noisy, event = add_discrete_gaussian(
        zeros, sigma2=100, l2_sensitivity=1.0, prg=prg(), **options
    )
    matches(noisy, math.sqrt(event.sigma2))
    noisy, event = add_binomial(
        zeros, trials=4000, sensitivities=(1.0, 1.0, 1.0), prg=prg(), **options
    )
    matches(noisy, math.sqrt(event.trials) / 2)


def followed_clip_has_its_noise():
    source, start = prg(), QuantileClip(l2_bound=1.0, quantile=0.5, rate=1.0, count_noise=10.0)
    bounds = [
        follow_quantile(start, below=500, clients=1000, prg=source)[0].l2_bound
        for _ in range(DRAWS)
    ]
    # A count moves by ±1 and the deviation of the sum is twice the count's: share = sum / 2n.
    matches(-np.log(bounds) * 2000, 2 * start.count_noise)


def sparse_vectors_have_both_noises(runs):
    """A query two scales below the threshold is answered as often as two noises make it."""
    settings = SparseVector(
        epsilon=1.0, answers=1, sensitivity=1.0, relation=REPLACE_CLIENT, is_monotone=True
    )
    source = prg()
    query = torch.tensor([-4.0])  # both scales are 2
    above = sum(
        len(select_above(query, threshold=0.0, settings=settings, prg=source)[0])
        for _ in range(runs)
    )
    # P(X + Y > 2b) of two Laplace numbers of scale b.
    found = try_count(above, runs, lambda f: (2 + 2 / f) / 4 * math.exp(-2 / f))
    assert not found.is_contradicted, found


def contributions_have_their_noise():
    options = {"epsilon": 1.0, "prg": prg()}
    shown, _ = show_contributions(torch.full((DRAWS,), 1 / DRAWS), **options)
    matches(shown - 1 / DRAWS, 2.0 * 2**0.5, laplace_tail)


def selected_values_have_their_noise():
    wanted = Selection(
        bound=1.0, threshold=-1e6, answers=DRAWS, choice_epsilon=50.0, value_epsilon=200.0
    )
    _, values, _ = upload_selected(torch.zeros(DRAWS), wanted, relation=REPLACE_CLIENT, prg=prg())
    matches(values, wanted.value_scale * 2**0.5, laplace_tail)


def objective_has_its_noise():
    """Without rows that say anything the minimiser is the random term itself."""
    settings, n, d = {"epsilon": 2.0, "regularisation": 1.0}, 50, 3
    source, x, labels = prg(), torch.zeros(50, 3), torch.ones(50)
    found = [fit_private_logistic(x, labels, **settings, prg=source)[0] for _ in range(DRAWS)]
    lengths = np.array([n * float(w.norm()) for w in found])
    ratio = 0.25 / n
    left = 0.99 * settings["epsilon"] - math.log1p(2 * ratio + ratio**2)
    bar = gamma.ppf(0.7, d, scale=2 / left)
    result = try_count(
        int((lengths > bar).sum()), DRAWS, lambda f: gamma.sf(bar / f, d, scale=2 / left)
    )
    assert not result.is_contradicted, result


def release_covers_its_distance():
    """Add the last noise of objective perturbation to a minimiser that is known: zero."""
    objective = _Objective(torch.zeros(50, DRAWS).double(), 1.0, torch.zeros(DRAWS).double())
    noisy = _released(objective, torch.zeros(DRAWS).double(), 100.0, 90.0, prg=prg())
    box = 1 + 2 / 90 * (DRAWS + 40 * math.sqrt(DRAWS) + 40) / 50
    least = max(2 * 2e-9 * math.sqrt(DRAWS) / 1.0, box * 2.0**-20)
    matches(noisy, least * 2**0.5, laplace_tail)


def steps_have_their_noise(kind):
    settings = DpSgd(steps=1, sample_rate=1.0, clip=0.5, multiplier=2.0, noise=kind)
    found = audit_rounds(train_dp_sgd, settings, prg=prg(), rounds=2 * DRAWS)
    assert not found.is_contradicted, found.note


def local_training_has_its_noise():
    """Rows of zeros teach the weights nothing: what moves them is the noise of the steps."""
    rows, size = torch.zeros(40, DRAWS // 2), DRAWS // 2
    learner = Learner(
        torch.nn.Linear(size, 2),
        rows,
        torch.zeros(40, dtype=torch.int64),
        [np.arange(40)],
        training=Training(),
    )
    recipe = Training(steps=4, batch=20, rate=0.5)
    asked = Privacy(kind="record", clip=1.0, epsilon=4.0, delta=1e-4, records=40)
    plain = replace(policy("plain, local"), privacy=asked, train=recipe)
    steps = round_config(plain, learner.dimension).mechanism.records
    update, _ = train_records(learner, 0, learner.first_weights(), steps, prg=prg())
    sigma = steps.event.event.event.sigma
    matches(update.values[: 2 * size], 0.5 / 20 * sigma * 2)  # of four steps; biases learn


def training_noise_is_faced(kind):
    """What one of four makers does not know of a step on shares, or all of it drawn alone."""
    plan = share_noise(
        tuple("abcd"), multiplier=3.0, l2_sensitivity=1.0, frac_bits=16, shape=(DRAWS,)
    )
    if kind == "alone":
        found = draw_alone(plan, prg())
    else:
        found = sum(draw_noise(plan, prg(maker)) for maker in plan.makers[1:])
    return matches(found, 3.0)


CHECKS = {
    "training, makers": (training_noise_is_faced, "makers"),
    "training, alone": (training_noise_is_faced, "alone"),
    **{name: (rounds_have_their_noise, name) for name in POLICIES},
    "downlink": (downlink_has_its_noise,),
    "laplace": (laplace_noise_is_its_event,),
    "whole numbers": (whole_noise_is_its_event,),
    "following clip": (followed_clip_has_its_noise,),
    "sparse vector": (sparse_vectors_have_both_noises, 1000),
    "sparse vector, long": (sparse_vectors_have_both_noises, 3000),
    "contributions": (contributions_have_their_noise,),
    "selected": (selected_values_have_their_noise,),
    "objective": (objective_has_its_noise,),
    "release": (release_covers_its_distance,),
    "records": (local_training_has_its_noise,),
    **{
        f"{check.__name__}, {kind}": (check, kind)
        for kind in GAUSSIANS
        for check in (
            additive_noise_is_its_event,
            steps_have_their_noise,
        )
    },
}


@pytest.mark.parametrize(
    "name",
    [pytest.param(one, marks=[pytest.mark.slow] if "long" in one else []) for one in CHECKS],
)
def test_noise_is_what_is_claimed(name):
    check, *arguments = CHECKS[name]
    check(*arguments)
