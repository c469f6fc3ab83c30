"""A user of the permuted protocol who cheats, and walks away with the weights.

It does three things that the owner cannot see, because all it sends is masked. It adds *tags* to
its corrections, which add to values before they are permuted: tags further apart than
the values say which place each value comes from. It answers with *chosen* values, one unit vector
after the other, so that the next one shows the columns of a matrix. And it sends rows of its own
making instead of one-hot rows. Everything else, owner and dealer included, is the real code.
"""

from __future__ import annotations

from contextlib import ExitStack
from unittest import mock

import torch
from torch import Tensor

from support.llm import speak
from tacit.llm import LanguageModel
from tacit.llm.permuted import Conversation, prepare
from tacit.llm.permuted.asking import Asking, UserParty
from tacit.llm.permuted.attention import Incremental
from tacit.llm.permuted.masks import Ranges
from tacit.llm.permuted.messages import encode, pack

SPACING = 16.0
"""Between tags; all values are below half of it."""


def units(rows: int, width: int) -> Tensor:
    """Return one unit vector after the other, and zeros after the last: (rows, width)."""
    return torch.eye(width + 1, dtype=torch.float64)[torch.arange(rows) % (width + 1), :width]


def fit(inputs: Tensor, outputs: Tensor) -> tuple[Tensor, Tensor]:
    """Return weight (out, in) and bias of the affine map between rows."""
    ones = torch.ones(len(inputs), 1, dtype=torch.float64)
    found = torch.linalg.lstsq(torch.cat([inputs, ones], 1), outputs).solution
    return found[:-1].T, found[-1]


class Thief:
    """Steals from one prompt of as many rows as the context has.

    Rows of the first kind (``tagged``) have tags on the stream: they read embeddings and what is
    added to the stream. In the others the stream is chosen: they read the matrices behind it.
    """

    def __init__(self, plan, *, tagged: int, positions: Tensor | None = None) -> None:
        self.plan, self.a = plan, plan.architecture
        self.rows = self.a.context
        self.is_tagged = (torch.arange(self.rows) < tagged).unsqueeze(1)
        self.positions = positions
        self.orders: dict[str, Tensor] = {}
        self.seen: dict[str, Tensor] = {}
        chosen = torch.arange(self.rows) - tagged
        self.stream = torch.eye(self.a.width, dtype=torch.float64)[chosen % self.a.width]

    def tags(self, width: int) -> Tensor:
        return SPACING * (torch.arange(width, dtype=torch.float64) - width // 2).expand(
            self.rows, width
        )

    def correct(self, name: str, width: int) -> tuple[Tensor, int]:
        """Return what is added to a correction, and its fraction bits."""
        plan, p, part = self.plan, self.plan.precision, name.rpartition(".")[2]
        tags, none = self.tags(width), torch.zeros(self.rows, width, dtype=torch.float64)
        match part:
            case "embed":
                at = none if self.positions is None else -self.positions[: self.rows]
                return torch.where(self.is_tagged, tags, self.stream + at), p.stream
            case "qkv":
                parts = [plan.inner, plan.kv, plan.kv]
                return torch.cat([self.tags(one) for one in parts], 1), p.raw
            case "o":
                return torch.where(self.is_tagged, none, tags), plan.middle_bits
            case "up":
                halves = width // self.a.ffn
                return self.tags(self.a.ffn).repeat(1, halves), p.stream
            case "down":
                is_last = name.startswith(f"{self.a.layers - 1}.")
                is_all = is_last and not plan.is_raw_output
                return torch.where(self.is_tagged | is_all, tags, none), p.stream
            case "output":
                return tags, plan.output_bits
        raise AssertionError(name)

    def answer(self, label: str, name: str, width: int) -> Tensor:
        """Return what is answered, in its own order."""
        none = torch.zeros(self.rows, width, dtype=torch.float64)
        match label.rpartition(".")[2], name:
            case (("middle" | "last"), "h"):
                return units(self.rows, width)
            case "middle", "x":
                return torch.where(self.is_tagged, none, self.stream)
            case "act", "y":
                return torch.where(self.is_tagged, units(self.rows, width), none)
        return none

    def look(self, exchange, shown: list[Tensor]) -> None:
        """Undo the permutations: the k-th smallest value has the k-th smallest tag."""
        for one, values in zip(exchange.reveals, shown, strict=True):
            order = values.argsort(1).argsort(1)
            tags = self.tags(one.width)
            known = torch.empty_like(values).scatter_(1, order, values) - tags
            self.seen[f"{exchange.label}.{one.name}"] = known
            self.orders[f"{exchange.label}.{one.permutation}"] = order

    def patches(self) -> ExitStack:
        """Make the user of this process this thief."""
        linear, see, answer, ask = (
            prepare._corrected,
            UserParty._see,
            UserParty._answer,
            Incremental.ask,
        )

        def tagging(weights, prf, name, share):
            out = linear(weights, prf, name, share)
            added, bits = self.correct(name, out.shape[1])
            return out + encode(added, bits)

        def prompting(user, prepared, ids, seen):
            hot = -prepared.prf.words("first.hot.mask", len(ids), self.a.vocab)
            for row, token in enumerate(ids):
                hot[row, token] += int(self.is_tagged[row] and self.positions is not None)
                hot[row, token] += int(self.is_tagged[row] and self.a.positions != "learned")
            return pack(hot, self.plan.wide_bytes).reshape(-1)

        def seeing(user, exchange):
            shown = see(user, exchange)
            self.look(exchange, list(shown.values()))
            return shown

        def answering(user, exchange, values):
            chosen = {
                one.name: self.answer(exchange.label, one.name, one.width).gather(
                    1, self.orders[f"{exchange.label}.{one.permutation}"]
                )
                for one in exchange.answers
            }
            answer(user, exchange, chosen)

        def attending(kernel, talk, user, **shares):
            return ask(kernel, _Adding(talk, self._mixed(kernel)), user, **shares)

        stack = ExitStack()
        for thing, name, cheat in (
            (prepare, "_corrected", tagging),
            (Asking, "prompt", prompting),
            (UserParty, "_see", seeing),
            (UserParty, "_answer", answering),
            (Incremental, "ask", attending),
            (Incremental, "_softmax", lambda kernel, seen: torch.zeros_like(seen)),
            (Ranges, "check", lambda ranges: None),
        ):
            stack.enter_context(mock.patch.object(thing, name, cheat))
        return stack

    def _mixed(self, kernel) -> Tensor:
        """Return what is added to the output of attention, which nobody permutes."""
        p = self.plan.precision
        chosen = units(self.rows, self.plan.inner).view(self.rows, kernel.heads.count, -1)
        return encode(chosen, p.query + p.attention)

    def loot(self) -> dict[str, Tensor]:
        """Solve for every matrix, and every bias but those of queries, keys and values."""
        a, seen, rows = self.a, self.seen, self.is_tagged.squeeze(1)
        found = {"embed": seen["0.project.x"][rows]}
        offset = torch.zeros(a.width, dtype=torch.float64)
        for i in range(a.layers):
            stream = (self.stream + offset)[~rows]
            qkv = torch.cat([seen[f"{i}.project.{part}"] for part in "qkv"], 1)[~rows]
            found[f"{i}.qkv"] = torch.linalg.lstsq(stream, qkv).solution.T
            mixed = seen[f"{i}.middle.x"] - seen[f"{i}.project.x"]
            branches = ("gate", "up") if a.has_gate else ("up",)
            up = torch.cat([seen[f"{i}.act.{part}"] for part in branches], 1)
            behind = f"{i + 1}.project.x" if i + 1 < a.layers else "last.x"
            fed = seen[behind if behind in seen else "out.x"]
            for name, width, values in (("o", self.plan.inner, mixed), ("down", a.ffn, fed)):
                pair = fit(units(self.rows, width)[rows], values[rows])
                found[f"{i}.{name}"], found[f"{i}.{name} bias"] = pair
            pair = fit(units(self.rows, a.width), up)
            found[f"{i}.up"], found[f"{i}.up bias"] = pair
            offset = found[f"{i}.down bias"]
        if self.plan.is_raw_output:
            stream = (self.stream + offset)[~rows]
            scores = seen["out.scores"][~rows]
            found["output"] = torch.linalg.lstsq(stream, scores).solution.T
        else:
            pair = fit(units(self.rows, a.width), seen["out.scores"])
            found["output"], found["output bias"] = pair
        return found


