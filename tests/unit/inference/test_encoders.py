"""Encoders made private: a small BERT every day, and a real one where its weights are at hand."""

import pytest
import torch
from torch import nn
from torch.nn import functional

import tacit
from support.models import MINILM, minilm, small_bert
from support.mpc import PATIENCE
from tacit.errors import DataError, DisagreementError
from tacit.inference import Crew
from tacit.inference.secured import INPUT
from tacit.mpc import PROTOCOLS, primitives
from tacit.mpc.functions import attention as functions_attention
from tacit.party import Meeting, run_threads, without_setup

TEXTS = (
    "The patient reports chest pain after exercise.",
    "Thoracic pain on exertion since last week.",
    "The invoice was paid in March.",
)


def ids_of(tokens=9, *, vocab=50):
    return torch.randint(0, vocab, (1, tokens), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_private_encoder_says_what_the_plain_one_says(protocol):
    model, ids = small_bert(), ids_of()
    private = tacit.secure(model, protocol=protocol)
    answer = private(ids)
    assert (answer.values - model(ids)).abs().max() < 3e-3
    assert without_setup(answer.cost) == private.forecast((1, 9)).cost
    assert not any("saturate" in note for note in answer.result.notes)


def test_a_layer_of_an_encoder_takes_few_rounds():
    rounds = [
        tacit.secure(small_bert(layers=layers)).forecast((1, 9)).cost.online_rounds
        for layers in (2, 3)
    ]
    assert rounds[1] - rounds[0] <= 41


def test_many_scores_are_compared_instead_of_counted_and_the_answer_stays(monkeypatch):
    """As for 128 tokens, where the dealer's bytes cost more than rounds."""
    model, ids = small_bert(), ids_of()
    few = tacit.secure(model).forecast((1, 9)).cost
    for module in (primitives, functions_attention):
        monkeypatch.setattr(module, "MANY", 16)
    private = tacit.secure(model)
    answer = private(ids)
    assert (answer.values - model(ids)).abs().max() < 3e-3
    assert without_setup(answer.cost) == private.forecast((1, 9)).cost
    assert answer.cost.online_rounds > few.online_rounds
    offline = [
        sum(one.payload_bytes for one in cost.traffic if one.phase == "offline")
        for cost in (few, answer.cost)
    ]
    assert offline[1] < offline[0]


def test_a_client_cannot_announce_more_tokens_than_anybody_has_room_for_one_hot():
    """Names of a table are small until they are one-hot: then each takes 8 bytes per entry."""
    private, crew = tacit.secure(small_bert()), Crew()
    with pytest.raises(DataError, match="names of a table of 50"):
        private(torch.zeros(1, 1 << 22, dtype=torch.int64))

    def party(session):
        if session.me == crew.client:
            session.publish(INPUT, (2, 0, 1, 1 << 22, 0, 0, 0, 0, 0, 0))
            return session.finish()
        return private.join(session)

    meeting = Meeting(parties=crew.parties, job_digest=b"s" * 32, patience=PATIENCE)
    with pytest.raises(DisagreementError, match=f"{crew.client}.*names of a table of 50"):
        run_threads(dict.fromkeys(crew.parties, party), meeting)


def test_nothing_is_told_of_token_ids_but_how_many_there_are():
    model = small_bert()
    low = tacit.secure(model)(torch.zeros(1, 4))
    high = tacit.secure(model)(torch.full((1, 4), 49))
    assert low.ledger == high.ledger
    assert without_setup(low.cost) == without_setup(high.cost)
    assert {leak.what for leak in low.ledger if leak.kind == "output"} == {"the output"}


@pytest.mark.parametrize("bad", [50.0, -1.0, 1.5])
def test_ids_that_are_none_are_refused(bad):
    with pytest.raises(DataError, match="50 entries: wanted whole numbers from 0 to 49"):
        tacit.secure(small_bert())(torch.tensor([[1.0, bad]]))


@pytest.mark.slow
@pytest.mark.skipif(not MINILM.exists(), reason="the weights of MiniLM are not at hand")
def test_sealed_sentence_embeddings_of_minilm_are_the_plain_ones():
    model, tokenizer = minilm()
    tokenizer.no_padding()
    private, plain, sealed = tacit.secure(model), [], []
    for text in TEXTS:
        ids = torch.tensor([tokenizer.encode(text).ids])
        answer = private(ids)
        assert not any("saturate" in note for note in answer.result.notes)
        plain.append(model(ids)[0].double())
        sealed.append(answer.values[0])
    alike = functional.cosine_similarity(torch.stack(plain), torch.stack(sealed), dim=1)
    assert alike.min() > 0.99999

    def pairs(vectors):
        unit = functional.normalize(torch.stack(vectors), dim=1)
        return unit @ unit.T

    assert (pairs(plain) - pairs(sealed)).abs().max() < 1e-3
    assert pairs(sealed)[0, 1] > 0.6 > 0.2 > pairs(sealed)[0, 2]


@pytest.mark.parametrize("size", [1e-3, 1.0, 30.0])
@pytest.mark.parametrize("kind", [nn.LayerNorm, nn.RMSNorm])
def test_a_norm_may_come_first_and_its_rows_may_be_short(kind, size):
    torch.manual_seed(0)
    model, x = nn.Sequential(kind(16, eps=1e-5), nn.Linear(16, 4)).eval(), size * torch.randn(4, 16)
    assert (tacit.secure(model)(x).values - model(x)).abs().max() < 3e-3


def test_scores_of_any_size_have_their_softmax():
    model = nn.Sequential(nn.LayerNorm(8), _Attention(8)).eval()
    x = torch.randn(1, 6, 8, generator=torch.Generator().manual_seed(1))
    assert (tacit.secure(model)(x).values - model(x)).abs().max() < 3e-3


class _Attention(nn.Module):
    """Attention of rows to themselves, with scores of up to 380."""

    def __init__(self, width):
        super().__init__()
        self.inner = nn.MultiheadAttention(width, 2, batch_first=True, bias=False)
        with torch.no_grad():
            parts = [factor * torch.eye(width) for factor in (10, 10, 1)]
            self.inner.in_proj_weight.copy_(torch.cat(parts))
            self.inner.out_proj.weight.copy_(torch.eye(width))

    def forward(self, x):
        return self.inner(x, x, x, need_weights=False)[0]
