"""Every attack finds what is there (power) and nothing where nothing is (null)."""

import pytest
import torch
from torch import nn

from tacit.audit import seeded
from tacit.audit.split import (
    ATTACKS,
    SeenCut,
    SeenLayer,
    SeenReturned,
    SeenRows,
    SplitTarget,
    audit_inputs,
    audit_labels,
    cluster,
    complete_deep_each,
    complete_each,
    even_out,
    fine_tune,
    fine_tune_whitened,
    gradient_norm,
    group,
    group_and_name,
    pick_leak,
    reconstruct,
    score_clusters,
    score_inputs,
    score_labels,
    score_ranking,
    see_layer,
    train_from_scratch,
    whiten,
)
from tacit.errors import DataError

CLASSES, WIDTH, ROWS = 4, 12, 1000


def layer(spread, seed=0, per_class=2):
    """Return a layer whose classes lie `spread` deviations apart, and the truth."""
    generator = seeded(seed)
    truth = torch.arange(ROWS) % CLASSES
    leaked_labels = torch.arange(CLASSES).repeat(per_class)
    centres = spread * torch.randn(CLASSES, WIDTH, generator=generator)
    noise = torch.randn(ROWS + len(leaked_labels), WIDTH, generator=generator)
    values = centres[torch.cat([truth, leaked_labels])] + noise
    seen = SeenLayer(
        leaked=values[ROWS:], leaked_labels=leaked_labels, targets=values[:ROWS], classes=CLASSES
    )
    return seen, truth


def make_model():
    return nn.Sequential(nn.Linear(WIDTH, 16), nn.ReLU(), nn.Linear(16, CLASSES))


def from_scratch(seen, *, generator):
    rows = SeenRows(
        leaked=seen.leaked,
        leaked_labels=seen.leaked_labels,
        targets=seen.targets,
        classes=CLASSES,
        make_model=make_model,
    )
    return train_from_scratch(rows, generator=generator)


def deep(seen, *, generator):
    leaked, targets = even_out(seen)
    views = [leaked], [seen.leaked_labels], [targets]
    return complete_deep_each(*views, classes=CLASSES, hidden=16, generator=generator)[0]


def varied(seen, *, generator):
    rows = SeenRows(
        leaked=seen.leaked,
        leaked_labels=seen.leaked_labels,
        targets=seen.targets,
        classes=CLASSES,
        make_model=make_model,
    )
    return train_from_scratch(rows, generator=generator, vary=lambda x: x + 0.1)


@pytest.mark.parametrize("attack", [fine_tune, deep, from_scratch, varied])
def test_label_attacks_find_classes_that_lie_apart(attack):
    seen, truth = layer(3.0)
    assert score_labels("x", attack(seen, generator=seeded(1)), truth).low > 0.9


@pytest.mark.parametrize("attack", [fine_tune, fine_tune_whitened, deep, from_scratch])
def test_label_attacks_find_nothing_in_noise(attack):
    seen, truth = layer(0.0)
    metric = score_labels("x", attack(seen, generator=seeded(1)), truth)
    # A right share of 1/4 in 1000 rows: 0.05 is passed with a probability below 5e-4.
    assert metric.value == pytest.approx(1 / CLASSES, abs=0.05)


@pytest.mark.parametrize(
    ("attack", "prepare"), [(fine_tune, even_out), (fine_tune_whitened, whiten)]
)
def test_completions_made_at_once_are_those_made_one_by_one(attack, prepare):
    seen = [layer(0.7, seed=seed)[0] for seed in range(3)]
    ready = [prepare(one) for one in seen]
    together = complete_each(
        [leaked for leaked, _ in ready],
        [one.leaked_labels for one in seen],
        [targets for _, targets in ready],
        classes=CLASSES,
    )
    for one, guess in zip(seen, together, strict=True):
        alone = attack(one, generator=seeded(0))
        # A row on the border of two classes may fall either way by the last bit.
        assert float((guess == alone).float().mean()) > 0.999


def test_a_layer_that_is_only_stretched_hides_nothing():
    seen, truth = layer(3.0)
    stretch = torch.logspace(-3, 3, WIDTH)
    loud = SeenLayer(
        leaked=seen.leaked * stretch,
        leaked_labels=seen.leaked_labels,
        targets=seen.targets * stretch,
        classes=CLASSES,
    )
    assert score_labels("x", fine_tune(loud, generator=seeded(1)), truth).low > 0.9


def test_whitening_sees_past_loud_directions_that_mean_nothing():
    seen, truth = layer(3.0)
    generator = seeded(4)
    directions = torch.randn(4, WIDTH, generator=generator)

    def drown(values):
        return values + 30 * torch.randn(len(values), 4, generator=generator) @ directions

    loud = SeenLayer(
        leaked=drown(seen.leaked),
        leaked_labels=seen.leaked_labels,
        targets=drown(seen.targets),
        classes=CLASSES,
    )
    plain = score_labels("x", fine_tune(loud, generator=generator), truth)
    whitened = score_labels("x", fine_tune_whitened(loud, generator=generator), truth)
    assert whitened.low > plain.high
    assert whitened.low > 0.5


