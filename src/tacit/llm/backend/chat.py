"""A private chat held from Python: in one process, as local processes, or between hosts."""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Literal

from tacit.crypto import make_identity
from tacit.errors import ConfigError, PartyError
from tacit.llm.backend.chat_file import ROLES, ChatParty, ProtocolName, Role, load_chat, write_chat
from tacit.llm.backend.dialogue import Chat, Manner, PlainBackend
from tacit.llm.backend.private import Meet, Note, Silence, connected
from tacit.llm.backend.programs import dealer_program, owner_program
from tacit.llm.backend.protocol import ChatProtocol, choose_protocol, hear
from tacit.llm.backend.serving import ChatSeat, own_identity, seated
from tacit.llm.model.checkpoint import open_checkpoint
from tacit.llm.model.machine import free_memory_bytes
from tacit.llm.model.store import find_model
from tacit.llm.permuted import Account, Network
from tacit.llm.sampling import Sampling
from tacit.llm.sealed import Schedule, SealedClient
from tacit.mpc.material.offline import check_new, open_material
from tacit.party import (
    Child,
    Event,
    Meeting,
    Progress,
    Session,
    companions,
    first_cause,
    python_command,
    session_beside,
)
from tacit.transport import listen

Where = Literal["threads", "processes"]
"""Owner and dealer beside the user: in its own process, or in processes of their own."""

_HOST = "127.0.0.1"
_CONNECT_S = 60.0


@contextmanager
def chat(
    model: str | Path | None = None,
    *,
    protocol: ProtocolName | Literal["plain"] | ChatProtocol | None = None,
    parties: Where | Path | str = "threads",
    keys: Path | str = "keys",
    network: Network | None = None,
    sampling: Sampling | None = None,
    limit: int = 256,
    system: str | None = None,
    models: Path | None = None,
    note: Note | None = None,
) -> Iterator[Chat]:
    """Hold a private chat with a language model, as its user.

    ```python
    with tacit.llm.chat("smollm2-135m") as talk:
        for piece in talk.say("Why is the sky blue?"):
            print(piece, end="")
        print(talk.spent, talk.learned)
    ```

    Args:
        model: a folder, a GGUF file, or the name of a fetched model. Between hosts the user needs
            its description and tokenizer, no weights.
        protocol: "permuted" or "sealed", or one with settings; "plain" for no privacy at all. If
            nothing is said, that of the chat file; sealed where the owner is someone
            else, permuted on this machine.
        parties: "threads" and "processes" start owner and dealer on this machine; the path of a
            chat file makes this process its user, and the two others are elsewhere.
        keys: with a chat file, the folder with the user's key.
        network: the link to the owner; which messages are sent depends on it.
        sampling: how tokens are chosen; the most likely one if not given.
        limit: the most tokens of an answer.
        system: a system message, instead of the template's own.
        models: where fetched models lie.
        note: told where the parties stand.

    Guarantee: that of the protocol, in `Chat.claims`, if the three parties are run by people who
    do not collude. "threads" and "processes" are for try-outs: whoever runs all three sees all.
    Cost: `Chat.spent`; `Answer.receipt` for one answer.

    Raises:
        TacitError: the model, a file or a key cannot be used, or a party failed.
    """
    manner = Manner(sampling=sampling or Sampling(), limit=limit, system=system)
    path, note = find_model(model, folder=models), note or Silence()
    if protocol == "plain":
        with plain_chat(path, manner) as talk:
            yield talk
        return
    is_here = parties in ("threads", "processes")
    named = None if is_here else load_chat(Path(parties)).chat.protocol
    if not isinstance(protocol, ChatProtocol):
        protocol = ChatProtocol(
            name=choose_protocol(protocol, [named], None if is_here else "user")
        )
    protocol.check(manner.sampling)
    if parties == "threads":
        opened = chat_in_threads(path, protocol, manner, note)
    elif parties == "processes":
        opened = chat_in_processes(path, protocol, manner, note)
    else:
        opened = chat_as_user(
            Path(parties), path, protocol, manner, keys=Path(keys), network=network, note=note
        )
    with opened as talk:
        yield talk


@contextmanager
def plain_chat(model: Path, manner: Manner) -> Iterator[Chat]:
    """Chat with a model in this process. Guarantee: no guarantee."""
    checkpoint = open_checkpoint(model)
    tokenizer = checkpoint.tokenizer()
    checkpoint.check_memory(free_memory_bytes())
    backend = PlainBackend(checkpoint.load())
    yield Chat(name=checkpoint.name, backend=backend, tokenizer=tokenizer, manner=manner)


