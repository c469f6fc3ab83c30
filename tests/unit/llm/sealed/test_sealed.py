"""Sealed inference against the plain model, all parties in this process."""

import pytest
import torch

from support.llm import ERROR, FAMILIES, MEETING, OLDER, as_user, plainly, say, tiny
from support.mpc import ALICE, BOB, simulate
from tacit import ring
from tacit.errors import ConfigError, DataError, DisagreementError, FrameError, RangeError
from tacit.llm import Cache, LanguageModel, PlainBackend, Sampling, logits, next_logits
from tacit.llm.model import folding
from tacit.llm.sealed import (
    Pass,
    SealedClient,
    SealedMemory,
    open_sealed_vault,
    plan_passes,
    serve_sealed_dealer,
    serve_sealed_owner,
    table,
)
from tacit.llm.sealed.bounds import mixed_bits, names, stream_bits, weight_shapes
from tacit.llm.sealed.choosing import check_wish, wish
from tacit.llm.sealed.passes import PASS_WORDS, read_pass
from tacit.llm.sealed.table import Table
from tacit.mpc import EncodedInput, OpeningCache, cache
from tacit.mpc.arithmetic import weights
from tacit.mpc.material import dealer
from tacit.party import run_threads
from tacit.ring import Factor, Prg


@pytest.mark.parametrize("family", FAMILIES)
def test_scores_are_those_of_the_plain_model_within_the_stated_error(family):
    model = tiny(family, seed=2, layers=1)
    seen = []

    def talk(client):
        original = client._table.compute

        def listening(order, inputs, kept):
            outcome = original(order, inputs, kept)
            seen.append(outcome.shown[0])
            return outcome

        client._table.compute = listening
        return say(client, SealedMemory(), [1, 5, 7, 9], 2)

    said, _ = as_user(model, talk, reveal="scores")
    cache, fresh = Cache(), [1, 5, 7, 9]
    for scores, token in zip(seen, said, strict=True):
        wanted = next_logits(model, fresh, cache).double()
        assert float((scores - wanted).abs().max()) < ERROR
        fresh = [token]


@pytest.mark.parametrize("family", OLDER)
def test_greedy_tokens_are_the_plain_ones_turn_after_turn(family):
    model = tiny(family, seed=2, layers=1)

    def talk(client):
        memory = SealedMemory()
        first = say(client, memory, [1, 5, 7], 3)
        memory.rewind(2)
        if family == "chatglm":
            memory.rewind(0)
            return first, say(client, memory, [1, 5, 9], 2)
        return first, say(client, memory, [9], 2)

    (first, second), _ = as_user(model, talk)
    assert first == plainly(model, [1, 5, 7], 3)
    assert second == plainly(model, [1, 5, 9], 2)


def test_a_long_prompt_is_read_in_chunks(monkeypatch):
    monkeypatch.setattr("tacit.llm.sealed.talk.CHUNK", 2)
    model = tiny("llama", seed=2)
    said, leaks = as_user(model, lambda client: say(client, SealedMemory(), [1, 5, 7, 9, 3], 2))
    assert said == plainly(model, [1, 5, 7, 9, 3], 2)
    outputs = [leak for leak in leaks if leak.kind == "output"]
    assert [leak.elements for leak in outputs if "token" in leak.what] == [2]


def test_an_owner_that_kept_a_conversation_goes_on_with_it_in_another_session():
    model = tiny("llama", seed=2, layers=1)
    vault, memory = open_sealed_vault(model), SealedMemory()
    first, _ = as_user(model, lambda client: say(client, memory, [1, 5, 7], 2), vault=vault)
    second, _ = as_user(model, lambda client: say(client, memory, first[-1:], 2), vault=vault)
    assert [*first, *second] == plainly(model, [1, 5, 7], 4)


def test_an_owner_that_forgot_a_conversation_says_so():
    model = tiny("llama", layers=1)
    memory = SealedMemory()
    as_user(model, lambda client: say(client, memory, [1, 5], 1))
    with pytest.raises(DisagreementError, match="begin anew"):
        as_user(model, lambda client: say(client, memory, [3], 1))


