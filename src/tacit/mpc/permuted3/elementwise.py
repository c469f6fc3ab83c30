"""Element-wise functions computed by a helper on permuted values (seed 000, algorithm 5.2).

P0 and P1 permute their halves with a permutation that only they know; the helper puts the halves
together, applies the function to clear numbers and shares the result again. One repair: the
helper here is also the dealer, who knows the triples behind the halves, so two raw halves of a
product would give it two equations in the masked operands. P0 and P1 therefore add and subtract
a fresh common mask before they send; the helper sees the sum and nothing else.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from tacit import ring
from tacit.mpc.additive2.local import half, numeric
from tacit.mpc.boundary import WORD_BYTES
from tacit.mpc.contract import Channel, Declaration, Roles
from tacit.mpc.cost import Message
from tacit.mpc.elementwise import ELEMENTWISE
from tacit.mpc.randomness import Parts
from tacit.mpc.share import AnyShare, AnySpec, Share, Spec
from tacit.result import Leak


@dataclass(frozen=True)
class PermutedFunction:
    """Apply an element-wise function through the helper.

    Guarantee: P0 and P1 see nothing. The helper sees every input of this call in the clear, in
    an order that is uniformly random and unknown to it: **the multiset of values leaks**.
    Cost: 2 rounds; 8 bytes per element from P0 and from P1 to the helper, and from it to P1.
    """

    function: str
    frac_bits: int

    def declare(self, roles: Roles, *operands: AnySpec) -> Declaration:
        """Say what comes out and what is sent."""
        x = numeric(operands[0], self.function)
        size = WORD_BYTES * x.elements
        return Declaration(
            out=self._out(x),
            rounds=(
                tuple(Message(sender, roles.dealer, size) for sender in roles.computing),
                (Message(roles.dealer, roles.second, size),),
            ),
            leaks=(self._leak(roles, x.elements),),
        )

    def run(self, channel: Channel, material: tuple[Parts, ...], *operands: AnyShare) -> AnyShare:
        """Send my permuted, re-masked half; take my half of the answer back into order."""
        x = half(operands[0])
        count = x.spec.elements
        common = channel.shared(channel.other)
        mask, order = common.words((count,)), common.permutation(count)
        words = x.words.reshape(-1)
        words = words + mask if channel.is_first else words - mask
        channel.send(channel.roles.dealer, words[order])
        channel.session.ledger.record(self._leak(channel.roles, count))
        answer = torch.empty_like(words)
        answer[order] = self._answer(channel, count)
        out = self._out(x.spec)
        return Share(answer.view(out.shape), out)

    def _answer(self, channel: Channel, count: int) -> Tensor:
        """Get my half of the permuted result: P0 from a common generator, P1 by message."""
        if channel.is_first:
            return _blind(channel, channel.roles.dealer, count)
        return channel.recv(channel.roles.dealer, (count,))

    def attend(self, channel: Channel, *operands: AnySpec) -> None:
        """Compute the function on permuted values, as the helper."""
        roles = channel.roles
        if channel.me != roles.dealer:
            return
        x = numeric(operands[0], self.function)
        left, right = (channel.recv(sender, (x.elements,)) for sender in roles.computing)
        values = ring.decode(left + right, frac_bits=x.frac_bits)
        channel.session.ledger.record(self._leak(roles, x.elements))
        result = ring.encode(ELEMENTWISE[self.function].plain(values), frac_bits=self.frac_bits)
        channel.send(roles.second, result - _blind(channel, roles.first, x.elements))

    def _out(self, x: Spec) -> Spec:
        bound = ELEMENTWISE[self.function].largest(x.bound)
        return Spec.of(shape=x.shape, frac_bits=self.frac_bits, bound=bound)

    def _leak(self, roles: Roles, elements: int) -> Leak:
        return Leak(
            to=roles.dealer,
            what=f"the inputs of {self.function}, in random order",
            why="permuted3: the helper computes the function on permuted values",
            kind="protocol",
            elements=elements,
        )


def _blind(channel: Channel, peer: str, count: int) -> Tensor:
    """Draw P0's half of the answer, which hides it from P1; P0 and the helper both do."""
    return channel.shared(peer).words((count,))
