"""The small parts: short words, PRF streams, permutations, precisions, tables, weights."""

import os
import sys
import threading

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from support.llm import BRIEF, FAMILIES, MEETING, answering, plainly, speak, tiny
from tacit.errors import ConfigError, DisagreementError, FrameError
from tacit.llm.model import folding
from tacit.llm.permuted import (
    FORMS,
    Batch,
    Client,
    Network,
    Precision,
    Seats,
    choose_form,
    leaks,
    open_vault,
    serve_dealer,
    serve_owner,
    setup,
)
from tacit.llm.permuted.batch import read_batch
from tacit.llm.permuted.blueprint import Blueprint
from tacit.llm.permuted.crew import step_back
from tacit.llm.permuted.exchange import Exchange, ShownValue
from tacit.llm.permuted.geometry import KvCache
from tacit.llm.permuted.masks import drop_bits
from tacit.llm.permuted.messages import Item, join, pack, split, sum_bytes, unpack
from tacit.llm.permuted.prf_stream import (
    PrfStream,
    deal_pads,
    pad_table,
    pads,
    picks,
    shift_of,
    unpad,
)
from tacit.llm.permuted.setup import KeptConversation
from tacit.llm.permuted.weights import drawn_masks, encode_model, fold, matrices
from tacit.party import run_threads
from tacit.ring import Prg, encode, narrowed


@given(st.integers(1, 8), st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=9))
def test_words_of_few_bytes_add_as_they_should(nbytes, values):
    words = torch.tensor(values)
    modulus = 1 << (8 * nbytes)
    packed = pack(words, nbytes)
    assert packed.shape == (len(values) * nbytes,)
    back = unpack(packed, nbytes)
    assert [(int(a) - b) % modulus for a, b in zip(back, values, strict=True)] == [0] * len(values)
    assert int(back.abs().max()) <= modulus // 2 or nbytes == 8


def test_words_may_start_anywhere_in_a_message():
    words = torch.tensor([1, -2, 3])
    for nbytes in range(1, 9):
        message = torch.cat([torch.zeros(3, dtype=torch.uint8), pack(words, nbytes)])
        assert unpack(message[3:], nbytes).tolist() == [1, -2, 3]


@given(st.lists(st.tuples(st.integers(1, 8), st.integers(0, 5)), min_size=1, max_size=4))
def test_a_message_of_several_tensors_comes_apart_as_it_was_put_together(sizes):
    items = [Item((rows, 3), nbytes) for nbytes, rows in sizes]
    parts = [torch.arange(rows * 3).view(rows, 3) - 4 for _, rows in sizes]
    octets = join(parts, items)
    assert len(octets) == sum_bytes(items)
    for part, back in zip(parts, split(octets, items), strict=True):
        assert torch.equal(part, back)


