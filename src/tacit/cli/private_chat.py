"""The user's side of a private chat, alone or with the two others as child processes."""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

from tacit.cli.chat_job import ROLES, load_chat, write_chat
from tacit.cli.companions import companions
from tacit.cli.config import PartyEntry
from tacit.cli.conversation import Partner
from tacit.cli.models import find_model, free_memory_bytes
from tacit.cli.serve_llm import ChatSeat, own_identity
from tacit.crypto import make_identity
from tacit.llm import (
    DEALER_BYTES,
    OWNER_BYTES,
    USER_BYTES,
    Tokenizer,
    check_vocabulary,
    open_checkpoint,
)
from tacit.llm.private import Network
from tacit.llm.steady import SteadyVoice
from tacit.party import Child, Event, Progress, Session, joined, python_command
from tacit.transport import listen

_HOST = "127.0.0.1"
_CONNECT_S = 60.0
_WAITS_S = (5, 30, 120, 600)
_ATTEMPTS = 2
"""How often owner and dealer elsewhere are met again before we give up."""

Note = Callable[[str, str], None]
"""Told a party and the stage that it is at."""


@contextmanager
def chat_here(model: str | None, note: Note) -> Iterator[Partner]:
    """Start owner and dealer on this machine, be the user, and give what one talks to.

    The three have keys that are thrown away at the end, and meet over TLS on free local ports.

    Raises:
        TacitError: the model cannot be used, or a party failed.
    """
    path = find_model(model)
    checkpoint = open_checkpoint(path)
    checkpoint.check_memory(
        free_memory_bytes(), bytes_per_weight=OWNER_BYTES + USER_BYTES + DEALER_BYTES
    )
    tokenizer = checkpoint.tokenizer()
    with ExitStack() as stack:
        private = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tacit-")))
        listeners = {name: stack.enter_context(listen(_HOST, 0)) for name in ROLES}
        entries: dict[str, PartyEntry] = {
            name: PartyEntry(
                address=f"{_HOST}:{listeners[name].getsockname()[1]}",
                key=make_identity(name, private).fingerprint,
            )
            for name in ROLES
        }
        job = private / "chat.toml"
        write_chat(job, entries)
        children = [
            Child(
                "owner", _command(job, "owner", private, "--model", str(path)), listeners["owner"]
            ),
            Child("dealer", _command(job, "dealer", private), listeners["dealer"]),
        ]

        def on_event(party: str, event: Event) -> None:
            note(party, event.get("stage", event["event"]))

        stack.enter_context(companions(children, on_event=on_event))
        seat = ChatSeat(
            job=load_chat(job),
            me="user",
            identity=own_identity(load_chat(job), "user", private),
            listener=listeners["user"],
            connect_s=_CONNECT_S,
        )
        # A child that died does not come back: no second meeting.
        yield stack.enter_context(
            partnered(seat, checkpoint.name, tokenizer, note=note, attempts=0)
        )


@contextmanager
def chat_as_user(
    job: Path, model: str | None, *, keys: Path, network: Network | None, note: Note
) -> Iterator[Partner]:
    """Be the user of a chat whose owner and dealer are elsewhere.

    Of the model only its description and tokenizer are needed here.

    Raises:
        TacitError: a key or the tokenizer is wrong, or a party failed.
    """
    found = load_chat(job)
    checkpoint = open_checkpoint(find_model(model))
    checkpoint.check_memory(free_memory_bytes(), bytes_per_weight=USER_BYTES)
    tokenizer = checkpoint.tokenizer()
    with ExitStack() as stack:
        address = found.own_address("user")
        seat = ChatSeat(
            job=found,
            me="user",
            identity=own_identity(found, "user", keys),
            listener=None if address is None else stack.enter_context(listen(*address)),
            connect_s=found.network.connect_s,
        )
        yield stack.enter_context(
            partnered(
                seat, checkpoint.name, tokenizer, note=note, attempts=_ATTEMPTS, network=network
            )
        )


@contextmanager
def partnered(
    seat: ChatSeat,
    name: str,
    tokenizer: Tokenizer,
    *,
    note: Note,
    attempts: int,
    network: Network | None = None,
) -> Iterator[Partner]:
    """Connect as the user, and leave in good order, or with a reason."""

    def meet() -> AbstractContextManager[Session]:
        return joined(
            seat.me,
            seat.meeting(),
            peers=seat.job.peers(seat.me),
            identity=seat.identity,
            listener=seat.listener,
            progress=Progress(lambda stage, done, total: note("user", stage)),
        )

    voice = SteadyVoice(
        meet,
        on_wait=lambda seconds: _note_wait(note, seconds),
        on_break=lambda error: note("user", f"{error}; meeting again"),
        attempts=attempts,
        network=network,
    )
    try:
        check_vocabulary(tokenizer, voice.architecture.vocab)
        yield Partner(name=name, voice=voice, tokenizer=tokenizer)
    except BaseException:
        voice.fail()
        raise
    voice.close()


def _note_wait(note: Note, seconds: float) -> None:
    """Say that the dealer is slow, at growing intervals."""
    passed = [limit for limit in _WAITS_S if seconds >= limit]
    if passed:
        note("user", f"has waited for the dealer for more than {passed[-1]} s")


def _command(job: Path, role: str, keys: Path, *more: str) -> list[str]:
    return python_command("serve-llm", str(job), "--as", role, "--keys", str(keys), *more)