@contextmanager
def chat_in_threads(
    model: Path, protocol: ChatProtocol, manner: Manner, note: Note
) -> Iterator[Chat]:
    """Run owner and dealer as threads of this process, be the user, and give the chat."""
    checkpoint = open_checkpoint(model)
    protocol.check_memory(checkpoint, free_memory_bytes(), *ROLES)
    note("owner", "load")
    programs = {
        "owner": owner_program(model, protocol, protocol.bits(["fitted"]))(Account()),
        "dealer": dealer_program(protocol)(Account()),
    }
    meeting = Meeting(parties=ROLES, job_digest=b"tacit chat in one process".ljust(32))
    progress = Progress(lambda stage, done, total: note("user", stage, done, total))
    errors: list[BaseException] = []

    @contextmanager
    def meet() -> Iterator[Session]:
        serve = {name: program.serve for name, program in programs.items()}
        with session_beside("user", serve, meeting, progress=progress, errors=errors) as session:
            yield session

    try:
        with connected(meet, checkpoint, protocol, manner, note=note) as talk:
            yield talk
    except PartyError as error:
        cause = first_cause([error, *errors])
        if cause is error:
            raise
        raise cause from error


@contextmanager
def chat_in_processes(
    model: Path, protocol: ChatProtocol, manner: Manner, note: Note
) -> Iterator[Chat]:
    """Start owner and dealer on this machine, be the user, and give the chat.

    The three have keys that are thrown away at the end, and meet over TLS on free local ports.
    """
    checkpoint = open_checkpoint(model)
    protocol.check_memory(checkpoint, free_memory_bytes(), *ROLES)
    checkpoint.tokenizer()
    with ExitStack() as stack:
        private = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tacit-")))
        listeners = {name: stack.enter_context(listen(_HOST, 0)) for name in ROLES}
        entries: dict[str, ChatParty] = {
            name: ChatParty(
                address=f"{_HOST}:{listeners[name].getsockname()[1]}",
                key=make_identity(name, private).fingerprint,
            )
            for name in ROLES
        }
        job = private / "chat.toml"
        write_chat(job, entries)
        commands: dict[Role, list[str]] = {
            "owner": _command(job, "owner", private, protocol, "--model", str(model)),
            "dealer": _command(job, "dealer", private, protocol),
        }
        children = [Child(name, line, listeners[name]) for name, line in commands.items()]

        def on_event(party: str, event: Event) -> None:
            steps = event.get("done", 0), event.get("total", 0)
            note(party, event.get("stage", event["event"]), *steps)

        def on_restart(party: str, reason: str) -> None:
            note.tell(party, f"{reason}; starting it again")

        others = stack.enter_context(companions(children, on_event=on_event, on_restart=on_restart))
        seat = ChatSeat(
            job=load_chat(job),
            me="user",
            identity=own_identity(load_chat(job), "user", private),
            listener=listeners["user"],
            connect_s=_CONNECT_S,
        )
        yield stack.enter_context(
            connected(
                meeting_of(seat, note),
                checkpoint,
                protocol,
                manner,
                note=note,
                before_again=others.look,
            )
        )


@contextmanager
def chat_as_user(
    job: Path,
    model: Path,
    protocol: ChatProtocol,
    manner: Manner,
    *,
    keys: Path,
    network: Network | None,
    note: Note,
    material: Path | None = None,
) -> Iterator[Chat]:
    """Be the user of a chat whose owner and dealer are elsewhere.

    Of the model only its description and tokenizer are needed here. With ``material``, a file that
    was dealt before, the dealer does not come.
    """
    found = load_chat(job)
    checkpoint = open_checkpoint(model)
    protocol.check_memory(checkpoint, free_memory_bytes(), "user")
    with ExitStack() as stack:
        is_dealt = material is not None
        seat = stack.enter_context(seated(found, "user", keys, is_dealt=is_dealt))
        dealt = None
        if material is not None:  # before anybody is met: what was used is refused at once
            dealt = stack.enter_context(open_material(material, me="user"))
        yield stack.enter_context(
            connected(
                meeting_of(seat, note),
                checkpoint,
                protocol,
                manner,
                note=note,
                network=network,
                material=dealt,
            )
        )


def deal_as_user(
    job: Path,
    out: Path,
    schedule: Schedule,
    protocol: ChatProtocol,
    *,
    keys: Path,
    note: Note,
    forecast: Callable[[int, int], None],
) -> int:
    """Meet owner and dealer, have a session dealt for, and write the user's file.

    Returns:
        Its size in bytes.

    Raises:
        TacitError: this cannot be dealt, the file cannot be written, or a party failed.
    """
    if not protocol.is_sealed:
        raise ConfigError(f"only a sealed chat is dealt for ahead, and this one is {protocol.name}")
    found = load_chat(job)
    check_new(out)  # before anybody is met
    with seated(found, "user", keys) as seat, meeting_of(seat, note)() as session:
        protocol.agree(session)
        architecture = hear(session, "owner")
        client = SealedClient(session, architecture, reveal=protocol.reveal, device=protocol.device)
        size = client.fetch_material(schedule, out, forecast=forecast)
        client.leave()
        session.finish()
    return size


def meeting_of(seat: ChatSeat, note: Note) -> Meet:
    """Return what connects a seat to the two others."""
    return lambda: seat.joined(lambda stage, done, total: note("user", stage, done, total))


def _command(job: Path, role: Role, keys: Path, protocol: ChatProtocol, *more: str) -> list[str]:
    chosen = protocol.arguments(role)
    return python_command("serve-llm", str(job), "--as", role, "--keys", str(keys), *more, *chosen)