@given(st.integers(1, 30), st.integers(0, 2**32), st.floats(-500, 500))
def test_a_shown_wire_is_rounded_up_or_down_and_never_wraps(drop, seed, value):
    """Both shares lose their low bits; what is left differs from the value by one at most."""
    reveal = ShownValue("x", 8, "x", 34, nbytes=-(-(34 + 12 - drop) // 8), drop=drop)
    exchange = Exchange("e", (reveal,), ())
    word = round(value * 2**34)
    share = torch.randint(-(2**63), 2**63 - 1, (1, 8), generator=torch.manual_seed(seed))
    user, owner = PrfStream(Prg(b"u" * 16)), PrfStream(Prg(b"o" * 16))
    orders = exchange.permutations(owner, 1)
    look = exchange.look(orders, exchange.deal(user, orders, [share], 1))
    shown = exchange.show(look, [word - share])
    (seen,) = exchange.see(exchange.reveal_mask(user, 1), shown)
    assert all(abs(int(one) - word / 2**drop) <= 1 for one in seen[0])


def test_long_rows_are_put_in_order_as_short_ones_are():
    keys = PrfStream(Prg(b"c" * 16)).words("x", 2, 40_000)
    drawn = PrfStream(Prg(b"c" * 16)).shuffles("x", 2, 40_000)
    assert torch.equal(drawn, keys.argsort(1))


def test_an_owner_forgets_what_was_closed_longest_ago():
    vault = open_vault(tiny("llama"))
    vault.most_closed = 2
    kept = [KeptConversation(b"k" * 16, KvCache(1, vault.plan.heads)) for _ in range(5)]
    for number, one in enumerate(kept):
        vault.keep(number, one)
    for one in kept[:4]:
        one.is_open = False
    vault.keep(1, kept[1])
    assert list(vault.conversations) == [2, 3, 4, 1]


def test_two_tapes_of_one_key_draw_the_same_whether_they_keep_or_not():
    first, second = PrfStream(Prg(b"a" * 16)), PrfStream(Prg(b"a" * 16), keeps=True)
    for _ in range(2):
        assert torch.equal(first.words("x", 3, 4), second.words("x", 3, 4))
        assert torch.equal(first.shuffles("y", 3, 9), second.shuffles("y", 3, 9))
    assert not torch.equal(first.words("x", 3, 4), first.words("z", 3, 4))


def test_orders_within_rows_put_what_exists_first():
    valid = torch.ones(5, 7, dtype=torch.bool).tril(2)
    drawn = PrfStream(Prg(b"b" * 16)).shuffles_within("keys", 3, valid)
    for row in range(5):
        count = int(valid[row].sum())
        for head in range(3):
            assert sorted(drawn[row, head, :count].tolist()) == list(range(count))


@pytest.mark.parametrize(
    ("bits", "message"),
    [
        ({"weight": 3}, "weight must be between 4 and 32"),
        ({"weight": 24}, "raw values would have"),
        ({"activation": 12, "weight": 16, "skip": 30}, "skip must not be above 28"),
    ],
)
def test_bits_that_do_not_fit_are_refused(bits, message):
    with pytest.raises(ConfigError, match=message):
        Precision(**bits)


def test_only_norms_without_a_bias_are_merged():
    assert Blueprint(tiny("llama").architecture, BRIEF).is_merged
    assert not Blueprint(tiny("llama").architecture, Precision()).is_merged
    assert not Blueprint(tiny("gpt2").architecture, BRIEF).is_merged


def test_only_norms_with_a_bias_keep_queries_from_the_user():
    assert not Blueprint(tiny("llama").architecture, BRIEF).is_lean
    assert not Blueprint(tiny("gpt2").architecture, Precision()).is_lean
    plan = Blueprint(tiny("gpt2").architecture, BRIEF)
    assert plan.is_lean
    assert [one.name for one in plan.project(0).reveals] == ["x"]
    assert not any("queries" in leak.what for leak in leaks(plan, STEP, 0, Seats()))


STEP = Batch(number=1, past=5, rows=1, prompt=0, masked_kv=5, form="incremental")


@given(st.integers(-(2**30), 2**30), st.integers(0, 2**64 - 1), st.integers(1, 30))
def test_shares_without_their_low_bits_are_off_by_less_than_one(value, mask, bits):
    signed = mask - 2**64 if mask >= 2**63 else mask
    user, owner = torch.tensor([signed]), torch.tensor([value]) - torch.tensor([signed])
    dropped = (owner >> bits) + drop_bits(user, bits)
    left = int((dropped << bits) >> bits)  # the ring is smaller by as many bits
    assert abs(left - value / 2**bits) < 1 + 2**-20


def test_the_default_precision_has_room_for_streams_of_tens_of_thousands():
    plan = Blueprint(tiny("llama").architecture, Precision())
    for exchange in (plan.project(1), plan.middle(1), plan.score()):
        stream, *products = exchange.reveals
        assert 2 ** (8 * stream.nbytes - 3 - stream.seen_bits) >= 32_000
        for one in products:
            assert 2 ** (8 * one.nbytes - 3 - one.seen_bits) >= 16_000


def test_an_order_survives_its_journey():
    batch = Batch(number=3, past=4, rows=5, prompt=1, masked_kv=2, form="resent")
    assert (
        read_batch(batch.words(), sender="user", architecture=tiny("llama").architecture) == batch
    )


@pytest.mark.parametrize(
    "change", [{"rows": 0}, {"past": 60, "rows": 5}, {"masked_kv": 9}, {"past": -1}, {"scored": 7}]
)
def test_an_order_that_the_model_cannot_do_is_refused(change):
    fields = {"number": 0, "past": 4, "rows": 5, "prompt": 0, "masked_kv": 2, "form": "resent"}
    batch = Batch(**(fields | change))
    with pytest.raises(FrameError, match="cannot do"):
        read_batch(batch.words(), sender="user", architecture=tiny("llama").architecture)


@given(st.integers(0, 39), st.integers(0, 2))
def test_a_table_gives_the_token_at_the_place(place, run):
    user, owner = PrfStream(Prg(b"u" * 16)), PrfStream(Prg(b"o" * 16))
    order = torch.randperm(40, generator=torch.Generator().manual_seed(place))
    shift = shift_of(place, int(picks(user, 3, 40)[run]), 40)
    message = pad_table(order, pads(owner, 3, 40)[run], shift)
    pad = int(deal_pads(user, owner, 3, 40)[run])
    assert unpad(message, place, pad) == int(order[place])


@pytest.mark.parametrize("family", FAMILIES)
def test_every_matrix_is_there_and_masked_by_the_key(family):
    model = tiny(family)
    ring = encode_model(model, Precision())
    masks = drawn_masks(model.architecture, b"m" * 16)
    for matrix in matrices(model.architecture):
        assert ring.words[matrix.name].shape == matrix.shape == masks[matrix.name].words().shape
    again = drawn_masks(model.architecture, b"m" * 16)["embed"]
    assert torch.equal(masks["embed"].words(), torch.cat(list(again.panels(8 * 64))))


@pytest.mark.parametrize("family", FAMILIES)
def test_words_are_narrow_and_those_of_the_whole_matrix(monkeypatch, family):
    monkeypatch.setattr(folding, "_PANEL_BYTES", 8 * 40)
    model, precision = tiny(family), Precision()
    found, plan = encode_model(model, precision), Blueprint(model.architecture, precision)
    for matrix in matrices(model.architecture):
        values, bias, bits = fold(model, matrix, plan)
        scale = precision.stream if matrix.name == "embed" else precision.weight
        words = found.words[matrix.name]
        assert torch.equal(words.long(), encode(values, frac_bits=scale).t())
        assert words.dtype == narrowed(words.long()).dtype != torch.int64 or matrix.name == "embed"
        if bias is not None:
            assert torch.equal(found.biases[matrix.name], encode(bias, frac_bits=bits))


@pytest.mark.parametrize("family", ["llama", "chatglm"])
def test_a_dealer_that_keeps_no_masks_deals_the_same(monkeypatch, family):
    model, ids = tiny(family), [1, 5, 7]
    monkeypatch.setattr(setup, "KEPT_BYTES", 0)
    monkeypatch.setattr(setup, "_PART_BYTES", 8 * 100)
    said = speak(model, answering(ids, 4))
    assert said.value == plainly(model, ids, 4)


def test_two_vaults_of_one_model_have_masks_of_their_own():
    model = tiny("llama")
    assert open_vault(model).fingerprint() != open_vault(model).fingerprint()


@pytest.mark.parametrize(
    ("network", "form"),
    [
        (Network(rtt_ms=200, mbit_per_s=10_000), "resent"),
        (Network(rtt_ms=0, mbit_per_s=1), "incremental"),
    ],
)
def test_a_slow_line_saves_bytes_and_a_long_one_saves_messages(network, form):
    plan = Blueprint(tiny("gpt2", context=2048).architecture, Precision())
    assert choose_form(plan, network, past=1000, rows=8, masked_kv=1000) == form


def test_a_network_without_bandwidth_is_refused():
    with pytest.raises(ConfigError, match="mbit_per_s > 0"):
        Network(mbit_per_s=0)


def test_three_seats_need_three_parties():
    with pytest.raises(ConfigError, match="three parties"):
        Seats(owner="a", user="a")


@pytest.mark.parametrize("form", FORMS)
def test_the_ledger_names_what_permutation_shows_and_counts_it(form):
    plan, seats = Blueprint(tiny("llama").architecture, Precision()), Seats()
    batch = Batch(number=1, past=5, rows=2, prompt=0, masked_kv=5, form=form)
    found = leaks(plan, batch, 0, seats)
    by_user = {leak.what.split(",")[0]: leak.elements for leak in found if leak.to == "user"}
    assert by_user == {
        "inputs of both norms": 2 * 2 * 16 + 16,
        "queries": 2 * (16 + 2 * 8),
        "attention scores of each layer": 2 * 4 * 6,
        "inputs of the activation of each layer": 2 * 2 * 24,
        "scores of every token": 40,
    }
    assert {leak.kind for leak in found if leak.to != "user"} == {"size"}


def test_the_ledger_says_what_norms_of_heads_and_behind_attention_show():
    plan = Blueprint(tiny("gemma3").architecture, Precision())
    batch = Batch(number=1, past=9, rows=1, prompt=0, masked_kv=9, form="resent")
    first, second, third, *_ = leaks(plan, batch, 0, Seats())
    assert first.what.startswith("inputs of all norms")
    assert first.elements == 2 * 4 * 16 + 16
    assert second.what.endswith("heads together, with and without the weights of their norms")
    assert second.elements == 2 * (2 * 16 + 3 * 8)
    assert third.elements == 4 * (4 + 10)  # a local layer sees four keys


@pytest.mark.parametrize("counts", [False, True])
def test_the_ledger_says_what_a_cheating_user_gets_out_of_counts(counts):
    plan = Blueprint(tiny("llama").architecture, Precision(), counts=counts)
    found = [leak for leak in leaks(plan, STEP, 0, Seats()) if "cheating user" in leak.what]
    assert [leak.elements for leak in found] == [40] * counts


def test_parties_with_other_precisions_do_not_begin():
    model = tiny("llama")
    with pytest.raises(DisagreementError, match="another model"):
        run_threads(
            {
                "owner": lambda session: serve_owner(session, open_vault(model)),
                "user": lambda session: Client(session, model.architecture, precision=BRIEF),
                "dealer": lambda session: serve_dealer(session, model.architecture),
            },
            MEETING,
        )


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has priorities of threads")
def test_a_thread_that_works_ahead_steps_back_alone():
    found = []

    def work():
        step_back()
        found.append(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))

    before = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert os.getpriority(os.PRIO_PROCESS, threading.get_native_id()) == before
    assert found == [min(19, before + 5)]
