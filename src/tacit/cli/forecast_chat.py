"""What a private chat costs per token, before anybody meets."""

from tacit.cli.commands.models import find_model
from tacit.jobs.kind import Asked, Network, Outlook
from tacit.llm import ChatProtocol, LanguageModel, open_checkpoint
from tacit.llm.backend.chat_file import ROLES, ChatFile
from tacit.llm.backend.protocol import ARCHITECTURE, choose_protocol
from tacit.llm.model import machine
from tacit.llm.permuted import (
    Ahead,
    Batch,
    Seats,
    choose_form,
    fit_precision,
    leaks,
    offline_cost,
    pass_cost,
)
from tacit.llm.permuted import Network as Link
from tacit.llm.permuted.blueprint import Blueprint
from tacit.llm.permuted.forecast import stolen_leak
from tacit.llm.permuted.setup import MASKED, PRECISION
from tacit.llm.sealed import (
    Pass,
    Schedule,
    forecast_file,
    open_sealed_vault,
    plan_passes,
)
from tacit.llm.sealed.parties import foresee
from tacit.party.cost import cost_in_a_row
from tacit.result import Cost, Leak

PROMPT_TOKENS = 128
"""Tokens that were read before the one that is forecast, unless a number is given."""
_AHEAD = 64
"""Tokens of the session whose file is forecast: what `tacit deal` deals for if nothing is said."""


def forecast_chat(
    job: ChatFile, asked: Asked, *, model: str | None, network: Network | None
) -> Outlook:
    """Forecast a prompt and the tokens behind it, from the shape of the model.

    Args:
        job: the file that the three share.
        asked: ``rows`` is how many tokens are read before the answer.
        model: a folder, a file or a known name.
        network: the link between user and owner; a fast one if not given.
    """
    asked.refuse("features")
    protocol = ChatProtocol(name=choose_protocol(None, [job.chat.protocol], None))
    checkpoint = open_checkpoint(find_model(model))
    past = min(asked.rows or PROMPT_TOKENS, checkpoint.architecture.context // 2)
    lines = [f"{checkpoint.name}; a prompt of {past} tokens, then one token after the other"]
    if job.chat.protocol is None:
        lines.append("The file names no protocol; this is the plan of permuted.")
    protocol.check_memory(checkpoint, machine.free_memory_bytes(), "owner")
    loaded = checkpoint.read()
    if protocol.is_sealed:
        found, seen = _sealed(loaded, past)
    else:
        link = Link() if network is None else Link(rtt_ms=network[0], mbit_per_s=network[1])
        found, seen = _permuted(job, protocol, loaded, past, link)
    return Outlook(
        about=protocol.name,
        lines=(*lines, *found),
        leaks=(*ARCHITECTURE.leaks(Seats().owner, ROLES), *seen),
        claims=protocol.claims(checkpoint.architecture),
    )


def chat_roles() -> dict[str, str]:
    """Say what the three do."""
    words = ("has the model", "has the words, gets the answer", "deals random numbers")
    return dict(zip(ROLES, words, strict=True))


def _permuted(
    job: ChatFile, protocol: ChatProtocol, model: LanguageModel, past: int, link: Link
) -> tuple[list[str], tuple[Leak, ...]]:
    precision = protocol.bits([job.chat.precision]) or fit_precision(model)
    plan, rows = Blueprint(model.architecture, precision), Ahead().block
    form = choose_form(plan, link, past=past, rows=rows, masked_kv=past)
    prompt = Batch(number=0, past=0, rows=past, prompt=0, masked_kv=0, form=None)
    block = Batch(number=1, past=past, rows=rows, prompt=0, masked_kv=past, form=form)
    read = pass_cost(plan, prompt)
    steps = [pass_cost(plan, block, run) for run in range(rows)]
    size = sum(step.payload_bytes for step in steps) / rows
    seconds = sum(step.seconds(link) for step in steps) / rows
    offline = offline_cost(plan, prompt), offline_cost(plan, block)
    dealt = [one.dealer_to_owner_bytes + one.dealer_to_user_bytes for one in offline]
    fixed = [one.user_to_owner_bytes for one in offline]
    lines = [
        f"The prompt: {read.payload_bytes:,} B in {read.chain} messages that wait for each other; "
        f"offline {dealt[0]:,} B from the dealer and {fixed[0]:,} B from the user",
        f"A token: {size:,.0f} B in {steps[0].chain} messages that wait for each other, "
        f"{seconds:.3g} s of a network of {link.rtt_ms:g} ms and {link.mbit_per_s:g} Mbit/s; "
        f"offline {dealt[1] / rows:,.0f} B from the dealer and {fixed[1] / rows:,.0f} B from the "
        "user",
        "The masked weights, which travel once, are not in these figures.",
    ]
    seats, a = Seats(), model.architecture
    told = (*PRECISION.leaks(seats.owner, ROLES), *MASKED.leaks(seats.user, (seats.owner,)))
    return lines, (*told, *leaks(plan, block, 0, seats), stolen_leak(a, seats))


def _sealed(model: LanguageModel, past: int) -> tuple[list[str], tuple[Leak, ...]]:
    vault = open_sealed_vault(model)
    if model.architecture.family == "chatglm":  # which reads a prompt at once
        first = Pass(conversation=0, past=0, rows=past, prompt=0, is_scored=True)
        passes, ahead = [first, first.following()], []
    else:
        passes = list(Schedule(prompt=past, tokens=1).passes())
        many = Schedule(prompt=past, tokens=min(_AHEAD, model.architecture.context - past))
        ahead = [
            f"Dealt ahead (tacit deal --prompt {many.prompt} --tokens {many.tokens}): a file of "
            f"{forecast_file(vault, many):,} B at the user, below 1 kB at the owner"
        ]
    *prompt, token = plans = plan_passes(vault, passes)
    begun = cost_in_a_row([plan.flow for plan in prompt])
    lines = [
        f"The prompt, and the weights under masks: {_volume(begun)}",
        f"A token: {_volume(token.cost)}",
        *ahead,
    ]
    return lines, foresee(vault, passes, plans)


def _volume(cost: Cost) -> str:
    online = sum(one.payload_bytes for one in cost.traffic if one.phase == "online")
    offline = {one.sender: one.payload_bytes for one in cost.traffic if one.phase == "offline"}
    weights = f" and {offline['owner']:,} B from the owner" if "owner" in offline else ""
    return (
        f"{online:,} B in {cost.online_rounds} rounds; offline {offline['dealer']:,} B from the "
        f"dealer{weights}"
    )
