"""Results in words that survive moves: what is measured, timed or drawn is left out."""

import re
from pathlib import Path

TOP = Path(__file__).parents[2]
DIGITS = 6
"""Of numbers that are computed: another order of additions moves the sixteenth."""
SCORED = "accuracy fell from"
"""A note that is there in some runs."""
_NUMBER = re.compile(r"(?<![\w.])[-−]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?")
_ASIDE = re.compile(r"\([^()]*\)")
ERROR = 1e-3
"""Of answers of the small models here, at 16 bits and more."""
_SPAN = re.compile(r"\b\d[\d.,]*\s(?:µs|ms|s|min|h)\b(?:\s\d+\s(?:s|min)\b)?")
_HEX = re.compile(r"\b[0-9a-f]{16,64}\b")


def rounded(value):
    """Round every float inside a plain table."""
    if isinstance(value, dict):
        return {key: rounded(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(one) for one in value]
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


def masked(text):
    """Hide the numbers of a sentence that says what was measured, and what it was best with."""
    return _NUMBER.sub("#", _ASIDE.sub("(…)", text))


def in_place(text, folder=None):
    """Hide where a run took place, and digests."""
    for path, name in ((folder, "FOLDER"), (TOP, "TOP")):
        if path is not None:
            text = text.replace(str(path), name)
    return _HEX.sub("HASH", text)


def leak_lines(leaks):
    """Write entries of a ledger, sorted: parties write them down when they come to it."""
    return sorted(f"{one.to}: {one.what} ({one.elements}, {one.kind}) — {one.why}" for one in leaks)


def traffic_lines(cost, sender=None):
    """Write who sent what to whom; of a party's own view what it sent alone, if it is named."""
    return sorted(
        f"{one.phase} {one.sender} → {one.receiver}: "
        f"{one.messages} messages, {one.payload_bytes} bytes"
        for one in cost.traffic
        if sender in (None, one.sender)
    )


def cost_table(cost):
    """Write a cost."""
    return {"traffic": traffic_lines(cost), **rounds_table(cost)}


def rounds_table(cost):
    """Write the longest chains of messages that wait for each other."""
    return {"rounds": {"offline": cost.offline_rounds, "online": cost.online_rounds}}


def claim_table(claim):
    """Write a claim, with ε, δ, relation and accountant where it has them."""
    table = {"of": claim.subject, "guarantee": claim.guarantee}
    for name in ("epsilon", "delta", "relation", "accountant", "detection"):
        if getattr(claim, name) is not None:
            table[name] = rounded(getattr(claim, name))
    return {**table, "if": list(claim.assumptions)}


def outlook_table(outlook):
    """Write what `tacit plan` says: lines, traffic, what will be learned, what is promised."""
    table = {
        "about": outlook.about,
        "lines": [_SPAN.sub("# s", one) for one in outlook.lines],  # of this machine
        "ledger": leak_lines(outlook.leaks),
        "claims": [claim_table(one) for one in outlook.claims],
    }
    if outlook.forecast is not None:
        table |= {"cost": cost_table(outlook.forecast.cost), "notes": list(outlook.forecast.notes)}
    return table


def _measured(one):
    """Name a measure; of answers beside those in the clear, say whether they are right."""
    name = masked(f"{one.name} [{one.unit}]")
    if "plaintext" not in one.name or one.value is None or one.reference is None:
        return name
    return f"{name}: {'right' if abs(one.value - one.reference) < ERROR else 'wrong'}"


def result_table(result):
    """Write a result: which measures there are, not what they came to."""
    in_order = sorted if result.kind == "audit" else list
    return {
        "kind": result.kind,
        "protocol": result.protocol,
        "roles": {one.name: one.role for one in result.parties},
        "ledger": leak_lines(result.leakage),
        "claims": [claim_table(one) for one in result.claims],
        "metered": cost_table(result.metered),
        # An audit begins with the attack that was best.
        "measures": in_order([_measured(one) for one in result.utility]),
        "curves": sorted({one.title for one in result.curves}),
        "pictures": sorted({one.title for one in result.pictures}),
        "sheets": [f"{one.title}: {' | '.join(one.heads)}" for one in result.sheets],
        "notes": [masked(one) for one in result.notes if not one.startswith(SCORED)],
    }
