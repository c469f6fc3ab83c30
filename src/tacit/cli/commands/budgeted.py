"""Chat with a model whose numbers come out of a vote, and are paid for from a budget."""

import json
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import final

from safetensors.torch import load_file
from torch import Tensor

from tacit.dp.policy import Policy, by_pattern
from tacit.errors import DataError
from tacit.llm import (
    Architecture,
    Chat,
    Manner,
    Place,
    Sampling,
    Spent,
    Tokenizer,
    chooser,
    open_checkpoint,
)
from tacit.llm.model.module import CausalModule
from tacit.llm.model.plain import Between, no_word
from tacit.result import Claim, Leak
from tacit.text.corpus import redacted, tokenise
from tacit.text.decode import BudgetedWriter, find_places
from tacit.text.vote import Ballot, Budget, stack_voters

SETTINGS, SPENT = "decode.json", "spent.json"


@final
class BudgetedBackend:
    """Continue texts with a `BudgetedWriter` in this process.

    Guarantee: the writer's, towards whoever reads the answers; not towards whoever runs this.
    """

    def __init__(
        self,
        writer: BudgetedWriter,
        architecture: Architecture,
        tokenizer: Tokenizer,
        policy: Policy,
    ) -> None:
        self._writer, self._architecture = writer, architecture
        self._tokenizer, self._policy = tokenizer, policy
        self._seen, self._refused = 0, 0

    @property
    def architecture(self) -> Architecture:
        """Return the shape of the model."""
        return self._architecture

    def speak(
        self, prompt: Sequence[int], *, sampling: Sampling, limit: int, between: Between = no_word
    ) -> Generator[int, None, None]:
        """Yield tokens that follow the prompt; its numbers are the user's, and voters read them."""
        text = self._tokenizer.engine.decode(list(prompt), skip_special_tokens=False)
        spans = self._policy(text)
        whole, short = (f(self._tokenizer, text, spans).ids for f in (tokenise, redacted))
        room = (
            self._architecture.context - max(len(whole), len(short)) - 2 * self._writer.places.most
        )
        pick, said = chooser(sampling), list(short)

        def choose(scores: Tensor) -> int:
            token = int(pick(scores, [Place(one) for one in said]))
            said.append(token)
            return token

        yield from self._writer.speak(whole, short, choose=choose, limit=max(min(limit, room), 0))

    def take_spent(self) -> Spent:
        """Return what was said about marks since the last call, and what is left of the budget."""
        budget = self._writer.budget
        fresh, self._seen = len(budget.ledger) - self._seen, len(budget.ledger)
        refused, self._refused = self._writer.refused - self._refused, self._writer.refused
        leaks = []
        if fresh:
            leaks.append(
                Leak(
                    to="whoever reads the answer",
                    what=f"tokens of numbers: ε = {budget.spent:.4g} of {budget.most:g} is spent",
                    why=f"a vote of {self._writer.ballot.voters} models",
                    kind="output",
                    elements=fresh,
                )
            )
        if refused:
            leaks.append(
                Leak(
                    to="whoever reads the answer",
                    what="numbers left open, as the budget does not last for one more",
                    why=f"{budget.left:.4g} is left of ε",
                    kind="size",
                    elements=refused,
                )
            )
        return Spent(payload_bytes=0, round_trips=0, leaks=tuple(leaks))


@contextmanager
def budgeted_chat(folder: Path, manner: Manner) -> Iterator[Chat]:
    """Chat with the model that a job of kind "text" and method "vote" has left in a folder.

    Raises:
        DataError: a file of the folder is missing or broken; that of what was spent, too.
    """
    checkpoint = open_checkpoint(folder)
    tokenizer, module = checkpoint.tokenizer(), CausalModule(checkpoint.load())
    try:
        found = json.loads((folder / SETTINGS).read_text())
        ballot = Ballot(
            voters=found["voters"], clip=found["clip"], temperature=found["temperature"]
        )
        layers, policy = tuple(found["layers"]), by_pattern(*found["patterns"])
        limits = float(found["conversation"]), float(found["total"])
        weights = load_file(folder / "voters.safetensors")
        adapters: list[dict[str, tuple[Tensor, Tensor]]] = [{} for _ in range(ballot.voters + 1)]
        for name in weights:
            number, layer, side = name.split("/")
            if side == "down":
                adapters[int(number)][layer] = weights[name], weights[f"{number}/{layer}/up"]
    except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
        raise DataError(
            f"{folder}: wanted the whole result of a job of kind text with method vote: {error}"
        ) from error
    if not (folder / SPENT).is_file():
        raise DataError(
            f"{folder / SPENT} is missing: what answers from this folder have spent is not known; "
            "put the file back, or run the job again, which its book counts as another training"
        )
    total = Budget(limits[1], path=folder / SPENT)
    writer = BudgetedWriter(
        module,
        stack_voters(module, adapters, layers=layers),
        ballot=ballot,
        places=find_places(tokenizer),
        budget=Budget(limits[0], within=total),
    )
    backend = BudgetedBackend(writer, checkpoint.architecture, tokenizer, policy)
    claim = Claim(
        subject="what the policy marks of each owner",
        guarantee="ε-differential privacy",
        assumptions=(
            "readers see answers alone, not this folder",
            f"in one conversation; all with this folder come to {limits[1]:g} at most, which its "
            "training entered in the book beside the texts: other trainings are counted there",
            "what is not marked, and how many marks there are, is not protected",
            "no text stands under two owners",
        ),
        epsilon=limits[0],
        relation=str(ballot.event.relation),
    )
    yield Chat(
        name=checkpoint.name, backend=backend, tokenizer=tokenizer, manner=manner, claims=(claim,)
    )
