"""How each kind of correlated randomness is made by the two parties that will use it."""

from collections.abc import Callable, Iterable
from math import prod
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from tacit import ring
from tacit.crypto.joint.loops import Octets, Words
from tacit.errors import InputError
from tacit.mpc import shapes
from tacit.mpc.contract import Roles
from tacit.mpc.material.randomness import (
    BorrowMask,
    Need,
    OpeningTriple,
    Parts,
    lane_bytes,
    write_lanes,
)
from tacit.mpc.products import Conv2d, Hadamard, MatMul, Product
from tacit.mpc.protocols.two_party.matrices import Matrices
from tacit.mpc.protocols.two_party.pair import Pair, correlation_rounds, setup_rounds
from tacit.mpc.share import WORD_BITS, Mask, Party
from tacit.party.cost import Round

Recall = Callable[[Mask], Tensor | None]
"""Draws my share of a mask again."""


@runtime_checkable
class MadeTogether(Protocol):
    """A need that knows how two parties make it."""

    def joint_rounds(self, roles: Roles) -> tuple[Round, ...]:
        """Declare what they send."""
        ...

    def make(self, pair: Pair, mine: Parts) -> Parts:
        """Make my part, out of what I have drawn."""
        ...


def joint_rounds(needs: Iterable[Need], roles: Roles) -> tuple[Round, ...]:
    """Declare everything that is sent offline for a plan, in its order.

    Raises:
        InputError: one of the needs is made by a dealer only.
    """
    wanted = [need for need in needs if need.correction_shapes()]
    rounds = [one for need in wanted for one in need_rounds(need, roles)]
    transfers, keys = _tools(wanted)
    return (*setup_rounds(roles, transfers=transfers, keys=keys), *rounds)


def set_up(pair: Pair, needs: Iterable[Need]) -> None:
    """Do what is done once for a plan."""
    transfers, keys = _tools([need for need in needs if need.correction_shapes()])
    pair.set_up(transfers=transfers, keys=keys)


def _tools(needs: list[Need]) -> tuple[bool, set[Party]]:
    """Tell whether there are transfers, and whose keys are used."""
    transfers, keys = False, set[Party]()
    for need in needs:
        if not isinstance(need, OpeningTriple):
            transfers = True
        elif any(_cross(need)):
            if isinstance(need.product, Hadamard):
                transfers = True
            else:
                keys.add(_matrices(need).owner)
    return transfers, keys


def need_rounds(need: Need, roles: Roles) -> tuple[Round, ...]:
    """Declare what is sent for one need."""
    if isinstance(need, MadeTogether):
        return need.joint_rounds(roles)
    if isinstance(need, BorrowMask):
        size = lane_bytes(need.bits)
        return correlation_rounds(roles.first, roles.second, need.elements, 1, size)
    grows = isinstance(need, OpeningTriple) and (need.left.behind or need.right.behind)
    if isinstance(need, OpeningTriple) and need.readings == 1 and not grows:
        return _triple_rounds(need, roles)
    raise InputError(
        f"there is no way to make {type(need).__name__} without a dealer; use protocol 'sealed' "
        "with a third party"
    )


def make(need: Need, pair: Pair, mine: Parts, recall: Recall) -> Parts:
    """Make my part of a need, out of what I have drawn."""
    if isinstance(need, MadeTogether):
        return need.make(pair, mine)
    if isinstance(need, BorrowMask):
        return _borrow(need, pair, mine)
    if isinstance(need, OpeningTriple):
        return (_triple(need, pair, recall),)
    return mine


def _borrow(need: BorrowMask, pair: Pair, mine: Parts) -> Parts:
    """Share the products of the two parties' bits: one transfer for each."""
    size = lane_bytes(need.bits)
    bits = unpacked(mine[0], need.elements)
    if pair.is_first:
        shares = pair.correlate_as_sender(bits.astype(np.uint64)[None], size)
    else:
        shares = pair.correlate_as_receiver(bits, 1, size)
    lane = {1: torch.int8, 2: torch.int16, 4: torch.int32}.get(size, torch.int64)
    return mine[0], write_lanes(tensor(shares).view(-1).to(lane), need.bits)


