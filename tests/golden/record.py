"""Cases to text, and text beside the files that say how it was."""

import contextlib
import difflib
import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from golden.cases import REST, SLICE, Case
from golden.jobs import JOBS
from golden.words import in_place

FILES = Path(__file__).parent / "files"
CASES: Mapping[str, Case] = SLICE | REST
_LONGEST_DIFF = 60
_LONG = 200


def file_of(name: str) -> Path:
    """Return where it is written what comes out of a case."""
    return FILES / f"{name.replace(' ', '-')}.json"


def run(name: str) -> str:
    """Run a case in a folder of its own and return what came out."""
    with _somewhere() as folder:
        found = refer(CASES[name](folder), {})
        text = json.dumps(found, indent=1, ensure_ascii=False, default=str)
        return in_place(text, folder) + "\n"


def refer(value: Any, known: dict[str, str], at: str = "") -> Any:
    """Write a long list or table that stands there already by its place: parties see much alike."""
    if not isinstance(value, dict | list):
        return value
    text = json.dumps(value, default=str)
    if len(text) > _LONG and text in known:
        return f"as at {known[text]}"
    known[text] = at
    if isinstance(value, list):
        return [refer(one, known, f"{at}[{place}]") for place, one in enumerate(value)]
    return {key: refer(one, known, f"{at}.{key}".lstrip(".")) for key, one in value.items()}


def difference(name: str, now: str) -> str:
    """Return how what comes out differs from what is written, or nothing."""
    file = file_of(name)
    was = file.read_text(encoding="utf-8") if file.is_file() else ""
    lines = list(
        difflib.unified_diff(was.splitlines(), now.splitlines(), "was", "is now", n=2, lineterm="")
    )
    more = len(lines) - _LONGEST_DIFF
    return "\n".join([*lines[:_LONGEST_DIFF], *([f"… {more} more lines"] if more > 0 else [])])


@contextlib.contextmanager
def _somewhere() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="tacit-golden-") as name:
        folder = Path(name).resolve()
        shutil.copytree(
            JOBS, folder / "examples" / "jobs", ignore=shutil.ignore_patterns("out", "*.md")
        )
        with contextlib.chdir(folder):
            yield folder


def write(name: str, text: str) -> None:
    """Write down what comes out."""
    FILES.mkdir(exist_ok=True)
    file_of(name).write_text(text, encoding="utf-8")


def forgotten() -> list[Any]:
    """Return files of no case."""
    return sorted(set(FILES.glob("*.json")) - {file_of(name) for name in CASES})
