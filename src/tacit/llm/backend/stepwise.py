"""A model that speaks pass by pass, through a sealed session."""

import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from time import monotonic
from typing import Generic, Protocol, TypeVar

from tacit.llm.backend.dialogue import Spent
from tacit.llm.backend.sampling import Sampling
from tacit.llm.backend.spending import Mark, common
from tacit.llm.model.architecture import Architecture
from tacit.llm.model.parts import Between, no_word
from tacit.party import Session

Wait = Callable[[float], None]
"""Told, about once a second, for how many seconds a token has been waited for."""

_MOST = 4
"""How many conversations are kept."""
_PATIENCE_S = 1.0


class TextMemory(Protocol):
    """What a user keeps of a conversation."""

    @property
    def read(self) -> list[int]:
        """Return the tokens that the model has read."""
        ...

    def rewind(self, length: int) -> None:
        """Forget all but the first tokens."""
        ...


M = TypeVar("M", bound=TextMemory)
M_contra = TypeVar("M_contra", bound=TextMemory, contravariant=True)


class StepClient(Protocol[M_contra]):
    """A user's session in which a pass reads tokens and gives the next one."""

    @property
    def session(self) -> Session:
        """Return the session."""
        ...

    @property
    def architecture(self) -> Architecture:
        """Return the shape of the owner's model."""
        ...

    def generate(
        self,
        memory: M_contra,
        ids: Sequence[int],
        sampling: Sampling,
        *,
        limit: int,
        between: Between = no_word,
    ) -> Generator[int, None, None]:
        """Read tokens, and yield up to ``limit`` more."""
        ...

    def leave(self) -> None:
        """Tell the others that no pass follows."""
        ...


class StepwiseBackend(Generic[M]):
    """Continue texts through a session with an owner and a dealer; keeps what was read.

    Guarantee: that of the client.
    Cost: what `take_spent` says; what is common with a text before costs nothing again.
    """

    def __init__(
        self,
        client: StepClient[M],
        begin: Callable[[], M],
        *,
        on_wait: Wait,
        memories: Sequence[M] = (),
    ) -> None:
        self._client = client
        self._begin = begin
        self._on_wait = on_wait
        self._memories = list(memories)  # the one used last is last
        # What was told before the first text is shown with it.
        self._mark = Mark(client.session, known=())

    @property
    def architecture(self) -> Architecture:
        """Return the shape of the owner's model."""
        return self._client.architecture

    @property
    def memories(self) -> tuple[M, ...]:
        """Return what another session needs to go on with these conversations."""
        return tuple(self._memories)

    def speak(
        self, prompt: Sequence[int], *, sampling: Sampling, limit: int, between: Between = no_word
    ) -> Generator[int, None, None]:
        """Yield up to ``limit`` tokens that follow the prompt; ends early at a full context.

        Raises:
            ConfigError: the tokens cannot be chosen like that here.
        """
        memory = self._recall(prompt)
        fresh = list(prompt[len(memory.read) :])
        speech = self._client.generate(memory, fresh, sampling, limit=limit, between=between)
        with closing(speech) as tokens:
            while True:
                with _watched(self._on_wait):
                    token = next(tokens, None)
                if token is None:
                    return
                yield token

    def take_spent(self) -> Spent:
        """Return what the session sent and showed since the last call."""
        before, self._mark = self._mark, Mark(self._client.session)
        return self._mark.since(before)

    def close(self) -> None:
        """Leave in good order, at all parties."""
        self._client.leave()

    def _recall(self, prompt: Sequence[int]) -> M:
        """Return the conversation that this prompt continues, taken back to what they share."""
        best = max(self._memories, key=lambda one: common(one.read, prompt), default=None)
        is_ours = best is not None and 2 * common(best.read, prompt) >= len(best.read)
        if best is None or not is_ours:
            is_full = len(self._memories) >= _MOST
            best = self._memories[0] if is_full else self._begin()
        known = common(best.read, prompt[:-1])
        # In ChatGLM the whole prompt is read in both directions, so a longer one is another one.
        best.rewind(0 if self.architecture.family == "chatglm" else known)
        self._memories = [one for one in self._memories if one is not best] + [best]
        return best


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
