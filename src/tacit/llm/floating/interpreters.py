"""The three parties' ways through a pass in floating-point shares.

Every mask is λ times as wide as what it covers, so it grows with every product: to λ^5 behind
attention. Doubles carry that for λ up to `LARGEST`. Whatever is sent lies on the grid of the widest
mask in it.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from tacit.errors import FrameError
from tacit.llm.floating.noise import Noise, to_grid
from tacit.llm.floating.program import Equation, Function, MaskedValue, multiply, terms
from tacit.llm.floating.sizes import apply
from tacit.party import Session
from tacit.result import Phase

LARGEST = 128.0


@dataclass(frozen=True)
class Scales:
    """Public numbers: λ, and the usual size of every weight and masked value."""

    ratio: float
    sizes: Mapping[str, float]

    def outer(self, name: str) -> float:
        """Return how wide the mask of a value is that a party sees for the first time."""
        return self.ratio * self.sizes[name]

    def reveal_mask(self, label: str) -> float:
        """Return how wide the mask is that the user takes off when it looks."""
        return self.outer(label if label == "scores" else f"{label}.in")

    def shown(self, label: str, x: MaskedValue) -> float:
        """Return how wide the masks are of what goes to a look at a masked value."""
        return max(x.spread, self.reveal_mask(label))

    def linear(self, name: str, x: MaskedValue) -> tuple[float, float]:
        """Return the spreads of a product's mask, and of what hides its parts from the owner."""
        root = float(x.share.shape[-1]) ** 0.5 if self.is_matrix(name) else 1.0
        reach = max(x.spread * root * self.sizes[f"{name}.weight"], self.sizes[name])
        return self.ratio * reach, self.ratio**2 * reach

    def product(
        self, label: str, equation: Equation, x: MaskedValue, y: MaskedValue
    ) -> tuple[float, float]:
        """Return the same for a product of two masked values."""
        root = float(terms(equation, x.share, y.share)) ** 0.5
        left = max(x.spread, self.outer(f"{label}.x"))
        right = max(y.spread, self.outer(f"{label}.y"))
        reach = root * left * right
        return self.ratio * reach, self.ratio * reach

    def is_matrix(self, name: str) -> bool:
        """Say whether a map is a matrix, and not a diagonal."""
        return not any(part in name for part in ("skip", "post", "_norm"))


class Mail:
    """Doubles on their way, in the order of the steps of a pass and of each phase."""

    def __init__(self, session: Session, run: int) -> None:
        self._session, self._run = session, run
        self._sent: Counter[tuple[str, Phase]] = Counter()
        self._taken: Counter[tuple[str, Phase]] = Counter()

    def send(self, to: str, values: Tensor, spread: float, *, phase: Phase = "online") -> None:
        """Send doubles under masks of a spread, on its grid."""
        self._sent[to, phase] += 1
        words = to_grid(values, spread).contiguous().view(torch.int64)
        tag = f"{phase}/{self._run}.{self._sent[to, phase]}"
        self._session.send(to, tag, words, phase=phase)

    def recv(self, sender: str, shape: tuple[int, ...], phase: Phase = "online") -> Tensor:
        """Receive doubles.

        Raises:
            FrameError: one of them is no number, or infinite.
        """
        self._taken[sender, phase] += 1
        tag = f"{phase}/{self._run}.{self._taken[sender, phase]}"
        values = self._session.recv(sender, tag, shape).view(torch.float64)
        if not bool(torch.isfinite(values).all()):
            raise FrameError(sender, f"{tag}: sent what is no finite number")
        return values


class Permutations:
    """Secret orders, drawn by the owner and the dealer."""

    def __init__(self, noise: Noise) -> None:
        self._prf = noise.prf

    def draw(self, label: str, rows: int, width: int, valid: Tensor | None) -> Tensor:
        """Draw a permutation of each row: of its entries, or of heads and the keys within them."""
        if valid is None:
            return self._prf.shuffles(f"{label}.permutation", rows, width)
        places = valid.shape[1]
        heads = width // places
        keys = self._prf.shuffles_within(f"{label}.keys", heads, valid)
        first = self._prf.shuffles(f"{label}.heads", rows, heads).unsqueeze(2)
        return (keys.gather(1, first.expand_as(keys)) + first * places).flatten(1)


def _wide(permutation: Tensor, parts: int) -> Tensor:
    return permutation.unsqueeze(1).expand(-1, parts, -1)


class Asked:
    """What the user draws for itself and shares with the dealer: the same at both."""

    def __init__(self, noise: Noise, scales: Scales) -> None:
        self.noise, self.scales = noise, scales

    def out(self, label: str, like: tuple[int, ...], spread: float) -> MaskedValue:
        """Draw r of a new masked value."""
        return MaskedValue(self.noise.draw(f"{label}.mask", like, spread), spread)

    def hidden(self, label: str, like: tuple[int, ...], spread: float) -> Tensor:
        """Draw what hides one part of a sum from the owner."""
        return self.noise.draw(f"{label}.noise", like, spread)

    def reveal_mask(self, label: str, like: tuple[int, ...]) -> Tensor:
        """Draw what the user takes off when it looks."""
        return self.noise.draw(f"{label}.reveal_mask", like, self.scales.reveal_mask(label))

    def answer_mask(self, label: str, like: tuple[int, ...]) -> Tensor:
        """Draw what the user puts on its answer."""
        return self.noise.draw(f"{label}.answer_mask", like, self.scales.outer(label))

    def looked(self, label: str, x: MaskedValue) -> MaskedValue:
        """Draw r of the answer to a look."""
        shape = (x.share.shape[0], x.share.shape[2])
        return self.out(label, shape, self.scales.outer(label))


