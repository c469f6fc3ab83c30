"""One protocol for each family of functions: what is cheap to show is shown, the rest is not.

Products are those of `sealed` under every protocol, so protocols differ in their functions alone
and go together. A name such as ``sealed; activations: permuted3`` spells a mixture.
"""

from collections.abc import Mapping
from dataclasses import replace

from tacit.errors import ConfigError
from tacit.mpc.protocol import MpcProtocol
from tacit.result import Claim

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