def test_an_owner_forgets_what_was_taken_back_even_if_the_pass_breaks(monkeypatch):
    model = tiny("llama", layers=1)
    vault, memory = open_sealed_vault(model), SealedMemory()
    as_user(model, lambda client: say(client, memory, [1, 5, 7, 9], 1), vault=vault)
    memory.rewind(2)

    compute = Table.compute

    def breaks_at_the_owner(table, *rest):
        # Not at the user: it would be gone before the owner has heard what is taken back.
        if table.session.me == "owner":
            raise DataError("the link is gone")
        return compute(table, *rest)

    monkeypatch.setattr(Table, "compute", breaks_at_the_owner)
    with pytest.raises(DataError, match="gone"):
        as_user(model, lambda client: say(client, memory, [3], 1), vault=vault)
    (kept,) = vault.conversations.values()
    assert kept.length == 2


def test_two_conversations_do_not_mix():
    model = tiny("llama", seed=1, layers=1)

    def talk(client):
        one, other = SealedMemory(), SealedMemory()
        first, second = say(client, one, [1, 5], 1), say(client, other, [9, 8], 1)
        return first + say(client, one, first, 1), second + say(client, other, second, 1)

    (first, second), _ = as_user(model, talk)
    assert first == plainly(model, [1, 5], 2)
    assert second == plainly(model, [9, 8], 2)


def penalised(model, ids, limit, penalty):
    """Answer greedily in the clear with a penalty."""
    said, cache, fresh = list(ids), Cache(), list(ids)
    for _ in range(limit):
        scores = next_logits(model, fresh, cache).double()
        index = torch.tensor(sorted(set(said)))
        seen = scores[index]
        scores[index] = torch.where(seen > 0, seen / penalty, seen * penalty)
        fresh = [int(scores.argmax())]
        said += fresh
    return said[len(ids) :]


def test_a_penalty_works_although_nobody_sees_a_score():
    model = tiny("llama", seed=3, layers=1)
    said, _ = as_user(
        model, lambda client: say(client, SealedMemory(), [1, 5], 4, repetition_penalty=3.0)
    )
    assert said == penalised(model, [1, 5], 4, 3.0) != plainly(model, [1, 5], 4)


def test_noise_and_slopes_draw_from_the_softmax_of_penalised_scores():
    """A chance below 1e-6 of failing: 5,000 draws, five standard deviations for each token."""
    scores = torch.tensor([1.0, 0.5, -0.5, -1.0, 2.0], dtype=torch.float64)
    sampling = Sampling(temperature=0.7, repetition_penalty=1.5)
    prg, counts = Prg(b"n" * 16), torch.zeros(5)
    for _ in range(5_000):
        got = wish(sampling, prg, earlier=[0, 3], vocab=5)
        slopes = got["slopes"]
        sums = slopes[0] * scores + slopes[1] * scores.relu() + got["noise"][0]
        counts[int(sums.argmax())] += 1
    adjusted = torch.tensor([1.0 / 1.5, 0.5, -0.5, -1.5, 2.0], dtype=torch.float64)
    odds = (adjusted / 0.7).softmax(0)
    spread = (odds * (1 - odds) / 5_000).sqrt()
    assert bool(((counts / 5_000 - odds).abs() < 5 * spread).all())


def test_the_same_wish_is_as_wide_as_any_other_so_the_owner_cannot_tell_them_apart():
    prg = Prg(b"n" * 16)
    plain = wish(Sampling(), prg, earlier=[], vocab=7)
    other = wish(Sampling(temperature=2.0, repetition_penalty=8.0), prg, earlier=[1], vocab=7)
    assert {name: value.shape for name, value in plain.items()} == {
        name: value.shape for name, value in other.items()
    }


@pytest.mark.parametrize(
    ("sampling", "words"),
    [
        ({"temperature": 1.0, "top_k": 3}, "--reveal scores"),
        ({"temperature": 1.0, "top_p": 0.5}, "--reveal scores"),
        ({"temperature": 3.0}, "at most 2"),
        ({"repetition_penalty": 9.0}, "from 0.125 to 8"),
    ],
)
def test_what_needs_the_scores_is_refused_by_name(sampling, words):
    with pytest.raises(ConfigError, match=words):
        check_wish(Sampling(**sampling))


def test_a_user_who_is_shown_scores_samples_as_in_the_clear():
    model = tiny("llama", seed=3, layers=1)
    how = {"temperature": 0.9, "top_k": 5, "top_p": 0.9, "repetition_penalty": 1.3, "seed": 4}
    said, leaks = as_user(
        model, lambda client: say(client, SealedMemory(), [1, 5], 3, **how), reveal="scores"
    )
    plain = PlainBackend(model).speak([1, 5], sampling=Sampling(**how), limit=3)
    assert said == list(plain)
    assert any(leak.to == "user" and "scores" in leak.what for leak in leaks)


