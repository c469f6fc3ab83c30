"""A model that speaks through the private engine: the user's side of it."""

from collections.abc import Callable, Generator, Sequence
from contextlib import closing

from torch import Tensor

from tacit.llm.backend.dialogue import Spent
from tacit.llm.backend.sampling import Sampling, chooser, penalise
from tacit.llm.backend.spending import Mark, common
from tacit.llm.model.architecture import Architecture
from tacit.llm.model.parts import Between, no_word
from tacit.llm.permuted import Client, Conversation, Memory

Wait = Callable[[float], None]
"""Told now and then for how many seconds material has been waited for."""

_MOST = 4
"""How many conversations are kept; each holds its keys and values at all three parties."""


class PermutedBackend:
    """Continue texts through a session with an owner and a dealer; keeps what was read.

    Several conversations are kept, so that one who comes back does not pay for another who spoke
    in between.

    Guarantee: that of `tacit.llm.permuted`: the owner and the dealer learn lengths and times; what
    the user learns about the model is in `take_spent`.
    Cost: what `take_spent` says; what is common with a text before costs nothing again.
    """

    def __init__(
        self,
        client: Client,
        architecture: Architecture,
        *,
        on_wait: Wait,
        memories: Sequence[Memory] = (),
    ) -> None:
        self._client = client
        self._architecture = architecture
        self._on_wait = on_wait
        self._memories = list(memories)  # the one used last is last
        self._open: dict[int, Conversation] = {}
        # What was told before the first text is shown with it.
        self._mark = Mark(client.session, known=())

    @property
    def architecture(self) -> Architecture:
        """Return the shape of the owner's model."""
        return self._architecture

    @property
    def memories(self) -> tuple[Memory, ...]:
        """Return what another session needs to go on with these conversations."""
        return tuple(self._memories)

    def speak(
        self, prompt: Sequence[int], *, sampling: Sampling, limit: int, between: Between = no_word
    ) -> Generator[int, None, None]:
        """Yield up to ``limit`` tokens that follow the prompt; ends early at a full context.

        Raises:
            ConfigError: a repetition penalty, and the session does not show which tokens came
                before.
        """
        choose_next = chooser(sampling)

        def choose(scores: Tensor) -> int:
            return choose_next(scores, ())

        def adjust(scores: Tensor, counts: Tensor) -> Tensor:
            return penalise(scores, counts > 0, sampling.repetition_penalty)

        conversation, fresh = self._recall(prompt)
        tokens = conversation.generate(
            fresh,
            choose,
            limit=limit,
            on_wait=self._on_wait,
            between=between,
            adjust=adjust if sampling.needs_places else None,
        )
        with closing(tokens):  # left early, it still ends at a step that the owner is at
            for token in tokens:
                yield token.id

    def close(self) -> None:
        """Leave in good order, at all parties."""
        for conversation in self._open.values():
            conversation.close()
        self._client.close()

    def take_spent(self) -> Spent:
        """Return what the session sent and showed since the last call."""
        before, self._mark = self._mark, Mark(self._client.session)
        return self._mark.since(before)

    def _recall(self, prompt: Sequence[int]) -> tuple[Conversation, list[int]]:
        """Return a conversation, taken back to what the prompt begins with, and the rest."""
        conversation = self._choose(prompt)
        known = common(conversation.read, prompt[:-1])
        # In ChatGLM the whole prompt is read in both directions, so a longer one is another one.
        if self._architecture.family == "chatglm":
            known = 0
        conversation.rewind(known)
        return conversation, list(prompt[known:])

    def _choose(self, prompt: Sequence[int]) -> Conversation:
        """Return the conversation that this prompt continues, a new one, or the one least used."""
        best = max(self._memories, key=lambda one: common(one.read, prompt), default=None)
        is_ours = best is not None and 2 * common(best.read, prompt) >= len(best.read)
        if best is None or not is_ours:
            is_full = len(self._memories) >= _MOST
            best = self._memories[0] if is_full else None
        conversation = self._open.get(best.number) if best is not None else None
        if conversation is None:
            conversation = Conversation(self._client, best)
        used = conversation.memory
        self._open[used.number] = conversation
        self._memories = [one for one in self._memories if one.number != used.number] + [used]
        return conversation
