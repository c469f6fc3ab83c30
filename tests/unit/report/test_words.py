from dataclasses import replace

import pytest

from tacit.report import render
from tacit.report.format import enumerate_names
from tacit.report.headline import name_reference, pick_headline_metric, state_headline
from tacit.report.words import (
    list_checks,
    mood_of,
    name_sides,
    state_coverage,
    state_guarantee,
    state_learned,
    state_privacy,
    state_run,
)
from tacit.result import Claim, Leak, Metric

SEEN = Leak(
    to="lab", what="permuted activations", why="the helper sees them", kind="protocol", elements=512
)


def _kinds(*kinds):
    return tuple(replace(SEEN, kind=kind) for kind in kinds)


def _measured(example, accuracy, low, often):
    made = (
        Metric(name="accuracy", value=accuracy, unit="fraction", samples=171, low=low, high=1.0),
        Metric(name="most frequent class", value=often, unit="fraction", samples=171),
    )
    return replace(example, utility=made)


@pytest.mark.parametrize(
    ("accuracy", "low", "often", "said"),
    [
        (
            0.6257,
            0.55,
            0.6257,
            ("No better than always answering the most frequent class, 62.57 %", "warn"),
        ),
        (
            0.7717,
            0.76,
            0.779,
            ("No better than always answering the most frequent class, 77.9 %", "warn"),
        ),
        (
            0.649,
            0.57,
            0.6257,
            ("Not clearly better than the most frequent class, 62.57 %", "quiet"),
        ),
        (0.95, 0.9, 0.6257, None),
        (0.95, 0.9, 1.0, None),  # rows that are all of one class tell nothing
    ],
)
def test_an_accuracy_without_worth_is_said_first(example, accuracy, low, often, said):
    made = _measured(example, accuracy, low, often)
    first = list_checks(made)[0]
    worth = (
        (first.text.replace("\xa0", " "), first.mood) if first.title == "What it is worth" else None
    )
    assert worth == said
    is_idle = said is not None and said[1] == "warn"
    assert (
        "no better than always answering the most frequent class" in state_headline(made)
    ) is is_idle


@pytest.mark.parametrize(("void", "is_said"), [(3.0, True), (2.0, False), (0.0, False)])
def test_a_run_of_void_rounds_alone_is_said_first(example, void, is_said):
    made = Metric(name="void rounds", value=void, unit="rounds", samples=3)
    first = list_checks(replace(example, utility=(made,)))[0]
    assert (first.text == "No round gave a model: nothing was learned") is is_said


def test_names_are_listed_as_people_do():
    assert enumerate_names(["a"]) == "a"
    assert enumerate_names(["a", "b", "c"]) == "a, b and c"


def test_the_headline_of_one_party_speaks_for_that_party_alone(example):
    alone = replace(example, parties=example.parties[:1])
    assert "as far as hospital can tell, nothing but" in state_headline(alone)
    assert "What dealer and lab measured" in state_coverage(alone)
    assert state_coverage(example) is None


def test_a_party_that_worked_alone_had_nobody_to_reveal_anything_to(example):
    nothing = replace(example.metered, traffic=())
    alone = replace(
        example, parties=example.parties[:1], leakage=(), forecast=None, metered=nothing
    )
    assert state_headline(alone).endswith("computed by one party alone, nothing was sent")
    assert "hospital" in state_run(alone)
    assert "together" not in state_run(alone)
    assert state_learned(alone, "hospital", ()) == ("Worked alone, on what it had.", "quiet")
    assert all("forecast" not in check.text for check in list_checks(alone))
    assert all("Declared" not in check.text for check in list_checks(alone))


def test_the_run_names_all_parties_and_the_protocol(example):
    sentence = state_run(example)
    assert sentence.startswith("The parties hospital, lab and dealer computed breast-cancer risk")
    assert "additive2" in sentence


@pytest.mark.parametrize(
    ("kinds", "sentence", "mood"),
    [
        ((), "Learned nothing.", "good"),
        (("size",), "Learned nothing but sizes.", "good"),
        (("output",), "Learned the declared result and nothing else.", "good"),
        (("output", "size"), "Learned the declared result and nothing else but sizes.", "good"),
        (("output", "protocol"), "Learned more on the way than the declared result.", "warn"),
    ],
)
def test_what_a_party_learned_is_one_sentence(example, kinds, sentence, mood):
    assert state_learned(example, "lab", _kinds(*kinds)) == (sentence, mood)


def test_an_absent_party_is_never_said_to_have_learned_nothing(example):
    alone = replace(example, parties=example.parties[:1])
    sentence, mood = state_learned(alone, "lab", ())
    assert (sentence, mood) == ("Did not report to this view.", "quiet")


def test_epsilon_never_stands_alone():
    claim = Claim(subject="s", guarantee="g", assumptions=(), epsilon=1.0)
    assert state_privacy(claim) == (
        "ε = 1, δ = not stated; relation: not stated; accountant: not stated"
    )
    assert state_privacy(replace(claim, epsilon=None)) is None


@pytest.mark.parametrize(
    ("relation", "sentence"),
    [
        (
            "replacing one client",
            "An attacker who takes other data for the true data 1 % of the time can recognise the "
            "true data up to 93.2 % of the time.",
        ),
        (
            "adding or removing one record",
            "An attacker who wrongly names 1 % of those whose data was not used can name up to "
            "93.2 % of those whose data was.",
        ),
    ],
)
def test_epsilon_is_said_in_one_sentence(relation, sentence):
    claim = Claim(
        subject="s", guarantee="g", assumptions=(), epsilon=20.0, relation=relation,
        detection=0.93101,
    )  # fmt: skip
    assert state_privacy(claim).endswith(f". {sentence}")


