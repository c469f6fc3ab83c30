"""Jobs and programs that come along, to copy and change, and what each kind of job is for."""

import shutil
import tomllib
from functools import cache
from pathlib import Path

import tacit
from tacit.errors import ConfigError, InputError

WANTS = {
    "infer": ("Predict", "One party has rows, another a model: only the answers come out."),
    "train": ("Train", "Owners of rows or columns train a network that none of them sees."),
    "fit": ("Learners", "k-means to gradient boosting on rows or columns of several owners."),
    "federated": ("Federated learning", "Clients train on their own rows; sums are masked."),
    "split": ("Split learning", "A model is cut between owners of features and of labels."),
    "text": ("Text", "A language model and texts of different owners."),
    "verify": ("Verify", "Which rows keep their class under a tree ensemble, proved."),
    "audit": ("Audit", "Attacks on what was trained, with intervals, beside what was claimed."),
    "audit-llm": ("Audit a language model", "What it says by heart and what its layers show."),
    "serve": ("Serve", "Servers with shares of a model answer clients."),
}
_FIRST = frozenset(
    {"predict-breast-cancer", "train-digits", "fl-digits", "fit-columns", "split-private"}
)


def list_examples() -> dict[str, Path]:
    """Return the examples by name: job files first, then programs.

    Raises:
        ConfigError: they are not where an installation or a checkout has them.
    """
    package = Path(tacit.__file__).parent
    # A wheel brings them inside the package; a checkout has them beside the sources.
    found = next(
        (top for top in (package / "examples", package.parents[1] / "examples") if top.is_dir()),
        None,
    )
    if found is None:
        raise ConfigError(f"no examples beside {package}; install tacit-ml again")
    files = [*sorted((found / "jobs").glob("*.toml")), *sorted(found.glob("*.py"))]
    return {file.name: file for file in files}


def summarise_example(path: Path) -> str:
    """Return the first sentence of an example's own words."""
    lines = path.read_text(encoding="utf-8").splitlines()
    words: list[str] = []
    for line in lines:
        text = line.strip().strip('#"').strip()
        if not text or not (words or line.startswith(("#", '"'))):
            break
        words.append(text)
        if text.endswith((".", ":")) or ". " in text:
            break
    sentence = " ".join(words)
    return sentence.partition(". ")[0].rstrip(".:")


def copy_example(name: str, target: Path | None) -> Path:
    """Copy an example, and the folder of its data if it has one; nothing is written over.

    Raises:
        ConfigError: there is no such example.
        InputError: there is a file of that name already, or it cannot be written.
    """
    known = list_examples()
    source = known.get(name) or known.get(f"{name}.toml") or known.get(f"{name}.py")
    if source is None:
        raise ConfigError(f"no example {name!r}; there are: {', '.join(known)}")
    path = target or Path(source.name)
    data, text = source.with_suffix(""), source.read_text(encoding="utf-8")
    try:
        with path.open("x", encoding="utf-8") as file:
            # Examples name their data as seen from a checkout.
            file.write(text.replace(f"examples/jobs/{data.name}/", f"{path.parent / data.name}/"))
        if source.suffix == ".toml" and data.is_dir():
            shutil.copytree(data, path.parent / data.name)
    except FileExistsError:
        raise InputError(f"{path} exists and is not written over; give another with --to") from None
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror or error}") from error
    return path


@cache
def list_starts(kind: str) -> dict[str, Path]:
    """List the examples of a kind by name; those that need nothing that is not here come first."""
    found = {}
    for path in list_examples().values():
        if path.suffix == ".toml":
            raw = tomllib.loads(path.read_text(encoding="utf-8"))
            if raw.get("job", {}).get("kind") == kind:
                found[path.stem] = path
    return dict(sorted(found.items(), key=lambda item: item[0] not in _FIRST))


def first_tables(kind: str, example: str, folder: Path) -> dict[str, object]:
    """Return the tables that a form begins with: an example's, with a result in our folder."""
    examples = list_starts(kind)
    path = examples.get(example) or next(iter(examples.values()), None)
    if path is None:
        return {"job": {"name": kind, "kind": kind, "out": str(folder / kind)}}
    raw = tomllib.loads(path.read_text(encoding="utf-8"))
    name = raw["job"]["name"]
    return {**raw, "job": {**raw["job"], "out": str(folder / name)}}
