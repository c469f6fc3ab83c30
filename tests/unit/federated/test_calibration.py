"""Promises: calibrated to the target, confirmed another way, and refused if hopeless."""

import math

import pytest
from scipy.optimize import brentq
from scipy.stats import norm

from support.federated import make_spec
from tacit.dp import REPLACE_CLIENT, Gaussian, Repeated, epsilon
from tacit.errors import ConfigError
from tacit.federated import Privacy, calibrate
from tacit.federated.config import round_config
from tacit.federated.secagg.sides import plan_from
from tacit.federated.summary import claims_about_updates


def make(kind, *, aggregator="masked", dimension=7850, run=(100, 80, 10, 20), **asked):
    """Calibrate for a run of so many clients, so many of them needed, colluding, and rounds."""
    clients, minimum, colluding, rounds = run
    spec = make_spec(
        clients=clients,
        minimum=minimum,
        rounds=rounds,
        aggregator=aggregator,
        colluding_share=colluding / clients,
        privacy=Privacy(kind=kind, clip=1.0, **{"epsilon": 5.0, **asked}),
    )
    return calibrate(spec, dimension)


@pytest.mark.parametrize(
    ("kind", "aggregator"), [("central", "masked"), ("central", "plain"), ("local", "plain")]
)
def test_the_promised_epsilon_lies_between_two_other_computations(kind, aggregator):
    made = make(kind, aggregator=aggregator, delta=1e-5)
    assert 4.9 < made.claim.epsilon <= 5.0
    # From above: zero-concentrated privacy and its closed conversion (Bun and Steinke 2016).
    rho = 20 * made.event.rho
    above = rho + 2 * math.sqrt(rho * math.log(1e5))
    # From below: the continuous Gaussian of the same noise, by another accountant.
    like = Gaussian(
        sigma=made.grid.sigma,
        l2_sensitivity=made.grid.l2_sensitivity / made.grid.scale,
        relation=REPLACE_CLIENT,
    )
    below = epsilon([Repeated(event=like, count=20)], delta=1e-5, accountant="fourier").epsilon
    assert below <= made.claim.epsilon <= above * 1.001


def test_many_hands_add_the_noise_of_one():
    split, whole = (make("central", aggregator=name) for name in ("masked", "plain"))
    assert split.grid.parts == 70
    assert split.grid.sigma == pytest.approx(whole.grid.sigma, rel=0.01)


def test_shuffling_affords_a_larger_local_budget_than_its_claim():
    run, asked = (10000, 10000, 0, 1), {"epsilon": 0.5, "delta": 1e-6, "reports": 1}
    made = make("shuffle", aggregator="shuffled", run=run, dimension=100, **asked)
    assert made.claim.epsilon <= 0.5
    assert made.local_epsilon > 2.0


def test_a_population_of_colluders_hides_nobody():
    with pytest.raises(ConfigError, match="of 5 clients 5 may collude"):
        make("central", run=(10, 5, 5, 1), dimension=10)
    with pytest.raises(ConfigError, match="privacy 'shuffle' wants 2 more, got 1"):
        make("shuffle", aggregator="shuffled", run=(2, 2, 0, 1), dimension=10)


def exact_epsilon(mu, delta):
    """Solve the privacy curve of a Gaussian of this μ for ε (Balle and Wang 2018)."""
    return brentq(
        lambda e: norm.cdf(mu / 2 - e / mu) - math.exp(e) * norm.cdf(-mu / 2 - e / mu) - delta,
        0.0,
        100.0,
    )


def seen_by_a_fellow(parts, clients, minimum, *, epsilon=2.0, delta=1e-5, rounds=10):
    """Compute ε towards a client that takes its own noise off, if the noise has so many parts."""
    run = clients, minimum, 0, rounds
    made = make("central", run=run, dimension=100, epsilon=epsilon, delta=delta)
    whole = float(made.grid.sigma2) * made.grid.parts
    unknown = whole / parts * (minimum - 1)
    mu = made.grid.l2_sensitivity * math.sqrt(rounds / unknown)
    return exact_epsilon(mu, delta), made


@pytest.mark.parametrize(("clients", "minimum"), [(2, 2), (3, 2), (3, 3), (5, 3), (5, 5), (9, 5)])
def test_a_fellow_client_that_knows_its_own_noise_learns_no_more_than_is_claimed(clients, minimum):
    found, made = seen_by_a_fellow(minimum - 1, clients, minimum)
    assert made.grid.parts == minimum - 1
    assert 1.7 < found <= made.claim.epsilon <= 2.0
    # Noise in as many parts as there are clients, as 0.1 had it, claims the same and gives less.
    assert seen_by_a_fellow(minimum, clients, minimum)[0] > 2.0


def named(count, **changes):
    """Name so many clients, ten of whom a server of any kind invites to a round."""
    keys = frozenset(i.to_bytes(32, "big") for i in range(count))
    kind = "shuffle" if changes.get("aggregator") == "shuffled" else "central"
    privacy = Privacy(kind=kind, clip=1.0, epsilon=2.0)
    settings = {"clients": 10, "rounds": 1, "server": "malicious", "keys": keys, **changes}
    return make_spec(privacy=privacy, **settings)


