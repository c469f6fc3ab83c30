"""Operations that each party does on its own shares: nothing is sent, nothing can leak."""

from dataclasses import dataclass, replace

from torch import Tensor

from tacit.errors import InputError
from tacit.mpc import shapes
from tacit.mpc.contract import Channel, Declaration, Roles
from tacit.mpc.material.randomness import Parts
from tacit.mpc.share import WORD_BITS, AnyShare, AnySpec, Share, Spec, words_of


def numeric(spec: AnySpec, operation: str, *, any_ring: bool = False) -> Spec:
    """Return the spec of a number that may take part in arithmetic, or say why it may not."""
    if not isinstance(spec, Spec):
        raise InputError(f"{operation} wants numbers, got secret bits; only opening is possible")
    if spec.deferred:
        raise InputError(
            f"{operation} after {spec.deferred}: under this protocol {spec.deferred} is applied by "
            "the receiver once the value is opened, so nothing can be computed on it; open it, or "
            "use protocol 'permuted3', whose helper computes it on the way"
        )
    if spec.ring_bits != WORD_BITS and not any_ring:
        raise InputError(
            f"{operation} wants a number modulo 2^{WORD_BITS}, got one modulo 2^{spec.ring_bits}; "
            "truncate it first"
        )
    return spec


def numeric_share(share: AnyShare) -> Share:
    """Narrow an operand to a share of numbers; `declare` has refused everything else."""
    assert isinstance(share, Share)  # noqa: S101 - cannot happen after `numeric`
    return share


def lift(words: Tensor, spec: Spec, frac_bits: int) -> Tensor:
    """Bring a share to more fraction bits, exactly."""
    return words if spec.frac_bits == frac_bits else words * (1 << (frac_bits - spec.frac_bits))


@dataclass(frozen=True)
class Add:
    """Add or subtract two secrets. Guarantee: nothing is sent. Cost: 0 rounds, 0 bytes."""

    sign: int = 1

    def declare(self, roles: Roles, *operands: AnySpec) -> Declaration:
        """Say what comes out."""
        x, y = (numeric(spec, "adding", any_ring=True) for spec in operands)
        return Declaration(out=self._out(x, y))

    def _out(self, x: Spec, y: Spec) -> Spec:
        shape = shapes.broadcast(x.shape, y.shape)
        frac_bits = max(x.frac_bits, y.frac_bits)
        largest = sum(one.largest << (frac_bits - one.frac_bits) for one in (x, y))
        ring_bits = min(x.ring_bits, y.ring_bits)
        return Spec(shape=shape, frac_bits=frac_bits, largest=largest, ring_bits=ring_bits)

    def run(self, channel: Channel, material: tuple[Parts, ...], *operands: AnyShare) -> AnyShare:
        """Add my shares."""
        x, y = (numeric_share(operand) for operand in operands)
        out = self._out(x.spec, y.spec)
        left, right = (lift(s.words, s.spec, out.frac_bits) for s in (x, y))
        return Share(left + right if self.sign > 0 else left - right, out)


@dataclass(frozen=True)
class Scale:
    """Multiply a secret by a public number, which takes the given fraction bits.

    Fewer than none move the point to the right: a power of two then costs no room in the word.

    Guarantee: nothing is sent. Cost: 0 rounds, 0 bytes. Error: that of rounding the factor.
    """

    factor: float
    frac_bits: int

    def declare(self, roles: Roles, *operands: AnySpec) -> Declaration:
        """Say what comes out."""
        return Declaration(out=self._out(numeric(operands[0], "scaling", any_ring=True)))

    def _out(self, x: Spec) -> Spec:
        # Keeps the encoded factor within a word even where x itself is tiny.
        factor = Spec(shape=(), frac_bits=self.frac_bits, largest=abs(self._word()))
        largest, frac_bits = x.largest * factor.largest, x.frac_bits + self.frac_bits
        return replace(x, frac_bits=frac_bits, largest=largest)

    def _word(self) -> int:
        return round(self.factor * 2.0**self.frac_bits)

    def run(self, channel: Channel, material: tuple[Parts, ...], *operands: AnyShare) -> AnyShare:
        """Scale my share."""
        x = numeric_share(operands[0])
        out = self._out(x.spec)
        return Share(x.words * self._word(), out)


