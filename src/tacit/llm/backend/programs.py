"""What owner, dealer and user of private chats do in their sessions, by protocol."""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, Protocol

from tacit.llm.backend.protocol import ChatProtocol, announce, hear
from tacit.llm.model.architecture import Architecture
from tacit.llm.model.checkpoint import open_checkpoint
from tacit.llm.model.machine import free_memory_bytes, give_back_freed
from tacit.llm.model.plain import Between
from tacit.llm.parties import Account, Wait
from tacit.llm.permuted import (
    Client,
    MaskedWeights,
    Network,
    OwnerVault,
    PermutedSpeaker,
    Precision,
    open_vault,
    serve_dealer,
    serve_owner,
)
from tacit.llm.sampling import Sampling
from tacit.llm.sealed import (
    SealedClient,
    SealedVault,
    open_sealed_vault,
    serve_dealt_owner,
    serve_sealed_dealer,
    serve_sealed_owner,
)
from tacit.mpc.material.offline import Material
from tacit.party import Session

ServingRole = Literal["owner", "dealer"]


@dataclass(frozen=True, eq=False)
class Program:
    """What a role does in the sessions of one user; a dealer keeps nothing between them."""

    protocol: ChatProtocol
    account: Account
    run: Callable[[Session], None]
    vault: OwnerVault | SealedVault | None = None

    def serve(self, session: Session) -> None:
        """Take part until the user leaves."""
        self.protocol.agree(session)
        self.run(session)

    def sweep(self) -> None:
        """Forget what is not going to be taken up again."""
        if self.vault is not None:
            self.vault.sweep()


class Make(Protocol):
    """Makes what a role does for one more user."""

    def __call__(self, account: Account, folder: Path | None = None) -> Program:
        """Make it; an owner keeps the keys of what is dealt ahead in the folder."""
        ...


def dealer_program(protocol: ChatProtocol) -> Make:
    """Return a maker of what the dealer does for a user."""

    def make(account: Account, folder: Path | None = None) -> Program:
        def run(session: Session) -> None:
            a, device = hear(session, "owner"), protocol.device
            if protocol.is_sealed:
                reveal = protocol.reveal
                serve_sealed_dealer(session, a, reveal=reveal, device=device, account=account)
            else:
                serve_dealer(session, a, counts=protocol.counts, device=device, account=account)

        return Program(protocol, account, run)

    return make


def owner_program(
    model: Path, protocol: ChatProtocol, precision: Precision | None, *, is_dealt: bool = False
) -> Make:
    """Return a maker of what the owner does for a user; the model is read and checked here.

    Each user gets a program of its own: mask keys, caches and limits are never shared. If
    ``is_dealt``, it serves sealed sessions without a dealer.
    """
    checkpoint = open_checkpoint(model)
    checkpoint.tokenizer()
    protocol.check_memory(checkpoint, free_memory_bytes(), "owner")
    loaded, device = checkpoint.read(), protocol.device
    vault: OwnerVault | SealedVault
    serve: Callable[..., None] = serve_owner
    if protocol.is_sealed:
        vault = open_sealed_vault(loaded, reveal=protocol.reveal)
        serve = partial(serve_dealt_owner if is_dealt else serve_sealed_owner, device=device)
    else:
        vault = open_vault(loaded, precision=precision, device=device, counts=protocol.counts)
    del loaded
    give_back_freed()

    def make(account: Account, folder: Path | None = None) -> Program:
        own = (account, folder) if protocol.is_sealed else (account,)
        mine = vault.for_user(*own)

        def run(session: Session) -> None:
            announce(session, mine.architecture)
            serve(session, mine)
            mine.forget()  # who leaves in good order does not come back to a conversation

        return Program(protocol, account, run, mine)

    return make


class Speaker(Protocol):
    """A session, entered by its user. What it keeps of a text has ``read`` and ``rewind``."""

    def begin(self) -> Any:  # each protocol keeps something of its own
        """Begin a conversation, and return what is kept of it, also for later sessions."""
        ...

    def generate(
        self, memory: Any, ids: Sequence[int], sampling: Sampling, *, limit: int, between: Between
    ) -> Generator[int, None, None]:
        """Read tokens behind those that were read, and yield up to ``limit`` more."""
        ...

    def leave(self) -> None:
        """Tell the others that nothing follows."""
        ...


Enter = Callable[[Session, Architecture], Speaker]
"""Sits down in a new session."""


def enter_by(
    protocol: ChatProtocol,
    on_wait: Wait,
    *,
    network: Network | None = None,
    material: Material | None = None,
    on_empty: Callable[[], None] = lambda: None,
) -> Enter:
    """Return what sits down as the user in each session.

    Args:
        protocol: of the chat.
        on_wait: told of waits.
        network: the link to the owner of a permuted chat; which messages are sent depends on it.
        material: for a sealed chat without a dealer, what it dealt before.
        on_empty: told when an answer ends because the material does.
    """
    if protocol.is_sealed:
        return partial(
            SealedClient,
            reveal=protocol.reveal,
            device=protocol.device,
            material=material,
            on_wait=on_wait,
            on_empty=on_empty,
        )
    known: MaskedWeights | None = None  # from session to session

    def enter(session: Session, architecture: Architecture) -> Speaker:
        nonlocal known
        client = Client(
            session,
            architecture,
            known=known,
            network=network,
            counts=protocol.counts,
            device=protocol.device,
        )
        known = client.masked
        return PermutedSpeaker(client, on_wait)

    return enter
