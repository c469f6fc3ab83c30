"""What the owner or the dealer of private chats does in the sessions of one user."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from tacit.llm.backend.announce import announce, hear
from tacit.llm.backend.protocol import ChatProtocol
from tacit.llm.floating import (
    FloatingVault,
    open_floating_vault,
    serve_floating_dealer,
    serve_floating_owner,
)
from tacit.llm.model.architecture import LanguageModel
from tacit.llm.model.checkpoint import OWNER_BYTES, open_checkpoint
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
    SEALED_OWNER_BYTES,
    SealedVault,
    open_sealed_vault,
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


Make = Callable[[Account], Program]
"""Makes what a role does for one more user."""


def dealer_program(protocol: ChatProtocol) -> Make:
    """Return a maker of what the dealer does for a user."""
    return lambda account: _Dealer(protocol, account)


def owner_program(model: Path, protocol: ChatProtocol, precision: Precision | None) -> Make:
    """Return a maker of what the owner does for a user; the model is read and checked here.

    Each user gets a program of its own: mask keys, caches and limits are never shared.
    """
    checkpoint = open_checkpoint(model)
    checkpoint.tokenizer()
    needed = SEALED_OWNER_BYTES if protocol.is_sealed else OWNER_BYTES
    checkpoint.check_memory(free_memory_bytes(), bytes_per_weight=needed)
    vault = _open_vault(checkpoint.load(), protocol, precision)
    return lambda account: _Owner(protocol, vault.for_user(account))


def _open_vault(
    model: LanguageModel, protocol: ChatProtocol, precision: Precision | None
) -> OwnerVault | SealedVault | FloatingVault:
    match protocol.name:
        case "sealed":
            return open_sealed_vault(model, reveal=protocol.reveal)
        case "floating":
            return open_floating_vault(model, ratio=protocol.ratio)
        case "permuted":
            return open_vault(
                model,
                precision=precision,
                device=protocol.device,
                counts=protocol.counts,
                bfv=protocol.naming == "bfv",
            )


@dataclass(frozen=True, eq=False)
class _Owner:
    """The owner's part, for one user."""

    protocol: ChatProtocol
    vault: OwnerVault | SealedVault | FloatingVault

    def serve(self, session: Session) -> None:
        self.protocol.agree(session)
        vault = self.vault
        if isinstance(vault, OwnerVault):
            announce(session, vault.ring.architecture)
            serve_owner(session, vault)
        else:
            announce(session, vault.architecture)
            if isinstance(vault, SealedVault):
                serve_sealed_owner(session, vault, device=self.protocol.device)
            else:
                serve_floating_owner(session, vault)
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
                    session, architecture, reveal=protocol.reveal, device=protocol.device
                )
            case "floating":
                serve_floating_dealer(
                    session, architecture, ratio=protocol.ratio, account=self.account
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