@pytest.mark.parametrize("aggregator", ["masked", "keyed"])
def test_a_server_that_chooses_the_round_invites_all_who_work_with_it(aggregator):
    """A tenth of those named: with three times as many names as places, three in one round."""
    changes = {"aggregator": aggregator, "authority": bytes(32) if aggregator == "keyed" else None}
    few, more = (round_config(named(count, **changes), 100) for count in (10, 30))
    assert [few.mechanism.grid.parts, more.mechanism.grid.parts] == [6 - 1, 6 - 3]
    with pytest.raises(ConfigError, match="of 100 named keys 10 may work with the server"):
        named(100, **changes)


@pytest.mark.parametrize("named_keys", [50, 60])
@pytest.mark.parametrize("aggregator", ["masked", "keyed"])
def test_all_who_work_with_a_server_leave_two_others_in_a_sum(aggregator, named_keys):
    """Five of the six in a sum, by an authority's rules: the sixth one's update, exactly."""
    changes = {"aggregator": aggregator, "authority": bytes(32) if aggregator == "keyed" else None}
    with pytest.raises(ConfigError, match="or of those and one other, whose update it is then"):
        named(named_keys, **changes)
    assert named(49, **changes).federated.lost == 4


def test_a_keyed_sum_of_a_curious_server_has_two_who_do_not_work_with_it():
    settings = {"clients": 20, "rounds": 1, "aggregator": "keyed", "privacy": Privacy(clip=1.0)}
    with pytest.raises(ConfigError, match="of 20 clients 2 may work with the server"):
        make_spec(**settings, minimum=3)
    (claim,) = claims_about_updates(make_spec(**settings, minimum=4))
    assert "at most 10% of the clients of a round work with the server" in claim.assumptions[0]
    many = named(49, aggregator="keyed", authority=bytes(32))
    assert any("in how many runs" in one for one in claims_about_updates(many)[0].assumptions)
    assert "at most 10% of the 49 clients named" in claims_about_updates(many)[0].assumptions[0]


def test_the_threshold_counts_all_who_work_with_a_server_that_chooses_and_the_claim_names_them():
    few, more = (plan_from(round_config(named(n), 100)).neighbourhood.threshold for n in (10, 30))
    assert [few, more] == [(10 + 1) // 2 + 1, (10 + 3) // 2 + 1]
    assert "10% of the 30 clients named" in claims_about_updates(named(30))[0].assumptions[1]
    assert (
        named(100, server="curious").federated.lost == 1
    )  # it chooses by chance: of those in a round


def test_a_crowd_is_not_promised_where_the_server_may_invent_it():
    with pytest.raises(ConfigError, match="'shuffled' rests on a server that invents no clients"):
        named(10, aggregator="shuffled")


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace", "objective"])
def test_what_clients_do_alone_is_counted_for_one_run_and_the_claim_says_so(mechanism):
    """A node that is asked in another run answers again: see `test_flower`."""
    made = make("local", aggregator="plain", run=(10, 6, 0, 1), dimension=20, mechanism=mechanism)
    assert any("about one run: a node counts each anew" in one for one in made.claim.assumptions)


def test_two_clients_each_add_all_of_the_noise_and_the_claim_says_so():
    _, made = seen_by_a_fellow(1, 2, 2)
    alone = make("local", run=(2, 2, 0, 10), dimension=100, epsilon=2.0, delta=1e-5)
    assert made.grid == alone.grid
    assert any("at least 1 of the clients" in one for one in made.claim.assumptions)


def test_a_privacy_without_its_numbers_is_refused():
    with pytest.raises(ConfigError, match="wants epsilon and clip"):
        Privacy(kind="local", clip=1.0)
    with pytest.raises(ConfigError, match="leave epsilon out"):
        Privacy(kind="none", epsilon=1.0)
    with pytest.raises(ConfigError, match="clip must be positive"):
        Privacy(kind="none", clip=0.0)


@pytest.mark.parametrize("epsilon", [-1.0, 0.0, float("inf"), float("nan")])
def test_an_impossible_epsilon_is_refused_by_the_name_it_has_in_a_job(epsilon):
    with pytest.raises(ConfigError, match="epsilon must be positive and finite"):
        Privacy(kind="central", epsilon=epsilon, clip=1.0)


@pytest.mark.parametrize(("rounds", "downlink"), [(5, 0.0), (25, math.sqrt(25**2 - 50) / 50)])
def test_nbafl_takes_the_noise_of_its_paper(rounds, downlink):
    """Wei et al. 2020: c·T·2C/(m·ε) up, 2c·C·√(T² − N)/(m·N·ε) down where T > √N."""
    asked = {"mechanism": "nbafl", "records": 100, "epsilon": 50.0, "delta": 0.01, "clip": 1.0}
    spec = make_spec(
        clients=50,
        rounds=rounds,
        aggregator="plain",
        privacy=Privacy(kind="local", **asked),
    )
    made = calibrate(spec, 4)
    unit = math.sqrt(2 * math.log(125)) * 2 / (100 * 50)
    assert math.sqrt(made.grid.sigma2) / made.grid.scale == pytest.approx(unit * rounds, rel=1e-3)
    assert made.downlink_sigma == pytest.approx(unit * downlink)
