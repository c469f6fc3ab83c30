"""Follow the pages of the documentation literally: run every command, look for every promised line.

    python tests/docs/follow.py [PAGE …]     the README and all of docs if none is given

Each page gets a folder of its own with nothing in it but what a checkout has, and the commands of
this environment; no data set that must be downloaded is there. Blocks are taken in their order:

- ```console: a line that starts with ``$`` is run by a shell and must end well; the lines below it
  must appear in what it prints, in their order, with … for anything. ``$ cmd &`` keeps running
  until the page ends, and its lines must appear within the time limit; it must not fail before.
- ```python: all blocks of a page are one program, which must end well.
- a comment before a block says otherwise:
  ``<!-- file: NAME -->`` writes the block to NAME; ``<!-- not run: REASON -->`` leaves it out, and
  is listed at the end.
"""

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
CHECKOUT = ("Makefile", "benchmarks", "constraints.txt", "docs", "locks", "pyproject.toml", "src")
LIMIT_S = 900
READY_S = 180
_FENCE = re.compile(
    r"(?:<!-- (?P<mark>file|not run): (?P<word>[^>]*?) -->\n+)?"
    r"```(?P<kind>\w*)[^\n]*\n(?P<body>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


class PageError(Exception):
    """A command that failed, or a line that did not appear."""


@dataclass
class Block:
    """A fenced block, and what a comment above it says."""

    kind: str
    body: str
    mark: str
    word: str


@dataclass
class Page:
    """A page that is being followed."""

    folder: Path
    running: list[tuple[str, subprocess.Popen[str], Path]] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)


def list_pages() -> list[Path]:
    """Return the pages that are followed: all but translations and what docstrings made.

    Translations have the same blocks, which a test holds. The blocks of the pages that
    `make reference` writes are signatures.
    """
    folders = ("tutorial", "howto", "explanation", "reference")
    found = [path for name in folders for path in sorted((ROOT / "docs" / name).glob("*.md"))]
    made = "Written from docstrings"
    return [
        path
        for path in (ROOT / "README.md", *found)
        if not path.name.endswith(".zh.md") and made not in path.read_text(encoding="utf-8")
    ]


def read_blocks(text: str) -> list[Block]:
    """Return the fenced blocks of a page."""
    return [
        Block(one["kind"], one["body"], one["mark"] or "", one["word"] or "")
        for one in _FENCE.finditer(text)
    ]


def split_commands(body: str) -> list[tuple[str, list[str]]]:
    """Return every command of a console block with the lines that it promises."""
    found: list[tuple[str, list[str]]] = []
    for line in body.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], []))
        elif found and found[-1][0].endswith("\\"):
            found[-1] = (f"{found[-1][0][:-1]}{line}", [])
        elif found:
            found[-1][1].append(line)
    return found


def find_missing(printed: str, promised: list[str]) -> str | None:
    """Return the first promised line that does not appear in its place."""
    at = 0
    squeezed = _squeeze(printed)
    for line in promised:
        wanted = ".*?".join(re.escape(part) for part in _squeeze(line).split("…"))
        if not wanted.strip(".*?"):
            continue
        match = re.compile(wanted, re.DOTALL if wanted == ".*?" else 0).search(squeezed, at)
        if match is None:
            return line
        at = match.end()
    return None


def follow(path: Path) -> list[str]:
    """Follow one page; return what was left out.

    Raises:
        PageError: a command failed, or did not print what the page promises.
    """
    with tempfile.TemporaryDirectory(prefix="tacit-docs-") as name:
        page = Page(Path(name))
        shutil.copytree(ROOT / "examples", page.folder / "examples")
        for there in (*CHECKOUT, ".venv"):
            (page.folder / there).symlink_to(ROOT / there)
        try:
            blocks = read_blocks(path.read_text(encoding="utf-8"))
            for block in blocks:
                _take(block, page)
            _run_python(blocks, page)
            for command, process, log in page.running:
                if process.poll():
                    raise PageError(
                        f"{command}: exit code {process.returncode}\n{_tail(_read(log))}"
                    )
        finally:
            for _, process, _ in page.running:
                _stop(process)
        return page.skipped


