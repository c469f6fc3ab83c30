"""The protocols, by name. One that is here is tested by the contract suite; no other exists.

Nothing imports a protocol: it is a plug-in (`tacit.plugins`), loaded when it is first asked for.
Products are those of `sealed` under every protocol, so protocols differ in their functions alone
and go together, one for each family of functions: what is cheap to show is shown, the rest is not.
A name such as ``sealed; activations: permuted3`` spells such a mixture.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Annotated

from tacit.errors import ConfigError
from tacit.mpc.protocol import MpcProtocol
from tacit.plugins import PLUGINS, load
from tacit.result import Claim
from tacit.spec import Check, suggest

FAMILIES = ("activations", "norms", "softmax")
"""Softmax includes losses, and whatever a training does with scores; norms include roots,
reciprocals and logarithms; activations are all other functions: comparisons and maxima, too."""

LINEAR = "linear"
"""The family of sums and products, which are sealed; `he` is for those without a dealer."""

NO_DEALER = "sealed; linear: he; activations: garbled"
"""Products of masks by homomorphic encryption and functions by garbled circuits go together: each
is there so that no third party is needed."""


def spell(kind: str, layers: Mapping[str, str]) -> str:
    """Spell a protocol with another one for some families, as `find_protocol` reads it."""
    return "; ".join((kind, *(f"{family}: {name}" for family, name in sorted(layers.items()))))


def read_mixture(name: str) -> tuple[str, dict[str, str]]:
    """Read what `spell` spells: the protocol, and those of families."""
    kind, *rest = (part.strip() for part in name.split(";"))
    layers: dict[str, str] = {}
    for part in rest:
        family, _, chosen = (word.strip() for word in part.partition(":"))
        if family not in (*FAMILIES, LINEAR) or family in layers or not chosen:
            raise ConfigError(
                f"a protocol may be followed by others for {', '.join((*FAMILIES, LINEAR))}, each "
                f"once, as in 'sealed; activations: permuted3', got {name!r}"
            )
        layers[family] = chosen
    if "he" in layers.get(LINEAR, "") or "garbled" in layers.values():
        return _read_without_dealer(name, kind, layers)
    if layers.pop(LINEAR, "sealed") != "sealed":
        raise ConfigError(
            "sums and products are sealed under every protocol; wanted linear: sealed or nothing, "
            f"got {name!r}"
        )
    return kind, layers


def _read_without_dealer(
    name: str, kind: str, layers: Mapping[str, str]
) -> tuple[str, dict[str, str]]:
    rest = {layers.get(family, "garbled") for family in FAMILIES}
    is_whole = layers.get(LINEAR) == "he" and layers.get("activations") == "garbled"
    if kind != "sealed" or rest != {"garbled"} or not is_whole:
        raise ConfigError(
            f"without a dealer all functions are garbled: wanted {NO_DEALER!r}, got {name!r}"
        )
    return NO_DEALER, {}


def mix(base: MpcProtocol, families: Mapping[str, MpcProtocol]) -> MpcProtocol:
    """Make a protocol that uses others for some families of functions."""
    other = {family: one for family, one in sorted(families.items()) if one.name != base.name}
    if not other:
        return base
    if any(one.is_checked for one in (base, *other.values())):
        raise ConfigError("'checked' goes with no other protocol: what that sends has no tags")
    used = {family: other.get(family, base) for family in FAMILIES}
    return MpcProtocol(
        name=spell(base.name, {family: one.name for family, one in other.items()}),
        claims=_claims(used),
        shows_to=frozenset().union(*(one.shows_to for one in used.values())),
        helper_is_online=any(one.helper_is_online for one in used.values()),
        kernels=base.kernels,
        families=other,
    )


def _claims(used: Mapping[str, MpcProtocol]) -> tuple[Claim, ...]:
    """Say of each protocol for which functions its promises hold."""
    claims: dict[Claim, None] = {}
    for protocol in {one.name: one for one in used.values()}.values():
        mine = [family for family, one in used.items() if one.name == protocol.name]
        words = "functions of these kinds: " + ", ".join(mine)
        for claim in protocol.claims:
            named = claim.subject.replace("non-linear functions", words)
            if named == claim.subject:
                named = f"{claim.subject}, as far as {words} are concerned"
            claims[replace(claim, subject=named)] = None
    return tuple(claims)


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
