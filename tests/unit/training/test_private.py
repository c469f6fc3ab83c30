"""Training with DP on shares: the claim, what it rests on, and attacks on what it forgets."""

import contextlib
import math
import threading
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from threading import current_thread
from types import SimpleNamespace

import pytest
import torch

from support.mpc import ALICE, simulate
from support.training import (
    NAMES,
    OWNERS,
    STEPS,
    KilledError,
    changed,
    digits_of,
    folders_in,
    killed,
    make_task,
    run,
)
from tacit import ring
from tacit.data import Holding
from tacit.dp import (
    ADD_REMOVE_RECORD,
    Book,
    Gaussian,
    Ledger,
    Repeated,
    epsilon,
    ledger_from_record,
    ledger_to_record,
)
from tacit.dp import book as book_module
from tacit.errors import ConfigError, DataError, DisagreementError, InputError
from tacit.mpc import sum_forecasts
from tacit.nn import make_model
from tacit.nn.records import RecordOps
from tacit.party import Meeting, merge_costs, run_threads, without_setup
from tacit.training import Privacy, StateFolder, plan_training, schedule, train
from tacit.training.gradients import clip_factors, plan_noise, scale_records, square_norms
from tacit.training.loop import walk_plain
from tacit.training.noise import NoisePlan, draw_noise
from tacit.training.privacy import Measures, plan_privacy


@pytest.fixture(scope="module")
def digits():
    return digits_of(600)


@pytest.fixture(scope="module")
def drawn():
    """Note every word of noise that anybody draws: by party, in order."""
    words = defaultdict(list)

    def noted(plan, prg):
        found = draw_noise(plan, prg)
        words[current_thread().name, found.numel() > 1].append(found)
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schedule, "draw_noise", noted)
        yield words


@pytest.fixture(scope="module", params=[("dense 10",), ("dense 12", "relu", "dense 10")])
def trained(request, digits, drawn):
    """Train on shares once, and note every word of noise."""
    drawn.clear()
    is_deep = len(request.param) > 1
    task = make_task(
        layers=request.param, cap=4.0 if is_deep else None, rate=1.0 if is_deep else 4.0
    )
    ends, costs, ledgers = run(task, digits)
    return task, ends, costs, ledgers, dict(drawn)


def test_weights_are_those_of_the_same_training_in_the_clear_with_the_same_noise(digits, trained):
    task, ends, *_, drawn = trained
    noise = [one for (_, is_step), one in drawn.items() if is_step]
    assert len(noise) == len(NAMES)
    sums = iter([sum(parts) for parts in zip(*noise, strict=True)])
    plain, shown = walk_plain(task, *digits, noise=sums)
    for name, value in plain.items():
        far = (ends["bank"].weights[name] - value).abs().max()
        assert far <= 2.0 ** (-8 if len(plain) == 2 else -5) * value.abs().max()
    assert shown[-1][2] > 0.6 or len(plain) > 2
    assert not ends["shop"].weights


