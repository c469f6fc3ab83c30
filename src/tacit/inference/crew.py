"""Who takes part in a private model, and what each of them gets."""

from dataclasses import dataclass

from torch import Tensor

from tacit.mpc import Plan, Roles
from tacit.notebook import Rows, Shown
from tacit.result import Cost, Leak, Result


@dataclass(frozen=True, kw_only=True)
class Crew:
    """Who takes part: the owner of the data, the owner of the model, and the dealer.

    Protocols between the two owners alone have no dealer, whatever is named. The data owner is
    the second computing party: under `permuted2` that is the one who sees permuted values, so
    that what is at risk is the model and never the data.
    """

    client: str = "client"
    server: str = "server"
    dealer: str | None = "dealer"

    def __post_init__(self) -> None:
        _ = self.roles  # refuses two parties of one name

    @property
    def owners(self) -> tuple[str, str]:
        """Return the owners of the data and of the model."""
        return self.client, self.server

    @property
    def parties(self) -> tuple[str, ...]:
        """Return all of them."""
        return self.owners if self.dealer is None else (*self.owners, self.dealer)

    @property
    def roles(self) -> Roles:
        """Return who computes as what."""
        return Roles(self.server, self.client, self.dealer or "")


@dataclass(frozen=True, kw_only=True, repr=False)
class Answer(Shown):
    """What a run gave.

    Attributes:
        values: the output, for the client; None for the others.
        plan: what was done on shares, step by step; None where nothing was shared.
        result: cost, leakage and claims, as one party saw them or as all did.
    """

    values: Tensor | None
    plan: Plan | None
    result: Result

    @property
    def cost(self) -> Cost:
        """Return the metered traffic and rounds."""
        return self.result.metered

    @property
    def leakage(self) -> tuple[Leak, ...]:
        """Return what was shown to whom, and why."""
        return self.result.leakage

    def _shown(self) -> tuple[str, Rows]:
        shape = "not for this party" if self.values is None else f"{tuple(self.values.shape)}"
        return "Private answer", [("values", shape), *self.result.headline()]
