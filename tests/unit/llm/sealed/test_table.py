"""Passes that are dealt ahead, dropped, and planned once for many lengths."""

from contextlib import suppress
from dataclasses import replace

import pytest

from support.llm import among_three, plainly, say, tiny
from tacit.errors import DisagreementError, FrameError, InputError, RangeError
from tacit.llm import Sampling
from tacit.llm.permuted import Account
from tacit.llm.sealed import (
    Pass,
    SealedMemory,
    open_sealed_vault,
    plan_passes,
    table,
)
from tacit.llm.sealed.program import Passing
from tacit.mpc import OpeningCache, PlanOps

MODEL = tiny("llama", layers=1)
PROMPT = [1, 5, 7]


def chat(talk):
    """Run a function of a sealed client; return what it gives, and what the dealer sent."""
    vault = open_sealed_vault(MODEL)
    found, sessions = among_three(MODEL, talk, vault=vault)
    return found, offline(sessions["dealer"].cost()), vault


def offline(cost):
    return sum(
        one.payload_bytes
        for one in cost.traffic
        if (one.sender, one.phase) == ("dealer", "offline")
    )


def test_a_token_that_was_dealt_for_and_is_not_wanted_costs_its_material_and_nothing_else():
    def talk(client):
        memory = SealedMemory()
        first = say(client, memory, PROMPT, 2)
        answer = client.generate(memory, [first[-1], 9], Sampling(), limit=5)
        second = [next(answer), next(answer)]
        answer.close()  # the third token was ordered already
        return first, second, say(client, memory, [second[-1], 4], 2)

    (first, second, third), dealt, vault = chat(talk)
    text = PROMPT
    for fresh, said in (([], first), ([9], second), ([4], third)):
        text = [*text, *fresh]
        assert said == plainly(MODEL, text, 2)
        text = [*text, *said]
    # Every pass, in order; the fourth turn's first pass came instead of one that was dealt for.
    shapes = [(0, 3), (3, 1), (4, 2), (6, 1), (7, 1), (7, 2), (9, 1)]
    facts = {"conversation": 0, "prompt": 0, "is_scored": True}
    plans = plan_passes(vault, [Pass(past=past, rows=rows, **facts) for past, rows in shapes])
    assert dealt == sum(offline(plan.cost) for plan in plans)


def test_one_plan_serves_all_tokens_up_to_its_room(monkeypatch):
    planned = []
    original = Passing.run

    def counting(self, ops, step, **how):
        if isinstance(ops, PlanOps):
            planned.append((step.rows, step.room))
        return original(self, ops, step, **how)

    monkeypatch.setattr(Passing, "run", counting)
    said, _, _ = chat(lambda client: say(client, SealedMemory(), PROMPT, 16))
    assert said == plainly(MODEL, PROMPT, 16)
    # Each of three parties plans the prompt, and a token for up to 16 and up to 32 keys.
    assert sorted(planned) == sorted(3 * [(3, 16), (1, 16), (1, 32)])


def test_a_party_that_knows_of_another_order_does_not_go_on(monkeypatch):
    original = table.Table._begin

    def greedy(self, step):
        if self.session.me == "dealer" and self.can_expect:
            step = Pass(
                conversation=step.conversation,
                past=step.past,
                rows=step.rows,
                prompt=0,
                is_scored=True,
                expects_next=True,
            )
        return original(self, step)

    monkeypatch.setattr(table.Table, "_begin", greedy)
    with pytest.raises(DisagreementError, match="another plan"):
        chat(lambda client: say(client, SealedMemory(), PROMPT, 2))


@pytest.mark.parametrize("who", ["owner", "user", "dealer"])
@pytest.mark.parametrize("what", ["number", "plan"])
def test_a_party_with_another_number_or_plan_of_a_pass_does_not_go_on(monkeypatch, who, what):
    """Numbers label all masks: who has another one would open what others have masked."""
    original = table.Table._agree

    def other(self, step, run):
        if self.session.me == who:
            changed = {
                "number": lambda: {"number": run.number + 1},
                "plan": lambda: {"plan": replace(run.plan, frac_bits=run.plan.frac_bits + 1)},
            }
            run = replace(run, **changed[what]())
        original(self, step, run)

    monkeypatch.setattr(table.Table, "_agree", other)
    with pytest.raises(DisagreementError, match="another plan"):
        chat(lambda client: say(client, SealedMemory(), PROMPT, 1))