def test_no_word_of_noise_is_used_twice(trained):
    *_, drawn = trained
    for is_step, count in ((True, STEPS), (False, STEPS // 2)):
        words = [
            one.numpy().tobytes()
            for key, all_ in drawn.items()
            if key[1] is is_step
            for one in all_
        ]
        assert len(words) == len(NAMES) * count
        assert not is_step or len(set(words)) == len(words)


def test_looks_have_noise_and_show_nothing_else(trained):
    task, ends, _, ledgers, drawn = trained
    seen = [right * task.answers for _, _, right in ends["bank"].shown]
    noise = [
        sum(parts) for parts in zip(*(d for key, d in drawn.items() if not key[1]), strict=True)
    ]
    counts = [one - float(words) for one, words in zip(seen, noise, strict=True)]
    assert all(abs(count - round(count)) < 1e-6 and 0 <= count <= task.answers for count in counts)
    assert all(math.isnan(loss) for _, loss, _ in ends["bank"].shown)
    shown = {leak.what for leak in ledgers["bank"] if leak.kind == "output"}
    names = {f"weights {name}" for name in task.model.initial}
    assert shown == {"number of right answers on held-out rows, with noise", *names}
    assert not [leak for leak in ledgers["dealer"] if leak.kind == "output" and leak.to == "dealer"]


def test_the_claim_says_what_it_rests_on_and_a_second_computation_agrees(trained):
    _, ends, *_ = trained
    found = ends["dealer"].privacy
    claim = found.claim
    assert claim.assumptions[0].startswith("every party follows the protocol")
    assert "one training" in claim.assumptions[1]
    assert 0.99 * 8 < claim.epsilon <= 8
    assert (claim.delta, claim.relation) == (1e-4, "adding or removing one record")
    assert found.second == pytest.approx(claim.epsilon, rel=1e-3)
    # Steps and looks are in one ledger, and each is paid for.
    entries = ledger_from_record(found.events).entries
    assert [entry.event.count for entry in entries] == [STEPS, STEPS // 2]
    alone = epsilon([entries[0].event], delta=1e-4).epsilon
    assert alone < claim.epsilon
    # Continuous noise of the same variance, by loss distributions, which are another way: they
    # are tight where Rényi divergences are not, and may not find more.
    sigma = math.sqrt(found.steps.wanted) * 2.0**-16
    sensitivity = found.steps.l2_sensitivity
    tight = Gaussian(sigma=sigma, l2_sensitivity=sensitivity, relation=ADD_REMOVE_RECORD)
    other = epsilon([Repeated(event=tight, count=STEPS)], delta=1e-4)
    assert 0.85 * alone < other.epsilon <= alone


def test_the_forecast_is_the_meter(trained):
    task, ends, costs, *_ = trained
    metered = without_setup(merge_costs(costs))
    forecast = sum_forecasts(ends["bank"].runs).cost
    assert forecast.traffic == metered.traffic
    assert forecast.online_rounds == metered.online_rounds
    assert sum_forecasts(plan_training(task).walker.runs).cost == forecast


@pytest.mark.parametrize("kind", ["average", "best"])
def test_a_start_from_own_models_is_never_opened_and_is_paid_for(digits, monkeypatch, kind):
    """The bank's rows are labelled wrong: the best start is not the bank's, nor is it shown."""

    def without_luck(plan, prg):
        # The noise of a choice picks the bank's model now and then.
        return torch.zeros(plan.shape).double() if plan.shape == (4,) else draw_noise(plan, prg)

    monkeypatch.setattr(schedule, "draw_noise", without_luck)
    labels = digits[1].clone()
    labels[:60] = labels[:60].roll(1, dims=1)
    privacy = Privacy(epsilon=30.0, delta=1e-4, start=kind, start_steps=4, look_noise=2.0)
    task = make_task(
        rows=60, epochs=1, rate=8.0, privacy=privacy, show_to=(), test_rows=0, batch=180
    )
    ends, costs, ledgers = run(task, (digits[0], labels), rows=60)
    notes = [entry.note for entry in ledger_from_record(ends["bank"].privacy.events).entries]
    assert notes == [
        "steps",
        "steps that owners take alone",
        *["choice between starts"] * (kind == "best"),
    ]
    assert ends["bank"].privacy.claim.epsilon <= 30
    # The start is in no ledger, and the forecast has it.
    assert {leak.what for leak in ledgers["bank"] if leak.kind == "output"} == {
        "weights 0/weight",
        "weights 0/bias",
    }
    metered = without_setup(merge_costs(costs))
    assert sum_forecasts(plan_training(task).walker.runs).cost.traffic == metered.traffic
    x, y = digits[0][200:], digits[1][200:]
    weights = ends["bank"].weights
    found = (x @ weights["0/weight"].T + weights["0/bias"]).argmax(1) == y.argmax(1)
    assert found.double().mean() > 0.25  # one step alone from public weights would not do


def test_rows_are_opened_under_their_masks_once():
    """A step over wider rows sends more for its weights, and nothing for its rows."""

    def bytes_of(steps, columns):
        model = make_model(torch.nn.Linear(columns, 2), (columns,))
        held = tuple(Holding(owner, 1000, (columns,), "classes") for owner in OWNERS)
        privacy = Privacy(epsilon=8.0, delta=1e-4)
        task = make_task(
            rows=1000, model=model, holdings=held, epochs=steps, privacy=privacy, show_to=()
        )
        return sum(
            one.payload_bytes for one in sum_forecasts(plan_training(task).walker.runs).cost.traffic
        )

    narrow, wide = (bytes_of(5, columns) - bytes_of(4, columns) for columns in (20, 220))
    assert wide - narrow < 3000 * 200 * 8 / 4


def by_step(drawn):
    """Give the words of every step, of all makers, in order, as far as all have drawn them."""
    lists = [words for (_, is_step), words in drawn.items() if is_step]
    return list(zip(*lists, strict=False)) if len(lists) == len(NAMES) else []


KILLS = [("step", 1, 0), ("step", 5, 4), ("look", 2, 4), ("look", 3, 6)]


@pytest.mark.parametrize(("what", "after", "start"), KILLS)
def test_a_training_that_was_killed_ends_with_the_same_model_and_spends_nothing_twice(
    digits, drawn, tmp_path, what, after, start
):
    """What is done again has the noise that it had: nothing was opened since."""
    task = make_task(rows=20, privacy=Privacy(epsilon=8.0, delta=1e-3, looks="noisy"))
    folders = folders_in(tmp_path)
    drawn.clear()
    with pytest.MonkeyPatch.context() as patch:
        killed(patch, after, what)
        with pytest.raises(KilledError):
            run(task, digits, folders=folders, rows=20)
    first = by_step(drawn)
    drawn.clear()
    ends, _, ledgers = run(task, digits, folders=folders, rows=20)
    again = by_step(drawn)
    assert ends["bank"].resumed_at == start
    assert len(again) == STEPS - start
    words = [{one.numpy().tobytes() for one in parts} for parts in (*first[:start], *again)]
    assert len(set().union(*words)) == len(NAMES) * STEPS
    for before, after_ in zip(first[start:], words[start:], strict=False):
        assert {one.numpy().tobytes() for one in before} == after_
    sums = iter([sum(parts) for parts in (*first[:start], *again)])
    plain, _ = walk_plain(task, digits[0][:60], digits[1][:60], noise=sums)
    for name, value in plain.items():
        assert (ends["bank"].weights[name] - value).abs().max() <= 2.0**-7
    # No look is taken twice: those before the kill, and those after it, are three in all.
    looks = sum(leak.elements for leak in ledgers["bank"] if "right answers" in leak.what)
    assert looks == STEPS // 2 - start // 2


def test_a_party_that_dies_before_its_checkpoint_is_written_does_not_end_the_training(
    digits, tmp_path
):
    """The other has written its own, and has opened nothing: both go on from the one before."""
    task = make_task(rows=20, privacy=Privacy(epsilon=8.0, delta=1e-3, looks="noisy"))
    folders, save = folders_in(tmp_path), StateFolder.save

    def dying(self, checkpoint):
        if (self.path.name, checkpoint.step) == ("shop", 4):
            raise KilledError
        save(self, checkpoint)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StateFolder, "save", dying)
        with pytest.raises(KilledError):
            run(task, digits, folders=folders, rows=20)
    ends, _, _ = run(task, digits, folders=folders, rows=20)
    assert ends["bank"].resumed_at == 2


def test_who_says_to_have_lost_its_last_checkpoint_gets_no_second_opening(digits, tmp_path):
    """A computing party goes back behind what was opened, to have it opened again: refused."""
    task = make_task(rows=20, epochs=4, privacy=Privacy(epsilon=8.0, delta=1e-3), show_to=())
    folders = folders_in(tmp_path)
    run(task, digits, folders=folders, rows=20)
    again, _, _ = run(task, digits, folders=folders, rows=20)
    assert again["bank"].resumed_at == 4  # the same weights again tell nothing more
    (folders["shop"].path / "step-4.npz").unlink()
    with pytest.raises(InputError, match="opened after step 4"):
        run(task, digits, folders=folders, rows=20)
    # Whoever starts afresh says so: another training, with other noise and an ε of its own.
    fresh, _, _ = run(task, digits, folders=folders, rows=20, is_fresh=True)
    assert fresh["bank"].resumed_at == 0
    assert any(
        not torch.equal(fresh["bank"].weights[name], value)
        for name, value in again["bank"].weights.items()
    )


def test_a_party_that_restarts_with_other_rows_is_refused(digits, tmp_path):
    task = make_task(rows=20, privacy=Privacy(epsilon=8.0, delta=1e-3, looks="noisy"))
    folders = folders_in(tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        killed(patch, 1, "look")
        with pytest.raises(KilledError):
            run(task, digits, folders=folders, rows=20)
    other = digits[0].clone()
    other[45] = -other[45]
    with pytest.raises((InputError, DisagreementError), match="other"):
        run(task, (other, digits[1]), folders=folders, rows=20)


def test_an_owner_that_is_asked_twice_says_no_before_a_row_is_shared(digits, tmp_path):
    """Two models of rows that differ in one tell about it: the second is not in the budget."""
    task = make_task(rows=20, epochs=4, privacy=Privacy(epsilon=4.0, delta=1e-3), show_to=())
    book = Book(tmp_path / "clinic.json", 5.0)
    folders, sent = folders_in(tmp_path), {}

    def party(session):
        mine = {}
        if session.me in OWNERS:
            first = 20 * OWNERS.index(session.me)
            mine = {"rows": digits[0][first : first + 20], "labels": digits[1][first : first + 20]}
        own = book if session.me == "clinic" else None
        try:
            return train(
                session, task, folder=folders[session.me], book=own, is_fresh=is_fresh, **mine
            )
        finally:
            sent[session.me] = session.cost()

    meeting = Meeting(parties=NAMES, job_digest=bytes(32))
    is_fresh = False
    for _ in range(2):  # the second goes on from its end, and is entered once
        run_threads(dict.fromkeys(NAMES, party), meeting)
    is_fresh = True
    with pytest.raises(
        ConfigError, match=r"come to ε = [5-7]\.\d+ at δ = 0.001, and 5 is allowed; 1"
    ):
        run_threads(dict.fromkeys(NAMES, party), meeting)
    assert not [one for one in sent["clinic"].traffic if one.phase != "setup"]
    (tmp_path / "clinic.json").write_text("{}")
    with pytest.raises(DataError, match="what was spent is not known"):
        run_threads(dict.fromkeys(NAMES, party), meeting)


def test_a_training_that_is_killed_has_told_nothing_but_the_looks_that_were_taken(digits, tmp_path):
    task = make_task(rows=20, privacy=Privacy(epsilon=8.0, delta=1e-3), show_to=())
    seen = {}

    def party(session):
        mine = {"rows": digits[0][:20], "labels": digits[1][:20]} if session.me in OWNERS else {}
        try:
            return train(session, task, **mine)
        finally:
            seen[session.me] = session.ledger.entries()

    with pytest.MonkeyPatch.context() as patch:
        killed(patch, 5, "step")
        with pytest.raises(KilledError):
            run_threads(dict.fromkeys(NAMES, party), Meeting(parties=NAMES, job_digest=bytes(32)))
    assert not [leak for leaks in seen.values() for leak in leaks if leak.kind == "output"]


def test_permuted_protocols_have_no_guarantee(digits):
    task = make_task(rows=20, protocol="permuted3", epochs=1)
    task = changed(task, privacy=Privacy(epsilon=8.0, delta=1e-3), show_to=())
    ends, _, _ = run(task, digits, rows=20)
    claim = ends["bank"].privacy.claim
    assert (claim.guarantee, claim.epsilon) == ("no guarantee", None)
    assert any("permuted3" in one for one in claim.assumptions)


def measures(makers, **changes):
    facts = {
        "computing": makers[:2],
        "roundings": ((1.0, 10),),
        "weights": 1000,
        "steps": STEPS,
        "looks": 3,
        "rows": 1000,
        "answers": 1,
        "owners": 3,
        "frac_bits": 16,
        "protocol": "sealed",
    }
    return Measures(makers=makers, **{**facts, **changes})


@pytest.mark.parametrize("makers", [("p0", "p1"), ("p0", "p1", "dealer"), tuple("abcdef")])
def test_every_party_faces_the_whole_variance(makers):
    found = plan_privacy(Privacy(epsilon=8.0, delta=1e-4, looks="noisy"), measures(makers))
    for plan in (found.steps, found.looks):
        assert all(plan.unknown_to(one) >= plan.wanted for one in (*makers, "someone else"))
    plan, prg = found.steps, ring.Prg.from_os()
    drawn = [draw_noise(plan, prg) * 2**16 for _ in makers for _ in range(10)]
    others = torch.stack(drawn).reshape(10, len(makers), -1)[:, 1:].sum(dim=1)
    # Of 10,000 draws the variance is off by 1.4 %: six times that happens once in 10^9.
    assert float(others.var()) == pytest.approx(float(plan.wanted), rel=0.085)


def test_a_maker_that_adds_no_noise_breaks_the_claim_for_others_and_it_says_so():
    """Of four makers one draws nothing: the others face 2/3 of the variance, not all of it."""
    plan = plan_privacy(Privacy(epsilon=8.0, delta=1e-4), measures(NAMES)).steps
    left = (len(NAMES) - 2) * plan.each
    assert left < plan.wanted  # what a second maker faces, which knows its own part
    assert float(left / plan.wanted) == pytest.approx(2 / 3, rel=1e-6)
    claim = plan_privacy(Privacy(epsilon=8.0, delta=1e-4), measures(NAMES)).claim
    assert "follows the protocol" in claim.assumptions[0]


def test_two_makers_of_three_quarters_each_are_refused():
    """Parts of 3σ²/2m as in the literature leave either of two parties with 3/4 of σ²."""
    sigma2 = Fraction(10**9)

    def plan(makers):
        return NoisePlan(
            makers=makers,
            wanted=sigma2,
            each=3 * sigma2 / (2 * len(makers)),
            frac_bits=16,
            l2_sensitivity=1.0,
            shape=(4,),
        )

    with pytest.raises(ConfigError, match=r"0\.75 of the variance"):
        plan(("p0", "p1"))
    assert plan(("p0", "p1", "p2")).unknown_to("p0") == sigma2


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"privacy": Privacy(epsilon=2.0, delta=0.2)}, "1/n or more"),
        ({"privacy": Privacy(epsilon=1e-3, delta=1e-4), "epochs": 10**4}, "no noise in"),
    ],
)
def test_what_cannot_be_promised_is_refused_before_anything_is_planned(changes, words):
    with pytest.raises(ConfigError, match=words):
        plan_noise(make_task(show_to=(), **changes))


