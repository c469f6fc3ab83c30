"""One session of a private chat at its user, by protocol: what continues a text until it breaks."""

import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from time import monotonic
from typing import Any, Protocol

from torch import Tensor

from tacit.llm.backend.protocol import ChatProtocol
from tacit.llm.backend.sampling import Sampling, chooser, penalise
from tacit.llm.model.architecture import Architecture
from tacit.llm.model.plain import Between
from tacit.llm.permuted import Client, Conversation, MaskedWeights, Memory, Network
from tacit.llm.sealed import SealedClient, SealedMemory
from tacit.mpc.material.offline import Material
from tacit.party import Session

Wait = Callable[[float], None]
"""Told, about once a second, for how many seconds a token or its material was waited for."""

_PATIENCE_S = 1.0


class Speaker(Protocol):
    """A session, entered. What it keeps of a conversation has ``read`` and ``rewind``."""

    def begin(self) -> Any:  # each protocol keeps something of its own
        """Begin a conversation, and return what is kept of it, also for later sessions."""
        ...

    def speak(
        self,
        memory: Any,
        ids: Sequence[int],
        *,
        sampling: Sampling,
        limit: int,
        between: Between,
    ) -> Generator[int, None, None]:
        """Read tokens behind those that were read, and yield up to ``limit`` more."""
        ...

    def leave(self) -> None:
        """Tell the others that nothing follows."""
        ...


Enter = Callable[[Session, Architecture], Speaker]
"""Sits down in a new session."""


def enter_permuted(
    protocol: ChatProtocol, *, on_wait: Wait, network: Network | None = None
) -> Enter:
    """Speak through `tacit.llm.permuted`; masked weights are kept from session to session.

    ``network`` describes the link to the owner; which messages are sent depends on it. Whether a
    penalty is used does not change them: the owner must not learn that.
    """
    known: MaskedWeights | None = None

    def enter(session: Session, architecture: Architecture) -> Speaker:
        nonlocal known
        client = Client(
            session,
            architecture,
            known=known,
            network=network,
            counts=protocol.counts,
            device=protocol.device,
        )
        known = client.masked
        return PermutedSpeaker(client, on_wait)

    return enter


def enter_sealed(
    protocol: ChatProtocol,
    *,
    on_wait: Wait,
    material: Material | None = None,
    on_empty: Callable[[], None] = lambda: None,
) -> Enter:
    """Speak through `tacit.llm.sealed`, with a dealer or on what was dealt before."""

    def enter(session: Session, architecture: Architecture) -> Speaker:
        client = SealedClient(
            session,
            architecture,
            reveal=protocol.reveal,
            device=protocol.device,
            material=material,
            on_empty=on_empty,
        )
        return SealedSpeaker(client, on_wait)

    return enter


class PermutedSpeaker:
    """Speak in conversations, each with threads of its own that order material ahead.

    Guarantee: that of `tacit.llm.permuted`: the owner and the dealer learn lengths and times.
    """

    def __init__(self, client: Client, on_wait: Wait) -> None:
        self._client = client
        self._on_wait = on_wait
        self._open: dict[int, Conversation] = {}

    def begin(self) -> Memory:
        """Begin a conversation."""
        return self._take_up(None).memory

    def speak(
        self,
        memory: Memory,
        ids: Sequence[int],
        *,
        sampling: Sampling,
        limit: int,
        between: Between,
    ) -> Generator[int, None, None]:
        """Choose among scores in an order that we do not know."""
        choose_next = chooser(sampling)

        def choose(scores: Tensor) -> int:
            return choose_next(scores, ())

        def adjust(scores: Tensor, counts: Tensor) -> Tensor:
            return penalise(scores, counts > 0, sampling.repetition_penalty)

        tokens = (self._open.get(memory.number) or self._take_up(memory)).generate(
            ids,
            choose,
            limit=limit,
            on_wait=self._on_wait,
            between=between,
            adjust=adjust if sampling.needs_places else None,
        )
        with closing(tokens):
            for token in tokens:
                yield token.id

    def leave(self) -> None:
        """End all conversations."""
        for conversation in self._open.values():
            conversation.close()
        self._client.close()

    def _take_up(self, memory: Memory | None) -> Conversation:
        conversation = Conversation(self._client, memory)
        self._open[conversation.memory.number] = conversation
        return conversation


class SealedSpeaker:
    """Speak pass by pass.

    Guarantee: that of `SealedClient`.
    """

    def __init__(self, client: SealedClient, on_wait: Wait) -> None:
        self._client = client
        self._on_wait = on_wait

    def begin(self) -> SealedMemory:
        """Begin a conversation; the others hear of it with its first pass."""
        return SealedMemory()

    def speak(
        self,
        memory: SealedMemory,
        ids: Sequence[int],
        *,
        sampling: Sampling,
        limit: int,
        between: Between,
    ) -> Generator[int, None, None]:
        """Have tokens chosen."""
        speech = self._client.generate(memory, ids, sampling, limit=limit, between=between)
        with closing(speech) as tokens:
            while True:
                with _watched(self._on_wait):
                    token = next(tokens, None)
                if token is None:
                    return
                yield token

    def leave(self) -> None:
        """Tell the others that no pass follows."""
        self._client.leave()


@contextmanager
def _watched(on_wait: Wait) -> Iterator[None]:
    """Tell about a wait while the block waits: a pass has no place at which to look around."""
    is_over, began = threading.Event(), monotonic()

    def watch() -> None:
        while not is_over.wait(_PATIENCE_S):
            on_wait(monotonic() - began)

    watcher = threading.Thread(target=watch, name="tacit-wait", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        is_over.set()
        watcher.join()
