"""`protocol="he"`: one server evaluates a model on ciphertexts of the owner of the rows."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from tacit.errors import ConfigError, DataError, DisagreementError, FrameError
from tacit.inference.answers import PrivateAnswer
from tacit.inference.forest import Forest
from tacit.inference.he.packing import (
    DEFAULT_BITS,
    TAG_BYTES,
    Packing,
    choose_packing,
    read_packing,
    structure_of,
)
from tacit.inference.he.parameters import WholeCircuit, input_scale
from tacit.inference.secured import INPUT, Direct, known_bound, share_input_facts
from tacit.party import Fact, Session
from tacit.result import Claim, Forecast, Leak
from tacit.ring import Prg

_ASSUMPTIONS = (
    "every party follows the protocol (semi-honest): a client that makes a bad key can learn "
    "something of the weights, a server can answer with anything, and nobody would notice",
    "ring-LWE is hard at 128 bits with SEAL's errors, also beside encryptions of functions of the "
    "secret key (circular security); SEAL draws its randomness from the operating system",
)
RINGS = Fact(
    tag="he-plan",
    count=9,
    what="the parameters of the rings, which depend on the sizes of the weights",
    why="both sides compute in the same rings",
)


@final
@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Enciphered(Direct):
    """A model that answers encrypted questions. Made by `secure` with ``protocol="he"``."""

    def __post_init__(self) -> None:
        if isinstance(self.model, Forest):
            raise ConfigError(
                "trees compare, and protocol 'he' has sums and products alone: take protocol "
                "'sealed' or 'enclave' for a forest"
            )
        if self.reveal == "class":
            raise ConfigError(
                "the class is the position of the largest output, which protocol 'he' cannot "
                "find: take reveal='output', and let its receiver look"
            )

    def __call__(self, x: Any) -> PrivateAnswer:
        """Run both parties as threads of this process, and return the client's answer."""
        return self._in_threads(x, self._join)

    @property
    def bits(self) -> int | None:
        """Return the bits that were asked for, if any were."""
        return self.frac_bits or None

    def packing(self, shape: tuple[int, ...], bound: float) -> tuple[Packing, WholeCircuit]:
        """Choose layout and rings for an input of this shape; for the owner of the weights."""
        return choose_packing(self.model, self.weights, shape, bits=self.bits, bound=bound)

    def forecast(self, shape: tuple[int, ...], *, bound: float | None = None) -> Forecast:
        """Say what an input of this shape will cost, from the shape and the owner's weights."""
        packing, _ = self.packing(shape, known_bound(bound, self.bound))
        return packing.forecast(self.crew.client, self.crew.server)

    def lines(self, shape: tuple[int, ...]) -> tuple[str, ...]:
        """Say what will be done."""
        packing, whole = self.packing(shape, known_bound(self.bound))
        one, client = packing.parameters, self.crew.client
        rings = (
            "degree 8192, 48 plain bits"
            if packing.layout == "coefficients"
            else f"degree {one.degree}, {one.moduli} × {one.plain_bits} plain bits, modulus of "
            f"{one.primes * one.prime_bits + one.special_bits} bits"
        )
        return (
            f"rows of shape {shape} in {packing.layout}; BFV of {rings}, 128-bit security",
            f"{len(whole.products)} layers of products; {client}'s keys go before, once",
        )

    def leaks(self, shape: tuple[int, ...]) -> tuple[Leak, ...]:
        """Return what will be shown."""
        count = shape[0] * structure_of(self.model, self.weights, shape).out.size
        return self._shown_leaks(count)

    def _shown_leaks(self, count: int) -> tuple[Leak, ...]:
        return (
            Leak(
                to=self.crew.client,
                what="the output, with all its digits",
                why="the declared result",
                kind="output",
                elements=count,
            ),
        )

    def told(self, parties: Sequence[str]) -> tuple[Leak, ...]:
        """Return what both sides tell before the first row."""
        rings = RINGS.leaks(self.crew.server, parties)
        return (*INPUT.leaks(self.crew.client, parties), *rings)

    def claims(self) -> tuple[Claim, ...]:
        """Return what is promised to either side."""
        client, server = self.crew.client, self.crew.server
        return (
            Claim(
                subject=f"the rows of {client} and everything computed from them",
                guarantee=f"{server} sees ciphertexts under a key that it has not, and their "
                "number",
                assumptions=_ASSUMPTIONS,
            ),
            Claim(
                subject=f"the weights of {server}",
                guarantee=f"{client} sees the outputs; noise is flooded and every other slot or "
                "coefficient is random, to 2^-40 for each ciphertext",
                assumptions=(
                    *_ASSUMPTIONS,
                    "how long the server computes is not hidden: it skips weights that are zero",
                ),
            ),
            self._claim_of_answers(),
        )

    def _exchange(self, session: Session, x: Tensor | None) -> tuple[Tensor | None, Forecast]:
        crew = self.crew
        shape, bound = share_input_facts(session, crew.client, x, bound=self.bound)
        if len(shape) < 2:
            raise DataError(f"wanted rows of numbers, got an input of shape {shape}")
        # Of their common key and the number of the run: no message of another run fits.
        tag = session.shared(session.peers[0]).fork(f"he {session.begin_run()}").bytes(TAG_BYTES)
        if session.me == crew.server:
            packing, whole = self.packing(shape, bound)
            session.publish(RINGS, packing.to_numbers())
            session.ledger.record(*self._shown_leaks(shape[0] * whole.out.size))
            self._serve(session, packing, whole, tag)
            return None, packing.forecast(crew.client, crew.server)
        assert x is not None  # noqa: S101 - `join` has looked
        packing = self._told_packing(session, shape, bound)
        values = self._ask(session, packing, x, bound, tag)
        session.ledger.record(*self._shown_leaks(values.numel()))
        return values, packing.forecast(crew.client, crew.server)

    def _notes(self) -> tuple[str, ...]:
        return ()

    def _told_packing(self, session: Session, shape: tuple[int, ...], bound: float) -> Packing:
        """Read the packing of the owner of the model."""
        structure = structure_of(self.model, self.weights, shape)
        bits = self.bits or DEFAULT_BITS.get(structure.depth, 4)
        numbers = session.learn(self.crew.server, RINGS)
        try:
            packing = read_packing(numbers, structure, shape, bits)
        except ConfigError as error:
            raise DisagreementError(self.crew.server, str(error)) from error
        if packing.parameters.input_scale != input_scale(bits, bound):
            raise DisagreementError(self.crew.server, "wants inputs of another scale than agreed")
        return packing

    def _ask(
        self, session: Session, packing: Packing, x: Tensor, bound: float, tag: bytes
    ) -> Tensor:
        """Be the owner of the rows: send keys and rows, decrypt the answers."""
        server = self.crew.server
        with session.progress.stage("keys"):
            mine = packing.way.client()
            for at, data in enumerate(mine.keys()):
                _send(session, server, f"he/key.{at}", tag + data, phase="offline")
        flat = x.reshape(x.shape[0], -1).numpy()
        if float(np.abs(flat).max()) > bound:
            beyond = int((np.abs(flat) > bound).sum())
            raise DataError(
                f"{beyond} of {flat.size} inputs are larger than the agreed bound ±{bound:g}; "
                "raise the bound or scale the data"
            )
        rows = np.rint(flat * 2.0**packing.parameters.input_scale).astype(np.int64)
        sizes, found = packing.way.sizes(), []
        for flight in np.array_split(_batches(rows, sizes.batch), packing.flights()):
            batches = [rows[first:end] for first, end in flight.tolist()]
            with session.progress.stage("encrypt"):
                for batch in batches:
                    for data in mine.encrypt(batch):
                        _send(session, server, "he/rows", tag + data)
            with session.progress.stage("wait"):
                for batch in batches:
                    answers = [
                        _recv(session, server, "he/answers", one, tag=tag) for one in sizes.answers
                    ]
                    try:
                        found.append(mine.decrypt(answers, len(batch)))
                    except DataError as error:
                        raise DisagreementError(server, str(error)) from error
        whole = np.concatenate(found)
        scale = packing.parameters.output_scale

        def unscaled(number: int) -> float:  # whole numbers may be larger than a float's digits
            return number / (1 << scale) if scale >= 0 else float(number << -scale)

        real = np.vectorize(unscaled, otypes=[float])
        out = structure_of(self.model, self.weights, tuple(x.shape)).out.shape
        return torch.from_numpy(real(whole)).reshape(x.shape[0], *out[1:])

    def _serve(self, session: Session, packing: Packing, whole: WholeCircuit, tag: bytes) -> None:
        """Be the owner of the model: evaluate what comes, and release answers."""
        client, sizes = self.crew.client, packing.way.sizes()
        keys = [
            _recv(session, client, f"he/key.{at}", one, tag=tag)
            for at, one in enumerate(sizes.keys)
        ]
        recv = partial(_recv, session, client, "he/rows", tag=tag)
        try:
            with session.progress.stage("prepare"):
                server = packing.way.server(keys, whole)
            with session.progress.stage("evaluate"):
                for first, end in _batches(np.empty(packing.shape[0]), sizes.batch).tolist():
                    for data in server.evaluate(recv, end - first, Prg.from_os().bytes):
                        _send(session, client, "he/answers", tag + data)
        except DataError as error:  # keys and rows are all that is read here
            raise DisagreementError(client, str(error)) from error


def _batches(rows: Any, batch: int) -> Any:
    """Return where every batch begins and ends."""
    starts = np.arange(0, len(rows), batch)
    return np.stack([starts, np.minimum(starts + batch, len(rows))], axis=1)


def _send(session: Session, to: str, tag: str, data: bytes, phase: Any = "online") -> None:
    values = torch.frombuffer(bytearray(data), dtype=torch.uint8)
    session.send(to, tag, values, phase=phase)


def _recv(session: Session, sender: str, name: str, size: int, *, tag: bytes) -> bytes:
    """Receive a message of this run, or refuse it."""
    values = session.recv(sender, name, (TAG_BYTES + size,), dtype=torch.uint8)
    data = values.numpy().tobytes()
    if data[:TAG_BYTES] != tag:
        raise FrameError(sender, f"{name}: a key, row or answer of another job or run")
    return data[TAG_BYTES:]