def test_the_ledger_lists_tokens_sizes_and_bounds_and_nothing_else():
    model = tiny("llama", layers=1)
    _, leaks = as_user(model, lambda client: say(client, SealedMemory(), [1, 5, 7], 2))
    assert {(leak.to, leak.kind, leak.elements) for leak in leaks} == {
        ("user", "output", 2),
        ("user", "output", 4),  # of both passes: rows out of range, rows that saturated
        ("user", "protocol", 2),  # comparisons that it might have chosen
        ("user", "protocol", len(names(model.architecture))),
        ("dealer", "protocol", len(names(model.architecture))),
        ("user", "protocol", 1),  # by how much streams are enlarged
        ("dealer", "protocol", 1),
        ("owner", "size", 4),
        ("dealer", "size", 4),
    }


def test_no_weight_and_no_word_is_printed():
    """What a notebook or a log shows of a vault and of a conversation."""
    vault, memory = open_sealed_vault(tiny("llama", layers=1)), SealedMemory()
    memory.read += [31, 17]
    assert "tensor" not in repr(vault)
    assert "tensor" not in repr(vault.weights["output.weight"])
    assert "31, 17" not in repr(memory)


def test_parties_that_would_show_different_things_do_not_begin():
    model = tiny("llama", layers=1)
    with pytest.raises(DisagreementError):
        run_threads(
            {
                "owner": lambda s: serve_sealed_owner(s, open_sealed_vault(model)),
                "user": lambda s: SealedClient(s, model.architecture, reveal="scores"),
                "dealer": lambda s: serve_sealed_dealer(s, model.architecture),
            },
            MEETING,
        )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([3, 0, 0, 0, 1, 0], "0 tokens after 0"),
        ([3, 60, 8, 0, 1, 0], "8 tokens after 60"),
        ([3, -1, 2, 0, 1, 0], "2 tokens after -1"),
        ([3, 0, 2, 0, 7, 0], "2 tokens"),
        ([3, 0, 4, 3, 1, 0], "4 tokens"),
        ([3, 62, 2, 0, 1, 1], "2 tokens after 62"),  # orders one more than there is room for
        ([3, 0, 2, 0, 1, 2], "2 tokens"),
    ],
)
def test_a_pass_that_the_model_cannot_do_is_refused(words, message):
    with pytest.raises(FrameError, match=message):
        read_pass(torch.tensor(words), sender="user", architecture=tiny("llama").architecture)


def test_a_pass_survives_its_journey():
    order = Pass(conversation=2**61, past=4, rows=2, prompt=0, is_scored=True, expects_next=True)
    words = order.words()
    assert len(words) == PASS_WORDS
    assert read_pass(words, sender="user", architecture=tiny("llama").architecture) == order


@pytest.mark.parametrize(
    ("ids", "words"), [([], "at least one"), ([99], "between 0"), ([1] * 65, "too long")]
)
def test_what_cannot_be_read_is_refused_before_anything_is_sent(ids, words):
    def talk(client):
        with pytest.raises(DataError, match=words):
            say(client, SealedMemory(), ids, 1)

    as_user(tiny("llama", layers=1), talk)


@pytest.mark.parametrize("family", FAMILIES)
def test_no_value_of_a_long_random_text_exceeds_its_bound(family):
    model = tiny(family, seed=7)
    vault = open_sealed_vault(model)
    a, bounds = vault.architecture, vault.bounds
    assert set(weight_shapes(a)) <= set(bounds) == set(names(a))
    for name, kept in vault.weights.items():
        values = (
            kept.words.double() * 2.0**-kept.frac_bits if isinstance(kept, EncodedInput) else kept
        )
        assert float(values.abs().max()) <= bounds[name]
    ids = torch.randint(0, a.vocab, (60,), generator=torch.Generator().manual_seed(1)).tolist()
    assert float(logits(model, ids).abs().max()) <= bounds["logits"]


def words(values):
    """Encode as an owner always did: a float of the checkpoint's precision, 16 fraction bits."""
    return torch.round(values.float().double() * 2.0**16).long()


