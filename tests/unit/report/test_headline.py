from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tacit.report import render
from tacit.report.headline import GAMES, LONGEST, pick_headline_metric, state_headline
from tacit.result import NOTHING_SENT, Claim, Leak, Metric

ACCURACY = Metric(name="accuracy", value=0.95, unit="fraction", samples=539, low=0.93, high=0.97)
SEEN = Leak(to="lab", what="permuted values", why="it helps", kind="protocol", elements=9)
SHOWN = Leak(to="hospital", what="scores", why="declared", kind="output", elements=171)
SIZE = Leak(to="lab", what="the number of rows", why="planning", kind="size", elements=1)
PRIVATE = Claim(
    subject="each client's data",
    guarantee="(ε, δ)-differential privacy",
    assumptions=(),
    epsilon=1.99991,
    delta=1e-5,
    relation="replacing one client",
    accountant="pld",
)
ROBUST = Claim(
    subject="38 of 40 rows",
    guarantee="no input within ±0.02 of such a row, in all features at once, changes the answer",
    assumptions=(),
)


def _alone(example, kind, *utility, claims=()):
    return replace(
        example,
        kind=kind,
        parties=example.parties[:1],
        forecast=None,
        metered=NOTHING_SENT,
        leakage=(),
        claims=claims,
        utility=utility,
    )


def _together(example, kind, *utility, leakage=(SHOWN, SIZE), claims=()):
    return replace(example, kind=kind, leakage=leakage, claims=claims, utility=utility)


def _metric(name, value, reference=None, unit="fraction", **more):
    return Metric(name=name, value=value, unit=unit, reference=reference, **more)