def _cross(need: OpeningTriple) -> tuple[bool, bool]:
    """Tell whether P1's left part meets P0's right part, and P0's left one P1's right one.

    Where a party holds a whole mask, it adds its own share of the other's product itself.
    """
    left = [need.left.holder != "second", need.left.holder != "first"]
    right = [need.right.holder != "second", need.right.holder != "first"]
    if need.right.holder is not None:
        left[0 if need.right.holder == "first" else 1] = False
    elif need.left.holder is not None:
        right[0 if need.left.holder == "first" else 1] = False
    return left[1] and right[0], left[0] and right[1]


def _shape(mask: Mask) -> tuple[int, ...]:
    words = torch.empty(mask.shape, dtype=torch.int64, device="meta")
    for view in mask.views:
        words = view(words)
    return tuple(words.shape)


def _triple_rounds(need: OpeningTriple, roles: Roles) -> tuple[Round, ...]:
    crosses = _cross(need)
    if not any(crosses):
        return ()
    if isinstance(need.product, Hadamard):
        count = prod(need.shape) * WORD_BITS
        rounds = correlation_rounds(roles.first, roles.second, count, 1)
        return rounds * sum(crosses)
    return _matrices(need).rounds(roles)


def _matrices(need: OpeningTriple) -> Matrices:
    """Lay a product out; of one term it is the smaller operand that is encrypted."""
    theirs_left, theirs_right = _cross(need)
    sizes = matrices_of(need.product, _shape(need.left), _shape(need.right))
    if theirs_left and theirs_right:
        return Matrices(*sizes, True, True)
    left: Party = "second" if theirs_left else "first"
    right: Party = "first" if theirs_left else "second"
    options = (Matrices(*sizes, True, False, left), Matrices(*sizes, False, True, right))
    return min(options, key=lambda one: one.cost)


def _triple(need: OpeningTriple, pair: Pair, recall: Recall) -> Tensor:
    """Share the product of two masks, without the terms that a holder adds itself."""
    theirs_left, theirs_right = _cross(need)
    left, right = recall(need.left), recall(need.right)
    multiplies_alone = need.left.holder is None and need.right.holder is None
    shape = need.shape
    total = torch.zeros(shape, dtype=torch.int64)
    if multiplies_alone and left is not None and right is not None:
        total = need.product.multiply(left, right)
    if not (theirs_left or theirs_right):
        return total
    if isinstance(need.product, Hadamard):
        for is_wanted, values, bits in (
            (theirs_left, right, left),
            (theirs_right, left, right),
        ):
            if is_wanted:
                part = times(pair, values if pair.is_first else bits, shape)
                total = total + part
        return total
    matrices = _matrices(need)
    owns = matrices.owner == ("first" if pair.is_first else "second")
    laid = laid_out(need.product, left, right, _shape(need.left), _shape(need.right))
    # The key owner encrypts its left one to meet my right one.
    uses = (matrices.left, matrices.right) if owns else (matrices.right, matrices.left)
    a, b = (part if use else None for part, use in zip(laid, uses, strict=True))
    if owns:
        return total + read_back(need.product, matrices.encrypt(pair, a, b), shape)
    masks = pair.masks.words(shape)
    matrices.multiply(pair, a, b, as_batch(need.product, masks, matrices))
    return total - masks


def times(pair: Pair, mine: Tensor | None, shape: tuple[int, ...]) -> Tensor:
    """Share the products of P0's words and P1's: a transfer for each bit of P1's (Gilboa 1999)."""
    assert mine is not None  # noqa: S101 - `_cross` says that this party has it
    words = mine.expand(shape).reshape(-1).numpy().view(np.uint64)
    places = np.arange(WORD_BITS, dtype=np.uint64)[:, None]
    if pair.is_first:
        shares = pair.correlate_as_sender((words << places).reshape(1, -1))
    else:
        bits = (words >> places & np.uint64(1)).astype(np.uint8)
        shares = pair.correlate_as_receiver(bits.reshape(-1), 1)
    total = shares.reshape(WORD_BITS, -1).sum(axis=0, dtype=np.uint64)
    return tensor(total).view(shape)