COLUMNS = (Holding("bank", 100, (32,), "classes"), Holding("shop", 100, (32,)))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"batch": 100}, "every step uses all 500 rows"),
        ({"frac_bits": 14}, "frac_bits"),
        ({"score_to": ("bank",)}, "score_to"),
        ({"show_to": ()}, "nobody"),
        ({"privacy": Privacy(epsilon=2.0, delta=1e-4)}, "looks"),
        ({"split": "columns", "holdings": COLUMNS, "test_rows": 10, "batch": 90}, "rows"),
    ],
)
def test_a_task_that_would_tell_more_than_it_says_is_refused(changes, words):
    with pytest.raises(ConfigError, match=words):
        make_task(**changes)


@pytest.mark.parametrize(
    "wrong",
    [{"epsilon": 0.0}, {"epsilon": 500.0}, {"delta": 0.0}, {"clip": 5.0}, {"look_noise": 0.5}],
)
def test_settings_that_mean_nothing_are_refused(wrong):
    with pytest.raises(ConfigError):
        Privacy(**{"epsilon": 1.0, "delta": 1e-5, **wrong})


def test_a_row_of_zeros_is_refused_by_its_owner_and_nothing_of_it_is_sent(digits):
    rows = digits[0].clone()
    rows[30] = 0.0
    task = make_task(rows=20, privacy=Privacy(epsilon=8.0, delta=1e-3), show_to=())
    with pytest.raises(DataError, match="all zeros"):
        run(task, (rows, digits[1]), rows=20)


