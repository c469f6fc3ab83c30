"""The owner's online work: plain products with its weights, and one message per step."""

from collections.abc import Mapping

from torch import Tensor

from tacit.llm.private.blueprint import Blueprint
from tacit.llm.private.exchange import Exchange, Look
from tacit.llm.private.narrow import unpack
from tacit.llm.private.parcel import Channel
from tacit.llm.private.quick import is_quick
from tacit.llm.private.quick_serving import QuickServing
from tacit.llm.private.resent import Resent
from tacit.llm.private.shelf import Shelf
from tacit.llm.private.stock import LayerStock, Stock
from tacit.llm.private.weights import Weights


class Serving:
    """One conversation at the owner, online: m of every wire.

    Guarantee: everything it receives is uniform: the user's text leaves no trace but its length.
    Cost: one product with every matrix per row; messages as `Blueprint` lists them.
    """

    def __init__(
        self,
        plan: Blueprint,
        weights: Weights,
        biases: Mapping[str, Tensor],
        talk: Channel,
        cached: Shelf,
    ) -> None:
        self._plan = plan
        self._weights = weights
        self._biases = {name: bias.to(plan.device) for name, bias in biases.items()}
        self._talk = talk
        self._cached = cached
        self._quick: QuickServing | None = None
        if is_quick(plan):
            self._quick = QuickServing(plan, weights, self._biases, talk, cached, self._attend)
        self._counts: Tensor | None = None

    def make_ready(self, stock: Stock) -> None:
        """Do beforehand what a run of steps would have to do with its material."""
        if self._quick is not None and not stock.order.is_prompt:
            self._quick.make_ready(stock)

    def embed_prompt(self, stock: Stock, hot: Tensor, tally: Tensor) -> Tensor:
        """Return the owner's share of the stream for the tokens of a prompt.

        ``tally`` is the user's masked count of all tokens so far; empty if nothing is counted.
        """
        assert stock.first is not None  # noqa: S101 - the order is a prompt
        if self._plan.counts:
            self._counts = unpack(tally.view(1, -1), self._plan.count_bytes)
        words = unpack(hot, self._plan.wide_bytes)
        stream = self._weights.apply("embed", words) + stock.first
        return self._placed(stream, stock.order.past)

    def embed_choice(self, stock: Stock, run: int, answer: Tensor) -> Tensor:
        """Return the owner's share of the stream for the token that was chosen after a run."""
        at = slice(run, run + 1)
        (hot,) = self._plan.choose().take(stock.chosen.at(at), answer)
        if self._counts is not None:
            self._counts = self._counts + hot
        stream = self._weights.apply("embed", hot) + stock.following[at]
        past = stock.order.end if stock.order.is_prompt else stock.order.past + run + 1
        return self._placed(stream, past)

    def run(self, stock: Stock, run: int, stream: Tensor) -> None:
        """Take a stream through all layers and show the scores."""
        if self._quick is not None and not stock.order.is_prompt:
            stream = self._quick.run(stock, run, stream)
        else:
            for layer in range(self._plan.architecture.layers):
                stream = self._layer(stock, run, layer, stream)
        self._score(stock, run, stream)

    def _linear(self, name: str, share: Tensor, corrected: Tensor) -> Tensor:
        out = self._weights.apply(name, share) + corrected
        bias = self._biases.get(name)
        return out if bias is None else out + bias

    def _exchange(self, exchange: Exchange, look: Look, shown: list[Tensor]) -> list[Tensor]:
        self._talk.send_bytes(exchange.show(look, shown))
        answer = self._talk.recv_bytes(len(shown[0]), exchange.answer_bytes)
        return exchange.take(look, answer)

    def _layer(self, stock: Stock, run: int, layer: int, stream: Tensor) -> Tensor:
        plan, p, rows = self._plan, self._plan.precision, stock.rows(run)
        material = stock.layers[layer]
        c_qkv, c_o, c_up, c_down, *c_skips = (part[rows] for part in material.corrected)
        project, look = plan.project(layer), material.project.at(rows)
        if material.turned is not None:
            normed = self._exchange(project, look, [stream])
            qkv = self._weights.apply(f"{layer}.qkv", normed[0]) + c_qkv + material.turned[rows]
            parts = self._parts(qkv)
        else:
            qkv = self._weights.apply(f"{layer}.qkv", stream) + c_qkv
            answers = self._exchange(project, look, [stream, *self._parts(qkv)])
            parts, normed = answers[:3], answers[3:]
        out = self._attend(stock, run, layer, self._with_bias(layer, parts))
        skip = stream
        if c_skips:
            skip = self._linear(f"{layer}.skip1", normed[0], c_skips[0])
        stream = (skip << (plan.middle_bits - p.stream)) + self._linear(f"{layer}.o", out, c_o)
        active, h, kept = self._feed(material, rows, layer, stream, c_up)
        if kept is None:
            skip = self._linear(f"{layer}.skip2", h, c_skips[1])
        else:
            skip = kept << (p.stream - p.skip)
        return skip + self._linear(f"{layer}.down", active, c_down) + material.after[rows]

    def _feed(
        self, material: LayerStock, rows: slice, layer: int, stream: Tensor, corrected: Tensor
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return the activation's output, what it was fed, and the stream if that is kept."""
        plan = self._plan
        looks = [one.at(rows) for one in material.feeds]
        if material.refed is not None:
            stream = stream + material.refed[rows]
            up = self._linear(f"{layer}.up", stream, corrected)
            (merge,) = plan.feeds(layer)
            shown = [stream, *up.chunk(len(merge.reveals) - 1, 1)]
            active, kept = self._exchange(merge, looks[0], shown)
            return active, stream, kept
        middle, activate = plan.feeds(layer)
        h, *keep = self._exchange(middle, looks[0], [stream])
        up = self._linear(f"{layer}.up", h, corrected)
        branches = list(up.chunk(len(activate.reveals), 1))
        (active,) = self._exchange(activate, looks[1], branches)
        return active, h, keep[0] if keep else None

    def _parts(self, qkv: Tensor) -> list[Tensor]:
        """Cut queries, keys and values apart."""
        plan = self._plan
        return list(qkv.split_with_sizes([plan.inner, plan.kv, plan.kv], 1))

    def _with_bias(self, layer: int, parts: list[Tensor]) -> list[Tensor]:
        """Add the biases of queries, keys and values: they were not needed before the look."""
        bias = self._biases.get(f"{layer}.qkv")
        if bias is None:
            return parts
        plan = self._plan
        added = bias.split_with_sizes([plan.inner, plan.kv, plan.kv])
        return [part + more for part, more in zip(parts, added, strict=True)]

    def _attend(self, stock: Stock, run: int, layer: int, qkv: list[Tensor]) -> Tensor:
        dealt = stock.layers[layer].mixed[run]
        plan, order, heads = self._plan, stock.order, self._plan.heads
        past = order.past if order.is_prompt else order.past + run
        query, keys, values = (part.reshape(len(part), -1, heads.dim) for part in qkv)
        rotation = plan.rotation(order)
        if rotation is not None:
            rows = stock.rows(run)
            query, keys = rotation.apply(query, rows), rotation.apply(keys, rows)
        query, keys = query >> plan.turn_drop, keys >> plan.turn_drop
        self._cached.put(layer, past, keys, values >> plan.value_drop)
        cached = self._cached.upto(layer, past + len(keys))
        kernel = plan.attention(layer, order, run)
        if isinstance(kernel, Resent):
            out = kernel.serve(self._talk, stock.tape, dealt, query=query, cached=cached)
        else:
            posted = order.posted_before(run)
            out = kernel.serve(
                self._talk, stock.tape, dealt, query=query, cached=cached, posted=posted
            )
        return out >> plan.out_drop

    def _score(self, stock: Stock, run: int, stream: Tensor) -> None:
        plan, rows = self._plan, stock.scored(run)
        stream = stream[-(rows.stop - rows.start) :]
        corrected, last = stock.output[rows], plan.last_norm()
        if last is not None and stock.last is not None:
            (h,) = self._exchange(last, stock.last.at(rows), [stream])
            shown = [self._linear("output", h, corrected)]
        else:
            shown = [stream, self._linear("output", stream, corrected)]
        if self._counts is not None:
            shown.append(self._counts.expand(len(stream), -1))
        self._talk.send_bytes(plan.score().show(stock.score.at(rows), shown))

    def _placed(self, stream: Tensor, at: int) -> Tensor:
        """Add learned positions, where a model has them."""
        positions = self._biases.get("positions")
        return stream if positions is None else stream + positions[at : at + len(stream)]