def matrices_of(
    product: Product, left: tuple[int, ...], right: tuple[int, ...]
) -> tuple[int, int, int, int]:
    """Return batch, rows, terms and columns of a product."""
    if isinstance(product, Conv2d):
        count, _, height, width = product.shape(left, right)
        return product.groups, count * height * width, prod(right[1:]), right[0] // product.groups
    if not isinstance(product, MatMul):
        raise InputError(f"there is no way to multiply by {product} without a dealer")
    if len(right) == 2:
        return 1, prod(left[:-1]), right[0], right[1]
    batch = shapes.broadcast(left[:-2], right[:-2])
    return prod(batch), left[-2], left[-1], right[-1]


def laid_out(
    product: Product,
    left: Tensor | None,
    right: Tensor | None,
    left_shape: tuple[int, ...],
    right_shape: tuple[int, ...],
) -> tuple[Words | None, Words | None]:
    """Lay operands out as batches of matrices."""
    batch, n, k, m = matrices_of(product, left_shape, right_shape)
    if isinstance(product, Conv2d):
        windows = None if left is None else _windows(product, left, right_shape)
        kernels = None
        if right is not None:
            kernels = right.reshape(batch, m, k).transpose(1, 2)
        return words(windows), words(kernels)
    if len(right_shape) > 2:
        lead = shapes.broadcast(left_shape[:-2], right_shape[:-2])
        left = None if left is None else left.expand(*lead, n, k)
        right = None if right is None else right.expand(*lead, k, m)
    return (
        words(None if left is None else left.reshape(batch, n, k)),
        words(None if right is None else right.reshape(batch, k, m)),
    )


def _windows(product: Conv2d, images: Tensor, kernel: tuple[int, ...]) -> Tensor:
    """Lay out what a convolution multiplies: (groups, images · places, channels · kernel)."""
    _, _, height, width = product.shape(tuple(images.shape), kernel)
    (down, across), (top, side) = product.stride, product.padding
    padded = torch.nn.functional.pad(images, (side, side, top, top))
    rows = []
    for i in range(kernel[2]):
        for j in range(kernel[3]):
            y, x = i * product.dilation[0], j * product.dilation[1]
            stop = (y + down * (height - 1) + 1, x + across * (width - 1) + 1)
            rows.append(padded[:, :, y : stop[0] : down, x : stop[1] : across])
    spread = torch.stack(rows, 2)  # (n, channels, kernel, height, width)
    count, channels = images.shape[:2]
    groups = product.groups
    split = spread.view(count, groups, channels // groups * len(rows), height * width)
    return split.permute(1, 0, 3, 2).reshape(groups, count * height * width, -1)


def as_batch(product: Product, out: Tensor, matrices: Matrices) -> Words:
    """Lay a result out as a batch of matrices."""
    if isinstance(product, Conv2d):
        count, _, height, width = out.shape
        split = out.view(count, matrices.batch, matrices.m, height * width)
        out = split.permute(1, 0, 3, 2)
    found = words(out.reshape(matrices.batch, matrices.n, matrices.m))
    assert found is not None  # noqa: S101 - it was given
    return found


def read_back(product: Product, found: Words, shape: tuple[int, ...]) -> Tensor:
    """Undo `as_batch`."""
    out = tensor(found)
    if isinstance(product, Conv2d):
        count, channels, height, width = shape
        split = out.view(product.groups, count, height * width, channels // product.groups)
        return split.permute(1, 0, 3, 2).reshape(shape)
    return out.view(shape)


def words(values: Tensor | None) -> Words | None:
    """Return a tensor's words as NumPy has them."""
    return None if values is None else values.contiguous().numpy().view(np.uint64)


def tensor(values: Words) -> Tensor:
    """Undo `words`."""
    return torch.from_numpy(np.ascontiguousarray(values).view(np.int64))


def unpacked(packed: Tensor, count: int) -> Octets:
    """Unpack so many bits of words."""
    bits: Octets = ring.unpack_bits(packed.reshape(-1).view(torch.uint8), count).numpy()
    return bits.view(np.uint8)