def lower_bound(with_canary, without, delta):
    """Bound ε from below by the best threshold, five standard errors to the safe side.

    Of 40 thresholds none is off by more once in 10^4 honest runs.
    """
    found = 0.0
    n = len(without)
    for threshold in torch.quantile(without, torch.linspace(0.9, 0.9995, 40).double()):
        hit, false = (float((one > threshold).double().mean()) for one in (with_canary, without))
        least = hit - 5 * math.sqrt(hit / n)
        most = false + 5 * math.sqrt(false / n)
        found = max(found, math.log(max(least - delta, 1e-12) / most))
    return found


AUDITED = Privacy(epsilon=1.0, delta=1e-5, clip=0.25)


@pytest.fixture(scope="module")
def unknown():
    """Draw the two of three parts that a maker does not know: (world, trial, element)."""
    facts = measures(("p0", "p1", "dealer"), roundings=((1.0, 2),), weights=2, steps=1, looks=0)
    plan = plan_privacy(AUDITED, facts).steps
    prg = ring.Prg(bytes(range(16)))
    words = ring.discrete_gaussian(prg, (2, 2, 150_000, 2), sigma2=plan.each)
    return words.sum(dim=0).double() * 2.0**-16


@pytest.mark.parametrize(
    ("is_clipped", "factor", "is_caught"),
    [(True, 1.0, False), (False, 1.0, True), (True, 0.5, True)],
)
def test_an_audit_by_a_canary_stays_below_the_claim_and_catches_what_breaks_it(
    is_clipped, factor, is_caught, unknown
):
    """One step as a maker of noise sees it, with a canary and without; the sums are from shares.

    The audit finds more than the claim where clipping is left out or the noise is halved.
    """
    errors = torch.tensor([[0.5, -0.5], [1.0, -1.0]], dtype=torch.float64)
    rows = torch.tensor([[0.6], [1.0]], dtype=torch.float64)

    def program(ops):
        tape = RecordOps(ops)
        x = tape.leaf(ops.input("x", owner=ALICE, shape=(2, 1), bound=1.0))
        n = ops.input("n", owner=ALICE, shape=(2, 1), bound=1.0)
        e = ops.input("e", owner=ALICE, shape=(2, 2), bound=1.0)
        w = tape.weight("w", ops.input("w", owner=ALICE, shape=(1, 2), bound=1.0))
        uses = tape.uses(tape.matmul(x, w), ["w"])
        kept = e
        if is_clipped:
            found = clip_factors(ops, uses, [e], clip=AUDITED.clip, known={x.number: n})
            kept = scale_records(ops, e, found)
        alone = torch.tensor([[1.0], [0.0]], dtype=torch.float64)
        sums = [uses[0].add_up(one) for one in (kept, ops.weigh(kept, alone))]
        return [ops.open(one, to=(ALICE,), what="sum", why="test") for one in sums]

    given = {"x": rows, "n": square_norms(rows, frac_bits=16), "e": errors, "w": torch.zeros(1, 2)}
    whole, rest = simulate(program, inputs={ALICE: given}).values[ALICE]
    way = (whole - rest).reshape(2)
    way /= way.norm()
    seen = [(one.reshape(2) + factor * unknown[at]) @ way for at, one in enumerate((whole, rest))]
    assert (lower_bound(*seen, AUDITED.delta) > AUDITED.epsilon) == is_caught


