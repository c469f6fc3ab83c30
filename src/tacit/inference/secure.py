"""Make a model private: the same module or function of ops, run between its two owners."""

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor, nn

from tacit.errors import ConfigError
from tacit.inference.attested import Attested
from tacit.inference.forest import Forest
from tacit.inference.he.secured import Enciphered
from tacit.inference.models import adopt, features_of
from tacit.inference.secured import DIRECT, Crew, Function, Reveal, Secured
from tacit.inference.shares import SecuredOnShares
from tacit.mpc import PROTOCOLS, MpcProtocol, find_protocol
from tacit.nn import Imported, import_module
from tacit.ring import check_device

LEAST_FRAC_BITS = 10
"""Below, rounding a weight could make it larger than its published size allows for."""


def secure(
    model: nn.Module | Imported | Forest | Function | object,
    *,
    protocol: str = "sealed",
    weights: Mapping[str, Tensor] | None = None,
    crew: Crew | None = None,
    reveal: Reveal = "output",
    frac_bits: int | None = None,
    bound: float | None = None,
    cap: float | None = None,
    device: str = "cpu",
) -> Secured:
    """Make a model private: nobody sees the input but its owner, nor the weights but theirs.

    Args:
        model: a torch module of supported layers (in use, not in training), a function
            ``model(ops, weights, x)``, or a fitted estimator: a linear model, linear SVC or
            Gaussian naive Bayes of scikit-learn, or trees of scikit-learn, XGBoost or LightGBM.
            Of trees only their number and depth are public, and ``reveal`` must be "class". What
            predicts more than its coefficients say (a Poisson regression: exp) is refused.
        protocol: one word decides who sees what; the report shows what that word leaks. ``he`` and
            ``enclave`` are between the two owners alone.
        weights: of a function of ops; a module has its own.
        crew: the names of the parties, if they should be others than client, server and dealer.
        reveal: the whole output, or only the class: the position of its largest element.
        frac_bits: precision of fixed point, 16 unless told. Under ``he`` the bits of weights and
            inputs, from 2 to 24: fewer for deeper models unless told.
        bound: a public promise about the size of the input; without one the client
            publishes it, rounded up to a quarter of an octave.
        cap: where hidden values of a module saturate. Bounds grow with every layer, and a deep
            module does not fit the ring without a cap. Without one given, the largest of 4096,
            1024, 256 and 64 that fits is taken where one is needed, and the report says so.
        device: where this party computes; the answer does not depend on it.

    Returns:
        The private model. Call it to run all parties here; `Secured.join` is one party's part.

    Raises:
        InputError: the module does something that is not supported; the message says what and
            where.

    Guarantee: if every party follows the protocol (is semi-honest) and the dealer works together
    with nobody, what `Secured.claims` says. Under ``sealed`` that is all of it; ``permuted3`` and
    ``permuted2`` show hidden values in random order, to the dealer or the client; without a dealer
    the two owners make all randomness with each other. Under ``he`` the
    server sees ciphertexts; ``enclave`` is simulated and promises nothing.
    """
    check_device(device)
    kind, frac_bits, has_dealer = _kind(protocol, frac_bits, cap)
    crew = crew or Crew()
    if reveal not in ("output", "class"):
        raise ConfigError(f"reveal must be 'output' or 'class', got {reveal!r}")
    columns: tuple[str, ...] = ()
    features = None
    if not isinstance(model, nn.Module | Imported | Forest) and not callable(model):
        columns = tuple(map(str, getattr(model, "feature_names_in_", ())))
        model = adopt(model, is_class=reveal == "class")
        features = features_of(model)
    if isinstance(model, nn.Module):
        model = import_module(model)
    if isinstance(model, Imported):
        if weights is not None:
            raise ConfigError("a module has weights of its own; give none beside it")
        model = replace(model, cap=cap)
        weights = model.weights
    elif isinstance(model, Forest):
        if weights is not None or cap is not None or reveal != "class":
            raise ConfigError("a forest has its own weights, no cap, and reveals a class")
        weights, frac_bits, bound = model.weights, model.frac_bits, model.bound
    elif weights is None:
        raise ConfigError("a function of ops wants weights, a mapping from names to tensors")
    elif cap is not None:
        raise ConfigError(
            "a function of ops saturates where it says ops.cap; give no cap beside it"
        )
    return kind(
        model=model,
        weights={name: value.detach().to(torch.float64) for name, value in weights.items()},
        protocol=protocol,
        crew=crew if has_dealer else replace(crew, dealer=None),
        reveal=reveal,
        frac_bits=frac_bits,
        bound=bound,
        device=device,
        columns=columns,
        features=features,
    )


def _kind(
    protocol: str, frac_bits: int | None, cap: float | None
) -> tuple[type[SecuredOnShares | Attested | Enciphered], int, bool]:
    """Return what runs a protocol, its bits (0 for those of its own), and whether one deals."""
    if protocol not in DIRECT:
        has_dealer = _on_shares(protocol).has_dealer
        bits = 16 if frac_bits is None else frac_bits
        if not LEAST_FRAC_BITS <= bits <= 30:
            raise ConfigError(f"frac_bits must be from {LEAST_FRAC_BITS} to 30, got {bits}")
        return SecuredOnShares, bits, has_dealer
    if cap is not None:
        raise ConfigError(f"nothing saturates under protocol {protocol!r}; give no cap")
    if protocol == "enclave":
        if frac_bits is not None:
            raise ConfigError("an enclave computes with floats; give no frac_bits")
        return Attested, 0, False
    if frac_bits is not None and not 2 <= frac_bits <= 24:
        raise ConfigError(f"under protocol 'he' frac_bits is from 2 to 24, got {frac_bits}")
    return Enciphered, frac_bits or 0, False


def _on_shares(protocol: str) -> MpcProtocol:
    try:
        return find_protocol(protocol)
    except ConfigError as error:
        if protocol.split(" ")[0].rstrip(";") in PROTOCOLS:  # what follows it is wrong
            raise
        raise ConfigError(f"{error}; and of another kind {' and '.join(DIRECT)}") from error
