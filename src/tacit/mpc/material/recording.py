"""Runs that are recorded: of all that a party computes, Python is left with the messages.

A run has no choice that depends on a value: the same kernels work on the same memory, and only what
lies there differs. So what is launched between two messages is recorded once, as one graph, and
played in every later run of the plan. Whatever differs from run to run has a fixed place: material,
inputs, what is told, what peers send, and the entries of growing tensors.
"""

import threading
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, Generic, NoReturn, Protocol, TypeVar, final

import torch
from torch import Tensor

from tacit.errors import TacitError
from tacit.mpc import tables
from tacit.mpc.boundary import Input, Open, openable, reveal
from tacit.mpc.cache import OpeningCache
from tacit.mpc.contract import Channel, in_host_memory, message_tag, posted_tag
from tacit.mpc.material.randomness import Parts
from tacit.mpc.plan import Plan
from tacit.mpc.secret_ops import SecretOps
from tacit.mpc.share import AnyShare, MaskedOpening, OpeningSpec, Party, Share, Spec
from tacit.party import Session
from tacit.result import Phase

_ONE_AT_A_TIME = threading.Lock()  # what one thread records, another's recording may not disturb


class LaunchTape(Protocol):
    """Records what is launched, without computing it, and plays it."""

    def running(self) -> AbstractContextManager[None]:
        """Be where launches are recorded and played; what failed within is forgotten."""
        ...

    def renew(self) -> None:
        """Take other memory from here on: what was recorded before goes with its own."""
        ...

    def begin(self) -> None:
        """Record from here on."""
        ...

    def end(self) -> Callable[[], None]:
        """Stop recording, and return what plays it."""
        ...

    def wait(self) -> None:
        """Wait until all that was played is done."""
        ...


@final
class CudaTape:
    """Record CUDA graphs, on a stream and in memory of their own."""

    def __init__(self, device: torch.device) -> None:
        # Between two messages there may be nothing to compute.
        warnings.filterwarnings("ignore", message="The CUDA Graph is empty")
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._pool = torch.cuda.graph_pool_handle()
        self._graph: torch.cuda.CUDAGraph | None = None

    @contextmanager
    def running(self) -> Iterator[None]:
        """Launch on the stream of the graphs."""
        with torch.cuda.stream(self._stream):
            try:
                yield
            finally:
                if self._graph is not None:
                    with suppress(RuntimeError):
                        self.end()

    def renew(self) -> None:
        """Take another pool of memory."""
        self._pool = torch.cuda.graph_pool_handle()

    def begin(self) -> None:
        """Begin a graph; tables that it reads for the first time may be copied meanwhile."""
        _ONE_AT_A_TIME.acquire()
        self._graph = torch.cuda.CUDAGraph()
        self._graph.capture_begin(pool=self._pool, capture_error_mode="relaxed")

    def end(self) -> Callable[[], None]:
        """End the graph."""
        graph, self._graph = self._graph, None
        assert graph is not None  # noqa: S101 - it was begun
        try:
            graph.capture_end()
        finally:
            _ONE_AT_A_TIME.release()
        return graph.replay

    def wait(self) -> None:
        """Wait for the stream."""
        self._stream.synchronize()


R = TypeVar("R")
Tag = Callable[[int], str]
"""Gives the tag of a message in a run."""
Key = tuple[Any, ...]
"""Names a vector of a run: ("input", step), ("told", name), or step, need and part of material."""


@dataclass(frozen=True)
class Vectors:
    """Words that a run has of its own, laid end to end, and how they lie."""

    shapes: dict[Key, torch.Size]
    words: Tensor

    @classmethod
    def of(cls, parts: Mapping[Key, Tensor], device: torch.device) -> "Vectors":
        """Lay vectors out in host memory, such as the device reads fast."""
        shapes = {key: part.shape for key, part in parts.items()}
        count = sum(shape.numel() for shape in shapes.values())
        words = torch.empty(count, dtype=torch.int64, pin_memory=device.type == "cuda")
        if count:
            torch.cat([part.reshape(-1) for part in parts.values()], out=words)
        return cls(shapes, words)


class FixedPlaces:
    """Memory on a device for vectors that come anew for every run."""

    def __init__(self, first: Vectors, device: torch.device) -> None:
        self._shapes = first.shapes
        self._words = torch.empty(len(first.words), dtype=torch.int64, device=device)
        parts = self._words.split_with_sizes([shape.numel() for shape in self._shapes.values()])
        self.at = {
            key: part.view(shape)
            for (key, shape), part in zip(self._shapes.items(), parts, strict=True)
        }

    def load(self, vectors: Vectors) -> None:
        """Put the vectors of a run there."""
        if vectors.shapes != self._shapes:
            raise TacitError("a run brings vectors of other sizes than the one that was recorded")
        self._words.copy_(vectors.words)


