"""Make a model private: the same module or function of ops, run between its two owners."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, final

import torch
from torch import Tensor, nn

from tacit.errors import ConfigError, DataError, DisagreementError
from tacit.inference.answers import PrivateAnswer
from tacit.inference.attested import Attested
from tacit.inference.forest import Forest
from tacit.inference.he.secured import Enciphered
from tacit.inference.models import adopt, features_of
from tacit.inference.secured import (
    DIRECT,
    INPUT,
    LARGEST_ELEMENTS,
    Crew,
    Function,
    PublicFacts,
    Reveal,
    Secured,
    check_classes,
    share_input_facts,
    share_weight_facts,
    weight_fact,
)
from tacit.mpc import PROTOCOLS, MpcProtocol, Plan, find_protocol
from tacit.mpc.walker import Walker
from tacit.nn import Imported, import_module
from tacit.nn.running import note_of, with_room
from tacit.notebook import Lines
from tacit.party import Session, Usage
from tacit.result import Claim, Forecast, Leak
from tacit.ring import check_device

CAP = "cap= of tacit.secure (model.cap in a job file)"


@final
@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class SecuredOnShares(Secured):
    """A private model under a protocol of `tacit.mpc`. Made by `secure`."""

    def __call__(self, x: Any) -> PrivateAnswer:
        """Run the parties as threads of this process, and return the client's answer."""
        return self._in_threads(x, self._join)

    def forecast(self, shape: tuple[int, ...], *, bound: float | None = None) -> Forecast:
        """Say what an input of this shape will cost, from public facts alone."""
        walker = self._walker()
        plan, program = self._fitted(self.facts(shape, bound=bound), walker)[1:]
        walker.execute(plan, program)
        return walker.forecast()

    def plan(self, facts: PublicFacts) -> Plan:
        """Work out every step and its cost."""
        return self._fitted(facts, self._walker())[1]

    def told(self, parties: Sequence[str]) -> tuple[Leak, ...]:
        """Return what both sides tell all parties of a session before the first row."""
        weights = weight_fact(len(self._sized()) + len(self._gains()))
        return (
            *INPUT.leaks(self.crew.client, parties),
            *(weights.leaks(self.crew.server, parties) if weights.count else ()),
        )

    def claims(self) -> tuple[Claim, ...]:
        """Return what the protocol promises, and what no protocol can."""
        return (*find_protocol(self.protocol).claims, self._claim_of_answers())

    def _join(self, session: Session, x: Tensor | None) -> PrivateAnswer:
        usage, crew, walker = Usage(), self.crew, self._walker(session)
        with session.progress.stage("plan"):
            fitted, plan, program = self._fitted(self._agree(session, x), walker)
        mine: dict[str, Tensor] = {}
        if session.me == crew.client and x is not None:
            mine = {"x": self._one_hot(x)}
        elif session.me == crew.server:
            mine = {_input_name(name): value for name, value in self.weights.items()}
        _, opened = walker.execute(plan, program, inputs=mine)
        cap = fitted.model.cap if isinstance(fitted.model, Imported) else None
        return self._answer(
            session,
            usage,
            opened[0] if opened else None,
            forecast=walker.forecast(),
            plan=plan,
            notes=(*(() if cap is None else (note_of(cap, CAP),)), *plan.notes()),
        )

    def _agree(self, session: Session, x: Tensor | None) -> PublicFacts:
        """Tell and learn what must be known before a run is planned."""
        if session.me == self.crew.client and x is None:
            raise DataError(f"{session.me!r} is the client and must give an input")
        if x is not None and (words := self._is_too_much(tuple(x.shape))):
            raise DataError(f"the input has {words}; ask about fewer at once")
        shape, bound = share_input_facts(session, self.crew.client, x, bound=self._known_bound)
        if words := self._is_too_much(shape):
            raise DisagreementError(self.crew.client, f"announced an input that has {words}")
        bounds, gains = share_weight_facts(session, self.crew.server, self._sized(), self._gains())
        bounds |= self._agreed_bounds()
        return PublicFacts(shape=shape, bound=bound, weight_bounds=bounds, gains=gains)

    def _is_too_much(self, shape: tuple[int, ...]) -> str:
        """Say what is too much of an input that names entries of a table; nothing if all is well.

        One-hot it is as many times larger as the table has entries, at every party.
        """
        names, entries = prod(shape), self._entries
        if entries is None or names * entries <= LARGEST_ELEMENTS:
            return ""
        return f"{names} names of a table of {entries} entries: more than {LARGEST_ELEMENTS} in all"

    def _one_hot(self, x: Tensor) -> Tensor:
        """Turn names of a table's entries into one-hot vectors, if the input is such names.

        The client does so by itself: on shares, a name would cost a comparison with every entry.
        """
        entries = self._entries
        if entries is None:
            return x
        if not bool(((x >= 0) & (x < entries) & (x == x.round())).all()):
            raise DataError(
                f"the model reads a table of {entries} entries: wanted whole numbers from 0 to "
                f"{entries - 1}, got others"
            )
        return (x[..., None] == torch.arange(entries, dtype=x.dtype)).to(x.dtype)

    def _walker(self, session: Session | None = None) -> Walker:
        return Walker(
            self.crew.roles,
            protocol=self.protocol,
            frac_bits=self.frac_bits,
            session=session,
            device=self.device,
        )

    def _fitted(
        self, facts: PublicFacts, walker: Walker
    ) -> tuple["SecuredOnShares", Plan, Callable[[Any], Tensor | None]]:
        """Plan, with a cap on hidden values where their bounds do not fit the ring without."""
        imported = self.model

        def attempt(
            cap: float | None,
        ) -> tuple[SecuredOnShares, Plan, Callable[[Any], Tensor | None]]:
            fitted = self
            if isinstance(imported, Imported):
                fitted = replace(self, model=replace(imported, cap=cap))
            program = fitted._program(facts)
            return fitted, walker.plan(program, key=cap), program

        if not isinstance(imported, Imported):
            return attempt(None)
        return with_room(attempt, cap=imported.cap, keyword=CAP)

    def _program(self, facts: PublicFacts) -> Callable[[Any], Tensor | None]:
        """Return what is run: the inputs of both owners, the model, and who gets the answer."""
        model, crew, entries = self.model, self.crew, self._entries
        shape, frac_bits = facts.shape, self.frac_bits
        if isinstance(model, Imported):
            model = replace(model, gains=facts.gains, is_hot=entries is not None)
        if entries is not None:
            shape, frac_bits = (*shape, entries), 0  # zeros and ones: nothing is rounded behind

        def program(ops: Any) -> Tensor | None:  # PlanOps and SecretOps have different tensors
            bound = facts.bound
            x = ops.input("x", owner=crew.client, shape=shape, bound=bound, frac_bits=frac_bits)
            weights = {
                name: ops.input(
                    _input_name(name),
                    owner=crew.server,
                    shape=tuple(value.shape),
                    bound=facts.weight_bounds[name],
                )
                for name, value in self.weights.items()
            }
            # Matrices are opened under their masks before the query, once for all their uses.
            ops.cache_openings(
                *(weights[name] for name, one in self.weights.items() if one.dim() > 1)
            )
            answer = model(ops, weights, x)
            if self.reveal == "class":
                check_classes(ops.shape(answer))
                answer = ops.argmax(answer, dim=-1)
            opened: Tensor | None = ops.open(
                answer, to=(crew.client,), what=f"the {self.reveal}", why="the declared result"
            )
            return opened

        return program

    def _shown(self) -> tuple[str, Lines]:
        return "Private model", self._rows()


def _input_name(weight: str) -> str:
    return f"weights/{weight}"


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
