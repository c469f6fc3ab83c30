"""The protocols, by name. One that is here is tested by the contract suite; no other exists.

Nothing imports a protocol: it is a plug-in (`tacit.plugins`), loaded when it is first asked for.
"""

from collections.abc import Iterator, Mapping
from typing import Annotated

from tacit.errors import ConfigError
from tacit.mpc.mixing import NO_DEALER, mix, read_mixture
from tacit.mpc.protocol import MpcProtocol
from tacit.plugins import PLUGINS, load
from tacit.spec import Check, suggest

_WITHOUT_DEALER = "mpc.two_party"
_WITH_DEALER = tuple(
    name.removeprefix("mpc.")
    for name in PLUGINS
    if name.startswith("mpc.") and name != _WITHOUT_DEALER
)


def _load(plugin: str) -> MpcProtocol:
    found = load(plugin).PROTOCOL
    assert isinstance(found, MpcProtocol)  # noqa: S101 - the import test has looked
    return found


class _WithDealer(Mapping[str, MpcProtocol]):
    """The protocols whose randomness a third party makes, by name."""

    def __getitem__(self, name: str) -> MpcProtocol:
        if name not in _WITH_DEALER:
            raise KeyError(name)
        return _load(f"mpc.{name}")

    def __iter__(self) -> Iterator[str]:
        return iter(_WITH_DEALER)

    def __len__(self) -> int:
        return len(_WITH_DEALER)


PROTOCOLS: Mapping[str, MpcProtocol] = _WithDealer()


def find_protocol(name: str) -> MpcProtocol:
    """Return a protocol by name.

    Args:
        name: one of the table; a permuted protocol may be followed by what is done to the values
            before they are seen, such as ``permuted3 flips dummies=64 reach=4``, ``checked`` by
            ``bounds``, which compares every input with its bound, and each by
            protocols for kinds of functions, such as ``sealed; activations: permuted3``. Two
            parties without a dealer are ``sealed; linear: he; activations: garbled``.
    """
    kind, layers = read_mixture(name)
    if kind == NO_DEALER:
        return _load(_WITHOUT_DEALER)
    return mix(_find(kind), {family: _find(one) for family, one in layers.items()})


def _find(name: str) -> MpcProtocol:
    base, *options = name.split() or [""]
    if base not in PROTOCOLS:
        raise ConfigError(f"unknown protocol {name!r}; there are {', '.join(sorted(PROTOCOLS))}")
    found = PROTOCOLS[base]
    if not options:
        return found
    if found.options is None:
        raise ConfigError(f"{base} takes no options, got {' '.join(options)!r}")
    return found.options(options)


def parse_protocol(name: str) -> None:
    """Refuse a word that is no protocol on shares with a dealer."""
    alone = name in ("he", "enclave")
    try:
        alone = alone or not find_protocol(name).has_dealer
    except ConfigError as error:
        first = name.split(" ")[0]
        near = "" if first.rstrip(";") in PROTOCOLS else suggest(first, PROTOCOLS)
        raise ConfigError(f"{error}{near}") from error
    if alone:
        raise ConfigError(
            f"{name!r} is for jobs of kind 'infer' alone; take 'sealed', with a dealer"
        )


ProtocolName = Annotated[str, Check(parse_protocol)]
