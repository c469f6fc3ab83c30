"""Piecewise polynomials of a secret whose breakpoints are compared by garbled circuits.

As in `sealed.piecewise` one masked opening c = x + r serves everything, and what is left after
the comparisons is local. But r = r0 + r1 is drawn by the two parties, and [x >= t] is the sign of
P0's c - r0 - t plus P1's -r1. P1 knows its number before any input, so its labels come out of
transfers offline; online P0 sends the labels of its own. The circuit's result is in two bits: P0's
is drawn with the labels, P1 sends its own under a bit ρ1. So ρ, by which the powers of r are
selected, is P0's bit and ρ1, and both parties share ρ·r^i by transfers, offline.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from tacit.crypto.joint import loops, transfer
from tacit.crypto.joint.garbling import (
    GATE_BYTES,
    LABEL_BYTES,
    Evaluator,
    Thresholds,
    lowest_bits,
)
from tacit.crypto.joint.loops import Octets
from tacit.crypto.joint.transfer import Hash
from tacit.mpc import narrow
from tacit.mpc.arithmetic.local import numeric_share
from tacit.mpc.contract import Channel, Declaration, Roles
from tacit.mpc.functions.curve import select_pieces
from tacit.mpc.functions.piecewise import Pieced
from tacit.mpc.material.randomness import Parts, packed_words
from tacit.mpc.protocols.two_party.makers import tensor, times, unpacked
from tacit.mpc.protocols.two_party.pair import Pair, correlation_rounds
from tacit.mpc.share import WORD_BITS, AnyShare, AnySpec, Share, Spec
from tacit.party.cost import CostedMessage, Round
from tacit.ring import Prg

_SLICE = 1 << 17


@dataclass(frozen=True)
class GarbledMask:
    """Masks r0 and r1, a garbled circuit for each element, and shares of powers of r."""

    elements: int
    circuit: Thresholds
    degree: int

    @property
    def breaks(self) -> int:
        """Return how many thresholds there are."""
        return 1 + len(self.circuit.above)

    def first(self, prg: Prg) -> Parts:
        """Draw r0, and the labels of zero of P0's number."""
        labels = (self.circuit.bits, self.elements, 2)
        return prg.words((self.elements,)), prg.words(labels)

    def second(self, prg: Prg) -> Parts:
        """Draw r1 and ρ1."""
        return prg.words((self.elements,)), prg.words((packed_words(self._bits()),))

    def correction(self, first: Parts, second: Parts) -> Parts:
        """Refuse: no dealer makes this."""
        raise TypeError("a GarbledMask is made by the two parties")

    def correction_shapes(self) -> tuple[tuple[int, ...], ...]:
        """Return that of the shares of powers."""
        rows = max(0, self.degree - 1) + self.breaks * (self.degree + 1)
        return ((rows, self.elements),)

    def _bits(self) -> int:
        return self.breaks * self.elements

    def joint_rounds(self, roles: Roles) -> tuple[Round, ...]:
        """Declare the transfers of labels, the tables, and the transfers of powers."""
        first, second = roles.computing
        rounds: list[Round] = []
        for part in _slices(self.elements):
            count = part.stop - part.start
            labels = transfer.column_bytes(self.circuit.bits * count)
            rounds += [
                (CostedMessage(second, first, labels),),
                (CostedMessage(first, second, GATE_BYTES * self.circuit.gates * count),),
            ]
        powers = correlation_rounds(first, second, WORD_BITS * self.elements, 1)
        rounds += powers * (2 * max(0, self.degree - 1))
        rounds += correlation_rounds(first, second, self._bits(), self.degree + 1)
        if self.degree:
            rounds += correlation_rounds(second, first, self._bits(), self.degree)
        return tuple(rounds)

    def make(self, pair: Pair, mine: Parts) -> Parts:
        """Make my part.

        Returns:
            For P0: r0, Δ, labels of zero of its number, powers. For P1: r1, labels of its number,
            tables, the key of the hash and the number of the first gate, ρ1, powers.
        """
        r = mine[0]
        if pair.is_first:
            bits = self._garble(pair, mine[1])
            rest: Parts = (tensor(pair.sender.delta), mine[1])
        else:
            bits = unpacked(mine[1], self._bits())
            rest = (*self._take(pair, r), torch.from_numpy(bits))
        powers = self._powers(pair, r)
        return (r, *rest, torch.cat((powers[2:], self._selected(pair, bits, powers))))

    def _garble(self, pair: Pair, labels: Tensor) -> Octets:
        """Garble as P0, and return my bits of the results."""
        bits, mine = self.circuit.bits, labels.numpy().view(np.uint64)
        found = []
        for part in _slices(self.elements):
            count = part.stop - part.start
            theirs = pair.extend_as_sender(bits * count).reshape(bits, count, 2)
            tables, outs = pair.garbler.garble(self.circuit, mine[:, part], theirs)
            pair.send_octets(tables)
            found.append(lowest_bits(outs).astype(np.uint8))
        return np.concatenate(found, axis=1).reshape(-1)

    def _take(self, pair: Pair, r: Tensor) -> Parts:
        """Choose the labels of -r1 as P1, and take the tables."""
        bits, gates, chosen = self.circuit.bits, self.circuit.gates, planes(-r, self.circuit.bits)
        labels = np.empty((bits, self.elements, 2), np.uint64)
        tables = np.empty((gates, self.elements, 2, 2), np.uint64)
        numbers = np.frombuffer(pair.evaluator.hashing.key, np.int64).tolist()
        for part in _slices(self.elements):
            count = part.stop - part.start
            got = pair.extend_as_receiver(chosen[:, part].reshape(-1))
            labels[:, part] = got.reshape(bits, count, 2)
            numbers.append(pair.evaluator.reserve(self.circuit, count))
            octets = pair.recv_octets(GATE_BYTES * gates * count)
            tables[:, part] = octets.view(np.uint64).reshape(gates, count, 2, 2)
        return tensor(labels), tensor(tables), torch.tensor(numbers)

    def _powers(self, pair: Pair, r: Tensor) -> Tensor:
        """Share 1, r, r² and so on."""
        powers = [torch.full_like(r, 1 if pair.is_first else 0), r]
        for _ in range(self.degree - 1):
            last, shape = powers[-1], tuple(r.shape)
            # P0's last power times P1's r, and P0's r times P1's last power.
            crossed = times(pair, last if pair.is_first else r, shape)
            crossed += times(pair, r if pair.is_first else last, shape)
            powers.append(last * r + crossed)
        return torch.stack(powers)

    def _selected(self, pair: Pair, bits: Octets, powers: Tensor) -> Tensor:
        """Share ρ·r^i: each party's own part, turned by its bit, times the other's bit."""
        own = torch.from_numpy(bits).to(torch.int64).view(self.breaks, 1, -1)
        values = powers[: self.degree + 1]
        turned = ((1 - 2 * own) * values).transpose(0, 1)  # (powers, breaks, n)
        total = (own * values).transpose(0, 1).clone()
        flat = turned.reshape(self.degree + 1, -1).numpy().view(np.uint64)
        # P1's part of the power 0 is nothing, so there is one less to send the other way.
        if pair.is_first:
            total += tensor(pair.correlate_as_sender(flat)).view(total.shape)
            if self.degree:
                got = pair.correlate_as_receiver(bits, self.degree)
                total[1:] += tensor(got).view(self.degree, *total.shape[1:])
        else:
            total += tensor(pair.correlate_as_receiver(bits, self.degree + 1)).view(total.shape)
            if self.degree:
                sent = pair.correlate_as_sender(flat[1:])
                total[1:] += tensor(sent).view(self.degree, *total.shape[1:])
        return total.transpose(0, 1).reshape(-1, self.elements)


