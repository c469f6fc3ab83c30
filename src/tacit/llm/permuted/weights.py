"""A model's weights as ring matrices: folded at the owner, masked once for the user.

Norm weights and biases fold into the matrix behind them, so that no parameter is public (section
6.3.5.1 of document 000 publishes the weights of norms and positions). What a user gets is W − U,
step 2 of algorithm 6.1; U is not sent but drawn, from a key that the owner gives to the dealer.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from tacit import ring
from tacit.llm.model.architecture import Architecture, LanguageModel
from tacit.llm.model.folding import ALL, behind_norm, panels, stacked
from tacit.llm.permuted.blueprint import Blueprint
from tacit.llm.permuted.precision import Precision
from tacit.ring import Factor, Prg


@dataclass(frozen=True)
class Matrix:
    """A linear layer of the protocol: ``inputs`` numbers to ``outputs``; a diagonal has one row."""

    name: str
    outputs: int
    inputs: int
    is_diagonal: bool = False

    @property
    def shape(self) -> tuple[int, int]:
        """Return (inputs, outputs), as the words lie in memory."""
        return (1, self.outputs) if self.is_diagonal else (self.inputs, self.outputs)


def matrices(a: Architecture) -> tuple[Matrix, ...]:
    """List the linear layers of a model, in the order in which they are masked."""
    inner, kv = a.heads * a.head_dim, a.kv_heads * a.head_dim
    out = [Matrix("embed", a.width, a.vocab)]
    for i in range(a.layers):
        out += [
            Matrix(f"{i}.qkv", (inner + kv) * (2 if a.has_qk_norm else 1) + kv, a.width),
            Matrix(f"{i}.o", a.width, inner),
            Matrix(f"{i}.up", a.ffn * (2 if a.has_gate else 1), a.width),
            Matrix(f"{i}.down", a.width, a.ffn),
        ]
        diagonals = ["skip"] * a.skips_from_norm + ["post"] * a.has_post_norm
        out += [
            Matrix(f"{i}.{name}{j}", a.width, a.width, is_diagonal=True)
            for name in diagonals
            for j in (1, 2)
        ]
    return (*out, Matrix("output", a.vocab, a.width))


@dataclass(frozen=True, kw_only=True, eq=False)
class RingModel:
    """The owner's weights: narrow words (inputs, outputs) by name, and constants to add."""

    architecture: Architecture
    precision: Precision
    words: Mapping[str, Tensor]
    biases: Mapping[str, Tensor]


def encode_model(model: LanguageModel, precision: Precision) -> RingModel:
    """Fold and encode a model, matrix by matrix, in as few bytes as hold its words.

    Raises:
        RangeError: a weight is not finite.
    """
    a = model.architecture
    plan = Blueprint(a, precision)
    words, biases = dict[str, Tensor](), dict[str, Tensor]()
    embed, *layers, output = matrices(a)
    for matrix in (embed, output, *layers):  # the largest first: there is most room for them then
        scale = precision.stream if matrix.name == "embed" else precision.weight
        words[matrix.name], bias = _encoded(model, matrix, plan, scale)
        if bias is not None:
            biases[matrix.name] = bias
    if a.positions == "learned":
        biases["positions"] = ring.encode(model.weights["positions"], frac_bits=precision.stream)
    return RingModel(architecture=a, precision=precision, words=words, biases=biases)


def _encoded(
    model: LanguageModel, matrix: Matrix, plan: Blueprint, frac_bits: int
) -> tuple[Tensor, Tensor | None]:
    """Return the narrow words of a matrix, and the constant behind it."""
    biases = list[Tensor]()

    def folded() -> Iterator[Tensor]:
        for rows in panels(matrix.shape[::-1]):
            weight, bias, bits = fold(model, matrix, plan, rows)
            if bias is not None:
                biases.append(ring.encode(bias, frac_bits=bits))
            yield weight

    # Rows are outputs here: one row is multiplied at a time, along contiguous memory.
    words = ring.encode_narrow(folded(), matrix.shape[::-1], frac_bits=frac_bits).t()
    return words, torch.cat(biases) if biases else None


@dataclass(frozen=True)
class DrawnMask:
    """A matrix of uniform words that is drawn whenever it is multiplied, a panel at a time.

    Guarantee: W − U is uniform to whoever does not have the key.
    Cost: AES, about 0.2 s per GB, each time; no memory.
    """

    matrix: Matrix
    key: bytes

    @property
    def nbytes(self) -> int:
        """Return how much memory the words would take."""
        return 8 * self.matrix.shape[0] * self.matrix.shape[1]

    def panels(self, nbytes: int = ring.PANEL_BYTES) -> Iterator[Tensor]:
        """Draw panels of rows, of at most so many bytes."""
        prg = Prg(self.key).fork(f"weights {self.matrix.name}")
        for rows in ring.panel_rows(self.matrix.shape, nbytes):
            yield prg.words((rows, self.matrix.shape[1]))

    def words(self) -> Tensor:
        """Draw all of it."""
        (whole,) = self.panels(self.nbytes)
        return whole


