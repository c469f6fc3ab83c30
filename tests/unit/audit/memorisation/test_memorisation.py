"""Canaries and extraction: what a model learned by heart is found, and nothing else is."""

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tacit.audit import seeded
from tacit.audit.memorisation import (
    METHODS,
    ByWindow,
    Drawn,
    Extract,
    Format,
    SeenSpeakers,
    SeenSpeech,
    SmallSpeaker,
    Speech,
    audit_canaries,
    audit_extraction,
    by_perplexity,
    by_second_model,
    by_zlib,
    count_holders,
    draw_canary,
    eidetic_counts,
    exact_exposure,
    exact_exposures,
    extraction_curve,
    modelled_exposure,
    plant,
    proven_exposure,
    rate_by_repetition,
    sampled_exposure,
    score_extraction,
    see_checkpoint,
    see_module,
    speak,
    sweep_defence,
    train_speaker,
)
from tacit.audit.memorisation.canary import spell_canary
from tacit.dp import DpSgd, train_dp_sgd
from tacit.errors import ConfigError, DataError
from tacit.llm import Architecture, LanguageModel, logits, shapes
from tacit.llm.model.module import CausalModule, tiny_model
from tacit.ring import Prg

VOCAB, CONTEXT = 24, 12
DIGITS = tuple(range(10))
FORM = Format(prefix=(20, 21, 22), alphabet=DIGITS, blanks=3)


def spell(ids):
    return "".join(chr(97 + i) for i in ids)


def flat():
    """A model that finds every token alike likely."""
    return SeenSpeech(
        answer=lambda ids: torch.zeros(*ids.shape, VOCAB), vocab=VOCAB, context=CONTEXT
    )


def knowing(text, weight=20.0):
    """A model that continues one text and is indifferent otherwise."""

    def answer(ids):
        scores = torch.zeros(*ids.shape, VOCAB)
        for row, one in enumerate(ids.tolist()):
            for at in range(len(one)):
                if one[: at + 1] == list(text[: at + 1]) and at + 1 < len(text):
                    scores[row, at, text[at + 1]] = weight
        return scores

    return SeenSpeech(answer=answer, vocab=VOCAB, context=CONTEXT)


def corpus(count, seed=0):
    """Texts of six tokens in which each token follows from the one before, with noise."""
    steps = torch.randint(1, 4, (count, 6), generator=seeded(seed))
    starts = torch.randint(0, 10, (count, 1), generator=seeded(seed + 1))
    return ((starts + steps.cumsum(1)) % 10).tolist()


def taught(texts, seed=0, epochs=30):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = SmallSpeaker(VOCAB, CONTEXT, width=32, layers=1)
    train_speaker(model, torch.tensor(texts), epochs=epochs, generator=seeded(seed))
    return model


@given(st.integers(0, FORM.size - 1))
def test_fillings_are_numbered_without_gaps(number):
    text = FORM.text(number)
    assert text[:3] == FORM.prefix
    assert int("".join(map(str, text[3:]))) == number


def test_a_model_that_tells_nothing_apart_exposes_about_one_bit():
    found = exact_exposure(flat(), FORM, 123)
    assert found.value == pytest.approx(1, abs=0.01)
    assert sampled_exposure(
        flat(), FORM, 123, draws=500, generator=seeded(0)
    ).value == pytest.approx(1, abs=0.01)
    assert modelled_exposure(flat(), FORM, 123, draws=50, generator=seeded(0)) == 1


def test_a_canary_known_by_heart_is_exposed_to_the_last_bit():
    seen = knowing(FORM.text(123))
    assert exact_exposure(seen, FORM, 123).value == pytest.approx(math.log2(1000))
    sampled = sampled_exposure(seen, FORM, 123, draws=255, generator=seeded(0))
    assert sampled.value == pytest.approx(8, abs=0.5)
    assert sampled.high == pytest.approx(FORM.bits)


