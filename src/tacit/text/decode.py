"""Decoding with a budget: one model writes, and a vote fills in what is marked."""

import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor, nn

from tacit.dp.book import BudgetSpentError
from tacit.errors import ConfigError
from tacit.ring import Prg
from tacit.text.corpus import PLACEHOLDER, Speller, Tokens
from tacit.text.vote import Ballot, Budget, count_votes, draw

Choose = Callable[[Tensor], int]
"""Given the scores of every token, return the one to take."""

_SIGNS = "0123456789.,-/:%０１２３４５６７８９．－／：％"
FILLING = _SIGNS + "〇零一二三四五六七八九十百千万亿两半几多来余点分之年月份日号初"
"""Signs that a placeholder may be filled with; no letters: no address is made up."""


@dataclass(frozen=True, kw_only=True)
class Places:
    """How placeholders are spelled, and what with they are filled.

    Args:
        placeholder: the ids that the writer writes for something marked.
        alphabet: ids that may stand in its place.
        most: of them in one place.
    """

    placeholder: tuple[int, ...]
    alphabet: tuple[int, ...]
    most: int = 6

    def __post_init__(self) -> None:
        if not self.placeholder or len(set(self.alphabet)) < 2 or self.most < 1:
            raise ConfigError(
                f"a place needs a placeholder and an alphabet of 2 or more, got {self}"
            )


def find_places(speller: Speller, *, signs: str = FILLING, most: int = 6) -> Places:
    """Spell the placeholder and the alphabet with the tokens of a model.

    Signs that need several tokens are left out: a part of one could be drawn without the rest.
    """
    spelled = (speller.pieces(sign)[0] for sign in signs)
    ids = {one[0] for one in spelled if len(one) == 1}
    return Places(
        placeholder=tuple(speller.pieces(PLACEHOLDER)[0]), alphabet=tuple(sorted(ids)), most=most
    )


@final
class BudgetedWriter:
    """Writes texts in which numbers come out of a vote, and only as many as a budget allows.

    The writer has seen redacted texts alone, so its words and where it leaves a place cost nothing.
    The voters read what was said so far, and each token that they fill in is an event.

    Guarantee: for replacing what the policy marks of one owner, towards whoever reads all that is
    said: (ε, 0) with the ε of the budget, if the policy marks what is private, no text stands under
    two owners, and the adapters stay where they are. What is not marked is not protected.
    Cost: a step of one model per token, and of voters + 1 models per token of a number.

    Args:
        writer: a causal model of redacted texts, ids and a past to scores.
        voters: from `stack_voters`, the public model last.
        ballot: how votes are counted.
        places: how placeholders are spelled and filled.
        budget: what may be spent.
        prg: where the draws come from; the operating system if not given. Whoever knows its key
            knows which tokens were drawn by chance: there is then no guarantee.
    """

    def __init__(
        self,
        writer: nn.Module,
        voters: nn.Module,
        *,
        ballot: Ballot,
        places: Places,
        budget: Budget,
        prg: Prg | None = None,
    ) -> None:
        self.ballot, self.places, self.budget = ballot, places, budget
        self.refused = 0
        """Places that were left open because the budget was spent."""
        self._writer, self._voters = writer, voters
        self._prg = prg or Prg.from_os()

    @torch.no_grad()
    def speak(
        self, prompt: Sequence[int], short: Sequence[int], *, choose: Choose, limit: int
    ) -> Generator[int, None, None]:
        """Yield up to about `limit` tokens that follow a prompt, places filled or left open.

        Args:
            prompt: as it is, for the voters.
            short: the same with placeholders, as the writer knows texts.
            choose: takes the writer's next token.
            limit: when to stop; a place that was begun is filled.
        """
        device = next(self._writer.parameters()).device
        past: list[tuple[Tensor, Tensor]] = []
        reading = _Reading(self._voters, self.ballot.voters + 1, prompt, device)
        fresh, held, said = list(short), list[int](), 0
        while said < limit:
            scores = self._writer(torch.tensor([fresh], device=device), past)[0, -1]
            token = choose(scores.float().cpu())
            held, fresh = [*held, token], [token]
            place = self.places.placeholder
            if tuple(held) == place:
                held = self._fill(reading) or list(place)
            elif tuple(held) == place[: len(held)]:
                continue  # it may become a place
            for one in held:
                reading.ids.append(one)
                said += 1
                yield one
            held = []
        yield from held

    def _fill(self, reading: "_Reading") -> list[int]:
        """Return the tokens of one place; none if the budget does not last for a whole number.

        A number that is cut off where the budget ends would be another number.
        """
        event, options = self.ballot.event, self.places.alphabet
        if self.budget.left < event.epsilon * (self.places.most + 1):
            self.refused += 1
            return []
        filled: list[int] = []
        while len(filled) < self.places.most:
            try:
                self.budget.spend(event)
            except BudgetSpentError:  # by somebody else, in the meantime
                self.refused += 1
                return []
            scores = option_scores(reading.scores(filled), options, can_end=bool(filled))
            index = draw(count_votes(scores[-1], scores[:-1], self.ballot), self._prg)
            if index == len(options):
                break
            filled.append(options[index])
        return filled