def _stop(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGINT)
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _take(block: Block, page: Page) -> None:
    if block.mark == "not run":
        page.skipped.append(f"{block.body.strip().splitlines()[0]}  ({block.word})")
    elif block.mark == "file":
        (page.folder / block.word).write_text(block.body, encoding="utf-8")
    elif block.kind == "console":
        for command, promised in split_commands(block.body):
            _run(command, promised, page)


def _run(command: str, promised: list[str], page: Page) -> None:
    print(f"  $ {command}", flush=True)
    log = page.folder / f".said-{len(list(page.folder.glob('.said-*')))}"
    is_kept = command.rstrip().endswith("&")
    with log.open("w") as out:
        process = subprocess.Popen(
            ["bash", "-c", command.rstrip().removesuffix("&")],
            cwd=page.folder,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            text=True,
            env=_environment(page),
            start_new_session=True,
        )
    if is_kept:
        page.running.append((command, process, log))
        _wait_for(process, log, promised, command)
        return
    try:
        code = process.wait(LIMIT_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        raise PageError(f"{command}: still running after {LIMIT_S} s") from None
    printed = _read(log)
    if code != 0:
        raise PageError(f"{command}: exit code {code}\n{_tail(printed)}")
    missing = find_missing(printed, promised)
    if missing is not None:
        raise PageError(f"{command}: did not print {missing!r}\n{_tail(printed)}")


def _wait_for(process: subprocess.Popen[str], log: Path, promised: list[str], name: str) -> None:
    end = time.monotonic() + READY_S
    while time.monotonic() < end:
        printed = _read(log)
        if find_missing(printed, promised) is None:
            return
        if process.poll() is not None:
            raise PageError(f"{name}: ended with {process.returncode}\n{_tail(printed)}")
        time.sleep(0.2)
    raise PageError(f"{name}: did not print {promised} in time\n{_tail(printed)}")


def _run_python(blocks: list[Block], page: Page) -> None:
    program = "\n".join(b.body for b in blocks if b.kind == "python" and not b.mark)
    if program:
        (page.folder / "page.py").write_text(program, encoding="utf-8")
        _run(f"{sys.executable} page.py", [], page)


def _environment(page: Page) -> dict[str, str]:
    """Put this environment's commands first; what a page allows or keeps at home goes with it."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    inherited = {name: value for name, value in os.environ.items() if name != "TACIT_DATA"}
    home = page.folder / ".home"
    home.mkdir(exist_ok=True)
    return {**inherited, "PATH": path, "HOME": str(home)}


def _read(log: Path) -> str:
    return log.read_text(encoding="utf-8", errors="replace")


def _squeeze(text: str) -> str:
    """Fold spaces and line ends: a terminal's width is not part of a promise."""
    return re.sub(r"\s+", " ", text)


def _tail(text: str) -> str:
    return "\n".join(f"    | {line}" for line in text.splitlines()[-15:])


def main() -> int:
    """Follow the pages and say which of them break their word."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("pages", nargs="*", type=Path)
    # `make demo` on a page must find everything installed: else it would install the page's folder.
    if subprocess.run(["make", "-q", "-C", ROOT, ".venv/.run"], capture_output=True).returncode:
        sys.exit("the environment is not up to date; say: make docs-test")
    pages = parser.parse_args().pages or list_pages()
    failed, skipped = [], []
    for path in pages:
        print(path, flush=True)
        try:
            skipped += [f"{path.name}: {what}" for what in follow(path)]
        except PageError as error:
            failed.append(path)
            print(f"  FAILED {error}", flush=True)
    print("\nNot run, with the reason that the page gives:")
    print("\n".join(f"  {line}" for line in skipped) or "  nothing")
    print(f"\n{len(pages) - len(failed)} passed, {len(failed)} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
