"""The file that owner, user and dealer of a private chat share: who they are, where they meet."""

import hashlib
import json
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

from tacit.crypto import parse_fingerprint, parse_name
from tacit.errors import ConfigError, InputError
from tacit.transport import Patience, Peer, parse_address

Role = Literal["owner", "user", "dealer"]
ROLES: tuple[Role, ...] = get_args(Role)

PrecisionName = Literal["fitted", "wide"]
"""How fine the numbers of a permuted chat are; the owner chooses, and tells the others."""

ProtocolName = Literal["permuted", "sealed"]
"""How a chat is kept private; sealed between parties, if nothing is said."""

_LARGEST_BYTES = 1 << 20

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class ChatParty:
    """Where a party listens, if it does, and the key by which it is known."""

    key: str
    address: str | None = None

    def __post_init__(self) -> None:
        parse_fingerprint(self.key)
        if self.address is not None:
            parse_address(self.address)


@dataclass(frozen=True, kw_only=True)
class ChatFile:
    """What owner, user and dealer know of each other; the parties are called by what they do."""

    parties: Mapping[str, ChatParty]
    name: str = "chat"
    protocol: ProtocolName | None = None
    precision: PrecisionName = "fitted"
    network: Patience = field(default_factory=Patience)

    def __post_init__(self) -> None:
        parse_name(self.name)
        if set(self.parties) != set(ROLES):
            wanted, found = ", ".join(ROLES), ", ".join(self.parties) or "none"
            raise ConfigError(f"parties: wanted {wanted}, got {found}")
        keys = {self.parties[name].key: name for name in ROLES}
        for name in ROLES:
            if (other := keys[self.parties[name].key]) != name:
                raise ConfigError(
                    f"parties.{name}.key: is the same as that of {other!r}: who is two of the "
                    "three reads the words or has the weights"
                )

    def digest(self) -> bytes:
        """Hash what all three must share: everything but the addresses.

        Guarantee: two parties with the same digest know the same keys and the same patience, if
        SHA-256 is collision resistant.
        Cost: 0 rounds, 0 bits.
        """
        content = {
            "name": self.name,
            "keys": {name: self.parties[name].key for name in ROLES},
            "network": asdict(self.network),
            "precision": self.precision,
            "protocol": self.protocol,
        }
        text = json.dumps(content, sort_keys=True, allow_nan=False)
        return hashlib.sha256(b"tacit chat 3\n" + text.encode()).digest()

    def peers(self, me: str) -> dict[str, Peer]:
        """Return the two others, as a party dials them."""
        return {
            name: Peer(parse_address(party.address) if party.address else None, party.key)
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
    reading = _Reading(raw)
    chat = reading.chat()
    if chat is None:
        raise ConfigError("\n  ".join([f"{path}:", *reading.problems]))
    return chat


def write_chat(path: Path, parties: Mapping[str, ChatParty]) -> None:
    """Write a file that `load_chat` reads."""
    lines = []
    for name, party in parties.items():
        lines += [f"[parties.{name}]", f'address = "{party.address}"', f'key = "{party.key}"', ""]
    path.write_text("\n".join(lines), encoding="utf-8")


class _Reading:
    """Reads the tables of one file, and notes every problem on the way."""

    def __init__(self, raw: dict[str, object]) -> None:
        self._raw = raw
        self.problems: list[str] = []

    def chat(self) -> ChatFile | None:
        """Return the whole file, or None if there are problems."""
        self._known("", self._raw, ["chat", "parties", "network"])
        head = self._table("chat", self._raw, ["name", "protocol", "precision"])
        choices = {"protocol": get_args(ProtocolName), "precision": get_args(PrecisionName)}
        for key, value in head.items():
            names = choices.get(key)
            if not isinstance(value, str) or (names and value not in names):
                wanted = f"one of {', '.join(names)}" if names else "a text"
                self.problems.append(f"chat.{key}: wanted {wanted}, got {value!r}")
        self._tried("chat.name", lambda: parse_name(str(head.get("name", "chat"))))
        network = self._network()
        parties = self._parties()
        if self.problems:
            return None
        return self._tried("", lambda: ChatFile(parties=parties, network=network, **head))

    def _network(self) -> Patience:
        table = self._table("network", self._raw, [one.name for one in fields(Patience)])
        for key, value in table.items():
            if isinstance(value, bool) or not isinstance(value, int | float):
                self.problems.append(f"network.{key}: wanted a number, got {value!r}")
        given = {key: float(value) for key, value in table.items()} if not self.problems else {}
        return self._tried("network", lambda: Patience(**given)) or Patience()

    def _parties(self) -> dict[str, ChatParty]:
        if "parties" not in self._raw:
            self.problems.append("parties: missing; wanted a table for each of " + ", ".join(ROLES))
        tables = self._table("parties", self._raw, None)
        if tables and set(tables) != set(ROLES):
            wanted, found = ", ".join(ROLES), ", ".join(tables)
            self.problems.append(f"parties: wanted {wanted}, got {found}")
        out = {}
        for name in tables:
            place = f"parties.{name}"
            entry = self._table(name, tables, ["address", "key"], within="parties.")
            if "key" not in entry:
                text = f"missing; run `tacit keys {name}` there and paste the line it prints"
                self.problems.append(f"{place}.key: {text}")
                continue
            texts = {key: str(value) for key, value in entry.items()}
            party = self._tried(place, lambda: ChatParty(**texts))  # noqa: B023 - called at once
            if party is not None:
                out[name] = party
        return out

    def _table(
        self, name: str, raw: Mapping[str, object], known: list[str] | None, *, within: str = ""
    ) -> dict[str, Any]:  # as the file has them; checked by the caller
        table = raw.get(name, {})
        if not isinstance(table, dict):
            self.problems.append(f"{within}{name}: wanted a table, got {table!r}")
            return {}
        if known is not None:
            self._known(f"{within}{name}.", table, known)
        return {key: value for key, value in table.items() if known is None or key in known}

    def _known(self, place: str, table: Mapping[str, object], known: list[str]) -> None:
        for key in table.keys() - set(known):
            near = get_close_matches(key, known, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else f"; known are {', '.join(known)}"
            self.problems.append(f"{place}{key}: unknown key{hint}")

    def _tried(self, place: str, make: Callable[[], T]) -> T | None:
        try:
            return make()
        except InputError as error:
            self.problems.append(f"{place}: {error}" if place else str(error))
            return None