def test_a_party_with_another_number_of_the_pass_that_is_ordered_does_not_go_on(monkeypatch):
    """The pass is dealt for as soon as it is ordered: it is agreed on before."""
    original, went_on = table.Table._agree, []

    def other(self, step, run):
        if self.session.me == "dealer" and self._ordered is not None:
            self._ordered = replace(self._ordered, number=self._ordered.number + 1)
            original(self, step, run)
            went_on.append(step)
        else:
            original(self, step, run)

    monkeypatch.setattr(table.Table, "_agree", other)
    with pytest.raises(DisagreementError, match="another plan"):
        chat(lambda client: say(client, SealedMemory(), PROMPT, 4))
    assert went_on == []


def test_no_number_of_a_pass_is_used_twice(monkeypatch):
    """A run's number labels its masks: those of a dropped pass must not come back."""
    used = {}
    original = table.Table._number

    def noting(self, step, **how):
        run = original(self, step, **how)
        used.setdefault(self.session.me, []).append(run.number)
        return run

    monkeypatch.setattr(table.Table, "_number", noting)

    def talk(client):
        memory = SealedMemory()
        for _ in range(2):
            answer = client.generate(memory, PROMPT, Sampling(), limit=4)
            next(answer)
            answer.close()

    chat(talk)
    assert set(used) == {"owner", "user", "dealer"}
    for numbers in used.values():
        assert len(set(numbers)) == len(numbers) == 3  # the second prompt ordered one more
    assert used["owner"] == used["user"] == used["dealer"]


def test_a_user_that_orders_before_the_weights_are_open_is_named():
    """The dealer would take the ordered pass for the one that opens them, and be blamed."""

    def talk(client):
        client._table.can_expect = True
        return say(client, SealedMemory(), PROMPT, 2)

    with pytest.raises(FrameError, match=r"'user'.*before the weights are open"):
        chat(talk)


def test_bounds_that_no_word_has_room_for_are_planned_with_or_refused_by_name():
    """An owner may publish powers up to 2^40: users and dealers plan with them."""
    vault = open_sealed_vault(MODEL)
    step = Pass(conversation=0, past=0, rows=2, prompt=0, is_scored=True)
    for name, bound in list(vault.bounds.items()):
        vault.bounds[name] = 2.0**40
        with pytest.raises(RangeError) if "norm" in name else suppress(RangeError, InputError):
            plan_passes(vault, [step])
        vault.bounds[name] = bound


def test_a_pass_that_breaks_has_told_its_sizes_and_the_ledger_says_so(monkeypatch):
    ledgers = []

    def talk(client):
        say(client, SealedMemory(), PROMPT, 1)
        ledgers.append(client.session.ledger)
        with monkeypatch.context() as patch:
            patch.setattr(table.Table, "compute", breaking)
            say(client, SealedMemory(), [1, 2], 1)

    def breaking(self, step, inputs, kept):
        raise RuntimeError("the machine stops")

    with pytest.raises(RuntimeError):
        chat(talk)
    (told,) = (leak for leak in ledgers[0].entries() if leak.to == "owner")
    assert told.elements == len(PROMPT) + 2


def within(owner, dealer, talk):
    """Run a function of a client whose owner and dealer count bytes; return what they held."""
    vault, tables, held = open_sealed_vault(MODEL).for_user(owner), {}, []
    accounts = {"owner": owner, "dealer": dealer}
    begin, grow = table.Table._begin, OpeningCache.grow

    def beginning(self, step):
        tables[self._cache] = self.session.me
        return begin(self, step)

    def growing(self, *args, **how):
        grow(self, *args, **how)
        account = accounts.get(tables.get(self))
        if account is not None:
            held.append((self.grown_bytes(besides=-1), account.used))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table.Table, "_begin", beginning)
        patch.setattr(OpeningCache, "grow", growing)
        among_three(MODEL, talk, vault=vault, account=dealer)
    return held


def test_what_a_session_keeps_open_is_counted_at_owner_and_dealer():
    owner, dealer = Account(), Account()
    memories = [SealedMemory() for _ in range(3)]

    def talk(client):
        for memory in memories:
            say(client, memory, [1] * 14, 4)  # the last tokens need the next room

    held = within(owner, dealer, talk)
    assert len(held) > 20
    assert all(0 < taken <= counted for taken, counted in held)
    # Afterwards the owner has shares alone, 17 rows in each conversation, and the dealer nothing.
    assert (owner.used, dealer.used) == (3 * 17 * 2 * 2 * 4 * 8, 0)


@pytest.mark.parametrize("who", ["owner", "dealer"])
def test_conversations_without_end_are_refused_where_memory_ends(who):
    most = {who: 40_000}
    owner, dealer = (Account(most=most.get(one, 1 << 40)) for one in ("owner", "dealer"))

    def talk(client):
        for _ in range(16):
            say(client, SealedMemory(), [1] * 14, 1)

    with pytest.raises(FrameError, match=r"'user'.*is the most"):
        within(owner, dealer, talk)
    assert {"owner": owner, "dealer": dealer}[who].used <= 40_000
