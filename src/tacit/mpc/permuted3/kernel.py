"""Functions computed by a helper on permuted values (seed 000, algorithm 5.2).

P0 and P1 permute their halves with a permutation that only they know; the helper puts the halves
together, applies the function to clear numbers and shares the result again. One repair: the
helper here is also the dealer, who knows the triples behind the halves, so two raw halves of a
product would give it two equations in the masked operands. P0 and P1 therefore add and subtract
a fresh common mask before they send; the helper sees the sum and nothing else.
"""

from dataclasses import dataclass

from torch import Tensor

from tacit.mpc import narrow
from tacit.mpc.additive2.local import half, numeric
from tacit.mpc.contract import Channel, Declaration, Roles
from tacit.mpc.cost import Message
from tacit.mpc.disguise import Disguise, extend, flip, unflip
from tacit.mpc.order import take
from tacit.mpc.randomness import Parts
from tacit.mpc.scene import Scene, scene_of
from tacit.mpc.share import AnyShare, AnySpec, Share
from tacit.mpc.sight import Sight
from tacit.result import Leak


@dataclass(frozen=True)
class SeenByHelper:
    """Apply a function through the helper.

    Guarantee: P0 and P1 see nothing. The helper sees every input of this call in the clear, in
    an order that is uniformly random and unknown to it: **the multiset of values leaks** (of a
    function of rows: the multiset of the multisets that make up the rows), apart from what the
    disguise hides.
    Cost: 2 rounds; as many bytes per element as its bound needs (4 to 8) from P0 and from P1 to
    the helper, and 8 bytes per element of the result from it to P1. Exact up to rounding.
    """

    sight: Sight
    disguise: Disguise

    def declare(self, roles: Roles, *operands: AnySpec) -> Declaration:
        """Say what comes out and what is sent."""
        scene = self._scene(operands[0])
        shown = scene.size * scene.layout.elements
        answer = narrow.WORD_BYTES * scene.answered
        return Declaration(
            out=scene.out,
            rounds=(
                tuple(Message(sender, roles.dealer, shown) for sender in roles.computing),
                (Message(roles.dealer, roles.second, answer),),
            ),
            leaks=(_leak(scene, roles),),
        )

    def prepare(self, channel: Channel, *operands: AnySpec) -> Parts:
        """Draw everything that depends on no input: orders, masks, signs, dummies."""
        scene = self._scene(operands[0])
        common = channel.shared(channel.other)
        order, back = scene.draw_order(common)
        mask = common.words((scene.layout.elements,))
        signs, dummies = scene.draw_disguise(common)
        blind = _blind(channel, channel.roles.dealer, scene) if channel.is_first else mask[:0]
        return order, back, mask, signs, dummies, blind

    def run(self, channel: Channel, material: tuple[Parts, ...], *operands: AnyShare) -> AnyShare:
        """Send my permuted, re-masked half; take my half of the answer back into order."""
        scene, words = self._scene(operands[0].spec), half(operands[0]).words
        ((order, back, mask, signs, dummies, blind),) = material
        words = scene.sight.spread(words)
        shown = words if scene.symmetry is None else flip(words, signs)
        shown = take(extend(shown, dummies, is_first=channel.is_first), order)
        shown = shown.add_(mask) if channel.is_first else shown.sub_(mask)
        channel.send(channel.roles.dealer, narrow.cut(shown, scene.size))
        channel.session.ledger.record(_leak(scene, channel.roles))
        if not channel.is_first:
            blind = channel.recv(channel.roles.dealer, (scene.answered,))
        answer, out = take(blind, back), scene.out
        if scene.symmetry is not None:
            one = 1 << out.frac_bits if channel.is_first else 0
            answer = unflip(answer, words, signs, symmetry=scene.symmetry, one=one)
        return Share(scene.sight.gather(answer, scene.x), out)

    def attend(self, channel: Channel, *operands: AnySpec) -> None:
        """Compute the function on permuted values, as the helper."""
        roles, scene = channel.roles, self._scene(operands[0])
        channel.session.ledger.record(_leak(scene, roles))
        if channel.me != roles.dealer:
            return
        size = scene.size
        shape, dtype = narrow.wire(scene.layout.elements, size)
        blind = _blind(channel, roles.first, scene)
        left, right = (channel.recv(sender, shape, dtype=dtype) for sender in roles.computing)
        seen = narrow.settle(narrow.uncut(left, size) + narrow.uncut(right, size), size)
        channel.send(roles.second, scene.sight.evaluate(seen, scene.x).sub_(blind))

    def _scene(self, x: AnySpec) -> Scene:
        return scene_of(self.sight, self.disguise, numeric(x, "a function"))


def _leak(scene: Scene, roles: Roles) -> Leak:
    return scene.leak(
        roles.dealer, "permuted3: the helper computes the function on permuted values"
    )


def _blind(channel: Channel, peer: str, scene: Scene) -> Tensor:
    """Draw P0's half of the answer, which hides it from P1; P0 and the helper both do."""
    return channel.shared(peer).words((scene.answered,)).to(channel.device)
