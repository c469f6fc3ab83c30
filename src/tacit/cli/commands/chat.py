"""The commands around private chats, as click sees them: ``chat`` and ``serve-llm``."""

import os
import signal
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import click

from tacit.cli.commands.chat_options import (
    KEYS,
    MANNER,
    MATERIAL,
    NOTHING,
    PATH,
    PROTOCOL,
    QUOTA,
    Asked,
    Choices,
    Served,
    with_options,
)
from tacit.cli.commands.models import find_model, model
from tacit.cli.memory import keep_small_blocks
from tacit.cli.screen import Board, board, say

if TYPE_CHECKING:
    from tacit.cli.commands.group import Edge
    from tacit.llm import Chat, ChatProtocol, Manner
    from tacit.llm.backend.chat_file import Role
    from tacit.llm.backend.programs import ServingRole
    from tacit.llm.permuted import Network

_MODEL_HELP = "A folder, a GGUF file, or a name from `tacit model list`.  [default: smollm2-135m]"


def _check_quota(quota: int | None, role: str | None) -> None:
    if quota is not None and role != "owner":
        raise click.UsageError("--quota is for the owner to choose, with --as owner.")


def _check_material(material: Path | None, role: str | None, protocol: "ChatProtocol") -> None:
    if material is None:
        return
    if role not in ("owner", "user"):
        raise click.UsageError("--material is for --as owner or --as user: no dealer comes then.")
    if not protocol.is_sealed:
        raise click.UsageError("--material belongs to --protocol sealed; the others have none.")


_SUITS = (
    "\b\nWhich protocol suits whom, if all follow it:\n"
    "  sealed    The owner keeps its weights: the user is shown tokens and nothing\n"
    "            else. The slowest: 0.2 s per token for 26 million weights, 0.9 s for 135\n"
    "            million, on two cores.\n"
    "  permuted  The user may have the weights, and keeps its text: who cheats can\n"
    "            compute every weight. The fastest with a guarantee for the text.\n"
    "  --plain   The model and the text are in one place anyway.\n\n"
)


@click.command(
    epilog=_SUITS + "\b\nExamples:\n  tacit chat\n  tacit chat --prompt 'Why is the sky blue?'\n"
    "  tacit chat --endpoint 127.0.0.1:8011\n  tacit chat --as user --job chat.toml"
)
@click.option("--model", "path", metavar="MODEL", help=_MODEL_HELP)
@click.option("--plain", is_flag=True, help="No privacy: the model runs in this process.")
@click.option("--as", "role", type=click.Choice(["owner", "user", "dealer"]), help="Be this one.")
@click.option("--job", type=PATH, help="With --as: the file that all three share.")
@KEYS
@with_options(PROTOCOL)
@QUOTA
@MATERIAL
@click.option(
    "--rtt-ms", type=float, metavar="X", help="With --as user: round-trip time to the owner."
)
@click.option("--mbit", type=float, metavar="Y", help="With --rtt-ms: its bandwidth in Mbit/s.")
@click.option("--prompt", "-p", help="Answer this and leave, instead of reading lines.")
@click.option("--endpoint", metavar="HOST:PORT", help="Serve local programs, as OpenAI does.")
@click.option(
    "--longest-prompt",
    type=click.IntRange(min=1),
    metavar="TOKENS",
    help="With --endpoint: refuse longer conversations, which all others would wait for.",
)
@with_options(MANNER)
@click.pass_obj
def chat(edge: "Edge", /, path: str | None, plain: bool, **how: Unpack[Asked]) -> None:
    """Chat with a language model.

    Starts the model's owner, a dealer and you, the user, on this machine; with --as, one of them.
    The owner does not learn what you ask. What you learn of the model depends on --protocol: lines
    under each answer say what each side learned.
    """
    keep_small_blocks()
    say(edge.err, "starting …", "dim")  # the libraries alone take seconds to load
    role, job, keys, quota = how["role"], how["job"], how["keys"], how["quota"]
    where = {"endpoint": how["endpoint"], "prompt": how["prompt"]}
    manner = _manner(how)
    if how["longest_prompt"] is not None and how["endpoint"] is None:
        raise click.UsageError("--longest-prompt is for programs: it goes with --endpoint.")
    if (role is None) != (job is None):
        raise click.UsageError("--as and --job belong together: give both or neither.")
    if plain and (role is not None or any(how.get(one) != NOTHING[one] for one in NOTHING)):
        raise click.UsageError(
            "--plain needs no other party: leave out --as, --job, --protocol and its settings."
        )
    if path is not None and (Path(path) / "decode.json").is_file():
        if plain or role is not None or any(how.get(one) != NOTHING[one] for one in NOTHING):
            raise click.UsageError(
                "this model answers from a budget, in this process: leave out --plain, --as, "
                "--job, --protocol and its settings; others reach it through --endpoint."
            )
        _talk_on_budget(edge, Path(path), manner, **where)
        return
    if plain:
        say(edge.err, "plain chat: no privacy, the model and your words are in one process", "dim")
        _talk_plainly(edge, path, manner, **where)
        return
    protocol = _protocol([] if job is None else [job], role, how)
    _check_quota(quota, role)
    material = how["material"]
    _check_material(material, role, protocol)
    if job is not None and role is not None and role != "user":
        _serve_once(edge, job, role, protocol, path=path, keys=keys, quota=quota, material=material)
        return
    from tacit.llm.backend.chat import chat_as_user, chat_in_processes

    protocol.check(manner.sampling)
    with Stages(edge) as note:
        found = find_model(path)
        if job is None:
            opened = chat_in_processes(found, protocol, manner, note)
        else:
            link = _network(how["rtt_ms"], how["mbit"])
            opened = chat_as_user(
                job, found, protocol, manner, keys=keys, network=link, note=note, material=material
            )
        with opened as talk:
            note.open()
            _talk(edge, talk, manner, **where)


