"""What the owner or the dealer of private chats does in the sessions of one user."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from tacit.llm.backend.announce import announce, hear
from tacit.llm.backend.protocol import ChatProtocol
from tacit.llm.model.architecture import LanguageModel
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
    vault = _open_vault(checkpoint.read(), protocol, precision)
    give_back_freed()

    def make(account: Account, folder: Path | None = None) -> Program:
        if isinstance(vault, SealedVault):
            return _Owner(protocol, vault.for_user(account, folder), is_dealt)
        return _Owner(protocol, vault.for_user(account))

    return make


def _open_vault(
    model: LanguageModel, protocol: ChatProtocol, precision: Precision | None
) -> OwnerVault | SealedVault:
    match protocol.name:
        case "sealed":
            return open_sealed_vault(model, reveal=protocol.reveal)
        case "permuted":
            return open_vault(
                model,
                precision=precision,
                device=protocol.device,
                counts=protocol.counts,
            )


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
        protocol = self.protocol
        protocol.agree(session)
        architecture = hear(session, "owner")
        match protocol.name:
            case "sealed":
                serve_sealed_dealer(
                    session,
                    architecture,
                    reveal=protocol.reveal,
                    device=protocol.device,
                    account=self.account,
                )
            case "permuted":
                serve_dealer(
                    session,
                    architecture,
                    device=protocol.device,
                    counts=protocol.counts,
                    account=self.account,
                )

    def sweep(self) -> None:
        pass
