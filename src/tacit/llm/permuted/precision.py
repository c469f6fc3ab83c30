"""How many fraction bits each value carries. Nothing is ever truncated: scales only add up."""

from dataclasses import dataclass, fields

from tacit.errors import ConfigError

WORD_BITS = 64
LEAST_REACH = 10
"""Bits in front of the point, sign included, that any masked value before a norm must have."""

QUERY_SPARE, OUT_SPARE = 2, 3
"""What turned queries and keys, and the output of attention, keep beyond the bits of a query."""

TURN_DROP, TURNED = 8, 18
"""What turned queries and keys lose, where the user had them back with few bits; what they keep at
most: their product fits 6 bytes."""

_WIDE_SCORES = 16
"""Bits in front of the point of scores from which on turned queries and keys keep fewer."""


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
        span: bits in front of the point, sign included, of what an activation or a softmax reads.
        reach: the same for the stream, and, as far as a word has room, for products with it before
            it is normalised. Many models have a first token whose stream reaches tens of thousands.
        look: what the user sees at least of a normalised masked value; the bits below need not
        travel.
        score: bits in front of the point, sign included, of attention scores.
        far: the same of the stream where a layer starts, if no text can exceed that; 0: ``reach``.
        gain: rows of the matrices that read the stream are at most 2^gain long. With it nothing
            wraps unnoticed; 0: not known, and see `tacit.llm.permuted.masks`.
        output_gain: the same for the matrix that gives the scores of tokens.
    """

    # 44 + 18 bits behind attention, and 47 + 17 of a product with the stream before its norm, are
    # what a word of 64 has room for.
    activation: int = 13
    weight: int = 17
    query: int = 13
    rotation: int = 13
    attention: int = 14
    skip: int = 20
    span: int = 12
    reach: int = 18
    look: int = 20
    score: int = 12
    far: int = 0
    gain: int = 0
    output_gain: int = 0

    def __post_init__(self) -> None:
        for field in fields(self):
            least = 0 if field.name in ("far", "gain", "output_gain") else 4
            if not least <= getattr(self, field.name) <= 32:
                raise ConfigError(
                    f"{field.name} must be between {least} and 32 bits, got "
                    f"{getattr(self, field.name)}"
                )
        turned = 2 * self.scores_kept + self.score + self.turn_drop
        if turned > WORD_BITS:
            raise ConfigError(
                f"turned queries and keys would need {turned} bits, and words have {WORD_BITS}; "
                "use fewer bits for queries or rotations"
            )
        rooms = (("raw", LEAST_REACH), ("middle", self.reach), ("stream", self.stream_span))
        for name, room in rooms:
            if getattr(self, name) > WORD_BITS - room:
                raise ConfigError(
                    f"{name} values would have {getattr(self, name)} fraction bits, and {room} in "
                    f"front of the point do not fit {WORD_BITS}; use fewer bits"
                )
        if self.skip > self.stream:
            raise ConfigError(f"skip must not be above {self.stream} bits, got {self.skip}")

    @property
    def stream(self) -> int:
        """Return the bits of the residual stream where a layer starts."""
        return self.activation + self.weight

    @property
    def stream_span(self) -> int:
        """Return the bits in front of the point of the residual stream where a layer starts."""
        return self.far or self.reach

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
        return self.merged <= WORD_BITS - self.reach

    @property
    def turn_drop(self) -> int:
        """Return how many low bits turned queries and keys lose, where they came with few."""
        turned = self.query + self.rotation
        kept = TURNED - max(0, self.score - _WIDE_SCORES)
        return max(0, min(TURN_DROP, self.rotation - QUERY_SPARE), turned - kept)

    @property
    def scores_kept(self) -> int:
        """Return the bits that turned queries and keys keep."""
        return self.query + self.rotation - self.turn_drop

    @property
    def lean_middle(self) -> int:
        """Return the bits of the stream behind attention whose output lost all but a few."""
        return self.query + OUT_SPARE + self.weight

    @property
    def is_lean(self) -> bool:
        """Say whether queries, keys and values fit a word as a product gives them, turned too.

        Dropping low bits of both shares takes room at the top: the ring shrinks with them.
        """
        kept = self.query + QUERY_SPARE
        turned = self.score + kept + self.stream + self.rotation
        wide = 8 * self.word_bytes(max(self.stream, self.lean_middle))
        valued = wide + (self.attention - OUT_SPARE) + (self.stream - self.query)
        is_less = self.attention >= OUT_SPARE and self.stream >= self.query
        return is_less and max(turned, valued) <= WORD_BITS

    @property
    def raw_look(self) -> int:
        """Return what the user sees at least of a value that it is still to divide by a norm."""
        return self.look + 8

    def word_bytes(self, frac_bits: int) -> int:
        """Return the bytes of words with so many bits behind the point, and room before it."""
        return min(WORD_BITS, frac_bits + max(self.reach, self.span) + 7) // 8

    @property
    def narrow_bytes(self) -> int:
        """Return the bytes of a word on masked values that only feed an activation."""
        return min(WORD_BITS, self.stream + self.span + 7) // 8

    def words(self, score_bits: int, value_bytes: int) -> "WordSizes":
        """Return the words of attention, given the bits of its scores."""
        return WordSizes(
            score_bits=score_bits,
            weight_bits=self.attention,
            span=self.score,
            key_bytes=-(-(score_bits + self.score) // 8),
            seen_bytes=-(-(min(self.look, score_bits) + self.score) // 8),
            value_bytes=value_bytes,
        )


@dataclass(frozen=True, kw_only=True)
class WordSizes:
    """Bits and bytes of the masked values of attention.

    Attributes:
        score_bits: fraction bits of the product of a query and a key.
        weight_bits: fraction bits of attention weights.
        span: bits in front of the point of scores.
        key_bytes: bytes of a word of queries and keys.
        seen_bytes: bytes of a word of the scores that the user sees.
        value_bytes: bytes of a word of values, weights and what they give.
    """

    score_bits: int
    weight_bits: int
    span: int
    key_bytes: int
    seen_bytes: int
    value_bytes: int

    @property
    def drop(self) -> int:
        """Return how many low bits all shares of the scores lose; softmax ignores what all lose."""
        return max(0, self.score_bits + self.span - 8 * self.seen_bytes)

    @property
    def seen_bits(self) -> int:
        """Return the fraction bits of the scores that the user sees."""
        return self.score_bits - self.drop
