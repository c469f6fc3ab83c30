"""Checkpoints of a fit: computing parties keep shares, and a fit that was stopped goes on."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from tacit import __version__
from tacit.crypto.cipher import Numbers
from tacit.data.rows import Rows
from tacit.errors import InputError
from tacit.learners.spec import FitSpec
from tacit.mpc import Plan
from tacit.mpc.walker import Walker
from tacit.party import Fact, Session
from tacit.ring import Prg
from tacit.training import ShareCheckpoint, StateFolder
from tacit.training.loop import agree_on_start

Array = npt.NDArray[np.float64] | npt.NDArray[np.int64]
LEAST_BYTES = 1 << 22
"""What computing parties must have sent each other since the last checkpoint."""
LEAST_RATIO = 2
"""And how many times as much as a checkpoint holds: writing it takes less than computing it did."""
_LARGEST_ATTEMPT = (1 << 62) - 1
_ATTEMPT = Fact(tag="attempt", count=1, what="")
"""Public coins."""


@dataclass(frozen=True)
class FitKeeper:
    """Makes one party's checkpoints; see `tacit.learners.fitting.Keeper`."""

    session: Session
    spec: FitSpec
    folder: StateFolder
    is_fresh: bool

    def shares(self, mine: Rows | None, planned: Walker) -> "FitState":
        """Return where a computing party keeps its shares."""
        return FitState(self, mine, planned)

    def steps(self, mine: Rows | None) -> "CipherState":
        """Return where a party keeps what it knows after every step by a cipher."""
        is_hidden = self.spec.data.matching == "hidden"  # where the helper keeps them as well
        return CipherState(self, mine, self.spec.members if is_hidden else self.spec.owners)

    def begin(self, work: Iterable[bytes], keepers: Sequence[str]) -> tuple[int, bool]:
        """Agree with all parties on where to go on.

        Args:
            work: what tells this very fit from others in the same folder.
            keepers: who keeps checkpoints.

        Returns:
            The step of the last checkpoint that belongs to those of others, and whether this very
            fit was begun here before.
        """
        found, folder = hashlib.sha256(b"".join(work)).hexdigest(), self.folder
        has_begun = not self.is_fresh and folder.is_begun(found)
        attempts = folder.attempts() if has_begun else {}
        start = agree_on_start(self.session, keepers, attempts, has_begun=has_begun)
        if self.is_fresh:
            folder.remove()
        folder.begin(found, bound=0.0)
        return start, has_begun


class CipherState:
    """One party's checkpoints of a fit by a cipher: what it knows itself, after every step.

    Guarantee: no key is kept, and no ciphertext: a fit that goes on makes new ones. The owner of
    the labels keeps margins and trees, an owner of a regression its own weights; nobody else's.
    Where matches are hidden, the helper keeps which rows match and both owners' weights, which it
    knows, an owner which of its rows were chosen.

    There the matching is the first of the steps that are kept. A second matching would fill up
    with other rows: an owner would see which of its rows are there both times. So rows are matched
    once; a start that cannot take that up is refused.
    """

    def __init__(self, keeper: FitKeeper, mine: Rows | None, keepers: Sequence[str]) -> None:
        self._keeper, self._keepers = keeper, keepers
        self._rows = b"" if mine is None else mine.digest()
        self._attempt = 0
        self._matching = 0
        """How many of the steps that are kept are a matching."""
        self.has_begun = False
        self.places: Numbers | None = None
        self.start = 0

    def begin(self) -> int:
        """Agree with all parties on the step after which it goes on, and return it."""
        if self._matching:  # everyone has agreed on it before matching
            return self.start
        session = self._keeper.session
        head = f"tacit fit by cipher {__version__}\n".encode()
        self.start, self.has_begun = self._keeper.begin((head, self._rows), self._keepers)
        first = self._keepers[0]
        if session.me == first:
            self._attempt = int(Prg.from_os().words((1,))) & _LARGEST_ATTEMPT
            session.publish(_ATTEMPT, (self._attempt,))
        else:
            (self._attempt,) = session.learn(first, _ATTEMPT)
        if self.start:
            session.progress.tell(f"resumed after step {self.start}", self.start, self.start)
        return self.start

    def agree(self) -> None:
        """Agree with all parties on where to go on, and take up the matching.

        Raises:
            InputError: a matching was begun here, and not everyone has its outcome.
        """
        if self.begin():
            if self._keeper.session.me in self._keepers:
                self.places = self.load(self.start)["matched rows"].astype(np.int64)
            self.start -= 1
        elif self.has_begun:
            raise InputError(
                "hidden matches of this job were begun before, and not every party has kept their "
                "outcome: to match again would fill up with other rows, and rows that are there "
                "both times are likely to match; start all parties with --fresh if owners may "
                "learn that"
            )
        self._matching = 1

    def keep_places(self, places: Numbers) -> None:
        """Keep what came of the matching, before anything is learned."""
        self.places = places
        self.save(0, {})

    def load(self, step: int) -> dict[str, Array]:
        """Return what I kept after a step."""
        kept = self._keeper.folder.load(step + self._matching).shares
        return {name: one.numpy() for name, one in kept.items()}

    def save(self, step: int, kept: Mapping[str, Array]) -> None:
        """Keep what I know after a step."""
        if self.places is not None:
            kept = {**kept, "matched rows": self.places}
        shares = {name: torch.from_numpy(one) for name, one in kept.items()}
        at = step + self._matching
        self._keeper.folder.save(
            ShareCheckpoint(step=at, attempt=self._attempt, shares=shares, shown=())
        )