KINDS = {
    "infer": (
        lambda e: _together(e, "infer", replace(ACCURACY, reference=0.95)),
        "Nothing but scores (171 values, to hospital) and sizes was revealed; "
        "accuracy 95 % (n = 539), as in plaintext",
    ),
    "infer of many results": (
        lambda e: _together(e, "infer", ACCURACY, leakage=(SHOWN,) * 3 + (replace(SHOWN, to="a"),)),
        "Nothing but declared results (to hospital and a) was revealed; accuracy 95 % (n = 539)",
    ),
    "train": (
        lambda e: _together(
            e, "train", replace(ACCURACY, reference=0.96), leakage=(SHOWN,) * 10 + (SEEN,) * 6
        ),
        "Accuracy 95 % (n = 539), plaintext 96 %; lab saw more than the declared result",
    ),
    "federated": (
        lambda e: _together(e, "federated", ACCURACY, leakage=(SHOWN, SEEN), claims=(PRIVATE,)),
        "Accuracy 95 % (n = 539); ε = 2 at δ = 10⁻⁵ for replacing one client; "
        "lab saw permuted values",
    ),
    "split": (
        lambda e: _together(
            e,
            "split",
            ACCURACY,
            _metric("k-means", 0.7),
            _metric("gradient clusters", 0.99, 0.1),
            leakage=(SHOWN, SEEN, replace(SEEN, to="hospital"), SEEN),
        ),
        "Accuracy 95 % (n = 539); lab and hospital saw more than the declared result; "
        "strongest attack: gradient clusters, 99 %",
    ),
    "verify": (
        lambda e: _alone(e, "verify", _metric("verified robust accuracy", 0.95), claims=(ROBUST,)),
        f"38 of 40 rows are robust: {ROBUST.guarantee}; verified robust accuracy 95 %",
    ),
    "audit": (
        lambda e: _alone(
            e,
            "audit",
            ACCURACY,
            _metric("RMIA: AUC", 0.71, 0.5, "", low=0.67, high=0.75, samples=600),
            _metric("loss: AUC", 0.55, 0.5, "", low=0.51, high=0.6, samples=600),
        ),
        "Strongest attack: RMIA: AUC 0.71 (blind guess: 0.5; n = 600)",
    ),
    "audit of a false claim": (
        lambda e: _alone(
            e,
            "audit",
            _metric("ε lower bound, canaries", 3.48296, 0.1, "ε", low=3.48296),
            claims=(replace(PRIVATE, epsilon=0.1),),
        ),
        "A claim is contradicted: an attack (canaries) shows ε ≥ 3.482 at δ = 10⁻⁵, "
        "claimed was ε ≤ 0.1",
    ),
    "leakage": (
        lambda e: _alone(
            e, "leakage", _metric("weak", 0.3, 0.1, low=0.2), _metric("rows", 1.0, 0.1, low=0.9)
        ),
        "Strongest attack: rows, 100 % (blind guess: 10 %)",
    ),
    "serve": (
        lambda e: _together(
            e,
            "serve",
            _metric("questions answered", 12.0, unit=""),
            leakage=(replace(SHOWN, to="clients"),),
        ),
        "Nothing but scores (171 values, to clients) was revealed; questions answered 12",
    ),
    "chat": (
        lambda e: _together(e, "chat", leakage=(SIZE,)),
        "Nothing but sizes was revealed to anyone",
    ),
    "fit, of one party": (
        lambda e: _alone(e, "fit", ACCURACY, claims=(PRIVATE,)),
        "Accuracy 95 % (n = 539); ε = 2 at δ = 10⁻⁵ for replacing one client; "
        "computed by one party alone, nothing was sent",
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_job_has_its_sentence(example, kind):
    build, sentence = KINDS[kind]
    headline = state_headline(build(example))
    assert headline.replace("\u00a0", " ") == sentence
    assert len(headline) <= LONGEST


@settings(
    max_examples=150, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
@given(data=st.data())
def test_any_headline_fits_on_two_lines_and_never_hides_a_leak(results, data):
    kinds = ("infer", "train", "federated", "split", "verify", *GAMES, "fit")
    result = replace(data.draw(results), kind=data.draw(st.sampled_from(kinds)))
    long = replace(SEEN, to=data.draw(st.text(max_size=300)), what="w" * 300)
    result = replace(result, leakage=(*result.leakage, long))
    headline = state_headline(result)
    assert 0 < len(headline) <= LONGEST
    assert "\n" not in headline
    assert "othing but" not in headline
    assert "nothing was" not in headline.replace("nothing was measured", "")


@pytest.mark.parametrize("claims", [(), (PRIVATE,)])
@pytest.mark.parametrize("leakage", [(SHOWN, SIZE), (SHOWN, SEEN), (replace(SEEN, to="b" * 99),)])
def test_an_accuracy_that_needs_no_model_is_never_shown_without_saying_so(example, leakage, claims):
    often = _metric("most frequent class", 0.779, samples=539)
    found = replace(ACCURACY, value=0.7717, reference=0.7717, low=0.74)
    auc = _metric("AUC", 0.5, reference=0.7, unit="")
    made = _together(example, "train", auc, found, often, leakage=leakage, claims=claims)
    words = "Accuracy 77.17 % (n = 539), no better than always answering the most frequent class"
    said = state_headline(made).replace("\u00a0", " ")
    assert said.startswith(words)
    assert len(said) <= LONGEST
    page = render(made).replace("\u00a0", " ")
    assert f"<h1>{words}" in page
    assert "most frequent class: 77.9 %" in _tiles(page)


def test_bounds_are_rounded_to_the_side_on_which_they_hold(example):
    page = _together(example, "federated", ACCURACY, claims=(replace(PRIVATE, epsilon=3.11421),))
    assert "ε = 3.115 at" in state_headline(page)
    assert "ε = 3.115" in render(page)
    assert "3.114" not in render(page)


def _tiles(page):
    start = page.index('class="tiles"')
    return page[start : page.index("</section>", start)].replace("\u00a0", " ")


def test_the_tiles_of_a_job_of_one_party_show_no_network(example):
    page = _tiles(render(KINDS["verify"][0](example)))
    assert "Sent online" not in page
    assert "rounds" not in page
    assert "Verified robust accuracy" in page


def test_a_private_job_has_its_epsilon_among_the_tiles_with_all_it_needs(example):
    page = _tiles(render(KINDS["federated"][0](example)))
    assert "ε = 2<" in page
    assert "δ = 10⁻⁵, replacing one client" in page
    assert "accountant: pld" in page
    assert "Sent online" in page


def test_the_strongest_attack_on_a_split_job_is_among_its_tiles(example):
    page = _tiles(render(KINDS["split"][0](example)))
    assert 'Strongest attack</p><p class="figure">99 %' in page


def test_what_the_lab_finds_strongest_is_picked_wherever_it_stands(example):
    found = pick_headline_metric(KINDS["leakage"][0](example))
    assert found is not None
    assert found.name == "rows"


def test_set_up_and_compiling_are_not_the_time_of_the_job(example):
    def span(name, start, end):
        return replace(example.parties[0].spans[0], name=name, start_s=start, end_s=end)

    spans = span("load", 0, 1), span("compile", 1, 211), span("verify", 211, 213)
    party = replace(example.parties[0], spans=spans, seconds=214.0)
    page = render(replace(_alone(example, "verify"), parties=(party,)))
    tiles = _tiles(page)
    assert 'Time at work</p><p class="figure">2 s' in tiles
    assert "set-up and waiting besides: 3 min 32 s" in tiles
    assert page.count('class="fill setup"') == 2
