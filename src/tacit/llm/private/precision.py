"""How many fraction bits each wire carries. Nothing is ever truncated: scales only add up."""

from dataclasses import dataclass, fields

from tacit.errors import ConfigError

WORD_BITS = 64
SCORE_SPAN = 12
"""Bits in front of the point of attention scores: even a small model reaches 128 and more."""


@dataclass(frozen=True, kw_only=True)
class Precision:
    """Fraction bits of every kind of value; both sides and the dealer use the same.

    A linear layer adds the bits of its weights to those of its input. The user, who sees a
    permuted value in the clear, sends it back with as many bits as we like; so scales return to
    ``activation`` at every look.

    Attributes:
        activation: normalised vectors and outputs of an activation.
        weight: weights of linear layers.
        query: queries, keys and values, after the user's look and before rotation.
        rotation: cosines and sines.
        attention: attention weights.
        skip: the residual stream after the user's look.
        span: bits in front of the point, sign included, on wires with words of their own length.
    """

    activation: int = 16
    weight: int = 18
    query: int = 13
    rotation: int = 13
    attention: int = 14
    skip: int = 20
    span: int = 12

    def __post_init__(self) -> None:
        for field in fields(self):
            if not 4 <= getattr(self, field.name) <= 32:
                raise ConfigError(
                    f"{field.name} must be between 4 and 32 bits, got {getattr(self, field.name)}"
                )
        if self.scores > WORD_BITS - SCORE_SPAN:
            raise ConfigError(
                f"scores would have {self.scores} fraction bits, and {SCORE_SPAN} in front of the "
                f"point do not fit {WORD_BITS}; use fewer bits for queries or rotations"
            )
        for name in ("raw", "middle"):
            if getattr(self, name) > WORD_BITS - self.span:
                raise ConfigError(
                    f"{name} wires would have {getattr(self, name)} fraction bits, and {self.span} "
                    f"in front of the point do not fit {WORD_BITS}; use fewer bits"
                )
        if self.skip > self.stream:
            raise ConfigError(f"skip must not be above {self.stream} bits, got {self.skip}")

    @property
    def stream(self) -> int:
        """Return the bits of the residual stream where a layer starts."""
        return self.activation + self.weight

    @property
    def raw(self) -> int:
        """Return the bits of a linear layer that is fed the stream before its norm."""
        return self.stream + self.weight

    @property
    def middle(self) -> int:
        """Return the bits of the residual stream behind attention."""
        return self.query + self.attention + self.weight

    @property
    def merged(self) -> int:
        """Return the bits of a linear layer that is fed the stream behind attention."""
        return self.middle + self.weight

    @property
    def can_merge(self) -> bool:
        """Say whether there is room for that in a word."""
        return self.merged <= WORD_BITS - self.span

    @property
    def scores(self) -> int:
        """Return the bits of attention scores."""
        return 2 * (self.query + self.rotation)

    @property
    def narrow_bytes(self) -> int:
        """Return the bytes of a word on wires that only feed an activation."""
        return min(8, -(-(self.stream + self.span) // 8))


COMPACT = Precision(activation=13, weight=15)
"""40-bit words in front of activations, and weights that fit two bytes below 1 in magnitude."""

BRIEF = Precision(activation=12, weight=12, query=12, attention=12, span=14)
"""Few enough bits to merge a norm with the activation behind it: fewer messages, more error."""