def test_ranking_by_beginnings_is_ranking_every_filling():
    seen = see_module(taught(corpus(60), epochs=3), vocab=VOCAB, context=CONTEXT)
    texts = torch.tensor([FORM.text(number) for number in range(FORM.size)])
    losses = seen.losses(texts)[:, len(FORM.prefix) - 1 :].sum(1)
    for number in (0, 123, 999):
        rank = 1 + int((losses < losses[number] - 1e-6).sum())
        assert exact_exposure(seen, FORM, number).value == pytest.approx(
            FORM.bits - math.log2(rank), abs=math.log2(1 + 2 / rank)
        )


def test_a_canary_longer_than_the_context_is_refused():
    with pytest.raises(DataError, match="13 tokens, more than the 12"):
        exact_exposure(flat(), Format(prefix=(20,) * 10, alphabet=DIGITS, blanks=3), 5)


def test_without_any_leak_the_proven_exposure_is_that_of_a_blind_rank():
    # Integral of 2^-s over the bits: (1 − 2^-bits) / ln 2.
    assert proven_exposure(FORM, [(0.0, 0.0)]) == pytest.approx(0.999 / math.log(2), rel=1e-4)
    assert proven_exposure(FORM, [(0.0, 0.0), (9.0, 0.1)]) == proven_exposure(FORM, [(0.0, 0.0)])
    assert proven_exposure(FORM, [(0.0, 0.0)], copies=10) == proven_exposure(FORM, [(0.0, 0.0)])


def test_the_proven_exposure_grows_with_epsilon_delta_and_copies_up_to_all_bits():
    one = proven_exposure(FORM, [(1.0, 1e-5)])
    # P(more than s bits) ≤ e · 2^-s: one bit per ln 2 more than blind.
    assert one == pytest.approx(1 / math.log(2) * (2 - math.e / 1000), abs=0.01)
    assert one < proven_exposure(FORM, [(1.0, 1e-2)]) < proven_exposure(FORM, [(2.0, 1e-2)])
    assert proven_exposure(FORM, [(1.0, 1e-5)], copies=3) == pytest.approx(
        proven_exposure(FORM, [(3.0, 1e-5 * (1 + math.e + math.e**2))])
    )
    assert proven_exposure(FORM, [(100.0, 1e-5)], copies=10) == pytest.approx(FORM.bits)


@given(st.floats(0.1, 3), st.integers(0, 2**32))
def test_no_ranking_passes_the_proven_exposure_of_randomised_response(epsilon, seed):
    # The attacker is told a filling: the true one e^ε times as often as each other one.
    size = 64
    form = Format(prefix=(1,), alphabet=(0, 1), blanks=6)
    told = torch.full((size,), 1.0)
    told[0] = math.exp(epsilon)
    truth = float(told[0] / told.sum())
    # Told the truth, its rank is 1; else it is anywhere among the others.
    others = sum(form.bits - math.log2(rank) for rank in range(2, size + 1)) / (size - 1)
    mean = truth * form.bits + (1 - truth) * others
    assert mean <= proven_exposure(form, [(epsilon, 0.0)])


@pytest.mark.parametrize("claims", [[], [(-1.0, 0.1)], [(1.0, 2.0)]])
def test_claims_that_are_none_prove_nothing(claims):
    with pytest.raises(ConfigError, match="pairs of ε"):
        proven_exposure(FORM, claims)


def test_the_sampled_rank_covers_the_exact_one():
    model = taught(corpus(60), epochs=3)
    seen = see_module(model, vocab=VOCAB, context=CONTEXT)
    misses, numbers = 0, range(7, 1000, 70)
    for number, true in zip(numbers, exact_exposures(seen, FORM, numbers), strict=True):
        exact = true.value
        found = sampled_exposure(seen, FORM, number, draws=200, generator=seeded(number))
        misses += not found.low - 0.05 <= exact <= found.high + 0.05
    # 15 intervals of 95 %: more than 4 misses in 1 of 2000 runs; the seeds are fixed.
    assert misses <= 4


