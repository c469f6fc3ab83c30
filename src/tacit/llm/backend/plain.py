"""A model that speaks in the clear: whoever runs it sees everything."""

from collections.abc import Generator, Sequence

from torch import Tensor

from tacit.llm.backend.dialogue import Spent
from tacit.llm.model.architecture import Architecture, LanguageModel
from tacit.llm.model.plain import Between, Cache, generate, no_word
from tacit.llm.sampling import Place, Sampling, chooser
from tacit.result import Leak


class PlainBackend:
    """Continue texts with a model in this process; keeps what it has read between calls.

    Guarantee: no guarantee; the text and the model are in one place.
    """

    def __init__(self, model: LanguageModel) -> None:
        self._model = model
        self._kept: tuple[list[int], Cache] = [], Cache()
        self._seen = 0

    @property
    def architecture(self) -> Architecture:
        """Return the shape of the model."""
        return self._model.architecture

    def speak(
        self, prompt: Sequence[int], *, sampling: Sampling, limit: int, between: Between = no_word
    ) -> Generator[int, None, None]:
        """Yield up to ``limit`` tokens that follow the prompt; ends early at a full context."""
        said = list(prompt)
        choose_next = chooser(sampling)

        def choose(scores: Tensor) -> int:
            return choose_next(scores, [Place(token) for token in said])

        fresh, cache = self._recall(said)
        speech = generate(
            self._model, fresh, choose=choose, limit=limit, cache=cache, between=between
        )
        for token in speech:
            self._kept = list(said), cache
            said.append(token)
            self._seen += 1
            yield token
            # Whoever interrupts the next step leaves a cache that is half written.
            self._kept = [], Cache()

    def take_spent(self) -> Spent:
        """Return that nothing was sent, and that everything was seen."""
        seen, self._seen = self._seen, 0
        leak = Leak(
            to="whoever runs this model",
            what="the whole conversation",
            why="plain chat has no privacy",
            kind="protocol",
            elements=seen,
        )
        return Spent(payload_bytes=0, round_trips=0, leaks=(leak,))

    def _recall(self, prompt: Sequence[int]) -> tuple[list[int], Cache]:
        """Return the tokens that were not read yet, and the cache of those that were."""
        (read, cache), self._kept = self._kept, ([], Cache())
        is_ours = len(read) < len(prompt) and list(prompt[: len(read)]) == read
        # In ChatGLM the whole prompt is read in both directions, so a longer one is another one.
        if not is_ours or self.architecture.family == "chatglm":
            return list(prompt), Cache()
        return list(prompt[len(read) :]), cache