class Recording(Generic[R]):
    """One party's runs of a plan: the first is recorded while it runs, the others are played.

    Nothing that is played refers to this: its memory, of which a card has little, goes with it.

    Guarantee: that of the plan. Material is brought in before every run, for that run alone: a run
    without it is refused, so that none can use the masks of another.
    """

    def __init__(
        self,
        session: Session,
        plan: Plan,
        cache: OpeningCache,
        *,
        device: torch.device,
        tape: LaunchTape,
    ) -> None:
        self.plan, self.session, self.cache, self.device = plan, session, cache, device
        self.grown = {name: _unfilled(spec, device) for name, spec in plan.grown}
        self._tape = tape
        tape.renew()
        self._material: FixedPlaces | None = None
        self._given: FixedPlaces | None = None
        self._by_step: list[list[list[Tensor]]] = []
        self._is_loaded = False
        self._set: int | None = None
        self._run = -1
        self._acts: list[Callable[[int], object]] = []
        self._unsent: list[tuple[str, Tag, Tensor, Phase]] = []
        self._tables: list[Tensor] = []
        self._result: R | None = None

    def load(self, material: Vectors, given: Vectors) -> None:
        """Bring in what the next run has of its own: material, inputs and what is told."""
        self._set = self.cache.leave(self._set)
        with self._tape.running():
            if self._material is None or self._given is None:
                self._material = FixedPlaces(material, self.device)
                self._given = FixedPlaces(given, self.device)
                self._by_step = [[[] for _ in step.needs] for step in self.plan.steps]
                for (step, need, _), part in self._material.at.items():
                    self._by_step[step][need].append(part)
            self._material.load(material)
            self._given.load(given)
            for name, spec in self.plan.grown:
                whole = self.grown[name]
                assert whole.mask_share is not None  # noqa: S101 - nobody's input
                self.cache.lay_out(spec, (whole.opened, whole.mask_share))
            self._tape.wait()
        self._is_loaded = True

    def play(self, run: int, program: Callable[[SecretOps], R]) -> R:
        """Make a run; what is returned lies where the next run will write.

        Raises:
            TacitError: nothing was brought in for this run, or the recorded one broke off.
        """
        if not self._is_loaded:
            raise TacitError("material was used already; masks are used once")
        self._is_loaded, self._run = False, run
        with self._tape.running():
            if self._result is not None:
                for act in self._acts:
                    act(run)
            elif self._acts:
                raise TacitError("the run that was to be recorded broke off")
            else:
                with tables.keeping(self._tables):
                    self._tape.begin()
                    self._result = program(RecordingOps(self))
                    self._flush()
            self._tape.wait()
        return self._result

    def send(self, to: str, tag: Tag, words: Tensor, phase: Phase) -> None:
        """Note that a message leaves here; it is sent before anything is waited for."""
        self._unsent.append((to, tag, words, phase))

    def recv(self, sender: str, tag: Tag, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """Take a message, in memory where later runs have theirs."""
        self._flush()
        session, inbox = self.session, torch.empty(shape, dtype=dtype, device=self.device)
        self._do(lambda run: inbox.copy_(session.recv(sender, tag(run), shape, dtype=dtype)))
        self._tape.begin()
        return inbox

    def reveal(self, step: Open, channel: Channel, share: AnyShare) -> Tensor | None:
        """Open a value; what I get lies in host memory, where later runs have theirs."""
        assert not isinstance(share, MaskedOpening)  # noqa: S101 - `declare` has refused it
        spec, mine, ledger = openable(share.spec), share.words, self.session.ledger
        self._do(lambda run: ledger.record(*step.leaks(spec)))
        theirs = step.exchange(channel, share)
        if theirs is None:
            return None
        self._flush()
        shown = torch.empty(spec.shape, dtype=torch.float64)
        self._do(lambda run: shown.copy_(reveal(spec, mine, theirs)))
        self._tape.begin()
        return shown

    def take(self, number: int) -> tuple[Parts, ...]:
        """Return the material of a step, in its fixed place."""
        return tuple(map(tuple, self._by_step[number]))

    def stream(self, number: int) -> NoReturn:
        """Refuse: a step that draws its masks itself would draw them once for all runs."""
        raise TacitError(f"step {number} draws masks while it runs, and cannot be recorded")

    peek = stream

    def given(self, *key: object) -> Tensor | None:
        """Return an input, or what is told, in its fixed place."""
        assert self._given is not None  # noqa: S101 - it was loaded
        return self._given.at.get(key)

    def told(self) -> dict[str, Tensor]:
        """Return all that is told, in its fixed places."""
        assert self._given is not None  # noqa: S101 - it was loaded
        return {key[1]: words for key, words in self._given.at.items() if key[0] == "told"}

    def brought(self, opening: MaskedOpening) -> MaskedOpening:
        """Bring what is open to the device, for all runs."""

        def bring(words: Tensor | None) -> Tensor | None:
            if words is None or words.device == self.device:
                return words
            (there,) = tables.kept(tables.laid_out(words, self.device))
            return there

        opened = bring(opening.opened)
        assert opened is not None  # noqa: S101 - there is one
        mask, clear = bring(opening.mask_share), bring(opening.clear)
        return replace(opening, opened=opened, mask_share=mask, clear=clear)

    def join(self, name: str, fresh: MaskedOpening, spec: OpeningSpec) -> MaskedOpening:
        """Put new entries behind those that are laid out."""
        whole, at = self.grown[name], self.given("places")
        assert at is not None  # noqa: S101 - it was loaded
        for there, new in ((whole.opened, fresh.opened), (whole.mask_share, fresh.mask_share)):
            assert there is not None and new is not None  # noqa: S101, PT018 - nobody's input
            there.index_copy_(spec.mask.dim, at, new)
        return MaskedOpening(whole.opened, whole.mask_share, None, spec)

    def _flush(self) -> None:
        """End what is being recorded, play it, and send what it computed."""
        launch, unsent, session = self._tape.end(), self._unsent, self.session
        self._unsent = []
        self._do(lambda run: launch())
        if unsent:
            self._do(lambda run: _send(session, run, unsent))

    def _do(self, act: Callable[[int], object]) -> None:
        """Do something in this run and in all later ones."""
        self._acts.append(act)
        act(self._run)


class RecordingOps(SecretOps):
    """Interpret a program once, for all runs of a plan."""

    def __init__(self, recording: Recording[Any]) -> None:
        super().__init__(
            recording.session,
            recording.plan,
            run=-1,
            inputs={},
            advance=lambda done: None,
            supply=recording,
            device=recording.device,
            kept={},
            cache=recording.cache,
            told=recording.told(),
        )
        self._recording = recording

    def channel(self, number: int) -> Channel:
        """Return the messages of a step, which are noted for later runs."""
        return RecordingChannel(self._recording, number)

    def entering(self, step: Input, channel: Channel) -> tuple[Share, Tensor | None]:
        """Take an input from its fixed place, or from an owner that does not compute."""
        words = self._recording.given("input", channel.step)
        if words is None:
            words = channel.recv(step.owner, step.spec.shape)
        return Share(words, step.spec), self._recording.given("clear", channel.step)

    def find_opening(self, name: str, spec: Spec, owner: Party | None) -> AnyShare | None:
        """Take an input from the cache; what a processor has of it is brought to the device."""
        found = super().find_opening(name, spec, owner)
        assert found is None or isinstance(found, MaskedOpening)  # noqa: S101 - it is kept as one
        return None if found is None else self._recording.brought(found)

    def join(self, name: str, fresh: AnyShare, *, length: int, dim: int) -> AnyShare:
        """Put entries behind those that are laid out."""
        assert isinstance(fresh, MaskedOpening)  # noqa: S101 - `open_masked` gave it
        return self._recording.join(name, fresh, fresh.spec.grown(name, length=length, dim=dim))

    def reveal(self, step: Open, value: AnyShare) -> Tensor | None:
        """Open a value in this run and in all later ones."""
        return self._recording.reveal(step, self._next(step, (value,)), value)


class RecordingChannel(Channel):
    """The messages of a step, noted for later runs."""

    def __init__(self, recording: Recording[Any], step: int) -> None:
        roles, told = recording.plan.roles, recording.told()
        super().__init__(
            recording.session, roles, run=-1, step=step, device=recording.device, told=told
        )
        self._recording = recording
        self._counts: Counter[tuple[str, str]] = Counter()

    def shared(self, peer: str) -> NoReturn:
        """Refuse: what a step draws while it runs would be the same words in all runs."""
        raise TacitError(f"step {self.step} draws while it runs, and cannot be recorded")

    def send(self, to: str, values: Tensor, *, phase: Phase = "online") -> None:
        """Send words that belong to this step."""
        self._recording.send(to, self._numbered("to", to), values, phase)

    def recv(
        self, sender: str, shape: tuple[int, ...], *, dtype: torch.dtype = torch.int64
    ) -> Tensor:
        """Receive the sender's next message of this step."""
        return self._recording.recv(sender, self._numbered("from", sender), shape, dtype)

    def post(self, to: str, values: Tensor) -> None:
        """Send what is waited for later."""
        step = self.step
        self._recording.send(to, lambda run: posted_tag(run, step), values, "online")

    def collect(self, sender: str, shape: tuple[int, ...], *, dtype: torch.dtype) -> Tensor:
        """Receive what was posted."""
        step = self.step
        return self._recording.recv(sender, lambda run: posted_tag(run, step), shape, dtype)

    def _numbered(self, way: str, peer: str) -> Tag:
        step, number = self.step, self._counts[way, peer]
        self._counts[way, peer] += 1
        return lambda run: message_tag(run, step, number)


def _send(session: Session, run: int, messages: list[tuple[str, Tag, Tensor, Phase]]) -> None:
    # What is sent must not change any more, and this memory is written in every run. Every copy is
    # waited for: torch would note one that is under way on a stream that may be recording.
    hosts = [
        in_host_memory(words) if words.is_cuda else words.clone() for _, _, words, _ in messages
    ]
    for (to, tag, _, phase), host in zip(messages, hosts, strict=True):
        session.send(to, tag(run), host, phase=phase)


def _unfilled(spec: OpeningSpec, device: torch.device) -> MaskedOpening:
    opened, mask = (torch.zeros(spec.shape, dtype=torch.int64, device=device) for _ in range(2))
    return MaskedOpening(opened, mask, None, spec)
