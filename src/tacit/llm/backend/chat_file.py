"""The file that owner, user and dealer of a private chat share: who they are, where they meet."""

import hashlib
import json
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Literal, get_args

from tacit.crypto import parse_fingerprint, parse_name
from tacit.errors import ConfigError
from tacit.spec import Check, Problem, RefusedError, read_record, refuse
from tacit.transport import Patience, Peer, parse_address

Role = Literal["owner", "user", "dealer"]
ROLES: tuple[Role, ...] = get_args(Role)

PrecisionName = Literal["fitted", "wide"]
"""How fine the numbers of a permuted chat are; the owner chooses, and tells the others."""

ProtocolName = Literal["permuted", "sealed"]
"""How a chat is kept private; sealed between parties, if nothing is said."""

_LARGEST_BYTES = 1 << 20


@dataclass(frozen=True, kw_only=True)
class ChatParty:
    """Where a party listens, if it does, and the key by which it is known."""

    key: Annotated[str, Check(parse_fingerprint)] | None = None
    address: Annotated[str, Check(parse_address)] | None = None


@dataclass(frozen=True, kw_only=True)
class ChatTable:
    """[chat]: what it is called, and how it is kept private."""

    name: Annotated[str, Check(parse_name)] = "chat"
    protocol: ProtocolName | None = None
    precision: PrecisionName = "fitted"


@dataclass(frozen=True, kw_only=True)
class ChatFile:
    """What owner, user and dealer know of each other; the parties are called by what they do."""

    parties: Mapping[str, ChatParty] = field(default_factory=dict)
    chat: ChatTable = field(default_factory=ChatTable)
    network: Patience = field(default_factory=Patience)

    def __post_init__(self) -> None:
        wanted = ", ".join(ROLES)
        if not self.parties:
            refuse("parties", f"missing; wanted a table for each of {wanted}")
        if set(self.parties) != set(ROLES):
            refuse("parties", f"wanted {wanted}, got {', '.join(self.parties)}")
        missing = "missing; run `tacit keys {}` there and paste the line it prints"
        problems = [
            Problem(f"parties.{name}.key", missing.format(name))
            for name in ROLES
            if self.parties[name].key is None
        ]
        if problems:
            raise RefusedError(*problems)
        keys = {self.key(name): name for name in ROLES}
        for name in ROLES:
            if (other := keys[self.key(name)]) != name:
                refuse(
                    f"parties.{name}.key",
                    f"is the same as that of {other!r}: who is two of the three reads the words or "
                    "has the weights",
                )

    def key(self, name: str) -> str:
        """Return the key of a party."""
        return str(self.parties[name].key)

    def digest(self) -> bytes:
        """Hash what all three must share: everything but the addresses.

        Guarantee: two parties with the same digest know the same keys and the same patience, if
        SHA-256 is collision resistant.
        Cost: 0 rounds, 0 bits.
        """
        content = {
            "keys": {name: self.key(name) for name in ROLES},
            "network": asdict(self.network),
            **asdict(self.chat),
        }
        text = json.dumps(content, sort_keys=True, allow_nan=False)
        return hashlib.sha256(b"tacit chat 3\n" + text.encode()).digest()

    def peers(self, me: str) -> dict[str, Peer]:
        """Return the two others, as a party dials them."""
        return {
            name: Peer(parse_address(party.address) if party.address else None, self.key(name))
            for name, party in self.parties.items()
            if name != me
        }

    def own_address(self, me: str) -> tuple[str, int] | None:
        """Return where a party listens, if it does."""
        address = self.parties[me].address
        return None if address is None else parse_address(address)


def load_chat(path: Path) -> ChatFile:
    """Read and check a file.

    Raises:
        ConfigError: names the file and every wrong key.
    """
    try:
        with path.open("rb") as stream:
            content = stream.read(_LARGEST_BYTES + 1)
        if len(content) > _LARGEST_BYTES:
            raise ConfigError(f"{path}: wanted at most {_LARGEST_BYTES} bytes of TOML, got more")
        raw = tomllib.loads(content.decode())
    except FileNotFoundError as error:
        raise ConfigError(f"{path}: no such file") from error
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: not TOML: {error}") from error
    return read_record(raw, ChatFile, source=str(path))


def write_chat(path: Path, parties: Mapping[str, ChatParty]) -> None:
    """Write a file that `load_chat` reads."""
    lines = []
    for name, party in parties.items():
        lines += [f"[parties.{name}]", f'address = "{party.address}"', f'key = "{party.key}"', ""]
    path.write_text("\n".join(lines), encoding="utf-8")
