"""``tacit plan``: what a job or a chat will do, without connecting to anyone."""

from pathlib import Path

from rich.console import RenderableType

from tacit.cli.jobs.kind import Network
from tacit.cli.jobs.kinds import kind_of, load_job
from tacit.cli.jobs.outlook import Asked, lay_out
from tacit.cli.toml import read_toml
from tacit.errors import ConfigError
from tacit.llm.backend.chat_file import ROLES, load_chat


def plan_file(
    path: Path, asked: Asked, *, model: str | None, network: Network | None
) -> RenderableType:
    """Lay out the plan of a job file, or of the file of a chat.

    Args:
        path: the file.
        asked: sizes of data that is not here.
        model: the model of a chat, whose file does not name it.
        network: one network to forecast for; a few usual ones if not given.
    """
    raw = read_toml(path)
    parties = raw.get("parties")
    if "job" not in raw and isinstance(parties, dict) and set(parties) == set(ROLES):
        from tacit.cli.jobs.forecast_chat import chat_roles, forecast_chat

        chat = load_chat(path)
        outlook = forecast_chat(chat, asked, model=model, network=network)
        return lay_out(chat.name, chat_roles(), outlook, network)
    if model is not None:
        raise ConfigError("--model belongs to the file of a chat; a job names its own")
    job = load_job(path)
    roles = {name: job.role(name) for name in job.parties}
    return lay_out(job.job.name, roles, kind_of(job).forecast(job, asked), network)
