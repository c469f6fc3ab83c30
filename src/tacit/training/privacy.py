"""Differential privacy of a training on shares: what is asked for, the noise, what is claimed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from tacit.errors import ConfigError
from tacit.result import Claim
from tacit.training.makers import NoisePlan

Looks = Literal["none", "noisy", "public"]
Start = Literal["public", "average", "best"]
Noise = Literal["parts", "joint"]
Sampling = Literal["none", "hidden"]
SMALLEST_CLIP, LARGEST_CLIP = 2.0**-6, 2.0
PRIVATE_BITS = 16
"""The proof of `rsqrt_below` wants so many fraction bits."""


@dataclass(frozen=True, kw_only=True)
class Privacy:
    """What a training may tell about one record.

    Attributes:
        epsilon: of the whole training, looks included.
        delta: at which it holds; below one over the number of rows.
        clip: how long the gradient of a record may be; rows have norm 1 at most.
        looks: what is shown on the way of rows that are kept for measuring: nothing; the number of
            right answers with noise, which is paid for; or loss and accuracy as they are, of rows
            about which nothing is promised.
        look_noise: the standard deviation of that noise, in rows, and of the noise of a choice.
        start: what a training begins with: public weights; or models that owners train alone with
            DP, which meet on shares: their average, or the "best" of these and their average by
            right answers with noise. None of it is ever opened, and all of it is in the ledger.
        start_steps: how many steps every owner takes alone.
        noise: where it comes from: all parties draw "parts" of it; or it is "joint", sampled on
            shares by the two that compute: nobody knows more than a small part of it, and less is
            needed in all.
        sampling: "none" for all rows in every step, whose claim holds towards everyone; "hidden"
            for steps on rows that the two computing parties draw: their claim is the one of steps
            on all rows, that of everyone else is smaller.
    """

    epsilon: float
    delta: float
    clip: float = 1.0
    looks: Looks = "none"
    look_noise: float = 20.0
    start: Start = "public"
    start_steps: int = 0
    noise: Noise = "parts"
    sampling: Sampling = "none"

    def __post_init__(self) -> None:
        if not 0 < self.epsilon <= 200:  # False for NaN as well
            raise ConfigError(f"epsilon must be above 0 and at most 200, got {self.epsilon}")
        if not 0 < self.delta < 1:
            raise ConfigError(f"delta must be above 0 and below 1, got {self.delta}")
        if not SMALLEST_CLIP <= self.clip <= LARGEST_CLIP:
            raise ConfigError(
                f"clip must be from {SMALLEST_CLIP} to {LARGEST_CLIP}: rows have norm 1 at most, "
                f"got {self.clip}"
            )
        if self.looks not in ("none", "noisy", "public"):
            raise ConfigError(f"looks are 'none', 'noisy' or 'public', got {self.looks!r}")
        if not 1 <= self.look_noise <= 256:
            raise ConfigError(f"look_noise must be from 1 to 256 rows, got {self.look_noise}")
        if self.start not in ("public", "average", "best") or (
            (self.start != "public") != (self.start_steps > 0)
        ):
            raise ConfigError(
                "a start is 'public' without start_steps, or 'average' or 'best' with some, got "
                f"{self.start!r} with {self.start_steps}"
            )
        if self.noise not in ("parts", "joint"):
            raise ConfigError(f"noise is 'parts' or 'joint', got {self.noise!r}")
        if self.sampling not in ("none", "hidden"):
            raise ConfigError(f"sampling is 'none' or 'hidden', got {self.sampling!r}")

    def against(
        self,
        *,
        split: str,
        accumulate: int,
        frac_bits: int,
        show_to: Sequence[str],
        score_to: Sequence[str],
    ) -> dict[str, str]:
        """Say what of a training's settings does not go with this, all at once and by its name."""
        wrong = {}
        if split == "columns":
            wrong["split"] = "privacy wants split='rows': the norm of a row is known to its owner"
        if accumulate != 1:
            wrong["accumulate"] = "with privacy a step takes its rows at once: leave accumulate out"
        if frac_bits < PRIVATE_BITS:
            wrong["frac_bits"] = (
                f"privacy wants frac_bits of {PRIVATE_BITS} at least: the proof of clipping counts "
                f"on it, got {frac_bits}"
            )
        if score_to and self.looks != "public":
            wrong["score_to"] = (
                "score_to opens scores of held-out rows without noise: wanted looks='public'"
            )
        if bool(show_to) != (self.looks != "none"):
            wrong["show_to"] = (
                f"show_to names {', '.join(show_to) or 'nobody'}, but privacy looks are "
                f"{self.looks!r}; looks cost ε ('noisy') or want rows that are 'public'"
            )
        return wrong


@dataclass(frozen=True, kw_only=True, eq=False)
class PrivacyPlan:
    """How much noise there is and who makes it, and what is claimed: from public facts alone.

    Attributes:
        steps: the noise of a step.
        looks: the noise of a look; None where none is added.
        choice: the noise of the choice between starts; None where there is none.
        events: what is done to every record; `tacit.dp.ledger_from_record` makes a `Ledger` of it.
        claim: ε, δ, relation and accountant, and what they rest on.
        inner: where rows are sampled, the claim towards the two that draw them; else None.
        second: ε by a second conversion of the same divergences; None without a guarantee.
    """

    steps: NoisePlan
    looks: NoisePlan | None
    choice: NoisePlan | None
    # As `tacit.dp.ledger_to_record` writes it: accountants are heavy, and not loaded here.
    events: Sequence[Mapping[str, object]]
    claim: Claim
    second: float | None
    inner: Claim | None = None

    @property
    def makers(self) -> tuple[str, ...]:
        """Return who makes noise."""
        return self.steps.makers

    def sentence(self) -> str:
        """Say what is promised, in a line."""
        claim = self.claim
        if claim.epsilon is None:
            return "privacy: no guarantee"
        text = (
            f"privacy: ε = {claim.epsilon:.3f} at δ = {claim.delta:g} for {claim.relation}, by "
            f"{claim.accountant}"
        )
        if self.inner is not None and self.inner.epsilon is not None:
            text += f"; ε = {self.inner.epsilon:.3f} towards the two that compute"
        return text


@dataclass(frozen=True, kw_only=True)
class Measures:
    """The public facts of a private training that its noise follows from.

    Attributes:
        makers: who makes noise.
        computing: the two that hold shares.
        roundings: see `sensitivity`.
        weights: how many numbers are trained.
        steps: how many are taken.
        rate: with which probability a row is in a step; 1 for all rows.
        overflow: how likely a step has no room for a row that was drawn.
        looks: how often rows that are kept for measuring are looked at.
        rows: how many there are, in all.
        answers: how many a row has: one, or one per token.
        owners: how many there are, and so many own models.
        frac_bits: of the training.
        protocol: with which it runs.
    """

    makers: tuple[str, ...]
    computing: tuple[str, str]
    roundings: tuple[tuple[float, int], ...]
    weights: int
    steps: int
    looks: int
    rows: int
    answers: int
    owners: int
    frac_bits: int
    protocol: str
    rate: float = 1.0
    overflow: float = 0.0