@dataclass(frozen=True)
class Tune:
    """Multiply a secret by a number that both parties know when it is time, but the plan does not.

    Both hold the number itself, not shares of it: whoever calls this answers for that.

    Guarantee: nothing is sent. Cost: 0 rounds, 0 bytes. Error: that of rounding the number.
    """

    def declare(self, roles: Roles, *operands: AnySpec) -> Declaration:
        """Say what comes out."""
        x, number = (numeric(spec, "scaling") for spec in operands)
        return Declaration(out=self._out(x, number))

    def _out(self, x: Spec, number: Spec) -> Spec:
        frac_bits = x.frac_bits + number.frac_bits
        return Spec(shape=x.shape, frac_bits=frac_bits, largest=x.largest * number.largest)

    def run(self, channel: Channel, material: tuple[Parts, ...], *operands: AnyShare) -> AnyShare:
        """Scale my share."""
        x, number = (numeric_share(operand) for operand in operands)
        return Share(x.words * number.words, self._out(x.spec, number.spec))


@dataclass(frozen=True)
class Shift:
    """Add a public number. Guarantee: nothing is sent. Cost: 0 rounds, 0 bytes."""

    amount: float

    def declare(self, roles: Roles, *operands: AnySpec) -> Declaration:
        """Say what comes out."""
        return Declaration(out=self._out(numeric(operands[0], "shifting")))

    def _out(self, x: Spec) -> Spec:
        return replace(x, largest=x.largest + words_of(abs(self.amount), x.frac_bits))

    def run(self, channel: Channel, material: tuple[Parts, ...], *operands: AnyShare) -> AnyShare:
        """Add the number to P0's share."""
        x = numeric_share(operands[0])
        out = self._out(x.spec)
        if not channel.is_first:
            return Share(x.words, out)
        return Share(x.words + round(self.amount * 2.0**x.spec.frac_bits), out)


@dataclass(frozen=True)
class Sum:
    """Add up along a dimension. Guarantee: nothing is sent. Cost: 0 rounds, 0 bytes.

    A ``bound`` of the sum may be known that is less than its terms say.
    """

    dim: int
    bound: float | None = None

    def declare(self, roles: Roles, *operands: AnySpec) -> Declaration:
        """Say what comes out."""
        return Declaration(out=self._out(numeric(operands[0], "summing", any_ring=True)))

    def _out(self, x: Spec) -> Spec:
        shape = shapes.reduce(x.shape, self.dim)
        largest = x.largest * x.shape[self.dim]
        if self.bound is not None:
            largest = min(largest, words_of(self.bound, x.frac_bits))
        return replace(x, shape=shape, largest=largest)

    def run(self, channel: Channel, material: tuple[Parts, ...], *operands: AnyShare) -> AnyShare:
        """Sum my share."""
        x = numeric_share(operands[0])
        out = self._out(x.spec)
        return Share(x.words.sum(dim=self.dim), out)


@dataclass(frozen=True)
class CumulativeSum:
    """Give running sums along a dimension. Guarantee: nothing is sent. Cost: 0 rounds, 0 bytes."""

    dim: int

    def declare(self, roles: Roles, *operands: AnySpec) -> Declaration:
        """Say what comes out."""
        return Declaration(out=self._out(numeric(operands[0], "summing")))

    def _out(self, x: Spec) -> Spec:
        return replace(x, largest=x.largest * x.shape[shapes.axis(x.shape, self.dim)])

    def run(self, channel: Channel, material: tuple[Parts, ...], *operands: AnyShare) -> AnyShare:
        """Sum my share."""
        x = numeric_share(operands[0])
        return Share(x.words.cumsum(dim=self.dim), self._out(x.spec))


@dataclass(frozen=True)
class Reshape:
    """Give the same elements another shape. Guarantee: nothing is sent. Cost: 0 rounds, 0 bytes."""

    shape: tuple[int, ...]

    def declare(self, roles: Roles, *operands: AnySpec) -> Declaration:
        """Say what comes out."""
        x = numeric(operands[0], "reshaping", any_ring=True)
        shape = shapes.reshape(x.shape, self.shape)
        return Declaration(out=replace(x, shape=shape))

    def run(self, channel: Channel, material: tuple[Parts, ...], *operands: AnyShare) -> AnyShare:
        """Reshape my share."""
        x = numeric_share(operands[0])
        words = x.words.reshape(self.shape)
        return Share(words, replace(x.spec, shape=tuple(words.shape)))