class _Reading:
    """What the voters have read: behind by what was said since they were last asked."""

    def __init__(
        self, voters: nn.Module, models: int, prompt: Sequence[int], device: torch.device
    ) -> None:
        self.ids = list(prompt)
        self._voters, self._models, self._device = voters, models, device
        self._past: list[tuple[Tensor, Tensor]] = []
        self._last = torch.empty(0)
        self._read = 0

    def scores(self, more: Sequence[int]) -> Tensor:
        """Return every model's scores of what follows the text and `more`, (models, vocab)."""
        text = [*self.ids, *more]
        if self._read < len(text):
            fresh = torch.tensor(text[self._read :], device=self._device)
            self._read = len(text)
            self._last = self._voters(fresh.expand(self._models, 1, -1), self._past)[:, 0, -1]
        return self._last


def option_scores(scores: Tensor, options: Sequence[int], *, can_end: bool) -> Tensor:
    """Return log-probabilities of the options and, last, of anything else: that the place ends."""
    whole = scores.double().log_softmax(-1)
    kept = whole[:, torch.tensor(options, device=scores.device)]
    if not can_end:
        return kept.log_softmax(-1)
    rest = torch.log1p(-kept.logsumexp(-1, keepdim=True).exp().clamp_max(1 - 1e-12))
    return torch.cat([kept, rest], -1).log_softmax(-1)


@torch.no_grad()
def decoder_losses(
    decoder: BudgetedWriter, writer: nn.Module, voters: nn.Module, text: Tokens, short: Tokens
) -> tuple[float, int, int]:
    """Return −log of the probability that a decoder says a text, over how many tokens, and misses.

    The sum of the writer's losses on the redacted text, placeholders included, and of the vote's on
    what stands in their places and on their ends: exact, and nothing is spent, as nothing is said.
    It is divided by the tokens of the text as it is, as for a model. Tokens that are not in the
    alphabet can never be said; they are counted apart, as misses.
    """
    device = next(writer.parameters()).device
    scores = writer(torch.tensor([short.ids[:-1]], device=device))[0].float()
    targets = torch.tensor(short.ids[1:], device=device)
    total = float(nn.functional.cross_entropy(scores, targets, reduction="sum"))
    options = decoder.places.alphabet
    where = {one: at for at, one in enumerate(options)}
    ids = torch.tensor(text.ids, device=device)
    read = voters(ids.expand(decoder.ballot.voters + 1, 1, -1))[:, 0]
    misses = 0
    for at, is_private in enumerate(text.is_private):
        if at == 0 or not (is_private or text.is_private[at - 1]):
            continue
        if is_private and text.ids[at] not in where:
            misses += 1
            continue
        follows = text.is_private[at - 1]
        odds = option_scores(read[:, at - 1], options, can_end=follows)
        weights = count_votes(odds[-1], odds[:-1], decoder.ballot)
        index = where[text.ids[at]] if is_private else len(options)
        total -= math.log(weights[index]) - math.log(sum(weights))
    return total, len(text.ids) - 1 - misses, misses