def test_the_checks_follow_the_ledgers(example):
    moods = [check.mood for check in list_checks(example)]
    assert moods == ["good", "good", "warn"]  # one claim of the example claims nothing
    kept = tuple(claim for claim in example.claims if claim.guarantee != "no guarantee")
    assert [check.mood for check in list_checks(replace(example, claims=kept))] == ["good"] * 3
    leaky = replace(
        example,
        claims=(),
        leakage=(SEEN,),
        metered=replace(example.metered, online_rounds=99),
    )
    assert [check.mood for check in list_checks(leaky)] == ["warn", "bad", "warn"]


def test_the_first_figure_is_one_with_a_reference(example):
    turned = replace(example, utility=example.utility[::-1])
    assert pick_headline_metric(turned).name == "area under the ROC curve"
    assert pick_headline_metric(replace(example, utility=())) is None


def test_the_first_figure_of_a_split_job_is_its_own_and_not_an_attack(example):
    accuracy, attack = (
        replace(example.utility[0], name=name, reference=reference)
        for name, reference in (("accuracy", None), ("fine-tuning", 0.6))
    )
    split = replace(example, kind="split", utility=(accuracy, attack))
    assert pick_headline_metric(split).name == "accuracy"
    assert name_sides(split) == ("value", "reference")


def test_an_audit_compares_attacks_with_a_guess_and_epsilon_with_the_claim(example):
    audit = replace(example, kind="audit")
    auc = Metric(name="AUC", value=0.6, unit="", samples=9, reference=0.5)
    bound = Metric(name="ε lower bound", value=0.2, unit="ε", samples=9, reference=1.0)
    assert [name_reference(audit, one) for one in (auc, bound)] == ["blind guess", "claimed"]
    assert name_reference(example, auc) == name_sides(example)[1]


def _game(example, kind, *metrics):
    nothing = replace(example.metered, traffic=())
    return replace(
        example,
        kind=kind,
        parties=example.parties[:1],
        leakage=(),
        forecast=None,
        metered=nothing,
        utility=metrics,
    )


@pytest.mark.parametrize("kind", ["audit", "leakage"])
def test_a_page_of_attacks_never_says_that_nothing_was_revealed(example, kind):
    found = Metric(
        name="rows recognised", value=1.0, unit="fraction", samples=32, low=0.89, reference=0.02
    )
    page = _game(example, kind, Metric(name="correlation", value=0.1, unit=""), found)
    for text in (state_headline(page), *(check.text for check in list_checks(page))):
        assert "nothing was revealed" not in text
        assert "nobody else saw anything" not in text
    assert state_headline(page).startswith("Strongest attack: rows recognised, 100")
    assert list_checks(page)[0].mood == "warn"
    failed = _game(example, kind, replace(found, value=0.03, low=0.0))
    assert "which proves nothing" in state_headline(failed)
    assert list_checks(failed)[0].mood == "quiet"
    assert "tables" in state_headline(_game(example, kind))


def test_a_contradicted_epsilon_comes_before_any_attack(example):
    attack = Metric(name="a: AUC", value=0.9, unit="", low=0.8, reference=0.5)
    proved = Metric(name="ε lower bound", value=3.0, unit="ε", low=3.0, reference=0.1)
    page = _game(example, "audit", attack, proved)
    assert pick_headline_metric(page) == proved
    stands = _game(example, "audit", replace(proved, value=0.05, low=0.05), attack)
    assert pick_headline_metric(stands) == attack


@pytest.mark.parametrize(("epsilon", "mood"), [(1.0, "good"), (10.0, "good"), (20.0, "warn")])
def test_a_large_epsilon_gets_a_warning_and_no_tick(example, epsilon, mood):
    claim = Claim(subject="each label", guarantee="DP", assumptions=(), epsilon=epsilon, delta=0.0)
    assert mood_of(claim) == mood
    check = list_checks(replace(example, claims=(claim,)))[-1]
    assert check.mood == mood
    assert ("ε = 20 for each label" in check.text) == (mood == "warn")
    page = render(replace(example, claims=(claim,)))
    assert ("card claim good" in page) == (mood == "good")


def test_an_epsilon_at_the_top_of_a_page_stands_with_what_it_is_about():
    bare = Claim(subject="s", guarantee="hidden", assumptions=())
    assert state_guarantee(bare) == "hidden"
    claim = replace(
        bare, epsilon=2.0, delta=1e-5, relation="adding or removing one record", detection=0.12
    )
    text = state_guarantee(claim)
    assert "ε = 2" in text
    assert "for adding or removing one record" in text
    assert "up to 12 % of those" in text


def test_a_printed_promise_has_its_epsilon_with_all_that_it_means(example):
    claim = Claim(
        subject="labels",
        guarantee="ε-label differential privacy",
        assumptions=(),
        epsilon=1.00004,
        delta=0.0,
        relation="replacing one label",
        accountant="basic",
    )
    promised = dict(replace(example, claims=(claim,)).headline())["promise"]
    assert promised == (
        "labels: ε-label differential privacy, ε = 1.001 at δ = 0 for replacing one label (basic)"
    )
