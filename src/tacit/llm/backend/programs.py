"""What the owner or the dealer of private chats does in the sessions of one user."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from tacit.llm.backend.protocol import ChatProtocol, announce, hear
from tacit.llm.model.checkpoint import open_checkpoint
from tacit.llm.model.freed import give_back_freed
from tacit.llm.model.store import free_memory_bytes
from tacit.llm.permuted import (
    Account,
    OwnerVault,
    Precision,
    open_vault,
    serve_dealer,
    serve_owner,
)
from tacit.llm.sealed import (
    SealedVault,
    open_sealed_vault,
    serve_dealt_owner,
    serve_sealed_dealer,
    serve_sealed_owner,
)
from tacit.party import Session

ServingRole = Literal["owner", "dealer"]


class Program(Protocol):
    """What a role does in the sessions of one user."""

    def serve(self, session: Session) -> None:
        """Take part until the user leaves."""
        ...

    def sweep(self) -> None:
        """Forget what is not going to be taken up again."""
        ...


class Make(Protocol):
    """Makes what a role does for one more user."""

    def __call__(self, account: Account, folder: Path | None = None) -> Program:
        """Make it; an owner keeps the keys of what is dealt ahead in the folder."""
        ...


def dealer_program(protocol: ChatProtocol) -> Make:
    """Return a maker of what the dealer does for a user."""
    return lambda account, folder=None: _Dealer(protocol, account)


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
    if protocol.is_sealed:
        vault = open_sealed_vault(loaded, reveal=protocol.reveal)
    else:
        vault = open_vault(loaded, precision=precision, device=device, counts=protocol.counts)
    del loaded
    give_back_freed()

    def make(account: Account, folder: Path | None = None) -> Program:
        if isinstance(vault, SealedVault):
            return _Owner(protocol, vault.for_user(account, folder), is_dealt)
        return _Owner(protocol, vault.for_user(account))

    return make


@dataclass(frozen=True, eq=False)
class _Owner:
    """The owner's part, for one user."""

    protocol: ChatProtocol
    vault: OwnerVault | SealedVault
    is_dealt: bool = False

    def serve(self, session: Session) -> None:
        self.protocol.agree(session)
        vault = self.vault
        if isinstance(vault, OwnerVault):
            announce(session, vault.ring.architecture)
            serve_owner(session, vault)
        else:
            announce(session, vault.architecture)
            serve = serve_dealt_owner if self.is_dealt else serve_sealed_owner
            serve(session, vault, device=self.protocol.device)
        vault.forget()  # who leaves in good order does not come back to a conversation

    def sweep(self) -> None:
        self.vault.sweep()


@dataclass(frozen=True, eq=False)
class _Dealer:
    """The dealer's part, for one user; it keeps nothing between sessions."""

    protocol: ChatProtocol
    account: Account

    def serve(self, session: Session) -> None:
        chosen, account = self.protocol, self.account
        chosen.agree(session)
        a, device = hear(session, "owner"), chosen.device
        if chosen.is_sealed:
            serve_sealed_dealer(session, a, reveal=chosen.reveal, device=device, account=account)
        else:
            serve_dealer(session, a, counts=chosen.counts, device=device, account=account)

    def sweep(self) -> None:
        pass