def untied(some: Tensor, output: Tensor) -> Tensor:
    """Return all embeddings: the output matrix is them, times weights of the last norm."""
    largest = some.abs().argmax(0, keepdim=True)
    factor = output[: len(some)].gather(0, largest) / some.gather(0, largest)
    return output / factor


class _Adding:
    """The user's talk in attention; its last message gets something added."""

    def __init__(self, talk, added: Tensor) -> None:
        self._talk, self._added, self._sent = talk, added, 0
        self.recv = talk.recv

    def send(self, items, *parts: Tensor) -> None:
        self._sent += 1
        self._talk.send(items, *(part + self._added if self._sent == 3 else part for part in parts))


def steal(model: LanguageModel) -> tuple[dict[str, Tensor], int]:
    """Return all that was stolen, by name, and how many tokens the owner counted."""
    a = model.architecture
    ids = [row % a.vocab for row in range(a.context)]
    loot: dict[str, Tensor] = {}

    def read(client, thief):
        with thief.patches():
            conversation = Conversation(client)
            conversation.score(ids)
            conversation.close()

    def talk(client):
        positions, rows = None, 0
        if a.positions == "learned":  # a prompt for the positions, since they differ by row
            first = Thief(client.plan, tagged=a.context)
            read(client, first)
            positions = loot["positions"] = first.seen["0.project.x"]
            rows += a.context
        tagged = a.context - a.width  # the rows that are left choose the stream
        second = Thief(client.plan, tagged=tagged, positions=positions)
        read(client, second)
        loot.update(second.loot())
        if positions is not None:
            loot["embed"] = loot["embed"] - positions[:tagged]
        if a.tied_output:
            loot["embed"] = untied(loot["embed"], loot["output"])
        return rows + a.context

    return loot, speak(model, talk).value