class FitState:
    """One party's checkpoints of a fit, from the first run of a program to the first opening.

    Guarantee: no key and no mask is kept. A fit that goes on enters inputs anew, under masks of its
    own session, and masks the shares that it takes up anew; whatever is opened comes after the
    last checkpoint and is opened again.
    """

    def __init__(self, keeper: FitKeeper, mine: Rows | None, planned: Walker) -> None:
        plans = {id(plan): plan.digest() for plan, _ in planned.runs}
        rows = b"" if mine is None else mine.digest()
        self._work = f"tacit fit {__version__}\n".encode(), rows, *plans.values()
        self._keeper, self._session = keeper, keeper.session
        self._computing = keeper.spec.roles.computing
        self._sent = dict.fromkeys(self._computing, 0)
        self._attempt = 0

    def begin(self, walker: Walker) -> int:
        """Agree on where to go on, hand the walker what was kept, and return how far that is."""
        start, _ = self._keeper.begin(self._work, self._computing)
        shares: Mapping[str, Tensor] = {}
        if self._session.me in self._computing:
            shares = self._keeper.folder.load(start).shares if start else {}
            shares = self._masked(shares)
        walker.go_on(start, shares)
        return start

    def watch(self, walker: Walker, passed: int, plan: Plan | None) -> None:
        """Keep my shares once enough was sent for it; both computing parties count alike."""
        if self._session.me not in self._computing:
            return
        for one in () if plan is None else plan.cost.traffic:
            if {one.sender, one.receiver} == set(self._computing) and one.phase == "online":
                self._sent[one.sender] += one.payload_bytes
        shares = walker.shares()
        held = sum(words.nbytes for words in shares.values())
        # Each must have heard of the other, or one could be two checkpoints ahead.
        if min(self._sent.values()) < max(1, LEAST_BYTES, LEAST_RATIO * held):
            return
        self._sent = dict.fromkeys(self._computing, 0)
        self._keeper.folder.save(
            ShareCheckpoint(step=passed, attempt=self._attempt, shares=shares, shown=())
        )

    def _masked(self, shares: Mapping[str, Tensor]) -> dict[str, Tensor]:
        first, second = self._computing
        is_first = self._session.me == first
        common = self._session.shared(second if is_first else first).fork("fit")
        self._attempt = int(common.words((1,))) & _LARGEST_ATTEMPT
        found = {}
        for name, words in sorted(shares.items()):
            mask = common.words(tuple(words.shape))
            found[name] = words + mask if is_first else words - mask
        return found