class DealerInterpreter:
    """Draw every mask, and send the owner what makes them fit. Nothing here depends on a text."""

    def __init__(
        self,
        mail: Mail,
        owner: str,
        *,
        user: Noise,
        owner_noise: Noise,
        scales: Scales,
        masks: Mapping[str, Tensor],
    ) -> None:
        self._mail, self._owner, self._scales, self._masks = mail, owner, scales, masks
        self._asked, self._own = Asked(user, scales), owner_noise
        self._permutations = Permutations(owner_noise)

    def linear(self, name: str, x: MaskedValue) -> MaskedValue:
        """Send U·r − w."""
        spread, hiding = self._scales.linear(name, x)
        part = apply({f"{name}.weight": self._masks[name]}, name, x.share)
        shape = tuple(part.shape)
        self._give(part - self._asked.hidden(name, shape, hiding), hiding)
        return self._asked.out(name, shape, spread)

    def product(
        self, label: str, equation: Equation, x: MaskedValue, y: MaskedValue
    ) -> MaskedValue:
        """Send −(s·r + r·s) − g."""
        spread, hiding = self._scales.product(label, equation, x, y)
        s_x, s_y = owner_masks(self._own, self._scales, label, x, y)
        crossed = multiply(equation, s_x, y.share) + multiply(equation, x.share, s_y)
        shape = tuple(crossed.shape)
        self._give(-crossed - self._asked.hidden(label, shape, hiding), hiding)
        return self._asked.out(label, shape, spread)

    def look(
        self, label: str, x: MaskedValue, function: Function, valid: Tensor | None = None
    ) -> MaskedValue:
        """Send the masks of what is shown and of the answer, in the secret permutation."""
        rows, parts, width = x.share.shape
        permutation = self._permutations.draw(label, rows, width, valid)
        reveal_mask = self._asked.reveal_mask(label, tuple(x.share.shape))
        self._give(
            x.share.gather(2, _wide(permutation, parts)) - reveal_mask, self._scales.shown(label, x)
        )
        out = self._asked.looked(label, x)
        answer_mask = self._asked.answer_mask(label, (rows, width))
        self._give(answer_mask - out.share.gather(1, permutation), out.spread)
        return out

    def show(self, label: str, x: MaskedValue) -> Tensor | None:
        """Send the masks of what is shown."""
        rows, width = x.share.shape
        permutation = self._permutations.draw(label, rows, width, None)
        reveal_mask = self._asked.reveal_mask(label, tuple(x.share.shape))
        self._give(x.share.gather(1, permutation) - reveal_mask, self._scales.shown(label, x))
        return None

    def _give(self, values: Tensor, spread: float) -> None:
        self._mail.send(self._owner, values, spread, phase="offline")


class PreparingInterpreter:
    """The user before a pass: send the owner what depends on masks alone."""

    def __init__(
        self, mail: Mail, owner: str, *, user: Noise, scales: Scales, masked: Mapping[str, Tensor]
    ) -> None:
        self._mail, self._owner, self._scales, self._masked = mail, owner, scales, masked
        self._asked = Asked(user, scales)

    def linear(self, name: str, x: MaskedValue) -> MaskedValue:
        """Send (W − U)·r + w − r of the result."""
        spread, hiding = self._scales.linear(name, x)
        part = apply({f"{name}.weight": self._masked[name]}, name, x.share)
        shape = tuple(part.shape)
        out = self._asked.out(name, shape, spread)
        fixed = part + self._asked.hidden(name, shape, hiding) - out.share
        self._mail.send(self._owner, fixed, hiding, phase="offline")
        return out

    def product(
        self, label: str, equation: Equation, x: MaskedValue, y: MaskedValue
    ) -> MaskedValue:
        """Draw r of the result."""
        spread, _ = self._scales.product(label, equation, x, y)
        shape = tuple(multiply(equation, x.share, y.share).shape)
        return self._asked.out(label, shape, spread)

    def look(
        self, label: str, x: MaskedValue, function: Function, valid: Tensor | None = None
    ) -> MaskedValue:
        """Draw r of the result."""
        return self._asked.looked(label, x)

    def show(self, label: str, x: MaskedValue) -> Tensor | None:
        """Do nothing."""
        return None


