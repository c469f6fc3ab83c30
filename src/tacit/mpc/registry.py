"""The table of protocols. One that is in it is tested by the contract suite; no other exists."""

from collections.abc import Mapping
from dataclasses import replace

from tacit.errors import ConfigError
from tacit.mpc.contract import MpcProtocol
from tacit.mpc.kernels import (
    ARITHMETIC,
    checked_kernels,
    garbled_kernels,
    permuted_kernels,
    sealed_kernels,
)
from tacit.mpc.mixing import NO_DEALER, mix, read_mixture
from tacit.mpc.permuted.dummies import FlipsAndDummies, read_flips_and_dummies
from tacit.mpc.protocols.permuted2.kernel import SeenBySecond
from tacit.mpc.protocols.permuted3.kernel import SeenByHelper
from tacit.result import Claim

_TWO_SERVERS = (
    "every party follows the protocol (semi-honest); a malicious party can make the result wrong "
    "or learn more than the declared output, without being noticed",
    "the two computing parties do not pool what they see",
    "the dealer does not pool what it knows with a computing party",
    "results are rounded up or down by the computing parties' own random words: one that gets the "
    "same output again and again can work out digits below its last one",
    "AES-128 in counter mode is a pseudo-random generator; the links are private (TLS 1.3)",
)


_HONEST_DEALER = (
    "the dealer is honest: it follows the protocol, and does not pool what it knows with anyone; a "
    "dealer that cheats can make the result wrong without being noticed",
    "at most one of the two computing parties cheats; it may do anything, but two that work "
    "together see everything",
    "a party that cheats can break the run off after it has its own output and before another has "
    "any; it can put in any input, also one beyond its bound",
    "results are rounded up or down by the dealer's random words: one that gets the same output "
    "again and again can work out digits below its last one",
    "AES-128 in counter mode is a pseudo-random generator, SHA-256 has no collisions that can be "
    "found; the links are private (TLS 1.3)",
)

_TWO_ALONE = (
    _TWO_SERVERS[0],
    "there is no third party: the two computing parties make all correlated randomness with each "
    "other, and do not pool what they see",
    _TWO_SERVERS[3],
    "Ring-LWE of degree 8192 and 217 bits is hard (128 bits of security), Diffie–Hellman is hard "
    "on P-256, SHA-256 behaves like a random function and AES-128 like a random permutation; noise "
    "that a ciphertext carries is drowned but for 2^-64 for each word; the links are private "
    "(TLS 1.3)",
)


def permuted3(hiding: FlipsAndDummies) -> MpcProtocol:
    """Make the protocol whose helper sees values permuted, and hidden as stated."""
    return MpcProtocol(
        name=" ".join(("permuted3", *hiding.spelling())),
        claims=(
            Claim(
                subject="inputs and intermediate values, towards the two computing parties",
                guarantee="each sees only uniformly random words and the declared outputs",
                assumptions=_TWO_SERVERS,
            ),
            Claim(
                subject="the inputs of non-linear functions, towards the helper",
                guarantee="no guarantee",
                assumptions=(
                    "the helper sees these values in random order, fresh in every call; a value "
                    "that comes again is recognised; what it can infer depends on how many there "
                    "are and on what it knows already",
                    *hiding.assumptions(),
                ),
            ),
        ),
        helper_is_online=True,
        kernels={
            **ARITHMETIC,
            **permuted_kernels(lambda view: SeenByHelper(view, hiding)),
        },
    )


def permuted2(hiding: FlipsAndDummies) -> MpcProtocol:
    """Make the protocol whose second party sees values permuted, and hidden as stated."""
    return MpcProtocol(
        name=" ".join(("permuted2", *hiding.spelling())),
        claims=(
            Claim(
                subject="inputs and intermediate values, towards P0 (the first computing party)",
                guarantee="it sees only uniformly random words and the declared outputs",
                assumptions=_TWO_SERVERS,
            ),
            Claim(
                subject="the inputs of non-linear functions, towards P1 (the second computing "
                "party)",
                guarantee="no guarantee",
                assumptions=(
                    "P1 sees these values in random order, fresh in every call; a value that "
                    "comes again is recognised; what it can infer depends on how many there are "
                    "and on what it knows already: let the owner of the data be P1, so that what "
                    "is at risk is the model",
                    "the dealer knows the orders; it does not tell P1",
                    "P1 follows the protocol: a malicious one undoes the orders by tagging what it "
                    "hands over, sees every value in its place, and is not noticed",
                    *hiding.assumptions(),
                ),
            ),
        ),
        helper_is_online=False,
        kernels={
            **ARITHMETIC,
            **permuted_kernels(lambda view: SeenBySecond(view, hiding)),
        },
    )


PROTOCOLS: Mapping[str, MpcProtocol] = {
    "sealed": MpcProtocol(
        name="sealed",
        claims=(
            Claim(
                subject="inputs and intermediate values",
                guarantee="each party sees only uniformly random words and the declared outputs",
                assumptions=_TWO_SERVERS,
            ),
        ),
        helper_is_online=False,
        kernels=sealed_kernels(),
    ),
    "checked": MpcProtocol(
        name="checked",
        claims=(
            Claim(
                subject="the result, if a computing party cheats",
                guarantee="it is right, or there is none: a party that deviates in any message is "
                "caught before anything is revealed, but with a probability of at most 2^-40",
                assumptions=_HONEST_DEALER,
            ),
            Claim(
                subject="inputs and intermediate values, if a computing party cheats",
                guarantee="each party sees only uniformly random words and the declared outputs; "
                "whether a run is broken off depends on no secret",
                assumptions=_HONEST_DEALER,
            ),
        ),
        helper_is_online=False,
        kernels=checked_kernels(),
        is_checked=True,
    ),
    "permuted3": permuted3(FlipsAndDummies()),
    "permuted2": permuted2(FlipsAndDummies()),
}

CHECKED_BOUNDS = replace(
    PROTOCOLS["checked"],
    name="checked bounds",
    claims=(
        *PROTOCOLS["checked"].claims,
        Claim(
            subject="inputs, if an owner cheats",
            guarantee="each is within its bound, or the run ends with the owner's name before "
            "anything is computed on it",
            assumptions=(
                _HONEST_DEALER[0],
                "where the assumptions above speak of inputs beyond their bounds, this comes first",
            ),
        ),
    ),
    checks_bounds=True,
)

WITHOUT_DEALER = MpcProtocol(
    name=NO_DEALER,
    claims=(
        Claim(
            subject="inputs and intermediate values",
            guarantee="each party sees only the declared outputs, ciphertexts under the other's "
            "key, and words and labels that look uniform to it",
            assumptions=_TWO_ALONE,
        ),
    ),
    helper_is_online=False,
    kernels=garbled_kernels(),
    has_dealer=False,
)


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
        return WITHOUT_DEALER
    return mix(_find(kind), {family: _find(one) for family, one in layers.items()})


def _find(name: str) -> MpcProtocol:
    base, *options = name.split() or [""]
    if base not in PROTOCOLS:
        raise ConfigError(f"unknown protocol {name!r}; there are {', '.join(sorted(PROTOCOLS))}")
    if not options:
        return PROTOCOLS[base]
    if (base, options) == ("checked", ["bounds"]):
        return CHECKED_BOUNDS
    hidden = {"permuted2": permuted2, "permuted3": permuted3}.get(base)
    if hidden is None:
        known = "takes the option 'bounds' alone" if base == "checked" else "takes no options"
        raise ConfigError(f"{base} {known}, got {' '.join(options)!r}")
    return hidden(read_flips_and_dummies(options))