def test_clusters_are_found_where_they_are_and_only_there():
    seen, truth = layer(3.0)
    found = score_clusters("x", cluster(seen, generator=seeded(1)), truth, CLASSES)
    assert found.low > 0.95
    seen, truth = layer(0.0)
    nothing = score_clusters("x", cluster(seen, generator=seeded(1)), truth, CLASSES)
    assert nothing.value < 0.33  # the best of 24 namings of four random groups


def test_groups_are_found_without_labels_and_named_by_few():
    seen, truth = layer(3.0)
    assert score_clusters("x", group(seen, generator=seeded(1)), truth, CLASSES).low > 0.95
    assert score_labels("x", group_and_name(seen, generator=seeded(1)), truth).low > 0.95
    seen, truth = layer(0.0)
    nothing = score_labels("x", group_and_name(seen, generator=seeded(1)), truth)
    # As above: 0.05 is passed with a probability below 5e-4.
    assert nothing.value == pytest.approx(1 / CLASSES, abs=0.05)


def test_the_best_naming_is_the_best_of_all_permutations():
    guess = torch.tensor([2, 2, 2, 0, 0, 1, 1, 1])
    truth = torch.tensor([0, 0, 1, 1, 1, 2, 2, 2])
    assert score_clusters("x", guess, truth, 3).value == 7 / 8


def test_gradient_norms_betray_a_rare_class_and_nothing_without_one():
    generator = seeded(0)
    is_rare = torch.arange(ROWS) % 10 == 0
    gradients = torch.randn(ROWS, WIDTH, generator=generator)
    scores = gradient_norm(SeenReturned(gradients=gradients), generator=generator)
    null = score_ranking("x", scores, is_rare)
    assert null.low < 0.5 < null.high
    longer = torch.where(is_rare[:, None], 2 * gradients, gradients)
    scores = gradient_norm(SeenReturned(gradients=longer), generator=generator)
    assert score_ranking("x", scores, is_rare).low > 0.9
    with pytest.raises(DataError, match="both kinds"):
        score_ranking("x", scores, torch.ones(ROWS, dtype=torch.bool))


def test_inputs_come_back_from_a_layer_that_holds_them_and_not_from_noise():
    generator = seeded(0)
    inputs = torch.randn(600, 3, 2, generator=generator)
    mixed = inputs.flatten(1) @ torch.randn(6, WIDTH, generator=generator)
    known, unknown = slice(0, 400), slice(400, None)
    for values, is_power in ((mixed, True), (torch.randn(600, WIDTH, generator=generator), False)):
        seen = SeenCut(leaked=values[known], leaked_inputs=inputs[known], targets=values[unknown])
        guess = reconstruct(seen, generator=seeded(1))
        metric = score_inputs("x", guess, inputs[unknown], inputs[known])
        assert guess.shape == (200, 3, 2)
        if is_power:
            assert metric.high < metric.reference / 10
        else:
            assert metric.value > 0.95 * metric.reference


def test_a_leak_holds_so_many_rows_of_every_class():
    labels = torch.tensor([0, 0, 0, 1, 1, 2])
    chosen = pick_leak(labels, 2, generator=seeded(0))
    assert sorted(labels[chosen].tolist()) == [0, 0, 1, 1, 2]


def test_a_layer_before_the_cut_is_seen_by_name():
    bottom = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3))
    x = torch.randn(7, 6)
    leak = x[:2], torch.tensor([0, 1])
    assert see_layer(bottom, leaked=leak, targets=x, classes=2).targets.shape == (7, 3)
    before = see_layer(bottom, leaked=leak, targets=x, classes=2, before="1")
    torch.testing.assert_close(before.targets, bottom[:2](x).detach())
    with pytest.raises(DataError, match="a label each"):
        see_layer(bottom, leaked=(x[:2], torch.tensor([0])), targets=x, classes=2)


def test_a_whole_audit_puts_the_base_lines_beside():
    seen, truth = layer(3.0)
    x = seen.targets
    bottom = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.LeakyReLU())
    target = SplitTarget(
        bottom=bottom,
        make_model=make_model,
        pool=(x[:500], truth[:500]),
        targets=(x[500:], truth[500:]),
        classes=CLASSES,
        before="0",
    )
    found = {metric.name: metric for metric in audit_labels(target)}
    assert set(found) == {
        "from scratch, 1 label per class",
        "k-means on the inputs",
        "fine-tuning, 1 label per class",
        "fine-tuning, whitened, 1 label per class",
        "k-means",
        "fine-tuning, 1 label per class, before the cut at 0",
        "fine-tuning, whitened, 1 label per class, before the cut at 0",
        "k-means, before the cut at 0",
    }
    base = found["from scratch, 1 label per class"]
    assert found["fine-tuning, 1 label per class"].reference == base.value
    assert audit_inputs(target).value < audit_inputs(target).reference


def test_every_attack_of_the_table_is_tested_here():
    assert set(ATTACKS.values()) == {
        fine_tune,
        fine_tune_whitened,
        cluster,
        train_from_scratch,
        gradient_norm,
        reconstruct,
        group,
        group_and_name,
    }