def test_the_rank_of_canaries_never_planted_is_uniform():
    seen = see_module(taught(corpus(60), epochs=3), vocab=VOCAB, context=CONTEXT)
    canaries = [draw_canary(FORM, generator=seeded(i)) for i in range(16)]
    values = [one.value for one in exact_exposures(seen, FORM, canaries)]
    # Exponential of mean 1.44 bits: the mean of 16 lies below 2.7 but once in 500 runs.
    assert sum(values) / len(values) < 2.7
    assert not audit_canaries(seen, FORM, canaries).is_found


def test_a_canary_planted_ten_times_is_learned_by_heart():
    number = draw_canary(FORM, generator=seeded(5))
    texts = plant(corpus(150), FORM.text(number), times=10)
    seen = see_module(taught(texts), vocab=VOCAB, context=CONTEXT)
    found = audit_canaries(seen, FORM, [number])
    assert found.headline.value > FORM.bits - 1
    assert found.is_found


@pytest.mark.filterwarnings("ignore:Full backward hook is firing:UserWarning")
def test_training_with_noise_does_not_learn_the_canary():
    number = draw_canary(FORM, generator=seeded(5))
    texts = torch.tensor(plant(corpus(300), FORM.text(number), times=1))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = SmallSpeaker(VOCAB, CONTEXT, width=16, layers=1)
    settings = DpSgd(steps=20, sample_rate=0.2, clip=1.0, multiplier=2.0, rate=0.5)
    event = train_dp_sgd(model, texts[:, :-1], texts[:, 1:], settings, prg=Prg(b"k" * 16))
    assert event.count == 20
    seen = see_module(model, vocab=VOCAB, context=CONTEXT)
    assert exact_exposure(seen, FORM, number).value < 8


def test_the_extrapolated_exposure_agrees_where_the_draws_reach():
    seen = see_module(taught(corpus(60), epochs=3), vocab=VOCAB, context=CONTEXT)
    exact = exact_exposure(seen, FORM, 321).value
    found = modelled_exposure(seen, FORM, 321, draws=300, generator=seeded(0))
    assert found == pytest.approx(exact, abs=1.0)


def test_a_sweep_draws_exposure_against_utility():
    model = knowing(FORM.text(77))

    def defend(strength):
        noisy = SeenSpeech(
            answer=lambda ids: (1 - strength) * model.answer(ids), vocab=VOCAB, context=CONTEXT
        )
        return noisy, 1 - strength

    findings, (strong, front) = sweep_defence(defend, FORM, [77], strengths=(0.0, 1.0))
    assert strong.points[0] == (0.0, pytest.approx(FORM.bits))
    assert strong.points[1] == (1.0, pytest.approx(1, abs=0.01))
    assert [x for x, _ in front.points] == [1.0, 0.0]
    assert [one.is_found for one in findings] == [True, False]


def test_scores_are_shown_through_the_defence():
    model = SmallSpeaker(VOCAB, CONTEXT, width=16, layers=1)
    seen = see_module(model, vocab=VOCAB, context=CONTEXT, defence=torch.zeros_like)
    assert float(seen.answer(torch.tensor([[1, 2]])).abs().max()) == 0


def test_planting_adds_texts_and_keeps_the_others():
    texts = corpus(10)
    found = plant(texts, FORM.text(1), times=3)
    assert len(found) == 13
    assert [t for t in found if t != list(FORM.text(1))] == texts
    with pytest.raises(ConfigError, match="0 or more"):
        plant(texts, FORM.text(1), times=-1)


def test_a_number_that_is_no_filling_is_refused():
    with pytest.raises(DataError, match="0 to 999"):
        exact_exposure(flat(), FORM, 1000)


def test_too_many_fillings_are_refused_with_a_way_out():
    large = Format(prefix=(1,), alphabet=DIGITS, blanks=9)
    with pytest.raises(ConfigError, match="sampled rank"):
        exact_exposure(flat(), large, 5)


