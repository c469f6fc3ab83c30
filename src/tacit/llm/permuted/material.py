"""The owner's material for one batch, taken apart as it arrives, so that a pass only adds."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from tacit.llm.permuted.batch import Batch
from tacit.llm.permuted.blueprint import Blueprint
from tacit.llm.permuted.exchange import Exchange, LookMaterial
from tacit.llm.permuted.prf_stream import PrfStream, pads
from tacit.llm.permuted.program import Function, MatrixProduct, Seen, run_end, run_layer, unknown

Biases = Mapping[str, Tensor]


@dataclass(frozen=True, eq=False)
class LayerMaterial:
    """The material of a layer, or of the end of a pass.

    Attributes:
        sums: what is added to each product: corrections, biases and what masks it anew.
        looks: of each exchange; biases of what is answered are in it.
        mixed: of attention, run by run.
    """

    sums: dict[str, Tensor] = field(default_factory=dict)
    looks: dict[str, LookMaterial] = field(default_factory=dict)
    mixed: list[list[Tensor]] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True, eq=False)
class BatchMaterial:
    """The owner's material for one batch.

    Attributes:
        batch: what was ordered.
        prf: of the owner and the dealer.
        first: what masks the stream in front of the layers, of a prompt.
        layers: by number.
        end: of the scores.
        chosen: of the exchange that answers them, a row for every run.
        names: which token each score belongs to, a row for every row of scores.
        following: what masks the stream of the token that is chosen.
        pads: of the names of all tokens.
    """

    batch: Batch
    prf: PrfStream
    first: Tensor | None
    layers: list[LayerMaterial]
    end: LayerMaterial
    chosen: LookMaterial
    names: Tensor
    following: Tensor
    pads: Tensor


Packed = tuple[list[Tensor], list[Tensor]]
"""What the dealer sent, and what the user sent."""


class _Unpacking:
    """Walk a pass, and take what user and dealer sent in the order in which it is used."""

    def __init__(
        self,
        plan: Blueprint,
        batch: Batch,
        prf: PrfStream,
        packed: Packed,
        biases: Biases,
        rows: int,
    ) -> None:
        self._plan, self._batch, self._prf, self._rows = plan, batch, prf, rows
        self.dealt, self.corrected = map(iter, packed)
        self._biases = biases
        self.material = LayerMaterial()

    def linear(self, product: MatrixProduct, x: Tensor, skip: Tensor | None = None) -> Tensor:
        """Add up what does not depend on the text."""
        out = next(self.corrected)
        if product.has_bias and product.name in self._biases:
            out = out + self._biases[product.name]
        if product.skip is not None and product.skip.name:
            out = out + (next(self.corrected) << product.skip.bits)
        if product.is_fresh:
            out = out + next(self.dealt)
        self.material.sums[product.name] = out
        return unknown(*out.shape)

    def look(self, exchange: Exchange, shown: list[Tensor], function: Function) -> list[Tensor]:
        """Lay the material of an exchange out."""
        self.show(exchange, shown, function)
        if exchange.bias in self._biases:
            looks, bias = self.material.looks, self._biases[exchange.bias]
            looks[exchange.label] = _biased(looks[exchange.label], bias)
        return [unknown(self._rows, one.width) for one in exchange.answers]

    def attend(self, layer: int, qkv: list[Tensor]) -> Tensor:
        """Take the material of every run, and draw what will be wanted."""
        for run in range(self._batch.runs):
            kernel = self._plan.attention(layer, self._batch, run)
            if not self._batch.is_prompt:
                kernel.draw_owner(self._prf)
            self.material.mixed.append([next(self.dealt) for _ in kernel.dealt])
        return unknown(self._rows, self._plan.inner)

    def show(self, exchange: Exchange, shown: list[Tensor], function: Function) -> Seen:
        """Lay the material of what is shown out."""
        permutations = exchange.permutations(self._prf, self._rows)
        self.material.looks[exchange.label] = _look(exchange, permutations, self.dealt)
        return {}


def unpack_batch(
    plan: Blueprint, batch: Batch, prf: PrfStream, packed: Iterator[Packed], biases: Biases
) -> BatchMaterial:
    """Take the material of a batch apart, part by part, and draw what will be wanted."""
    a, rows = plan.architecture, batch.scores
    first, layers = [words for some in next(packed) for words in some], list[LayerMaterial]()
    for layer in range(a.layers):
        party = _Unpacking(plan, batch, prf, next(packed), biases, batch.rows)
        run_layer(party, plan, layer, unknown(batch.rows, a.width))
        layers.append(party.material)
    party = _Unpacking(plan, batch, prf, next(packed), biases, rows)
    run_end(party, plan, unknown(rows, a.width), scored=rows)
    names = plan.score().permutations(prf, rows)["vocab"]
    chosen = _look(plan.choose(), {"vocab": names[-batch.runs :]}, party.dealt)
    return BatchMaterial(
        batch=batch,
        prf=prf,
        first=first[0] + first[1] if batch.is_prompt else None,
        layers=layers,
        end=party.material,
        chosen=chosen,
        names=names,
        following=next(party.corrected) + next(party.dealt),
        pads=pads(prf, batch.runs, a.vocab),
    )


def _look(
    exchange: Exchange, permutations: dict[str, Tensor], dealt: Iterator[Tensor]
) -> LookMaterial:
    return exchange.look(permutations, [next(dealt) for _ in exchange.dealt(1)])


def _biased(look: LookMaterial, bias: Tensor) -> LookMaterial:
    """Let the answers bring biases with them; those behind the last have none."""
    whole = torch.zeros(look.answered.shape[1], dtype=torch.int64, device=bias.device)
    whole[: len(bias)] = bias
    return LookMaterial(
        look.shown,
        look.answered,
        look.reveal_correction,
        look.answer_correction + whole[look.answered],
    )