def _slices(count: int) -> Iterator[slice]:
    """Go through elements in slices, so that what is on its way does not fill the memory."""
    for start in range(0, max(1, count), _SLICE):
        yield slice(start, min(start + _SLICE, count))


def planes(numbers: Tensor, bits: int) -> Octets:
    """Give the lowest bits of words, (bits, n), lowest first."""
    places = np.arange(bits, dtype=np.uint64)[:, None]
    found = numbers.numpy().view(np.uint64) >> places & np.uint64(1)
    return found.astype(np.uint8)


@dataclass(frozen=True)
class Garbled(Pieced):
    """Apply a piecewise polynomial to every element, comparing by garbled circuits.

    Guarantee: every party follows the protocol. P0 sees x1 + r1 for a uniform r1 and bits under
    uniform ρ1; P1 sees x0 + r0 for a uniform r0, and labels, which say nothing but its own bits of
    the results. Within the bound of x the result is that of the pieces, exactly modulo 2^64.
    Cost: 3 messages online, the longest of 16 bytes per element and bit that is compared; offline
    48 bytes for each of these bits, and 24 or more for every breakpoint.
    """

    @cached_property
    def _lowest(self) -> int:
        return self.curves[0].breaks[0]

    def _circuit(self, x: Spec) -> Thresholds:
        breaks = self.curves[0].breaks
        bits = narrow.bits_of(x.largest + max(abs(one) for one in breaks))
        return Thresholds(max(2, bits), tuple(one - breaks[0] for one in breaks[1:]))

    def _garbled_mask(self, x: Spec) -> GarbledMask:
        return GarbledMask(x.elements, self._circuit(x), self.curves[0].degree)

    def _word_bytes(self, x: Spec) -> int:
        """Return in how many bytes x + r travels: a step needs no more than what is compared."""
        bits = WORD_BITS if self.curves[0].degree else self._circuit(x).bits
        return narrow.size_for(bits)

    def declare(self, roles: Roles, *operands: AnySpec) -> Declaration:
        """Say what comes out and what is sent."""
        x = self.argument(operands[0])
        mask, size = self._garbled_mask(x), self._word_bytes(x)
        labels = LABEL_BYTES * mask.circuit.bits * x.elements
        opened = size * x.elements if mask.degree else 0
        return Declaration(
            out=self.out(x),
            needs=(mask,),
            rounds=(
                (CostedMessage(roles.second, roles.first, size * x.elements),),
                (CostedMessage(roles.first, roles.second, labels + opened),),
                (CostedMessage(roles.second, roles.first, -(-mask.breaks * x.elements // 8)),),
            ),
        )

    def run(self, channel: Channel, material: tuple[Parts, ...], *operands: AnyShare) -> AnyShare:
        """Open x + r, send or evaluate labels, select."""
        words, spec = numeric_share(operands[0]).words.reshape(-1), self.argument(operands[0].spec)
        mask, (parts,) = self._garbled_mask(spec), material
        parts = tuple(part.cpu() for part in parts)
        side = self._run_first if channel.is_first else self._run_second
        c, tau = side(channel, mask, parts, words.cpu(), self._word_bytes(spec))
        shared = torch.from_numpy(tau.reshape(mask.breaks, -1)).to(torch.int64)
        results = [
            select_pieces(curve, c, shared, parts[0], parts[-1], is_first=channel.is_first)
            for curve in self.curves
        ]
        out = self.out(spec)
        return Share(torch.stack(results).view(out.shape).to(channel.device), out)

    def _run_first(
        self, channel: Channel, mask: GarbledMask, parts: Parts, words: Tensor, size: int
    ) -> tuple[Tensor, Octets]:
        r, offset, labels, _ = parts
        shape, dtype = narrow.wire(len(words), size)
        theirs = narrow.uncut(channel.recv(channel.other, shape, dtype=dtype).cpu(), size)
        number = (words + theirs - self._lowest).numpy().view(np.uint64)
        zeros = labels.numpy().view(np.uint64)
        sent = np.empty(zeros.size + (len(words) if mask.degree else 0), np.uint64)
        loops.choose_labels(
            zeros, number, offset.numpy().view(np.uint64), sent[: zeros.size].reshape(zeros.shape)
        )
        if mask.degree:
            sent[zeros.size :] = (words + r).numpy().view(np.uint64)
        channel.send(channel.other, torch.from_numpy(sent.view(np.uint8)))
        packed = channel.recv(
            channel.other, (-(-mask.breaks * len(words) // 8),), dtype=torch.uint8
        )
        tau = np.unpackbits(packed.cpu().numpy(), count=mask.breaks * len(words), bitorder="little")
        return words + r + theirs, tau

    def _run_second(
        self, channel: Channel, mask: GarbledMask, parts: Parts, words: Tensor, size: int
    ) -> tuple[Tensor, Octets]:
        r, labels, tables, numbers, rho, _ = parts
        mine = words + r
        channel.send(channel.other, narrow.cut(mine, size))
        labelled = LABEL_BYTES * mask.circuit.bits * len(words)
        opened = 8 * len(words) if mask.degree else 0
        got = channel.recv(channel.other, (labelled + opened,), dtype=torch.uint8).cpu()
        theirs = got[:labelled].numpy().view(np.uint64).reshape(labels.shape)
        evaluator = Evaluator(Hash(numbers[:2].numpy().tobytes()))
        ours, gates = labels.numpy().view(np.uint64), tables.numpy().view(np.uint64)
        found = [
            evaluator.evaluate(
                mask.circuit, ours[:, part], theirs[:, part], gates[:, part], int(number)
            )
            for part, number in zip(_slices(len(words)), numbers[2:], strict=True)
        ]
        bits = lowest_bits(np.concatenate(found, axis=1)).astype(np.uint8)
        tau = bits.reshape(-1) ^ rho.numpy()
        channel.send(channel.other, torch.from_numpy(np.packbits(tau, bitorder="little")))
        if not mask.degree:
            return mine, tau
        return mine + got[labelled:].clone().view(torch.int64), tau
