"""What a user may make a party keep: bytes, batches and conversations are counted."""

from dataclasses import replace

import pytest

from support.llm import answering, best, speak, tiny
from tacit.errors import ConfigError, FrameError, PartyError
from tacit.llm.permuted import Account, Ahead, Allowance, Batch, Conversation, open_vault
from tacit.llm.permuted.forecast import material_bytes

PROMPT = [1, 5, 7, 9, 3]


def test_an_account_holds_a_user_to_its_part_and_all_to_the_whole():
    pool = Account(most=100)
    first, second = (Account(most=80, pool=pool) for _ in range(2))
    first.take(70, user="alice")
    with pytest.raises(FrameError, match="is the most"):
        first.take(11, user="alice")
    with pytest.raises(FrameError, match="'bob'"):
        second.take(31, user="bob")
    assert (first.used, second.used, pool.used) == (70, 0, 70)
    second.take(30, user="bob")
    assert not second.fits(1)
    first.settle(10, user="alice")
    assert pool.used == 40
    with second.lent(5, user="bob"):
        assert second.used == 35
    second.clear()
    assert (second.used, pool.used) == (0, 10)


def test_an_allowance_of_nothing_is_refused():
    with pytest.raises(ConfigError, match="at least 1"):
        Allowance(batches=0)


def test_what_an_order_takes_is_known_before_it_is_made():
    plan = open_vault(tiny("llama", context=1 << 20, vocab=40)).plan
    small = Batch(number=0, past=0, rows=8, prompt=0, masked_kv=0, form=None)
    large = Batch(number=0, past=0, rows=1 << 16, prompt=0, masked_kv=0, form=None)
    total, largest = material_bytes(plan, small, sender="user")
    assert 0 < largest < total < 1 << 24
    with pytest.raises(FrameError, match="too much here"):
        material_bytes(plan, large, sender="user")
    with pytest.raises(FrameError, match="too much here"):
        material_bytes(plan, small, sender="user", most=100)
    wide = open_vault(tiny("llama", context=1 << 20, vocab=60_000, layers=1)).plan
    many = replace(small, rows=3000, scored=3000)
    with pytest.raises(FrameError, match="a message of that would have"):
        material_bytes(wide, many, sender="user")


def test_a_conversation_that_was_closed_makes_room_and_one_that_is_open_does_not():
    model = tiny("llama", seed=3)
    vault = open_vault(model)

    def one_after_the_other(client):
        for _ in range(3):
            answering(PROMPT, 3)(client)

    speak(model, one_after_the_other, vault=vault)
    (first, *others) = vault.conversations
    size = vault.conversations[first].cached.nbytes
    assert vault.account.used == 3 * size
    vault.account.most = 3 * size + 10
    vault.charge(11, user="user")
    assert list(vault.conversations) == others
    for kept in vault.conversations.values():
        kept.is_open = True
    with pytest.raises(FrameError, match="is the most"):
        vault.charge(size, user="user")
    vault.end()
    vault.forget()
    assert vault.account.used == 11


def test_a_session_that_breaks_leaves_nothing_open_and_is_forgotten_after_a_while():
    model = tiny("llama", seed=3)
    vault = open_vault(model)

    def break_off(client):
        tokens = Conversation(client).generate(PROMPT, best, limit=9)
        next(tokens)
        for link in client.session.links.values():
            link.close(failure=("user", "it is gone"))
        tokens.close()

    with pytest.raises(PartyError):
        speak(model, break_off, vault=vault)
    assert [kept.is_open for kept in vault.conversations.values()] == [False]
    vault.sweep()
    assert len(vault.conversations) == 1  # its user may come back
    vault.allowance = Allowance(keep_s=0)
    vault.sweep()
    assert vault.conversations == {}
    assert vault.account.used == 0


def test_many_orders_or_conversations_end_their_own_session():
    model = tiny("llama", seed=3)
    vault = open_vault(model)
    vault.allowance = Allowance(batches=2, conversations=2)
    with pytest.raises(PartyError, match="more than 2 batches without using"):
        speak(model, answering(PROMPT, 20), vault=vault, ahead=Ahead(block=1, blocks=6))

    def open_three(client):
        for _ in range(3):
            Conversation(client)
        client.session.recv("owner", "never/0", (1,))

    with pytest.raises(PartyError, match="more than 2 conversations"):
        speak(model, open_three, vault=vault)
    vault.forget()
    assert vault.account.used == 0
