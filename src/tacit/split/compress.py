"""The compressors by name, and the job line that chooses one."""

from dataclasses import dataclass, fields

from tacit.errors import ConfigError
from tacit.split.codec import Codec
from tacit.split.selection import Above, Everything, First, RandomisedTopK, Sparsifier, TopK
from tacit.split.values import Exact, Unbiased, Uniform, ValueCode

MAX_WIDTH = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Compression:
    """What is asked of a compressor; a setting that its kind does not have is refused.

    Attributes:
        kind: none, shrink, quantise, topk, randtopk, randtopk-coded or l1.
        k: how many values of a row are kept.
        alpha: how often a kept value is drawn from outside the top k while training.
        bits: bits of a value on the way forward.
        gradient_bits: bits of a value on the way back.
        weight: of the L1 loss.
        threshold: magnitudes up to this are not sent once an L1 model serves.
        feedback: whether the feature owner adds what it could not send of a row to that row's
            values the next time.
    """

    kind: str = "none"
    k: int | None = None
    alpha: float | None = None
    bits: int | None = None
    gradient_bits: int | None = None
    weight: float | None = None
    threshold: float | None = None
    feedback: bool = False

    def __post_init__(self) -> None:
        if self.kind not in COMPRESSORS:
            known = ", ".join(sorted(COMPRESSORS))
            raise ConfigError(f"compress.kind: wanted one of {known}, got {self.kind!r}")
        needs, takes = COMPRESSORS[self.kind]
        asked = {
            field.name: getattr(self, field.name) for field in fields(self) if field.name != "kind"
        }
        given = {name for name, value in asked.items() if value is not None and value is not False}
        missing, strange = needs - given, given - needs - takes
        if missing:
            raise ConfigError(f"compress: kind {self.kind!r} needs {', '.join(sorted(missing))}")
        if strange:
            known = ", ".join(sorted(needs | takes)) or "no settings"
            raise ConfigError(
                f"compress: kind {self.kind!r} has no {', '.join(sorted(strange))}; "
                f"it takes {known}"
            )
        if self.k is not None and self.k < 1:
            raise ConfigError(f"compress.k: wanted at least 1, got {self.k}")
        if self.alpha is not None and not 0 <= self.alpha <= 1:
            raise ConfigError(f"compress.alpha: wanted a number from 0 to 1, got {self.alpha}")
        for name in ("bits", "gradient_bits"):
            bits = getattr(self, name)
            if bits is not None and not 1 <= bits <= 16:
                raise ConfigError(f"compress.{name}: wanted 1 to 16, got {bits}")
        for name in ("weight", "threshold"):
            number = getattr(self, name)
            if number is not None and not 0 <= number < float("inf"):
                raise ConfigError(f"compress.{name}: wanted a number of at least 0, got {number}")


def make_codec(compression: Compression, width: int) -> Codec:
    """Make the compressor for a cut layer of `width` values.

    Raises:
        ConfigError: more values are to be kept than there are.
    """
    if not 1 <= width <= MAX_WIDTH:
        raise ConfigError(f"a cut layer has between 1 and {MAX_WIDTH} values, got {width}")
    if compression.k is not None and compression.k > width:
        raise ConfigError(
            f"compress.k: cannot keep {compression.k} of the {width} values of the cut layer; "
            f"wanted at most {width}"
        )
    c, k, exact = compression, compression.k or width, Exact()
    everything = Everything(width)
    training: Sparsifier = everything
    serving: Sparsifier = everything
    forward: ValueCode = exact
    backward: ValueCode = exact
    l1_weight = 0.0
    match c.kind:
        case "shrink":
            training = serving = First(k)
        case "quantise":
            forward = Uniform(c.bits or 8)
        case "topk":
            training = serving = TopK(k)
        case "randtopk" | "randtopk-coded":
            training, serving = RandomisedTopK(k, 0.1 if c.alpha is None else c.alpha), TopK(k)
        case "l1":
            serving = Above(0.01 if c.threshold is None else c.threshold)
            l1_weight = 0.001 if c.weight is None else c.weight
    if c.kind == "randtopk-coded":
        forward, backward = Uniform(c.bits or 8), Unbiased(c.gradient_bits or 8)
    return Codec(
        width=width,
        training=training,
        serving=serving,
        forward=forward,
        backward=backward,
        ranks_subsets=c.kind == "randtopk-coded",
        l1_weight=l1_weight,
    )


COMPRESSORS: dict[str, tuple[frozenset[str], frozenset[str]]] = {
    "none": (frozenset(), frozenset()),
    "shrink": (frozenset({"k"}), frozenset()),
    "quantise": (frozenset({"bits"}), frozenset({"feedback"})),
    "topk": (frozenset({"k"}), frozenset({"feedback"})),
    "randtopk": (frozenset({"k"}), frozenset({"alpha", "feedback"})),
    "randtopk-coded": (
        frozenset({"k"}),
        frozenset({"alpha", "bits", "gradient_bits", "feedback"}),
    ),
    "l1": (frozenset(), frozenset({"weight", "threshold"})),
}
"""Every compressor there is, with the settings that it needs and those that it may have.

One that is not here does not exist; one that is here is tested."""