class Weights:
    """One party's version of every matrix, W, U or W − U, ready to be multiplied with rows.

    A matrix comes as words, as a `Factor` that is on the device already, or as what draws it.
    """

    def __init__(
        self, words: Mapping[str, Tensor | Factor | DrawnMask], device: torch.device | str = "cpu"
    ) -> None:
        self._device = torch.device(device)
        self._factors: dict[str, Factor] = {}
        self._diagonals: dict[str, Tensor] = {}
        self._drawn: dict[str, DrawnMask] = {}
        for name, matrix in words.items():
            if isinstance(matrix, DrawnMask):
                if not matrix.matrix.is_diagonal:
                    self._drawn[name] = matrix
                    continue
                matrix = matrix.words()
            if isinstance(matrix, Factor):
                self._factors[name] = matrix
            elif matrix.shape[0] == 1 and ("skip" in name or "post" in name):
                self._diagonals[name] = matrix.to(device)
            else:
                self._factors[name] = ring.prepare(matrix.to(device))

    @property
    def device(self) -> torch.device:
        """Return where the matrices are, and where all that meets them has to be."""
        return self._device

    def factor(self, name: str) -> Factor:
        """Return a matrix as it lies on the device."""
        return self._factors[name]

    def is_diagonal(self, name: str) -> bool:
        """Say whether a matrix is one."""
        return name in self._diagonals

    def diagonal(self, name: str) -> Tensor:
        """Return a diagonal matrix, (1, outputs)."""
        return self._diagonals[name]

    def apply(self, name: str, rows: Tensor) -> Tensor:
        """Multiply rows (rows, inputs) by a matrix: (rows, outputs), all on the device."""
        if name in self._diagonals:
            return rows * self._diagonals[name]
        if (mask := self._drawn.get(name)) is not None:
            return ring.multiply_panels(rows, mask.panels(), mask.matrix.outputs)
        return ring.matmul(rows, self._factors[name])


def drawn_masks(a: Architecture, key: bytes) -> dict[str, DrawnMask]:
    """Describe U, matrix by matrix.

    Guarantee: W − U is uniform to whoever does not have the key.
    """
    return {matrix.name: DrawnMask(matrix, key) for matrix in matrices(a)}


def fold(
    model: LanguageModel, matrix: Matrix, plan: Blueprint, rows: slice = ALL
) -> tuple[Tensor, Tensor | None, int]:
    """Return weight (out, in) in double precision, the constant behind it, and its bits.

    ``rows`` says of which outputs.
    """
    a, w, p = model.architecture, model.weights, plan.precision
    layer, _, part = matrix.name.rpartition(".")
    name = f"layers.{layer}"
    match part:
        case "embed":
            return a.embed_scale * w["embed"].t()[rows].double(), None, 0
        case "output":
            return *behind_norm(model, "norm", ["output"], rows), p.stream
        case "qkv":
            parts = ("q", "k", "v", "q", "k") if a.has_qk_norm else ("q", "k", "v")
            names = [f"{name}.{one}" for one in parts]
            weight, bias = behind_norm(model, f"{name}.norm1", names, rows, _qkv_scale(model, name))
            if a.norm == "layer":  # the user divides by σ, the mean is taken away here
                weight = weight - weight.mean(1, keepdim=True)
            return weight, bias, p.stream if plan.is_lean else p.query
        case "up":
            names = [f"{name}.{one}" for one in (("gate", "up") if a.has_gate else ("up",))]
            return *behind_norm(model, f"{name}.norm2", names, rows), p.stream
        case "o" | "down":
            weight, bias = stacked(model, [f"{name}.{part}"], rows)
            norm = f"{name}.norm{1 if part == 'o' else 2}"
            if a.skips_from_norm:
                skip = a.residual_scale * w[f"{norm}.bias"][rows].double()
                bias = skip if bias is None else bias + skip
            return weight, bias, plan.mixed_bits if part == "o" else p.stream
        case "post1" | "post2":
            gamma = w[f"{name}.post_norm{part[-1]}.weight"][rows].double()
            return gamma.unsqueeze(1), None, 0
        case _:
            gamma = w[f"{name}.norm{part[-1]}.weight"][rows].double()
            return (a.residual_scale * gamma).unsqueeze(1), None, 0


def _qkv_scale(model: LanguageModel, name: str) -> Tensor:
    """Return what q, k and v are multiplied by: the scores' scale, and the weights of q's norm.

    Where heads are normalised, q and k come once more without those weights.
    """
    a, w = model.architecture, model.weights
    inner, kv = a.heads * a.head_dim, a.kv_heads * a.head_dim
    scale = torch.ones((inner + kv) * (2 if a.has_qk_norm else 1) + kv, dtype=torch.float64)
    scale[:inner] = a.query_scale
    if a.has_qk_norm:
        scale[:inner] *= w[f"{name}.q_norm.weight"].double().repeat(a.heads)
        scale[inner : inner + kv] = w[f"{name}.k_norm.weight"].double().repeat(a.kv_heads)
    return scale