@click.command(
    name="serve-llm",
    epilog="\b\nExamples:\n  tacit serve-llm alice.toml bob.toml --as owner --model smollm2-135m\n"
    "  tacit serve-llm alice.toml bob.toml --as dealer",
)
@click.argument("jobs", nargs=-1, required=True, type=PATH)
@click.option("--as", "role", type=click.Choice(["owner", "dealer"]), required=True)
@click.option("--model", "path", metavar="MODEL", help=_MODEL_HELP)
@KEYS
@with_options(PROTOCOL)
@QUOTA
@MATERIAL
@click.option(
    "--memory",
    type=click.FloatRange(min=0, min_open=True),
    metavar="GB",
    help="What conversations of all users may take here; a quarter of it is the most for one of "
    "four or more.  [default: half of what is free]",
)
@click.option("--listen-fd", type=int, hidden=True)
@click.option("--status-fd", type=int, hidden=True)
@click.pass_obj
def serve_llm(
    edge: "Edge", /, jobs: tuple[Path, ...], role: "ServingRole", **how: Unpack[Served]
) -> None:
    """Stay up as the owner or the dealer of the chats in JOBS.

    One file for each user: the users do not meet, and each has a key and ports of its own, masks
    and limits too. When one leaves or fails, the next meeting begins; the others do not notice.
    """
    keep_small_blocks()
    status_fd, listen_fd = how["status_fd"], how["listen_fd"]
    edge.is_child = status_fd is not None
    if edge.is_child:
        # The parent cleans up after us; leaving at once is all that is asked of a child.
        signal.signal(signal.SIGTERM, lambda number, frame: os._exit(128 + number))
    from tacit.llm.backend.serving import serve_child, serve_many
    from tacit.party import StatusPipe

    model = find_model(how["path"]) if role == "owner" else None
    protocol = _protocol(jobs, role, how)
    _check_quota(how["quota"], role)
    _check_material(how["material"], role, protocol)
    if status_fd is None:
        if role == "owner":
            _say_words(edge, protocol, how["path"])
        serve_many(
            jobs,
            role,
            model=model,
            keys=how["keys"],
            protocol=protocol,
            quota=how["quota"],
            material=how["material"],
            note=lambda text: say(edge.err, text, "dim"),
            memory_bytes=None if how["memory"] is None else int(how["memory"] * 1e9),
        )
        return
    if listen_fd is None:
        raise click.UsageError("--status-fd needs --listen-fd.")
    edge.pipe = StatusPipe(status_fd)
    serve_child(
        jobs[0],
        role,
        model=model,
        keys=how["keys"],
        protocol=protocol,
        listen_fd=listen_fd,
        pipe=edge.pipe,
    )


