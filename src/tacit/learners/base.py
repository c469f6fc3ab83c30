"""What learners have in common: parameters as in scikit-learn, shares as results.

Cross-validation is over public folds: who is in which says nothing about what is in a row.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import BaseEstimator, clone
from torch import Tensor

from tacit.errors import ConfigError, DataError, InputError
from tacit.learners.arithmetic import public_coins
from tacit.learners.parties import Local, Parties
from tacit.learners.tables import Table, check_alike
from tacit.mpc.walker import Walker
from tacit.notebook import lines, table
from tacit.result import Forecast

Array = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Shared:
    """A result that the two computing parties hold as shares.

    `reveal` opens it to the named parties, and writes that into the ledger.
    """

    parties: Parties
    name: str
    what: str
    shape: tuple[int, ...]

    def reveal(self, to: tuple[str, ...] | None = None) -> Array | None:
        """Open the value; None for a party that it is not opened to."""
        receivers = self.parties.owners if to is None else to
        why = f"{self.what}, opened by reveal"

        def work(walker: Walker) -> dict[str, Tensor]:
            return walker.open([self.name], to=receivers, why=why)

        found = self.parties.do(work)
        return found[self.name].double().numpy() if found else None

    def __repr__(self) -> str:
        return f"Shared({self.what}, shape {self.shape}; open it with reveal())"


class Learner(BaseEstimator):  # type: ignore[misc] # scikit-learn has no types
    """A learner on shares, with the methods and parameters of scikit-learn's.

    ``fit`` takes a `Table`; results with a trailing underscore are `Shared` until `reveal`.
    """

    results: tuple[str, ...] = ()
    """Attributes that a fit leaves, without the underscore."""
    takes_missing = False
    """Whether features may be NaN."""

    def fit(self, data: Table, parties: Parties) -> Self:
        """Learn from a table.

        Args:
            data: made by ``parties.rows`` or ``parties.columns``.
            parties: who learn together.

        Guarantee: that of the protocol; nothing but the sizes in the ledger is shown. All of it is
        planned first: what cannot be computed is refused before anything is sent.
        """
        _check_table(data)
        self._check(data)
        parties.rehearse(lambda planned: clone(self).fit(data, planned))
        self.parties_, self.data_ = parties, data
        self.__dict__.pop("_tried", None)
        self._name = parties.name(type(self).__name__)
        parties.do(lambda walker: self._walk(walker, data))
        self._set_results(data)
        return self

    def forecast(self, data: Table, parties: Parties) -> Forecast:
        """Say what a fit will cost, from public facts alone."""
        planned = parties.planned()
        clone(self).fit(data, planned)
        return planned.walker.forecast()

    def predict(self, data: Table, *, to: tuple[str, ...] | None = None) -> Array | None:
        """Answer for rows, and open the answers to the owners of the rows, or to ``to``.

        Returns:
            One answer per row; None for a party that they are not opened to.
        """
        found = self._opened(self._answer, data, "answers", to, "the declared result")
        return None if found is None else self._worded(found)

    def score(self, data: Table, *, to: tuple[str, ...] | None = None) -> float | None:
        """Open how good the answers are, as scikit-learn scores this kind of learner."""
        self._check_labels(data)
        found = self._opened(self._rate, data, "score", to, "the declared score")
        return None if found is None else self._scored(found, data)

    def _opened(
        self,
        walk: Callable[[Walker, Table, str], None],
        data: Table,
        kept: str,
        to: tuple[str, ...] | None,
        why: str,
    ) -> Tensor | None:
        """Walk over some rows, and open what that keeps to their owners, or to ``to``."""
        name = self._fitted()
        _check_table(data)
        receivers = data.owners if to is None else to
        self._check_question(data)
        check_alike(self.data_, data)

        def work(walker: Walker) -> dict[str, Tensor]:
            walk(walker, data, name)
            return walker.open([f"{name}/{kept}"], to=receivers, why=why)

        self._try(data, kept, work)
        return self.parties_.do(work).get(f"{name}/{kept}")

    def _try(self, data: Table, what: str, work: Callable[[Any], object]) -> None:
        """Plan a question where all parties are here, whom an error in the middle would end."""
        tried: set[tuple[str, str]] = self.__dict__.setdefault("_tried", set())
        if isinstance(self.parties_, Local) and (data.name, what) not in tried:
            self.parties_.rehearse(lambda planned: work(planned.walker))
            tried.add((data.name, what))

    def reveal(self, to: tuple[str, ...] | None = None) -> Self:
        """Open all results to the named parties (all owners if not said)."""
        self._fitted()
        for name in self.results:
            value = getattr(self, f"{name}_")
            if isinstance(value, Shared):
                opened = value.reveal(to)
                if opened is not None:
                    setattr(self, f"{name}_", opened)
        return self

    def __getstate__(self) -> dict[str, Any]:
        """Give what a pickle keeps: settings, and results that were opened to this process.

        Neither rows nor parties are in it; `to_sklearn` and `to_onnx` answer for rows again.
        """
        state: dict[str, Any] = dict(super().__getstate__())
        state.pop("_tried", None)
        if "parties_" not in state:
            return state
        closed = [name for name in self.results if isinstance(state[f"{name}_"], Shared)]
        if closed or not self.results:
            raise InputError(
                f"{closed[0]}_ is a share here; call reveal(to=...) for this party before saving"
                if closed
                else f"what a {type(self).__name__} learned stays shares, which are not saved so"
            )
        return {**state, "parties_": None, "data_": self.data_.without_rows()}

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        if not hasattr(self, "parties_"):
            return str(super().__repr__(N_CHAR_MAX))
        return lines(type(self).__name__, self._rows())

    def _repr_html_(self) -> str:
        rows = self._rows() if hasattr(self, "parties_") else list(self.get_params().items())
        return table(type(self).__name__, [(str(a), str(b)) for a, b in rows])

    def _rows(self) -> list[tuple[str, str]]:
        rows, columns = self.data_.shape
        cut = f"{rows} × {columns}, {self.data_.split} of {', '.join(self.data_.owners)}"
        found = [(f"{name}_", _short(getattr(self, f"{name}_"))) for name in self.results]
        protocol = "none, it was saved" if self.parties_ is None else self.parties_.protocol
        return [("data", cut), ("protocol", protocol), *found]

    def _set_results(self, data: Table) -> None:
        facts = self.parties_.do(lambda walker: dict(walker.facts))
        for name in self.results:
            key = f"{self._name}/{name}"
            shared = Shared(self.parties_, key, f"{name} of {self._name}", facts[key].shape)
            setattr(self, f"{name}_", shared)

    def _fitted(self) -> str:
        if not hasattr(self, "parties_"):
            raise InputError(f"this {type(self).__name__} is not fitted yet; call fit first")
        if self.parties_ is None:
            raise InputError(
                f"this {type(self).__name__} was saved without its parties; to_sklearn gives one "
                "that answers here"
            )
        return self._name

    def _check(self, data: Table) -> None:
        """Refuse what cannot be learned from, before anything is shared."""
        if data.shape[0] < 2:
            raise DataError(f"{type(self).__name__} wants two rows at least, got {data.shape[0]}")
        Learner._check_question(self, data)

    def _check_question(self, data: Table) -> None:
        """Refuse rows that the learner cannot answer for."""
        if data.has_missing and not self.takes_missing:
            raise DataError(
                f"{type(self).__name__} takes no missing values: fill them in, or grow trees"
            )

    def _check_labels(self, data: Table) -> None:
        """Refuse labels that the answers cannot be measured by, before anything is shared."""
        self._fitted()
        _check_table(data)

    def _worded(self, answers: Tensor) -> Array:
        return answers.double().numpy()

    def _scored(self, opened: Tensor, data: Table) -> float:
        return float(opened.reshape(-1)[0]) / data.shape[0]

    @abstractmethod
    def _walk(self, walker: Walker, data: Table) -> None:
        """Run the programs of a fit."""

    def _answer(self, walker: Walker, data: Table, name: str) -> None:
        raise InputError(f"{type(self).__name__} does not predict")

    def _rate(self, walker: Walker, data: Table, name: str) -> None:
        raise InputError(f"{type(self).__name__} has no score")


def _check_table(data: object) -> None:
    if not isinstance(data, Table):
        raise InputError(
            f"wanted a table, got a {type(data).__name__}: make one with "
            "parties.rows({'owner': (X, y), …}) or parties.columns, then fit(table, parties) and "
            "predict(table)"
        )


def _short(value: Any) -> str:
    if isinstance(value, Shared):
        return f"shares, {' × '.join(map(str, value.shape)) or 'one number'}"
    return f"opened, {' × '.join(map(str, np.shape(value))) or 'one number'}"


def positions(answers: Tensor) -> Array:
    """Round opened positions to whole numbers."""
    return torch.round(answers.double()).reshape(-1).numpy()


def cross_validate(
    model: Learner,
    data: Table,
    parties: Parties,
    *,
    folds: int = 5,
    to: tuple[str, ...] | None = None,
    random_state: int = 0,
) -> Array | None:
    """Fit on all folds but one and open the score of that one, for every fold.

    Args:
        model: its parameters; it is not fitted itself.
        data: a table that owners gave.
        parties: who learn together.
        folds: how many; rows are dealt to them by public coins, those of each owner evenly.
        to: who sees the scores; all owners of rows if not said.
        random_state: of the coins.

    Returns:
        One score per fold; None for a party that they are not opened to.

    Guarantee: that of a fit and a score for each fold; every score that is opened tells a little
        about rows of its fold.
    """
    found = [
        clone(model).fit(learned, parties).score(kept, to=to)
        for learned, kept in _folds(data, parties, folds, random_state)
    ]
    return None if None in found else np.array(found, dtype=np.float64)


def divide(
    data: Table, parties: Parties, *, test_share: float, random_state: int = 0
) -> tuple[Table, Table]:
    """Divide rows by public coins into those to learn from and those to measure on."""
    if data.split == "both":
        sides = [
            divide(one, parties, test_share=test_share, random_state=random_state)
            for one in data.pieces
        ]
        learned, asked = (parties.stack(side) for side in zip(*sides, strict=True))
        return learned, asked
    kept = held_out(data, test_share=test_share, random_state=random_state)
    rest = {one.owner: sorted(set(range(one.rows)) - set(kept[one.owner])) for one in data.holdings}
    if not all(rest.values()):
        raise DataError("a part has too few rows to learn from some and to measure on others")
    return parties.part_of(data, rest), parties.part_of(data, kept)


def held_out(data: Table, *, test_share: float, random_state: int = 0) -> dict[str, list[int]]:
    """Return the places of the rows that `divide` measures on, by owner."""
    if not 0 < test_share < 1:
        raise ConfigError(f"test_share must be between 0 and 1, got {test_share}")
    return {
        owner: sorted(rows[: max(1, round(test_share * len(rows)))])
        for owner, rows in _orders(data, random_state).items()
    }


def _folds(
    data: Table, parties: Parties, folds: int, random_state: int
) -> Iterator[tuple[Table, Table]]:
    least = min(one.rows for one in data.holdings)
    if not 2 <= folds <= least:
        raise ConfigError(
            f"folds must be from 2 to {least}, the rows of the smallest part, got {folds}"
        )
    orders = _orders(data, random_state)
    for fold in range(folds):
        kept = {owner: sorted(rows[fold::folds]) for owner, rows in orders.items()}
        rest = {owner: sorted(set(rows) - set(kept[owner])) for owner, rows in orders.items()}
        yield parties.part_of(data, rest), parties.part_of(data, kept)


def _orders(data: Table, random_state: int) -> dict[str, list[int]]:
    """Draw an order of every owner's rows; owners of columns have one in common."""
    is_rows = data.split == "rows"
    return {
        one.owner: public_coins(random_state, at if is_rows else 0).permutation(one.rows).tolist()
        for at, one in enumerate(data.holdings)
    }
