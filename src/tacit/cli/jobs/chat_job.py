"""The file that owner, user and dealer of a private chat share: who they are, where they meet."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Literal, get_args

from tacit.cli.jobs.config import Name, PartyEntry, parse_address
from tacit.cli.toml import Problem, RefusedError, read_record, read_toml, refuse
from tacit.transport import Patience, Peer

Role = Literal["owner", "user", "dealer"]
ROLES: tuple[Role, ...] = get_args(Role)


PrecisionName = Literal["fitted", "wide", "compact", "brief"]
"""How fine the numbers of a permuted chat are; the owner chooses, and tells the others."""


ProtocolName = Literal["permuted", "sealed", "floating"]
"""How a chat is kept private; an owner who serves others must say it."""


@dataclass(frozen=True, kw_only=True)
class ChatHead:
    """[chat]: what this chat is called, its protocol, and how fine its numbers are."""

    name: Name = "chat"
    protocol: ProtocolName | None = None
    precision: PrecisionName = "fitted"


@dataclass(frozen=True, kw_only=True)
class ChatJob:
    """A whole file. The parties are called by what they do."""

    parties: Mapping[str, PartyEntry]
    chat: ChatHead = field(default_factory=ChatHead)
    network: Patience = field(default_factory=Patience)

    def __post_init__(self) -> None:
        if set(self.parties) != set(ROLES):
            wanted, found = ", ".join(ROLES), ", ".join(self.parties) or "none"
            refuse("parties", f"wanted {wanted}, got {found}")
        missing = [name for name in ROLES if self.parties[name].key is None]
        if missing:
            raise RefusedError(
                *(
                    Problem(
                        f"parties.{name}.key",
                        f"missing; run `tacit keys {name}` there and paste the line it prints",
                    )
                    for name in missing
                )
            )
        keys = {self.parties[name].key: name for name in ROLES}
        for name in ROLES:
            if keys[self.parties[name].key] != name:
                text = (
                    f"is the same as that of {keys[self.parties[name].key]!r}: who is two of the "
                    "three reads the words or has the weights"
                )
                refuse(f"parties.{name}.key", text)

    def digest(self) -> bytes:
        """Hash what all three must share: everything but the addresses.

        Guarantee: two parties with the same digest know the same keys and the same patience, if
        SHA-256 is collision resistant.
        Cost: 0 rounds, 0 bits.
        """
        content = {
            "name": self.chat.name,
            "keys": {name: self.parties[name].key for name in ROLES},
            "network": asdict(self.network),
            "precision": self.chat.precision,
            "protocol": self.chat.protocol,
        }
        text = json.dumps(content, sort_keys=True, allow_nan=False)
        return hashlib.sha256(b"tacit chat 3\n" + text.encode()).digest()

    def peers(self, me: str) -> dict[str, Peer]:
        """Return the two others, as a party dials them."""
        return {
            name: Peer(parse_address(entry.address) if entry.address else None, entry.key or "")
            for name, entry in self.parties.items()
            if name != me
        }

    def own_address(self, me: str) -> tuple[str, int] | None:
        """Return where a party listens, if it does."""
        address = self.parties[me].address
        return None if address is None else parse_address(address)


def load_chat(path: Path) -> ChatJob:
    """Read and check a file.

    Raises:
        ConfigError: names the file and every wrong key.
    """
    return read_record(read_toml(path), ChatJob, source=str(path))


def write_chat(path: Path, entries: Mapping[str, PartyEntry]) -> None:
    """Write a file that `load_chat` reads."""
    lines = []
    for name, entry in entries.items():
        lines += [f"[parties.{name}]", f'address = "{entry.address}"', f'key = "{entry.key}"', ""]
    path.write_text("\n".join(lines), encoding="utf-8")


def patient(job: ChatJob, connect_s: float) -> Patience:
    """Return the job's patience, with more of it for those who are still to come."""
    return replace(job.network, connect_s=connect_s)