class AskingInterpreter:
    """The user online: compute in the clear what it sees in secret permutations."""

    def __init__(
        self, mail: Mail, owner: str, *, user: Noise, scales: Scales, outs: Mapping[str, int]
    ) -> None:
        self._mail, self._owner, self._scales, self._outs = mail, owner, scales, outs
        self._asked = Asked(user, scales)

    def linear(self, name: str, x: MaskedValue) -> MaskedValue:
        """Draw r of the result again."""
        spread, _ = self._scales.linear(name, x)
        return self._asked.out(name, (x.share.shape[0], self._outs[name]), spread)

    def product(
        self, label: str, equation: Equation, x: MaskedValue, y: MaskedValue
    ) -> MaskedValue:
        """Take the owner's masked shares, and answer with the user's part."""
        spread, hiding = self._scales.product(label, equation, x, y)
        left, right = (self._mail.recv(self._owner, tuple(one.share.shape)) for one in (x, y))
        half = multiply(equation, left, y.share)
        half += multiply(equation, x.share, right) + multiply(equation, x.share, y.share)
        shape = tuple(half.shape)
        out = self._asked.out(label, shape, spread)
        half += self._asked.hidden(label, shape, hiding) - out.share
        self._mail.send(self._owner, half, hiding)
        return out

    def look(
        self, label: str, x: MaskedValue, function: Function, valid: Tensor | None = None
    ) -> MaskedValue:
        """See values in a secret permutation, compute, and answer in it."""
        shape = tuple(x.share.shape)
        seen = self._mail.recv(self._owner, shape) + self._asked.reveal_mask(label, shape)
        answer = function(seen)
        out = self._asked.looked(label, x)
        answer_mask = self._asked.answer_mask(label, tuple(answer.shape))
        self._mail.send(self._owner, answer - answer_mask, out.spread)
        return out

    def show(self, label: str, x: MaskedValue) -> Tensor | None:
        """See the scores in a secret permutation."""
        shape = tuple(x.share.shape)
        return self._mail.recv(self._owner, shape) + self._asked.reveal_mask(label, shape)


class OwnerInterpreter:
    """The owner: multiply by its own weights, and put things in order."""

    def __init__(
        self,
        mail: Mail,
        *,
        user: str,
        dealer: str,
        noise: Noise,
        scales: Scales,
        weights: Mapping[str, Tensor],
    ) -> None:
        self._mail, self._user, self._dealer = mail, user, dealer
        self._own, self._scales, self._weights = noise, scales, weights
        self._permutations = Permutations(noise)

    def linear(self, name: str, x: MaskedValue) -> MaskedValue:
        """Multiply, and add what user and dealer sent."""
        spread, _ = self._scales.linear(name, x)
        out = apply(self._weights, name, x.share)
        for sender in (self._dealer, self._user):
            out = out + self._mail.recv(sender, tuple(out.shape), "offline")
        return MaskedValue(out, spread)

    def product(
        self, label: str, equation: Equation, x: MaskedValue, y: MaskedValue
    ) -> MaskedValue:
        """Send masked shares, and add the user's part."""
        spread, _ = self._scales.product(label, equation, x, y)
        s_x, s_y = owner_masks(self._own, self._scales, label, x, y)
        for side, one, mask in (("x", x, s_x), ("y", y, s_y)):
            widest = max(one.spread, self._scales.outer(f"{label}.{side}"))
            self._mail.send(self._user, one.share + mask, widest)
        out = multiply(equation, x.share, y.share)
        shape = tuple(out.shape)
        out = out + self._mail.recv(self._dealer, shape, "offline")
        return MaskedValue(out + self._mail.recv(self._user, shape), spread)

    def look(
        self, label: str, x: MaskedValue, function: Function, valid: Tensor | None = None
    ) -> MaskedValue:
        """Show a masked value in a secret permutation, and take the answer."""
        rows, parts, width = x.share.shape
        permutation = self._permutations.draw(label, rows, width, valid)
        delta = self._mail.recv(self._dealer, (rows, parts, width), "offline")
        shown = x.share.gather(2, _wide(permutation, parts)) + delta
        self._mail.send(self._user, shown, self._scales.shown(label, x))
        hidden = self._mail.recv(self._dealer, (rows, width), "offline")
        answer = self._mail.recv(self._user, (rows, width)) + hidden
        out = torch.empty_like(answer).scatter_(1, permutation, answer)
        return MaskedValue(out, self._scales.outer(label))

    def show(self, label: str, x: MaskedValue) -> Tensor | None:
        """Show the scores; gives the order, which the owner needs to name a token."""
        rows, width = x.share.shape
        permutation = self._permutations.draw(label, rows, width, None)
        delta = self._mail.recv(self._dealer, tuple(x.share.shape), "offline")
        shown = x.share.gather(1, permutation) + delta
        self._mail.send(self._user, shown, self._scales.shown(label, x))
        return permutation


def owner_masks(
    noise: Noise, scales: Scales, label: str, x: MaskedValue, y: MaskedValue
) -> tuple[Tensor, Tensor]:
    """Draw what the owner puts on its shares, as the owner or the dealer."""
    first, second = (
        noise.draw(f"{label}.{side}", tuple(value.share.shape), scales.outer(f"{label}.{side}"))
        for side, value in (("x", x), ("y", y))
    )
    return first, second
