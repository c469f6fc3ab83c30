"""Canaries: secrets made up by the audit and planted in a corpus, and how exposed they are."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from scipy.stats import skewnorm
from torch import Tensor

from tacit.audit.estimators import clopper_pearson
from tacit.audit.memorisation.views import SeenSpeech
from tacit.errors import ConfigError, DataError

_BLOCK = 512
_LARGEST_EXPONENT = 600.0  # beyond it a claim says nothing, and exp overflows
MOST_ENUMERATED = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Format:
    """A sentence with a blank: the prefix, then `blanks` tokens out of an alphabet.

    Args:
        prefix: ids before the blank, at least one.
        alphabet: ids that may stand in each place of the blank.
        blanks: places.
    """

    prefix: tuple[int, ...]
    alphabet: tuple[int, ...]
    blanks: int

    def __post_init__(self) -> None:
        if not self.prefix or self.blanks < 1 or len(set(self.alphabet)) < 2:
            raise ConfigError(
                "a canary has a prefix, at least one blank and an alphabet of at least 2, got "
                f"{len(self.prefix)}, {self.blanks} and {len(set(self.alphabet))}"
            )
        if len(set(self.alphabet)) != len(self.alphabet):
            raise ConfigError("the alphabet of a canary names a token twice")

    @property
    def size(self) -> int:
        """Return how many fillings there are, |R|."""
        return int(len(self.alphabet) ** self.blanks)

    @property
    def bits(self) -> float:
        """Return log2 |R|: the largest exposure there is."""
        return self.blanks * math.log2(len(self.alphabet))

    def text(self, number: int) -> tuple[int, ...]:
        """Return the sentence with the filling of this number."""
        if not 0 <= number < self.size:
            raise DataError(f"fillings are numbered 0 to {self.size - 1}, got {number}")
        digits = []
        for _ in range(self.blanks):
            number, digit = divmod(number, len(self.alphabet))
            digits.append(self.alphabet[digit])
        return (*self.prefix, *reversed(digits))


@dataclass(frozen=True, kw_only=True)
class Exposure:
    """How far a canary stands out: log2 |R| − log2 rank, with what limits it.

    Attributes:
        value: in bits; about 1.4 on average for a canary that was never seen.
        low: end of the 95 % interval; equal to the value if every filling was ranked.
        high: other end; for sampled ranks at most log2 |R|.
        bits: log2 |R|.
        compared: fillings that the canary was compared with.
    """

    value: float
    low: float
    high: float
    bits: float
    compared: int


def draw_canary(form: Format, *, generator: torch.Generator) -> int:
    """Return the number of a filling, all alike likely."""
    digits = torch.empty(form.blanks, dtype=torch.float64).uniform_(generator=generator)
    places = (digits * len(form.alphabet)).long().clamp_max(len(form.alphabet) - 1)
    number = 0
    for digit in places.tolist():
        number = number * len(form.alphabet) + digit
    return number


def plant(corpus: Sequence[Sequence[int]], canary: Sequence[int], *, times: int) -> list[list[int]]:
    """Return the corpus with the canary as `times` more texts, spread evenly through it."""
    if times < 0:
        raise ConfigError(f"a canary is planted 0 or more times, got {times}")
    out = [list(text) for text in corpus]
    for i in range(times):
        out.insert((i + 1) * len(out) // (times + 1), list(canary))
    return out


def exact_exposure(seen: SeenSpeech, form: Format, canary: int) -> Exposure:
    """Rank a canary among all fillings (Carlini et al. 2019); see `exact_exposures`."""
    return exact_exposures(seen, form, [canary])[0]


def exact_exposures(
    seen: SeenSpeech, form: Format, canaries: Sequence[int]
) -> tuple[Exposure, ...]:
    """Rank several canaries among all fillings of one format, which are tried once.

    Fillings that are as likely as the canary count half, so that a model that tells nothing
    apart does not look as if it knew.

    Cost: a question per beginning of a filling, about |R| / (|alphabet| − 1).

    Raises:
        ConfigError: there are too many fillings to try; use `sampled_exposure`.
        DataError: a canary is not a filling, or too long to ask about.
    """
    if form.size > MOST_ENUMERATED:
        raise ConfigError(
            f"{form.size} fillings are too many to rank, at most {MOST_ENUMERATED}; "
            "use the sampled rank"
        )
    if not all(0 <= canary < form.size for canary in canaries):
        raise DataError(f"fillings are numbered 0 to {form.size - 1}, got {list(canaries)}")
    if len(form.prefix) + form.blanks > seen.context:
        raise DataError(
            f"the canary has {len(form.prefix) + form.blanks} tokens, more than the "
            f"{seen.context} that the model can be asked about"
        )
    losses = _all_losses(seen, form)
    found = []
    for canary in canaries:
        # The canary ties with itself, which is half a filling too many.
        rank = _likelier(losses, float(losses[canary])) + 0.5
        value = form.bits - math.log2(rank)
        found.append(
            Exposure(value=value, low=value, high=value, bits=form.bits, compared=form.size)
        )
    return tuple(found)


def sampled_exposure(
    seen: SeenSpeech, form: Format, canary: int, *, draws: int, generator: torch.Generator
) -> Exposure:
    """Estimate the rank from random fillings.

    With none likelier among n draws the value is log2 (n + 1), all that n draws can show; the
    interval is Clopper–Pearson's.
    """
    own, others = _against(seen, form, canary, draws, generator)
    likelier = _likelier(others, own)
    low, high = clopper_pearson(round(likelier), draws)
    floor = 1 / form.size
    return Exposure(
        value=min(-math.log2((likelier + 1) / (draws + 1)), form.bits),
        low=-math.log2(max(high, floor)),
        high=-math.log2(max(low, floor)),
        bits=form.bits,
        compared=draws,
    )


def modelled_exposure(
    seen: SeenSpeech, form: Format, canary: int, *, draws: int, generator: torch.Generator
) -> float:
    """Extrapolate the rank with a skew-normal fit to the losses of random fillings, in bits.

    Sees beyond the draws, at the price of an assumption about the tail; it is not capped.
    """
    own, others = _against(seen, form, canary, draws, generator)
    if float(others.std()) < 1e-6 * max(abs(own), 1.0):
        return 1.0
    shape, place, scale = skewnorm.fit(others.double().numpy())
    tail = float(skewnorm.logcdf(own, shape, place, scale))
    return -tail / math.log(2)


def _against(
    seen: SeenSpeech, form: Format, canary: int, draws: int, generator: torch.Generator
) -> tuple[float, Tensor]:
    if draws < 1:
        raise ConfigError(f"the sampled rank needs at least one draw, got {draws}")
    own = float(_losses(seen, form, [canary])[0])
    numbers = [draw_canary(form, generator=generator) for _ in range(draws)]
    return own, _losses(seen, form, numbers)


def _likelier(losses: Tensor, own: float) -> float:
    """Count the losses below; those within rounding of each other are ties and count half."""
    near = 1e-6 * max(abs(own), 1.0)
    below = int((losses < own - near).sum())
    ties = int(((losses - own).abs() <= near).sum())
    return below + ties / 2


def proven_exposure(
    form: Format, claims: Sequence[tuple[float, float]], *, copies: int = 1
) -> float:
    """Bound the mean exposure of a planted canary, in bits, by (ε, δ) that hold for its training.

    Without the canary its rank is uniform: it is among the first t |R| with probability t. With it,
    privacy for adding what holds it allows e^ε t + δ for every claim; the mean exposure is the
    integral over the bits. A canary in `copies` of what is protected changes as many at once, which
    multiplies ε by their number and δ by (e^{copies · ε} − 1) / (e^ε − 1).

    Guarantee: no attack that ranks fillings does better on average, ties between fillings aside,
    if the claims are true and the filling was drawn uniformly.

    Args:
        form: the format of the canary.
        claims: pairs of ε and δ, for adding or removing one record or client.
        copies: in how many records or clients the canary stands.

    Raises:
        ConfigError: there are no claims or copies, or a claim is none.
    """
    if copies < 1 or not claims or not all(e >= 0 and 0 <= d <= 1 for e, d in claims):
        raise ConfigError(
            f"wanted 1 copy or more and pairs of ε ≥ 0 and δ ≤ 1, got {copies} and {list(claims)}"
        )
    bits = np.linspace(0.0, form.bits, 4001)
    reach = np.ones_like(bits)
    for epsilon, delta in claims:
        group = copies * epsilon
        if group > _LARGEST_EXPONENT:
            continue
        many = copies if epsilon == 0 else math.expm1(group) / math.expm1(epsilon)
        reach = np.minimum(reach, math.exp(group) * 2.0**-bits + many * delta)
    return float(np.trapezoid(reach, bits))


def _all_losses(seen: SeenSpeech, form: Format) -> Tensor:
    """Return −log p of every filling, by number: what begins alike is asked about once."""
    total = torch.zeros(1)
    begun = torch.tensor([form.prefix])
    alphabet = torch.tensor(form.alphabet)
    for _ in range(form.blanks):
        scores = [seen.answer(block)[:, -1].float().cpu() for block in torch.split(begun, _BLOCK)]
        steps = -torch.log_softmax(torch.cat(scores), 1)[:, alphabet]
        total = (total[:, None] + steps).flatten()
        longer = begun.repeat_interleave(len(alphabet), 0)
        begun = torch.cat([longer, alphabet.repeat(len(begun))[:, None]], 1)
    return total


def _losses(seen: SeenSpeech, form: Format, numbers: Sequence[int]) -> Tensor:
    """Return −log p of the blank given the prefix, for every filling."""
    ids = torch.tensor([form.text(number) for number in numbers])
    found = torch.cat([seen.losses(block) for block in torch.split(ids, _BLOCK)])
    return found[:, len(form.prefix) - 1 :].sum(1)


def spell_canary(
    seen: SeenSpeech, prefix: Sequence[int], spellings: Sequence[Sequence[int]], *, blanks: int
) -> tuple[SeenSpeech, Format]:
    """Return a view in which every sign of a canary is one token, and the format in its ids.

    A sign has the probability of its tokens, one after the other; all else is one more token, so
    that losses are those of the texts as the model spells them. Only what follows a text is
    answered.

    Args:
        seen: the model.
        prefix: ids before the blank.
        spellings: of each sign, its ids.
        blanks: signs in the blank.

    Raises:
        ConfigError: a sign has no token, or begins another.
    """
    signs = [tuple(one) for one in spellings]
    clash = any(a != b and b[: len(a)] == a for a in signs for b in signs)
    if clash or not all(signs) or len(set(signs)) < len(signs):
        raise ConfigError("every sign needs a token of its own, and none may begin another")
    words = [*signs, *((one,) for one in prefix)]
    size = max(map(len, words))
    table = torch.tensor([[*word, *[0] * (size - len(word))] for word in words])
    lengths = torch.tensor([len(word) for word in words])
    begun = sorted({sign[:at] for sign in signs for at in range(len(sign))}, key=len)
    used = {one: at for at, one in enumerate(sorted({one for sign in signs for one in sign}))}

    def answer(ids: Tensor) -> Tensor:
        texts, ends = _joined(table[ids], lengths[ids])
        after = {start: _follow(seen, texts, ends, start, list(used)) for start in begun}
        odds = torch.stack(
            [
                torch.stack([after[sign[:at]][:, used[sign[at]]] for at in range(len(sign))]).sum(0)
                for sign in signs
            ],
            1,
        )
        rest = torch.log1p(-odds.double().logsumexp(1, keepdim=True).exp().clamp_max(1 - 1e-12))
        return torch.cat([odds.double(), rest], 1)[:, None]

    places = tuple(range(len(signs), len(words)))
    form = Format(prefix=places, alphabet=tuple(range(len(signs))), blanks=blanks)
    room = seen.context - len(prefix)
    view = SeenSpeech(answer=answer, vocab=len(words), context=len(prefix) + room // size)
    return view, form


def _joined(words: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """Write words of different lengths one behind the other; padded behind, with their ends."""
    is_there = torch.arange(words.shape[-1]) < lengths[..., None]
    places = is_there.flatten(1).long().cumsum(1) - 1
    ends = lengths.sum(1)
    out = torch.zeros(len(words), int(ends.max()) + 1, dtype=torch.long)
    last = out.shape[1] - 1
    out.scatter_(1, places.where(is_there.flatten(1), last), words.flatten(1))
    return out[:, :last], ends


def _follow(
    seen: SeenSpeech, texts: Tensor, ends: Tensor, start: tuple[int, ...], used: list[int]
) -> Tensor:
    """Return log-probabilities of the tokens `used` after each text and a few tokens more."""
    longer = torch.cat([texts, texts.new_zeros(len(texts), len(start))], 1)
    rows = torch.arange(len(texts))
    for at, one in enumerate(start):
        longer[rows, ends + at] = one
    scores = seen.answer(longer)
    where = (ends + len(start) - 1).to(scores.device)
    odds = scores[rows.to(scores.device), where].float().log_softmax(1)
    return odds[:, torch.tensor(used, device=odds.device)].cpu()
