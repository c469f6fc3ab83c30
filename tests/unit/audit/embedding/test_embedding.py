"""Hidden states of a cut language model give the text away, unless nothing of it is left."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

import tacit
from support.llm import ARCHITECTURES, make_model
from support.llm_reference import CONFIGS, tensors
from tacit.audit import seeded
from tacit.audit.embedding import (
    ATTACKS,
    OptimiseEmbeddings,
    TryTokens,
    add_noise,
    agreement,
    audit_hidden,
    guess_blindly,
    move,
    run_head,
    run_layers,
    score_tokens,
    see_hidden,
    sweep_depth,
    sweep_noise,
    try_tokens,
)
from tacit.audit.memorisation import see_checkpoint
from tacit.data import search_path
from tacit.errors import ConfigError, DataError
from tacit.llm import Architecture, LanguageModel, logits, open_checkpoint, shapes

VOCAB = 40


def made(family="llama", seed=0):
    is_llama = family == "llama"
    a = Architecture(
        family=family, layers=3, width=16, heads=4, kv_heads=2 if is_llama else 4, head_dim=4,
        ffn=32, vocab=VOCAB, context=32, norm="rms" if is_llama else "layer", norm_eps=1e-5,
        activation="swiglu" if is_llama else "gelu_tanh",
        positions="rotary" if is_llama else "learned", rope_theta=1e4, tied_output=False,
        has_bias=not is_llama,
    )  # fmt: skip
    g = seeded(seed)
    weights = {}
    for name, shape in shapes(a).items():
        draw = torch.randn(shape, generator=g)
        weights[name] = 1 + 0.1 * draw if "norm" in name else draw / shape[-1] ** 0.5
    weights["embed"] = torch.randn(VOCAB, 16, generator=g)
    return LanguageModel(architecture=a, weights=weights)


MODELS = [*ARCHITECTURES, *CONFIGS]


def model_of(name, folder):
    """Make a model of any architecture that is read, newer ones as checkpoints of their makers."""
    if name in ARCHITECTURES:
        return make_model(ARCHITECTURES[name])
    (folder / "config.json").write_text(json.dumps(CONFIGS[name]))
    save_file(tensors(CONFIGS[name]), folder / "model.safetensors")
    return open_checkpoint(folder).load()


IDS = torch.randint(0, VOCAB, (3, 7), generator=seeded(1))


@pytest.mark.parametrize("name", MODELS)
def test_a_cut_model_and_a_questioned_one_compute_what_the_plain_engine_computes(name, tmp_path):
    model = model_of(name, tmp_path)
    wanted = torch.stack([logits(model, ids) for ids in IDS.tolist()])
    seen = see_checkpoint(model)
    torch.testing.assert_close(seen.answer(IDS), wanted, rtol=1e-4, atol=1e-4)
    middle, _ = run_layers(model, model.weights["embed"][IDS], first=0, last=1)
    last, _ = run_layers(model, middle, first=1, last=model.architecture.layers)
    torch.testing.assert_close(run_head(model, last), wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", [one for one in MODELS if one != "chatglm"])
def test_layers_continue_from_a_past(name, tmp_path):
    model = model_of(name, tmp_path)
    x = model.weights["embed"][IDS]
    whole, _ = run_layers(model, x, first=0, last=2)
    _, past = run_layers(model, x[:, :4], first=0, last=2)
    rest, longer = run_layers(model, x[:, 4:], first=0, last=2, past=past)
    torch.testing.assert_close(rest, whole[:, 4:], rtol=1e-4, atol=1e-4)
    assert (past.length, longer.length) == (4, 7)


@pytest.mark.parametrize("name", MODELS)
def test_losses_of_a_text_do_not_see_the_token_that_they_are_of(name, tmp_path):
    """Another end of a text changes no loss before it, in ChatGLM neither."""
    model = model_of(name, tmp_path)
    seen = see_checkpoint(model)
    other = IDS.clone()
    other[:, -1] = (other[:, -1] + 1) % VOCAB
    assert torch.equal(seen.losses(IDS)[:, :-1], seen.losses(other)[:, :-1])
    assert not torch.equal(seen.losses(IDS)[:, -1], seen.losses(other)[:, -1])


def test_embeddings_are_optimised_where_a_model_looks_in_both_directions(tmp_path):
    seen = see_hidden(model_of("chatglm", tmp_path), IDS, depth=1)
    found = OptimiseEmbeddings(steps=120, fits=1e-6)(seen, generator=seeded(0))
    assert float((found == IDS).double().mean()) > 0.2  # 5 of 21 by chance: 1 in 90,000 runs
    with pytest.raises(ConfigError, match="both directions"):
        try_tokens(seen, generator=seeded(0))


@pytest.mark.parametrize("depth", [0, 1, 3])
@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_trying_tokens_recovers_every_text_at_every_depth(family, depth):
    seen = see_hidden(made(family), IDS, depth=depth)
    assert torch.equal(try_tokens(seen, generator=seeded(0)), IDS)


def test_optimised_embeddings_recover_most_tokens():
    found = audit_hidden(
        made(), IDS, "optimised", OptimiseEmbeddings(steps=120, fits=1e-6), depth=1
    )
    assert found.headline.value > 0.8
    assert found.is_found


def test_a_short_list_of_tokens_is_enough_where_the_search_comes_close():
    attack = TryTokens(tried=5, by=OptimiseEmbeddings(steps=100))
    seen = see_hidden(made(), IDS, depth=1)
    share = float((attack(seen, generator=seeded(0)) == IDS).double().mean())
    assert share > 0.8


@pytest.mark.parametrize("name", ATTACKS)
def test_no_attack_reads_a_text_that_is_not_there(name):
    """Null test: hidden states of pure noise; 21 tokens at chance 1/40 give 5 in 1 of 5000 runs."""
    attack = OptimiseEmbeddings(steps=30) if name == "optimised embeddings" else ATTACKS[name]
    seen = see_hidden(made(), IDS, depth=2, defence=_noise)
    hits = int((attack(seen, generator=seeded(3)) == IDS).sum())
    assert hits < 5


def _noise(hidden):
    return torch.randn(hidden.shape, generator=seeded(9))


def test_a_blind_guess_is_no_finding():
    ids = torch.randint(0, VOCAB, (40, 7), generator=seeded(2))
    assert not audit_hidden(made(), ids, "blind", guess_blindly, depth=1).is_found


def test_noise_costs_the_answer_and_the_attack():
    model = made()
    _, (recovered, useful) = sweep_noise(
        model, IDS, "tokens in turn", TryTokens(beams=2), depth=1, scales=(0.0, 30.0)
    )
    assert recovered.points[0] == (0.0, 1.0)
    assert recovered.points[1][1] < 0.5
    assert useful.points[0] == (0.0, 1.0)
    assert useful.points[1][1] < 0.5
    assert agreement(model, IDS, depth=1, defence=lambda h: h) == 1


def test_a_sweep_over_depth_has_a_point_per_layer():
    findings, (curve,) = sweep_depth(
        made(), IDS, attacks={"tokens in turn": try_tokens}, depths=(1, 2)
    )
    assert curve.points == ((1.0, 1.0), (2.0, 1.0))
    assert len(findings) == 2


def test_texts_and_layers_that_do_not_exist_are_refused():
    model = made()
    with pytest.raises(DataError, match="token ids"):
        see_hidden(model, torch.tensor([[VOCAB]]), depth=1)
    with pytest.raises(DataError, match="1 to 32 tokens"):
        see_hidden(model, torch.zeros(1, 33, dtype=torch.long), depth=1)
    with pytest.raises(ConfigError, match="layers lie between"):
        see_hidden(model, IDS, depth=4)
    with pytest.raises(ConfigError, match="noise"):
        add_noise(-1, generator=seeded(0))
    with pytest.raises(DataError, match="shape"):
        score_tokens("x", IDS[:1], IDS, vocab=VOCAB)


def test_a_model_moves_with_all_its_weights():
    assert {w.device.type for w in move(made(), "meta").weights.values()} == {"meta"}


@pytest.mark.data
def test_the_story_teller_gives_a_sentence_away_at_its_last_layer():
    folders = search_path(None, Path(tacit.__file__).parent, Path("nowhere"))
    found = [f / "lm_stories260k" for f in folders if (f / "lm_stories260k").is_dir()]
    if not found:
        pytest.skip(f"no lm_stories260k in any of {', '.join(map(str, folders))}")
    checkpoint = open_checkpoint(found[0])
    model, tokenizer = checkpoint.load(), checkpoint.tokenizer()
    text = "Once upon a time, Lily hid a red key."
    ids = torch.tensor([tokenizer.encode(text)])
    seen = see_hidden(model, ids, depth=model.architecture.layers)
    guess = TryTokens(beams=1)(seen, generator=seeded(0))
    assert tokenizer.decode(guess[0].tolist()) == text
