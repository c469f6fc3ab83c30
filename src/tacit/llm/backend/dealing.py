"""The user's part in having a sealed chat dealt for, before it is held."""

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from tacit.errors import ConfigError
from tacit.llm.backend.announce import hear
from tacit.llm.backend.chat import meeting_of
from tacit.llm.backend.chat_file import load_chat
from tacit.llm.backend.connected import Note
from tacit.llm.backend.protocol import ChatProtocol
from tacit.llm.backend.serving import ChatSeat, own_identity
from tacit.llm.sealed import Schedule, SealedClient
from tacit.mpc.material.offline import check_new
from tacit.transport import listen


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
    with ExitStack() as stack:
        address = found.own_address("user")
        seat = ChatSeat(
            job=found,
            me="user",
            identity=own_identity(found, "user", keys),
            listener=None if address is None else stack.enter_context(listen(*address)),
            connect_s=found.network.connect_s,
        )
        session = stack.enter_context(meeting_of(seat, note)())
        protocol.agree(session)
        architecture = hear(session, "owner")
        client = SealedClient(session, architecture, reveal=protocol.reveal, device=protocol.device)
        size = client.fetch_material(schedule, out, forecast=forecast)
        client.leave()
        session.finish()
    return size