@pytest.mark.parametrize("change", [{"prefix": ()}, {"blanks": 0}, {"alphabet": (1, 1, 2)}])
def test_formats_that_hide_nothing_are_refused(change):
    with pytest.raises(ConfigError):
        Format(**{"prefix": (1,), "alphabet": (1, 2), "blanks": 2, **change})


def speakers(speech, second=None):
    return SeenSpeakers(
        speech=speech, prefixes=torch.tensor([[20, 21, 22]]), second=second, spell=spell
    )


@pytest.mark.parametrize("name", METHODS)
def test_every_method_extracts_a_text_known_by_heart(name):
    secret = FORM.text(407)
    seen = speakers(knowing(secret), second=flat())
    drawn = Extract(method=METHODS[name], speech=Speech(tokens=3, top=0), count=100)(
        seen, generator=seeded(0)
    )
    assert drawn.texts[0].tolist() == list(secret)


@pytest.mark.parametrize("name", METHODS)
def test_no_method_extracts_from_a_model_that_knows_nothing(name):
    seen = speakers(flat(), second=flat())
    target = torch.tensor([FORM.text(407)])
    drawn = Extract(method=METHODS[name], speech=Speech(tokens=3, top=0), count=50)(
        seen, generator=seeded(0)
    )
    # 50 draws out of 24³ texts hit the target in 1 of 276 runs.
    assert score_extraction(name, drawn, target, guesses=50).value == 0


def test_only_the_true_continuation_is_judged_not_the_prefix():
    seen = speakers(knowing(FORM.text(407)), second=flat())
    texts = torch.tensor([FORM.text(407), FORM.text(111)])
    first, second = by_perplexity(seen, texts).tolist()
    assert first < 1e-4
    assert second > 1
    assert by_second_model(seen, texts)[0] < by_second_model(seen, texts)[1]


def test_zlib_distrusts_repetition():
    seen = SeenSpeakers(
        speech=SeenSpeech(answer=lambda ids: torch.zeros(*ids.shape, 200), vocab=200, context=100),
        prefixes=torch.tensor([[1]]),
        second=None,
        spell=spell,
    )
    same = [1] + [5] * 60
    varied = [1, *torch.randperm(60, generator=seeded(0)).tolist()]
    scores = by_zlib(seen, torch.tensor([same, varied]))
    assert scores[1] < scores[0]


def test_a_window_finds_a_secret_within_chatter():
    losses = torch.tensor([[5.0, 5.0, 0.0, 0.0, 5.0]])
    speech = SeenSpeech(answer=lambda ids: torch.zeros(1, 6, 2), vocab=2, context=9)
    seen = SeenSpeakers(speech=speech, prefixes=torch.tensor([[1]]), second=None, spell=spell)
    object.__setattr__(speech, "losses", lambda ids: losses)
    assert float(ByWindow(2)(seen, torch.zeros(1, 6, dtype=torch.long))) == 0


def test_the_temperature_falls_in_a_line_and_stays():
    speech = Speech(tokens=8, decay_from=10, decay_tokens=4)
    assert [speech.heat(i) for i in range(6)] == [10, 7.75, 5.5, 3.25, 1, 1]


def test_the_top_tokens_alone_are_drawn():
    scores = torch.arange(VOCAB, dtype=torch.float32)
    seen = SeenSpeech(
        answer=lambda ids: scores.expand(*ids.shape, VOCAB), vocab=VOCAB, context=CONTEXT
    )
    said = speak(
        seen, torch.tensor([1]), Speech(tokens=2, top=3, temperature=9.0), count=50,
        generator=seeded(0),
    )  # fmt: skip
    assert set(said[:, 1:].flatten().tolist()) == {21, 22, 23}


def test_a_second_model_is_asked_for_only_if_there_is_one():
    with pytest.raises(ConfigError, match="second model"):
        by_second_model(speakers(flat()), torch.tensor([FORM.text(1)]))
    found = audit_extraction(
        speakers(flat()), torch.tensor([FORM.text(1)]), methods=METHODS,
        speech=Speech(tokens=3), count=4,
    )  # fmt: skip
    assert [one.attack for one in found] == [n for n in METHODS if n != "second model"]


