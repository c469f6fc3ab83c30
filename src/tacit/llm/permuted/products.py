"""The products of a pass: by which matrix, in words of which size, and what is added to each."""

from dataclasses import dataclass
from typing import NamedTuple

from tacit.llm.permuted.blueprint import Blueprint


class Skip(NamedTuple):
    """What of a stream is added to a product: by a diagonal of the owner's if it has a name."""

    name: str
    bits: int  # to the left, where the product has its point
    nbytes: int = 0  # of a word that corrects the diagonal


@dataclass(frozen=True)
class Product:
    """A step that multiplies by a matrix of the owner's.

    Attributes:
        name: of the matrix.
        outputs: its width.
        nbytes: of a word that the user and the dealer send for it.
        skip: what is added to it.
        has_bias: whether the owner adds one, if there is one.
        is_fresh: whether the result gets a mask that the user knows.
    """

    name: str
    outputs: int
    nbytes: int
    skip: Skip | None = None
    has_bias: bool = True
    is_fresh: bool = False


def product(plan: Blueprint, layer: int, part: str) -> Product:
    """Return the facts of a matrix of a layer."""
    a, p, wide = plan.architecture, plan.precision, plan.wide_bytes
    name = f"{layer}.{part}"
    match part:
        case "qkv":
            nbytes, is_lean = plan.query_bytes if plan.is_lean else wide, plan.is_lean
            outputs = sum(plan.qkv_widths)
            return Product(name, outputs, nbytes, has_bias=is_lean, is_fresh=is_lean)
        case "o" | "down" if a.has_post_norm:
            return Product(name, a.width, wide)
        case "o" | "post1":
            skip = Skip("", plan.middle_bits - p.stream)
            if a.skips_from_norm:
                skip = Skip(f"{layer}.skip1", skip.bits, p.word_bytes(p.stream))
            return Product(name, a.width, wide, skip=skip, is_fresh=plan.is_merged)
        case "up":
            return Product(name, sum(plan.branch_widths), plan.branch_bytes)
        case _:  # down, or post2 behind it
            skip = Skip("", p.stream - p.skip)
            if a.skips_from_norm:
                skip = Skip(f"{layer}.skip2", 0, wide)
            return Product(name, a.width, wide, skip=skip, is_fresh=True)


def output(plan: Blueprint) -> Product:
    """Return the facts of the matrix that gives scores of tokens."""
    return Product("output", plan.architecture.vocab, plan.output_bytes)