def test_a_larger_delta_makes_no_room_in_a_book(tmp_path):
    """Whoever writes the job chooses δ: at a larger one everything so far would seem less."""
    book = Book(tmp_path / "clinic.json", 5.0)
    ledger = Ledger()
    ledger.record(Gaussian(sigma=1.5, l2_sensitivity=1.0, relation=ADD_REMOVE_RECORD))
    events = ledger_to_record(ledger)
    _, spent = book.enter("one", events, 1e-9, kind="train")
    assert 3.5 < spent <= 5
    assert epsilon([one.event for one in ledger.entries] * 2, delta=0.02).epsilon < 5
    with pytest.raises(ConfigError, match="δ = 1e-09"):
        book.enter("two", events, 0.02, kind="train")


def test_two_trainings_that_ask_a_book_at_once_are_both_counted(tmp_path, monkeypatch):
    book, gate = Book(tmp_path / "clinic.json", 5.0), threading.Barrier(2)

    def spent(ledger, **_):
        with contextlib.suppress(threading.BrokenBarrierError):
            gate.wait(0.5)  # both have read before either writes, unless they take turns
        return SimpleNamespace(epsilon=4.0 * len(ledger))

    monkeypatch.setattr(book_module, "epsilon", spent)
    ledger = Ledger()
    ledger.record(Gaussian(sigma=1.5, l2_sensitivity=1.0, relation=ADD_REMOVE_RECORD))

    def ask(key):
        try:
            book.enter(key, ledger_to_record(ledger), 1e-3, kind="train")
        except ConfigError:
            return False
        return True

    with ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(ask, ("one", "two"))) == [False, True]


def test_an_owner_with_a_book_refuses_a_training_without_privacy(tmp_path):
    """Whoever writes the job leaves [privacy] out: no event would ever be entered."""
    meeting, book = Meeting(parties=NAMES, job_digest=bytes(32)), Book(tmp_path / "book.json", 5.0)
    task = changed(make_task(rows=20), privacy=None)
    with pytest.raises(ConfigError, match="spends without a bound, and 5 is allowed"):
        run_threads(dict.fromkeys(NAMES, lambda session: train(session, task, book=book)), meeting)
    assert not book.path.exists()
