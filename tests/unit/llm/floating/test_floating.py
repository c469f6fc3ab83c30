"""Floating-point shares: what they compute, and how repeated texts undo them."""

from unittest import mock

import pytest
import torch

from harness import Wiretap
from private_llm import FAMILIES, MEETING, PARTIES, plainly, tiny
from tacit.errors import ConfigError, DataError, DisagreementError
from tacit.llm import Cache, Sampling, next_logits
from tacit.llm.floating import (
    CLAIM,
    FloatingClient,
    FloatingMemory,
    open_floating_vault,
    serve_floating_dealer,
    serve_floating_owner,
)
from tacit.llm.floating.interpreters import AskingInterpreter, Mail
from tacit.llm.floating.noise import Noise, grid_step, normal
from tacit.llm.floating.parties import find_rows
from tacit.llm.floating.program import MaskedValue, Rows, run_pass
from tacit.llm.floating.sizes import Measuring, name_of, size_names
from tacit.llm.permuted.prf_stream import PrfStream
from tacit.llm.sealed.folded import fold
from tacit.llm.sealed.passes import Pass
from tacit.party import run_threads
from tacit.ring import Prg


def as_user(model, talk, *, ratio=100.0, vault=None):
    """Run a function of a client; return what it gave, and what everyone received."""
    vault = vault or open_floating_vault(model, ratio=ratio)
    received = {name: [] for name in PARTIES}

    def use(session):
        client = FloatingClient(session, model.architecture, ratio=ratio)
        found = talk(client)
        client.leave()
        return found, session.ledger.entries()

    programs = {
        "owner": lambda session: serve_floating_owner(session, vault),
        "user": use,
        "dealer": lambda session: serve_floating_dealer(session, model.architecture, ratio=ratio),
    }
    found, leaks = run_threads(
        programs, MEETING, wrap=lambda me, link: Wiretap(link, received[me])
    )["user"]
    return found, leaks, received


def say(client, ids, limit, **sampling):
    return list(client.generate(FloatingMemory(), ids, Sampling(**sampling), limit=limit))


@pytest.mark.parametrize("family", FAMILIES)
def test_a_walk_in_the_clear_is_the_plain_model(family):
    model = tiny(family, seed=3)
    a, weights = (
        model.architecture,
        {name_of(n): w for part in fold(model) for n, w in part.items()},
    )
    ids, party = [1, 5, 7, 9], Measuring(weights)
    prompt = len(ids) - 1 if family == "chatglm" else 0
    step = Pass(conversation=0, past=0, rows=4, prompt=prompt, is_scored=True)
    x = weights["embed.weight"][torch.tensor(ids)]
    if a.positions == "learned":
        x = x + weights["positions"][:4]
    scores = run_pass(party, a, step, MaskedValue(x, 0.0), Rows())[0]
    assert torch.allclose(scores.float(), next_logits(model, ids, Cache()), atol=1e-4)
    assert sorted([*party.sizes, "embed"]) == size_names(a)


@pytest.mark.parametrize("family", FAMILIES)
def test_greedy_answers_are_those_of_the_plain_model(family):
    model = tiny(family, seed=3)
    said, _, _ = as_user(model, lambda client: say(client, [1, 5, 7, 9], 6))
    assert said == plainly(model, [1, 5, 7, 9], 6)


def test_a_text_goes_on_and_can_be_taken_back():
    model = tiny("llama", seed=3)

    def talk(client):
        memory = FloatingMemory()
        list(client.generate(memory, [1, 5, 7], Sampling(), limit=2))
        memory.rewind(2)
        return list(client.generate(memory, [9], Sampling(), limit=3))

    assert as_user(model, talk)[0] == plainly(model, [1, 5, 9], 3)


def test_a_long_prompt_is_read_in_chunks(monkeypatch):
    monkeypatch.setattr("tacit.llm.floating.talk.CHUNK", 2)
    model = tiny("llama", seed=3)
    said, _, _ = as_user(model, lambda client: say(client, [1, 5, 7, 9, 3], 3))
    assert said == plainly(model, [1, 5, 7, 9, 3], 3)


def hot_rows(received, count):
    """Return the one-hot rows under noise that the owner received, one for each pass."""
    rows = [words for tag, words in received["owner"] if tag.startswith("online/")]
    return [w.view(torch.float64) for w in rows if w.shape == (count, 40)]


def test_averaging_repeated_prompts_gives_the_owner_the_text():
    """The attack of PermLLM's section 6.4.2: noise of n looks shrinks by √n.

    Seven deviations of the error of 1,280 numbers, and of a number among 40: all below 1e-9.
    """
    model, looks = tiny("llama", layers=1), 128
    ids = [3, 17, 17, 30, 8, 25, 1, 39] * 4

    def talk(client):
        for _ in range(looks):
            say(client, ids, 1)

    seen = hot_rows(as_user(model, talk, ratio=1.0)[2], len(ids))
    assert len(seen) == looks
    truth = torch.tensor(ids)
    once = sum(int((row.argmax(1) == truth).sum()) for row in seen) / (looks * len(ids))
    mean = torch.stack(seen).mean(0)
    assert once < 0.3  # one look at noise as large as what it covers: hardly better than chance
    assert torch.equal(mean.argmax(1), truth)
    exact = torch.zeros_like(mean)
    exact[torch.arange(len(ids)), truth] = 1
    error = float((mean - exact).square().mean().sqrt())
    assert error == pytest.approx(1.0 / looks**0.5, rel=0.15)