def test_an_owner_keeps_the_words_of_its_floats_and_each_once(monkeypatch):
    monkeypatch.setattr(folding, "_PANEL_BYTES", 8 * 40)
    monkeypatch.setattr(ring.narrow, "PANEL_BYTES", 8 * 40)
    model = tiny("llama", seed=3)
    w, vault = {name: one.double() for name, one in model.weights.items()}, open_sealed_vault(model)
    a, scale = model.architecture, 2.0**vault.gain
    q = a.query_scale * w["layers.1.q.weight"]
    qkv = torch.cat([q, w["layers.1.k.weight"], w["layers.1.v.weight"]])
    wanted = {
        "embed": scale * w["embed"],
        "1.qkv.weight": (qkv * w["layers.1.norm1.weight"]).T,
        "1.down.weight": scale * w["layers.1.down.weight"].T,
        "output.weight": (w["output.weight"] * w["norm.weight"]).T,
    }
    for name, values in wanted.items():
        assert torch.equal(vault.weights[name].words.long(), words(values)), name
    assert {one.words.dtype for one in vault.weights.values()} <= {torch.int16, torch.int32}
    assert vault.for_user().weights is vault.weights


def test_behind_a_pass_weights_take_4_8_and_no_bytes_at_the_three(monkeypatch):
    caches = []

    class Noted(OpeningCache):
        def __init__(self, **more):
            super().__init__(**more)
            caches.append(self)

    monkeypatch.setattr(table, "OpeningCache", Noted)
    monkeypatch.setattr(cache, "REMEMBERED_BYTES", 0)
    monkeypatch.setattr(cache, "ALL_WEIGHTS_BYTES", 0)
    monkeypatch.setattr(dealer, "_LARGE_BYTES", 0)
    model = tiny("llama", seed=3)
    vault = open_sealed_vault(model)
    said, _ = as_user(model, lambda client: say(client, SealedMemory(), [1, 5, 7], 3), vault=vault)
    assert said == plainly(model, [1, 5, 7], 3)
    names = weight_shapes(model.architecture)
    count = sum(torch.Size(shape).numel() for shape in names.values())
    sizes = []
    for one in caches:
        kept = {
            tensor.data_ptr(): tensor.nbytes
            for opening in one._openings.values()
            for tensor in (opening.opened, opening.clear, opening.mask_share)
            if tensor is not None
        }
        masks = [part.nbytes for pair in one._masks.values() for part in pair if part is not None]
        sizes.append(sum(kept.values()) + sum(masks))
    assert sorted(sizes)[0] == 0
    assert sorted(sizes)[1] <= 4 * count
    assert sorted(sizes)[2] == 8 * count


def test_a_stream_with_one_huge_entry_is_brought_down_and_not_cut_off():
    """As models have it at their first token: one feature a thousand times as large as the rest."""
    model = tiny("llama", seed=2, layers=1)
    model.weights["embed"][:, 3] = 3000.0
    said, _ = as_user(model, lambda client: say(client, SealedMemory(), [1, 5, 7], 3))
    assert said == plainly(model, [1, 5, 7], 3)


def with_bounds(layers, bounds):
    """Make a vault whose layers have the bounds of the first, and these."""
    vault = open_sealed_vault(tiny("llama", seed=2, layers=layers))
    found, usual = vault.bounds, {"norm1": 64.0, "norm2": 64.0}
    first = {name[2:]: most for name, most in found.items() if name.startswith("0.")}
    shared = {name: most for name, most in first.items() if "weight" not in name} | usual | bounds
    found |= {f"{i}.{name}": most for i in range(layers) for name, most in shared.items()}
    return vault


def rounds_of_a_layer(bounds, *, past=4):
    """Plan a token behind a few, of two layers and of four: who is ahead changes with each."""
    facts = {"conversation": 0, "prompt": 0, "is_scored": True}
    steps = [Pass(past=0, rows=4, **facts), Pass(past=past, rows=1, **facts)]
    few, more = (
        plan_passes(with_bounds(layers, bounds), steps)[1].cost.online_rounds for layers in (2, 4)
    )
    return (more - few) / 2


@pytest.mark.parametrize(
    ("bounds", "rounds"),
    [
        ({"scores": 256.0}, 27),
        ({"scores": 2.0**13}, 27),
        ({"scores": 2.0**14}, 28),
        ({"scores": 256.0, "fed": 2.0**15}, 27),
        ({"scores": 256.0, "fed": 2.0**21}, 29),
    ],
)
def test_where_values_can_be_large_a_layer_takes_more_rounds_and_says_the_same(bounds, rounds):
    assert rounds_of_a_layer(bounds) == rounds
    model = tiny("llama", seed=2, layers=2)
    larger = open_sealed_vault(model)
    larger.bounds |= {f"{i}.{name}": most for i in range(2) for name, most in bounds.items()}
    said, _ = as_user(model, lambda client: say(client, SealedMemory(), [1, 5, 7], 3), vault=larger)
    assert said == plainly(model, [1, 5, 7], 3)