@dataclass(frozen=True)
class Transpose:
    """Swap two dimensions. Guarantee: nothing is sent. Cost: 0 rounds, 0 bytes."""

    first: int
    second: int

    def declare(self, roles: Roles, *operands: AnySpec) -> Declaration:
        """Say what comes out."""
        x = numeric(operands[0], "transposing", any_ring=True)
        shape = shapes.transpose(x.shape, self.first, self.second)
        return Declaration(out=replace(x, shape=shape))

    def run(self, channel: Channel, material: tuple[Parts, ...], *operands: AnyShare) -> AnyShare:
        """Transpose my share."""
        x = numeric_share(operands[0])
        words = x.words.transpose(self.first, self.second)
        return Share(words, replace(x.spec, shape=tuple(words.shape)))


@dataclass(frozen=True)
class Pick:
    """Take one index of the first dimension. Guarantee: nothing is sent. Cost: 0 rounds."""

    index: int

    def declare(self, roles: Roles, *operands: AnySpec) -> Declaration:
        """Say what comes out."""
        x = numeric(operands[0], "taking a part")
        if self.index not in range(x.shape[shapes.axis(x.shape, 0)]):
            raise InputError(f"{x.shape} has no part {self.index}")
        return Declaration(out=replace(x, shape=x.shape[1:]))

    def run(self, channel: Channel, material: tuple[Parts, ...], *operands: AnyShare) -> AnyShare:
        """Take the part of my share."""
        x = numeric_share(operands[0])
        return Share(x.words[self.index], replace(x.spec, shape=x.spec.shape[1:]))


@dataclass(frozen=True)
class Halve:
    """Take the first or the last half of a dimension; of an odd length both hold the middle.

    Guarantee: nothing is sent. Cost: 0 rounds, 0 bytes.
    """

    dim: int
    takes_last: bool

    def declare(self, roles: Roles, *operands: AnySpec) -> Declaration:
        """Say what comes out."""
        x = numeric(operands[0], "halving")
        shape = list(x.shape)
        at = shapes.axis(x.shape, self.dim)
        shape[at] = -(-shape[at] // 2)
        return Declaration(out=replace(x, shape=tuple(shape)))

    def run(self, channel: Channel, material: tuple[Parts, ...], *operands: AnyShare) -> AnyShare:
        """Take that part of my share."""
        x = numeric_share(operands[0])
        size = x.spec.shape[self.dim]
        length = -(-size // 2)
        words = x.words.narrow(self.dim, size - length if self.takes_last else 0, length)
        return Share(words, replace(x.spec, shape=tuple(words.shape)))


@dataclass(frozen=True)
class Restate:
    """Replace the bound of a value by a smaller one that is known to hold.

    Guarantee: nothing is sent. Whoever calls this must know that the bound holds.
    Cost: 0 rounds, 0 bytes.
    """

    bound: float

    def declare(self, roles: Roles, *operands: AnySpec) -> Declaration:
        """Say what comes out."""
        return Declaration(out=self._out(numeric(operands[0], "restating", any_ring=True)))

    def _out(self, x: Spec) -> Spec:
        return replace(x, largest=words_of(self.bound, x.frac_bits))

    def run(self, channel: Channel, material: tuple[Parts, ...], *operands: AnyShare) -> AnyShare:
        """Give the same share another bound."""
        x = numeric_share(operands[0])
        return Share(x.words, self._out(x.spec))


@dataclass(frozen=True)
class DeferToReceiver:
    """Leave a strictly increasing function to whoever the value is opened to.

    Guarantee: nothing is sent; the receiver of f(x) could compute x from it, so opening x to it
    reveals the same. If something else is done with the result, it is computed after all.
    Cost: 0 rounds, 0 bytes; exact.
    """

    function: str

    def declare(self, roles: Roles, *operands: AnySpec) -> Declaration:
        """Say what comes out."""
        x = numeric(operands[0], self.function)
        return Declaration(out=replace(x, deferred=self.function))

    def run(self, channel: Channel, material: tuple[Parts, ...], *operands: AnyShare) -> AnyShare:
        """Mark the share."""
        x = numeric_share(operands[0])
        return Share(x.words, replace(x.spec, deferred=self.function))
