"""The check: before anything is revealed, each party proves every message that it has sent."""

from dataclasses import dataclass

import torch

from tacit.errors import CheatingError
from tacit.mpc.boundary import WORD_BYTES
from tacit.mpc.contract import Channel, Declaration, Roles
from tacit.mpc.material.randomness import Parts
from tacit.mpc.protocols.checked.proofs import ANSWER_WORDS, SUMS, proofs_of
from tacit.mpc.protocols.checked.tags import PartPair, Tagged
from tacit.mpc.share import AnyShare, AnySpec
from tacit.party.cost import exchange
from tacit.party.session import CHEATED, OR_OWNER
from tacit.ring import KEY_BYTES, Prg


@dataclass(frozen=True)
class TwoWords:
    """A uniform word for each party and place; the two have nothing to do with each other."""

    count: int

    def first(self, prg: Prg) -> Parts:
        """Draw the first party's words."""
        return (prg.words((self.count,)),)

    def second(self, prg: Prg) -> Parts:
        """Draw the second party's words."""
        return (prg.words((self.count,)),)

    def correction(self, first: Parts, second: Parts) -> Parts:
        """Return nothing: the words are independent."""
        return ()

    def correction_shapes(self) -> tuple[tuple[int, ...], ...]:
        """Return nothing."""
        return ()


_MASK = Tagged(TwoWords(SUMS), (PartPair(0, 0, (SUMS,)),))


@dataclass(frozen=True)
class MutualCheck:
    """Prove what I have sent since the last check, and check what I have received.

    Guarantee: a party that goes on has received nothing wrong, but with a probability of at most
    2^-40. Nothing is shown, and whether a party goes on depends on no secret.
    Cost: 2 rounds; 16 and 400 bytes each way, however much is checked.
    """

    def declare(self, roles: Roles, *_: AnySpec) -> Declaration:
        """Say what is sent."""
        return Declaration(
            out=None,
            needs=(_MASK,),
            rounds=(
                exchange(*roles.computing, KEY_BYTES),
                exchange(*roles.computing, WORD_BYTES * ANSWER_WORDS),
            ),
        )

    def run(self, channel: Channel, material: tuple[Parts, ...], *operands: AnyShare) -> None:
        """Exchange seeds, then answers.

        Raises:
            CheatingError: the other party has sent something that it cannot prove.
        """
        _, (tags,) = _MASK.read(material[0], is_first=channel.is_first)
        mask, proofs, other = tags.wide(), proofs_of(channel), channel.other
        # Fresh, and known to nobody before: all messages that the sums are to test were fixed when
        # the other party sees it, as this step comes when the last of them has come.
        seed = Prg.from_os().bytes(KEY_BYTES)
        channel.send(other, torch.frombuffer(bytearray(seed), dtype=torch.uint8))
        came = channel.recv(other, (KEY_BYTES,), dtype=torch.uint8)
        channel.send(other, proofs.answer(bytes(came.tolist()), mask))
        answer = channel.recv(other, (ANSWER_WORDS,)).cpu()
        # First: two who were told different inputs do not fit each other, and neither cheats.
        if not proofs.heard_the_same(answer):
            raise CheatingError(
                f"{other}{OR_OWNER}",
                f"{CHEATED}the two computing parties were told different inputs; nothing was "
                "revealed after that",
            )
        if not proofs.accepts(seed, mask, answer):
            raise CheatingError(
                other,
                f"{CHEATED}its messages up to step {channel.step} are not what the dealer's tags "
                "prove; nothing was revealed after that",
            )
        proofs.clear()