class Stages:
    """Shows where the parties stand until the chat is open, and after it says what must be said."""

    def __init__(self, edge: "Edge") -> None:
        self._edge = edge
        self._rows: Board | None = None
        self._stack = ExitStack()

    def __enter__(self) -> "Stages":
        from tacit.cli.forecast_chat import chat_roles

        self._rows = self._stack.enter_context(board(self._edge.err, chat_roles()))
        return self

    def __exit__(self, *error: object) -> None:
        self.open()

    def __call__(self, party: str, stage: str, done: int = 0, total: int = 0) -> None:
        """Take note of a stage."""
        if self._rows is not None and stage not in ("done", "failed"):
            self._rows.show(party, stage, done, total)

    def tell(self, party: str, text: str) -> None:
        """Say something, every time."""
        say(self._edge.err, f"{party:7} {text}", "dim")

    def open(self) -> None:
        """Show the parties no longer: the words of the chat follow."""
        self._rows = None
        self._stack.close()


def _serve_once(
    edge: "Edge",
    job: Path,
    role: "ServingRole",
    protocol: "ChatProtocol",
    *,
    path: str | None,
    keys: Path,
    quota: int | None,
    material: Path | None,
) -> None:
    from tacit.llm.backend.serving import serve_once

    if role == "owner":
        _say_words(edge, protocol, path)
    serve_once(
        job,
        role,
        model=find_model(path) if role == "owner" else None,
        keys=keys,
        protocol=protocol,
        quota=quota,
        material=material,
        note=lambda text: say(edge.err, text, "dim"),
    )


def _protocol(jobs: Sequence[Path], role: "Role | None", chosen: Choices) -> "ChatProtocol":
    from tacit.llm import ChatProtocol
    from tacit.llm.backend.chat_file import load_chat
    from tacit.llm.backend.protocol import choose_protocol

    if chosen["precision"] is not None and role not in ("owner", None):
        raise click.UsageError(f"--precision is for the owner to choose: leave it out as {role}.")
    return ChatProtocol(
        name=choose_protocol(chosen["name"], [load_chat(job).chat.protocol for job in jobs], role),
        reveal=chosen["reveal"],
        counts=chosen["counts"],
        precision=chosen["precision"],
        device=chosen["device"],
    )


def _say_words(edge: "Edge", protocol: "ChatProtocol", path: str | None) -> None:
    """Tell an owner what it promises and risks, before it serves anybody."""
    from tacit.llm import open_checkpoint

    for line in protocol.words(open_checkpoint(find_model(path)).architecture):
        say(edge.err, f"{protocol.name}: {line}", "bold")


def _network(rtt_ms: float | None, mbit: float | None) -> "Network | None":
    from tacit.llm.permuted import Network

    if rtt_ms is None and mbit is None:
        return None
    if rtt_ms is None or mbit is None:
        raise click.UsageError("--rtt-ms and --mbit describe one network: give both or neither.")
    return Network(rtt_ms=rtt_ms, mbit_per_s=mbit)


def _talk(
    edge: "Edge", talk: "Chat", manner: "Manner", *, endpoint: str | None, prompt: str | None
) -> None:
    from tacit.cli.commands.conversation import converse
    from tacit.cli.commands.endpoint import Endpoint
    from tacit.transport import parse_address

    if endpoint is None:
        converse(talk, console=edge.out, prompt=prompt)
        return
    server = Endpoint(parse_address(endpoint), talk, manner)
    say(edge.out, f"listening on {server.url}; stop with Ctrl-C")
    server.serve()


def _manner(how: Asked) -> "Manner":
    from tacit.llm import Manner, Sampling

    sampling = Sampling(
        temperature=how["temperature"],
        top_k=how["top_k"],
        top_p=how["top_p"],
        repetition_penalty=how["repetition_penalty"],
        seed=how["seed"],
    )
    return Manner(
        sampling=sampling,
        limit=how["limit"],
        system=how["system"],
        longest_prompt=how["longest_prompt"],
    )


def _talk_plainly(edge: "Edge", path: str | None, manner: "Manner", **where: str | None) -> None:
    from tacit.llm.backend.chat import plain_chat

    with ExitStack() as stack:
        rows = stack.enter_context(ExitStack())
        rows.enter_context(board(edge.err, {"model": "in this process"})).show(
            "model", "load", 0, 0
        )
        talk = stack.enter_context(plain_chat(find_model(path), manner))
        rows.close()
        _talk(edge, talk, manner, **where)


def _talk_on_budget(edge: "Edge", path: Path, manner: "Manner", **where: str | None) -> None:
    from tacit.cli.commands.budgeted import budgeted_chat

    say(edge.err, "numbers come out of a vote, and are paid for from a budget;", "dim")
    say(edge.err, "that binds whoever reads the answers, not whoever holds this folder", "dim")
    with budgeted_chat(path, manner) as talk:
        _talk(edge, talk, manner, **where)


COMMANDS: tuple[click.Command, ...] = (model, chat, serve_llm)