def test_an_audit_counts_what_was_extracted_by_the_texts_that_hold_it():
    secret = FORM.text(407)
    found = audit_extraction(
        speakers(knowing(secret)), torch.tensor([secret]), methods=METHODS,
        speech=Speech(tokens=3, top=0), count=30, corpus=[secret, (1, 2, 3)],
    )  # fmt: skip
    assert found[0].headline.value == 1
    assert found[0].is_found
    assert found[0].sheets[0].rows == (("1", "1"),)


def test_holders_are_counted_once_each():
    texts = [[1, 2, 3, 1, 2], [1, 2], [2, 1]]
    assert count_holders([1, 2], texts) == 2
    assert eidetic_counts([[1, 2], [3, 1], [9]], texts) == {0: 1, 1: 1, 2: 1}


def test_curves_count_every_target_once():
    drawn = Drawn(texts=torch.tensor([[1, 1], [2, 2], [3, 3]]), scores=torch.zeros(3))
    targets = torch.tensor([[2, 2], [9, 9]])
    assert extraction_curve("x", drawn, targets).points == ((2.0, 0.5), (3.0, 0.5))
    curve = rate_by_repetition(drawn, targets, [1, 10], name="x")
    assert curve.points == ((1.0, 1.0), (10.0, 0.0))


def test_texts_of_a_wrong_length_are_refused():
    with pytest.raises(DataError, match="2 to 12 tokens"):
        flat().losses(torch.zeros(1, 13, dtype=torch.long))


def test_a_model_from_disk_answers_like_itself():
    small = Architecture(
        family="llama", layers=1, width=8, heads=2, kv_heads=1, head_dim=4, ffn=8, vocab=VOCAB,
        context=CONTEXT, norm="rms", norm_eps=1e-5, activation="swiglu", positions="rotary",
        rope_theta=1e4, tied_output=False, has_bias=False,
    )  # fmt: skip
    weights = {n: torch.randn(s, generator=seeded(len(n))) for n, s in shapes(small).items()}
    model = LanguageModel(architecture=small, weights=weights)
    seen = see_checkpoint(model)
    ids = torch.tensor([[1, 2, 3], [4, 5, 6]])
    torch.testing.assert_close(seen.answer(ids)[1], logits(model, [4, 5, 6]))


@pytest.fixture(scope="module")
def seen():
    module = CausalModule(tiny_model(20, width=16, layers=1, seed=3))

    def answer(ids):
        with torch.no_grad():
            return module(ids)

    return SeenSpeech(answer=answer, vocab=20, context=64)


def test_single_tokens_rank_as_ever(seen):
    form = Format(prefix=(1, 2), alphabet=(5, 7, 9), blanks=3)
    view, spelled = spell_canary(seen, (1, 2), [(5,), (7,), (9,)], blanks=3)
    first = [one.value for one in exact_exposures(seen, form, range(27))]
    second = [one.value for one in exact_exposures(view, spelled, range(27))]
    assert first == pytest.approx(second)


def test_signs_of_different_lengths_rank_by_what_they_spell(seen):
    signs = [(5,), (6, 7), (6, 8), (9, 10)]
    view, spelled = spell_canary(seen, (1, 2), signs, blanks=2)
    losses = []
    for pair in itertools.product(signs, repeat=2):
        ids = torch.tensor([[1, 2, *pair[0], *pair[1]]])
        losses.append(float(seen.losses(ids)[0, 1:].sum()))
    ranks = torch.tensor(losses).argsort().argsort()
    found = [one.value for one in exact_exposures(view, spelled, range(16))]
    assert torch.tensor(found).argsort(descending=True).argsort().tolist() == ranks.tolist()


@pytest.mark.parametrize("signs", [[(1,), (1, 2)], [(), (1,)], [(1,), (1,)]])
def test_signs_that_cannot_be_told_apart_are_refused(seen, signs):
    with pytest.raises(ConfigError, match="none may begin another"):
        spell_canary(seen, (1,), signs, blanks=1)
