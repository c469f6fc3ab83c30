"""What a job will send, take and reveal, as its kind says it."""

from dataclasses import dataclass, replace
from pathlib import Path

from tacit.errors import ConfigError, InputError
from tacit.jobs.kind import Network
from tacit.mpc.plan import NETWORKS
from tacit.party.cost import forecast_seconds
from tacit.result import Claim, Forecast, Leak

NO_GUARANTEE = "no guarantee"


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What the command says: where data may be, and sizes where it is not here.

    Attributes:
        search: folders that may hold data sets.
        rows: of all owners together.
        features: likewise.
    """

    search: tuple[Path, ...] = ()
    rows: int | None = None
    features: int | None = None

    def refuse(self, *options: str) -> None:
        """Refuse sizes that would change nothing.

        Raises:
            ConfigError: one of these options was given.
        """
        for option in options:
            if getattr(self, option) is not None:
                raise ConfigError(f"--{option} changes nothing in the plan of this job: leave it")


@dataclass(frozen=True, kw_only=True)
class Outlook:
    """What is known of a job before anything is sent.

    Attributes:
        about: the protocol, or what else it is known by.
        lines: what will be done, a sentence each.
        forecast: traffic and rounds; None where there is nothing to forecast, which a line says.
        leaks: who will learn what.
        claims: what is promised.
    """

    about: str
    lines: tuple[str, ...]
    forecast: Forecast | None = None
    leaks: tuple[Leak, ...] = ()
    claims: tuple[Claim, ...] = ()


def timed(forecast: Forecast, network: Network | None) -> Forecast:
    """Add the seconds that a forecast takes on one network, or on a few usual ones."""
    if network is None and forecast.timings:
        return forecast
    networks = NETWORKS if network is None else (network,)
    seconds = [forecast_seconds(forecast.cost, rtt_ms=rtt, mbit_per_s=m) for rtt, m in networks]
    return replace(forecast, timings=tuple(seconds))


def unread(error: InputError, options: str) -> ConfigError:
    """Say what is wrong with the data here, and what can be given where it is elsewhere."""
    return ConfigError(f"{error} (for a plan where the data is not, give {options})")
