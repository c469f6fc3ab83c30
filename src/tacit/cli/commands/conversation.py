"""A conversation at the terminal: what the user says, what comes back, and what it took."""

import sys
import textwrap
from collections.abc import Iterator

from rich.console import Console
from rich.text import Text

from tacit.cli.screen import printable, say
from tacit.llm import Answer, Chat, Receipt, Spent

_UNITS = ("B", "kB", "MB", "GB")


def converse(talk: Chat, *, console: Console, prompt: str | None) -> None:
    """Answer one prompt, or what is typed until the end of the input, a line each time."""
    learned: set[str] = set()
    talk.note = lambda text: say(console, text, "dim")
    for text in _typed(console) if prompt is None else [prompt]:
        answer = talk.say(text)
        _show(answer, console)
        for line in receipt_lines(answer.receipt):
            is_known = " learned: " in line and line in learned
            learned.add(line)
            say(console, _again(line) if is_known else _fitted(line, console), "dim")


def _again(line: str) -> str:
    """Shorten what a side learned, if it is word for word what was said before."""
    return line.split(" learned: ")[0] + " learned: the same as before"


def _fitted(line: str, console: Console) -> str:
    """Break a long line between words, where a person reads it."""
    if not console.is_terminal:
        return line
    return textwrap.fill(line, max(console.width, 40), subsequent_indent="  ")


def receipt_lines(receipt: Receipt) -> list[str]:
    """Say what an answer took: speed, traffic, and what each side learned from it."""
    speed = receipt.tokens_per_s
    steady = "speed not measured" if speed is None else f"{speed:.1f} tokens/s"
    lines = [f"{receipt.tokens} tokens · {steady} · first after {receipt.prompt_seconds:.2f} s"]
    if receipt.prompt_spent.payload_bytes:
        lines.append("first token: " + _traffic(receipt.prompt_spent, 1))
        if receipt.tokens > 1:
            lines.append("each after it: " + _traffic(receipt.spent, receipt.tokens - 1))
    else:
        lines.append("nothing was sent")
    learned: dict[str, list[str]] = {}
    for leak in receipt.leaks:
        learned.setdefault(leak.to, []).append(leak.what)
    return [*lines, *(f"{to} learned: {'; '.join(whats)}" for to, whats in learned.items())]


def _traffic(spent: Spent, tokens: int) -> str:
    return (
        f"{show_bytes(spent.payload_bytes / tokens)} and {spent.round_trips / tokens:.1f} "
        f"round trips, {show_bytes(spent.offline_bytes / tokens)} sent ahead"
    )


def show_bytes(count: float) -> str:
    """Write a number of bytes with a unit that fits."""
    power = 0
    while count >= 1000 and power < len(_UNITS) - 1:
        count, power = count / 1000, power + 1
    return f"{count:.0f} {_UNITS[power]}" if power == 0 else f"{count:.1f} {_UNITS[power]}"


def _show(answer: Answer, console: Console) -> None:
    """Print an answer as it comes."""
    for piece in answer:
        shown = printable(piece.replace("\t", "    "))
        console.print(Text(shown), end="", soft_wrap=True, highlight=False)
        console.file.flush()
    console.print()


def _typed(console: Console) -> Iterator[str]:
    """Yield lines from standard input; asks for them if a person is there."""
    is_person = sys.stdin.isatty()
    while True:
        if is_person:
            console.print("[bold]you>[/bold] ", end="")
        line = sys.stdin.readline()
        if not line:
            if is_person:
                console.print()
            return
        if line.strip():
            yield line.strip()