def test_averaging_repeated_prompts_gives_the_user_values_in_their_own_order():
    model, ids, looks = tiny("llama", layers=1, seed=2), [3, 17, 30] * 3, 64
    seen, original = [], AskingInterpreter.product

    def listening(party, label, equation, x, y):
        taken, recv = [], party._mail.recv
        party._mail.recv = lambda *more: taken.append(recv(*more)) or taken[-1]
        out = original(party, label, equation, x, y)
        party._mail.recv = recv
        if label == "0.mixed":
            seen.append(taken[1] + y.share)  # what the owner sent, and the user's own part
        return out

    def talk(client):
        for _ in range(looks):
            say(client, ids, 1)

    vault = open_floating_vault(model, ratio=4.0)
    with mock.patch.object(AskingInterpreter, "product", listening):
        as_user(model, talk, ratio=4.0, vault=vault)
    rows = Rows()
    step = Pass(conversation=0, past=0, rows=len(ids), prompt=0, is_scored=True)
    x = vault.weights["embed.weight"][torch.tensor(ids)]
    run_pass(Measuring(vault.weights), model.architecture, step, MaskedValue(x, 0.0), rows)
    values = rows.values[0].share
    spread = vault.scales.outer("0.mixed.y")
    errors = [float((one - values).square().mean().sqrt()) for one in seen]
    assert sum(errors) / looks == pytest.approx(spread, rel=0.15)
    error = float((torch.stack(seen).mean(0) - values).square().mean().sqrt())
    assert error == pytest.approx(spread / looks**0.5, rel=0.5)


def on_grid(values, spread):
    steps = values / grid_step(spread)
    return bool((steps == steps.round()).all())


@pytest.mark.parametrize("ratio", [1.0, 100.0])
def test_all_that_is_sent_lies_on_grids_that_do_not_depend_on_the_text(ratio):
    """Off the grid, a one-hot entry under noise could be told from noise by its last bits."""
    model, ids, spreads, original = tiny("llama", layers=1), [3, 17, 30], {}, Mail.send

    def listening(mail, to, values, spread, *, phase="online"):
        original(mail, to, values, spread, phase=phase)
        tag = f"{phase}/{mail._run}.{mail._sent[to, phase]} from {mail._session.me}"
        spreads[to, tag] = spread

    def talk(client):
        say(client, ids, 2)
        return client._masked

    vault = open_floating_vault(model, ratio=ratio)
    with mock.patch.object(Mail, "send", listening):
        masked, _, received = as_user(model, talk, vault=vault, ratio=ratio)
    got = {(me, tag): words for me, notes in received.items() for tag, words in notes}
    assert len(spreads) > 40
    assert all(on_grid(got[key].view(torch.float64), spread) for key, spread in spreads.items())
    assert all(on_grid(w, vault.scales.outer(f"{name}.weight")) for name, w in masked.items())
    assert on_grid(hot_rows(received, len(ids))[0], ratio)


def test_noise_takes_every_step_of_its_grid():
    steps = Noise(PrfStream(Prg(b"k" * 16))).draw("x", (20_000,), 100.0) / grid_step(100.0)
    found = torch.bincount(steps.long() & 15, minlength=16)
    assert float(((found - 1250) ** 2 / 1250).sum()) < 50  # chi-square, 15 degrees of freedom


def test_the_rarest_words_give_finite_noise():
    words = torch.tensor([0, 1, 2, 3, -1, -2, 2**63 - 1, -(2**63), -(2**63) + 1])
    drawn = normal(words)
    assert bool(drawn.isfinite().all())
    assert float(drawn.abs().max()) < 10
    assert drawn[0] == -drawn[1]


def test_a_session_keeps_the_conversations_used_last():
    talks = {}
    for number in (*range(16), 0, 16):
        step = Pass(conversation=number, past=0, rows=1, prompt=0, is_scored=True)
        find_rows(talks, step, "user")
    assert list(talks) == [*range(2, 16), 0, 16]


def test_the_claim_is_that_there_is_no_guarantee():
    assert CLAIM.guarantee == "no guarantee"
    _, leaks, _ = as_user(tiny("llama", layers=1), lambda client: say(client, [1, 5], 1))
    noisy = [leak for leak in leaks if "averages out" in leak.what]
    assert {leak.to for leak in noisy} == {"owner", "user"}
    assert all("no guarantee" in leak.why for leak in noisy)


@pytest.mark.parametrize("ratio", [0.0, 1000.0, float("nan")])
def test_noise_that_doubles_cannot_carry_is_refused(ratio):
    with pytest.raises(ConfigError, match="1 to 128"):
        open_floating_vault(tiny("llama"), ratio=ratio)


def test_parties_with_other_noise_do_not_begin():
    model = tiny("llama", layers=1)
    with pytest.raises(DisagreementError):
        as_user(model, lambda client: None, ratio=50.0, vault=open_floating_vault(model))


def test_what_cannot_be_read_is_refused():
    def talk(client):
        with pytest.raises(DataError, match="context is 64"):
            say(client, [1] * 65, 1)
        with pytest.raises(ConfigError, match="no repetition penalty"):
            say(client, [1], 1, repetition_penalty=2.0)

    as_user(tiny("llama", layers=1), talk)


def test_noise_is_normal_and_the_same_for_both_who_have_the_key():
    first, second = (Noise(PrfStream(Prg(b"k" * 16))).draw("x", (20_000,), 3.0) for _ in range(2))
    assert torch.equal(first, second)
    assert abs(float(first.mean())) < 5 * 3 / 20_000**0.5
    assert float(first.std()) == pytest.approx(3.0, rel=0.03)
    inside = float((first.abs() < 3.0).double().mean())
    assert inside == pytest.approx(0.6827, abs=5 * (0.68 * 0.32 / 20_000) ** 0.5)