LARGE = {"scores": 256.0, "fed": 2.0**17}
"""Bounds that leave 26 fraction bits to what goes into the stream of four layers."""


def test_a_long_text_of_large_values_takes_a_round_more():
    assert [rounds_of_a_layer(LARGE, past=past) for past in (120, 300)] == [27, 28]


@pytest.mark.parametrize("keys", [128, 1500])
def test_the_average_of_many_keys_is_right_where_values_can_be_large(keys):
    """All are alike, so that what it is divided by is small: 13 bits of it were 6 % off."""
    vault = with_bounds(4, LARGE)
    stream = stream_bits(vault.architecture, vault.bounds)
    assert stream == 26
    values = torch.full((keys, 2), 3.0).double()

    def program(ops):
        scores = ops.input("scores", owner=ALICE, shape=(1, keys), bound=8.0)
        mine = ops.scale(ops.input("values", owner=BOB, shape=(keys, 2), bound=4.0), 1.0)
        seen, bits = torch.ones(1, keys, dtype=torch.bool), mixed_bits(stream, keys)
        mixed = ops.attention_mixed(scores, seen, lambda: mine, frac_bits=bits)
        return ops.open(mixed, to=(ALICE,), what="mixed", why="test")

    inputs = {ALICE: {"scores": torch.zeros(1, keys).double()}, BOB: {"values": values}}
    found = simulate(program, inputs=inputs).values[ALICE]
    assert (found - 3.0).abs().max() < 0.04


STRANGE = 6
"""A token that no probe of these small models reads."""


def with_embedding(factor):
    """Make a model in which the rows of one token are by so much longer than all others."""
    model = tiny("llama", layers=1)
    embed = model.weights["embed"].clone()
    embed[STRANGE] *= factor
    return LanguageModel(architecture=model.architecture, weights={**model.weights, "embed": embed})


@pytest.mark.parametrize("factor", [2.0**10, 2.0**-14])
def test_a_row_out_of_the_measured_range_is_refused_and_not_read(factor):
    model = with_embedding(factor)
    assert STRANGE not in (torch.arange(1, 32) * 7919 % model.architecture.vocab).tolist()

    def talk(client):
        memory = SealedMemory()
        first = say(client, memory, [1, 5], 1)
        length = len(memory.read)
        with pytest.raises(RangeError, match="longer or shorter"):
            say(client, memory, [*first, STRANGE, 2], 2)
        assert len(memory.read) == length  # the pass is gone, and the conversation goes on
        return [*first, *say(client, memory, first, 1)]

    said, _ = as_user(model, talk)
    assert said == list(PlainBackend(model).speak([1, 5], sampling=Sampling(), limit=2))


def test_with_a_probe_of_its_own_such_a_row_is_right():
    model = with_embedding(2.0**10)
    ids = [1, STRANGE, 5]
    vault = open_sealed_vault(model, probes=[ids])
    said, _ = as_user(model, lambda client: say(client, SealedMemory(), ids, 2), vault=vault)
    assert said == list(PlainBackend(model).speak(ids, sampling=Sampling(), limit=2))


def test_rows_of_scores_that_saturate_are_counted():
    model = tiny("llama", layers=1)
    loud = {
        name: weight * 6.0 if name.endswith((".q.weight", ".k.weight")) else weight
        for name, weight in model.weights.items()
    }

    def talk(client):
        say(client, SealedMemory(), [1, 5, 7, 9], 1)
        return client.saturated

    assert as_user(model, talk)[0] == 0
    strange = LanguageModel(architecture=model.architecture, weights=loud)
    assert as_user(strange, talk)[0] > 0


def test_weights_that_are_prepared_for_an_accelerator_give_the_same_scores(monkeypatch):
    model = tiny("llama", seed=2, layers=1)

    def tokens(client):
        return say(client, SealedMemory(), [1, 2, 3], 4)

    plain, _ = as_user(model, tokens)
    prepared: list[tuple[int, int]] = []

    def prepare(words):
        prepared.append(tuple(words.shape))
        return Factor(tuple(words.shape), words, None)

    monkeypatch.setattr(weights, "is_prepared", lambda shape, device: len(shape) == 2)
    monkeypatch.setattr(dealer, "is_prepared", lambda shape, device: len(shape) == 2)
    monkeypatch.setattr("tacit.ring.prepare", prepare)
    assert as_user(model, tokens)[0] == plain
    # Owner and user prepare every matrix once; the dealer for the first pass, and for all others.
    assert {prepared.count(shape) % 4 for shape in prepared} == {0}
