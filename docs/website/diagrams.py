"""Who sends what to whom, in every protocol: `make reference` writes docs/images/protocols/*.svg.

The protocols of `tacit.mpc` are drawn from the plan of a small network: every arrow is a message
that a kernel declares, with its bytes, and what a party sees is what the plan writes into the
ledger. The others have no such plan for a whole run; they are written down here, after the pages
that explain them.
"""

from pathlib import Path

from sequence import Diagram, Party, Row, Sees, Sent, Stage, draw

from tacit.mpc.contract import Roles
from tacit.mpc.plan import Plan, Step
from tacit.mpc.plan_ops import PlanOps, make_plan
from tacit.mpc.registry import NO_DEALER, PROTOCOLS, find_protocol
from tacit.party.cost import CostedMessage

FOLDER = Path(__file__).parents[1] / "images" / "protocols"
ROWS, INPUTS, HIDDEN, OUTPUTS = 1, 30, 16, 2
_TITLES = {
    "Multiply": "",
    "Input": "",
    "Open": "The answer",
    "OpenMasked": "A product with weights",
    "Truncate": "Rescaling: back to the usual number of fraction bits",
    "SeenByHelper": "ReLU, computed by the helper on values in random order",
    "SeenBySecond": "ReLU, computed by the second party on values in random order",
    "OpenTagged": "A product with weights",
    "TruncateTagged": "Rescaling: back to the usual number of fraction bits",
    "PiecewiseTagged": "ReLU: a comparison on shares",
    "MutualCheck": "The check of all messages so far, by tags",
    "OpenChecked": "The answer",
    "Enter": "",
    "TaggedLocal": "",
    "MultiplyTagged": "",
    "FusedTruncateCompare": "ReLU with its rescaling: a comparison on shares",
    "Garbled": "ReLU: a comparison by a garbled circuit",
}
# What the messages of a kernel are, round by round; the last entry stands for all that follow.
_WORDS = {
    "OpenMasked": ("under masks",),
    "Open": ("its share of the scores",),
    "Truncate": ("one masked bit per value",),
    "SeenByHelper": ("its share, permuted, masked", "one share of the results"),
    "SeenBySecond": ("its share, masked", "values, permuted, masked", "results, masked"),
    "OpenTagged": ("under masks",),
    "TruncateTagged": ("value + mask, opened",),
    "PiecewiseTagged": ("value + mask, opened", "bits of a comparison, masked"),
    "MutualCheck": ("a fresh seed", "proofs of 42 sums"),
    "OpenChecked": ("its share of the scores",),
    "FusedTruncateCompare": ("value + mask, opened", "bits of a comparison, masked"),
    "Garbled": ("its share, masked", "labels, its share, masked", "its bits, masked"),
}


def network(ops: PlanOps) -> None:
    """One row through two layers: the hospital's row, the lab's weights, scores to the hospital."""
    x = ops.input("x", owner="hospital", shape=(ROWS, INPUTS), bound=8.0)
    first = ops.input("W", owner="lab", shape=(INPUTS, HIDDEN), bound=1.0)
    last = ops.input("V", owner="lab", shape=(HIDDEN, OUTPUTS), bound=1.0)
    scores = ops.matmul(ops.relu(ops.matmul(x, first)), last)
    ops.open(scores, to=("hospital",), what="scores", why="declared result")


def draw_planned(name: str) -> str:
    """Draw the plan of the network under a protocol of `tacit.mpc`."""
    protocol = find_protocol(name)
    # Where the second party sees values, it is to be the owner of the data.
    pair = ("lab", "hospital") if "second" in protocol.shows_to else ("hospital", "lab")
    roles = Roles(*pair, "dealer") if protocol.has_dealer else Roles(*pair)
    plan = make_plan(network, protocol, roles, frac_bits=16)
    rows: list[Row] = [
        Stage("Before the run: randomness that depends on no input"),
        *(
            Sent(one.sender, one.receiver, _said("material", one.payload_bytes), is_before=True)
            for one in plan.cost.traffic
            if one.phase == "offline"
        ),
        *(row for step in plan.steps for row in _rows(step, roles)),
    ]
    is_helped = "dealer" in protocol.shows_to
    has = {
        "hospital": f"one row, {INPUTS} numbers",
        "lab": "weights of two layers",
        "dealer": "is also the helper" if is_helped else "knows shapes, and masks",
    }
    parties = tuple(
        Party(one, words) for one, words in has.items() if one != "dealer" or protocol.has_dealer
    )
    title = f"Protocol {name}: {plan.cost.online_rounds} rounds, {_total(plan)} online"
    return draw(Diagram(title, parties, tuple(rows)))


def _rows(step: Step, roles: Roles) -> list[Row]:
    kernel = type(step.kernel).__name__
    declared = step.kernel.declare(roles, *step.operands)
    title = _TITLES.get(kernel, kernel)
    rows: list[Row] = [Stage(title)] if title and (declared.rounds or declared.leaks) else []
    for at, messages in enumerate(declared.rounds):
        rows += _round(kernel, at, messages)
    for leak in declared.leaks:
        is_result = leak.kind == "output"
        words = leak.what if is_result else f"sees {leak.elements} values: {leak.what}"
        rows.append(Sees(leak.to, f"learns the {words}" if is_result else words, is_result))
    return rows


def _round(kernel: str, at: int, messages: tuple[CostedMessage, ...]) -> list[Row]:
    known = _WORDS.get(kernel, ("under masks",))
    words = known[min(at, len(known) - 1)]
    if len(messages) != 2 or messages[0].sender != messages[1].receiver:
        return [Sent(one.sender, one.receiver, _said(words, one.payload_bytes)) for one in messages]
    there, back = messages
    if there.payload_bytes == back.payload_bytes:
        each = f"{_said(words, there.payload_bytes)} each way"
        return [Sent(there.sender, there.receiver, each, is_both=True)]
    said = [f"{one.sender}: {_said(words, one.payload_bytes)}" for one in messages]
    return [Sent(there.sender, there.receiver, said[0], said[1])]


def _said(words: str, number: int) -> str:
    return f"{words}, {_size(number)}"


def _size(number: int) -> str:
    return f"{number:,}\N{NO-BREAK SPACE}B"


def _total(plan: Plan) -> str:
    return _size(sum(one.payload_bytes for one in plan.cost.traffic if one.phase == "online"))


PERMUTED_CHAT = Diagram(
    "Private chat, protocol permuted: one token through one layer",
    (
        Party("user", "the text, masked weights W − U"),
        Party("owner", "all weights W"),
        Party("dealer", "keys of generators"),
    ),
    (
        Stage("Before the text is known: material for the next tokens"),
        Sent("dealer", "owner", "corrections that make masks fit", is_before=True),
        Sent("user", "owner", "(W − U)·r − w, masked", is_before=True),
        Stage("A token enters"),
        Sent("user", "owner", "the token as a one-hot row, masked"),
        Stage("Norm, queries, keys and values"),
        Sent("owner", "user", "masked and in a fresh secret order"),
        Sees("user", "sees these values in random order"),
        Sent("user", "owner", "normalised, under a new mask"),
        Stage("Attention of the new token (resent form)"),
        Sent("owner", "user", "scores, keys and values, permuted"),
        Sees("user", "sees attention scores in random order"),
        Sent("user", "owner", "the weighted sum, under a new mask"),
        Stage("Second norm, then the activation: a round trip each"),
        Sent("owner", "user", "permuted, masked"),
        Sent("user", "owner", "computed in the clear, masked again"),
        Stage("After the last layer"),
        Sent("owner", "user", "scores of the vocabulary, permuted"),
        Sent("owner", "user", "the token's name, by oblivious transfer"),
        Sees("user", "learns the next token; one who cheats computes all weights"),
        Sees("owner", "learns how many tokens, and when"),
    ),
)

SEALED_CHAT = Diagram(
    "Private chat, protocol sealed: one token",
    (
        Party("user", "the text, how it samples"),
        Party("owner", "all weights"),
        Party("dealer", "makes randomness"),
    ),
    (
        Stage("Once per session"),
        Sent("owner", "user", "every weight under a mask, 8 B each"),
        Sent("owner", "user", "powers of two that bound weights and values"),
        Stage("For each pass, as it is planned"),
        Sent("dealer", "user", "shares of products of masks", is_before=True),
        Stage("Every layer: norms, attention and activations on shares"),
        Sent("user", "owner", "openings under masks", is_both=True),
        Stage("The token is chosen on shares: noise and penalty of the user"),
        Sent("user", "owner", "comparisons, under masks", is_both=True),
        Sent("owner", "user", "its share of the chosen token"),
        Sees("user", "learns the next token", is_result=True),
        Sees("owner", "learns how many tokens, and when"),
    ),
)

SECAGG = Diagram(
    "Secure aggregation: one round",
    (
        Party("client i", "its update"),
        Party("server", "adds up"),
        Party("neighbours of i", "their updates"),
    ),
    (
        Stage("Advertise"),
        Sent("client i", "server", "two public keys, signed"),
        Sent("server", "neighbours of i", "the list of all"),
        Stage("Share"),
        Sent(
            "client i",
            "server",
            "Shamir shares of two seeds, sealed to each neighbour, with commitments",
        ),
        Sent("server", "neighbours of i", "the parcels, which it cannot open"),
        Stage("Mask"),
        Sent("client i", "server", "its update + noise + all masks"),
        Sees("server", "sees uniform words", is_result=True),
        Sent("server", "neighbours of i", "the list of those whose inputs came"),
        Stage("Attest"),
        Sent("client i", "server", "for each neighbour a tag on that list"),
        Sent("server", "neighbours of i", "the tags made for them"),
        Stage("Unmask"),
        Sent(
            "neighbours of i",
            "server",
            "one share about i: of its own mask if it stayed, of its pair key if it left",
        ),
        Sees("server", "learns the sum of those who stayed", is_result=True),
    ),
)

SHUFFLE = Diagram(
    "The shuffle model: one round",
    (
        Party("clients", "their updates"),
        Party("shuffler", "a key of its own"),
        Party("server", "a key of its own"),
    ),
    (
        Stage("Invitation"),
        Sent("server", "clients", "the server's key, bound to this round"),
        Stage("Reports, each ε0-private by itself"),
        Sent(
            "clients", "shuffler", "reports sealed to the server, sealed once more to the shuffler"
        ),
        Sees("shuffler", "sees who sends, and no report"),
        Sent("shuffler", "server", "the inner envelopes, in random order"),
        Sees("server", "reads reports, not whose: (ε, δ) over the crowd", is_result=True),
        Stage("Receipts"),
        Sent("shuffler", "clients", "digests of what was let go, under a tag for each client"),
        Sent("clients", "server", "one bit: is one of mine missing?"),
    ),
)

SPLIT = Diagram(
    "Split learning: one step",
    (
        Party("feature owner", "rows, the bottom model"),
        Party("label owner", "labels, the top model"),
    ),
    (
        Stage("Once, with match = COLUMN: which rows all parties have"),
        Sent(
            "feature owner",
            "label owner",
            "ids as points, multiplied by secret numbers",
            is_both=True,
        ),
        Stage("Forward"),
        Sent(
            "feature owner", "label owner", "the cut layer, compressed and defended, in the clear"
        ),
        Sees("label owner", "sees what the compressor keeps of every row"),
        Stage("Backward"),
        Sent("label owner", "feature owner", "the gradient at the kept values, in the clear"),
        Sees(
            "feature owner",
            "sees gradients, whose clusters are classes: training labels, without label-dp",
        ),
    ),
)


SECUREBOOST = Diagram(
    "SecureBoost: one tree",
    (
        Party("active owner", "labels, columns, the key"),
        Party("passive owner", "columns of the same rows"),
    ),
    (
        Stage("For every tree"),
        Sent(
            "active owner",
            "passive owner",
            "gradients and Hessians of all rows, encrypted and packed",
        ),
        Stage("For every level of it"),
        Sent("active owner", "passive owner", "in which node every row lies"),
        Sees("passive owner", "sees which rows stay together: labels can be guessed from that"),
        Sent("passive owner", "active owner", "encrypted sums for every bin of every column"),
        Sees("active owner", "decrypts histograms of the other's columns"),
        Sent("active owner", "passive owner", "the best splits: which columns and bins"),
        Sent("passive owner", "active owner", "which rows go left"),
    ),
)

REGRESSION = Diagram(
    "Regression over columns with two keys: one step",
    (
        Party("owner of labels", "labels, columns, a key"),
        Party("other owner", "columns, a key"),
    ),
    (
        Stage("Residuals"),
        Sent(
            "owner of labels",
            "other owner",
            "its part of the residuals, under its own key",
            is_both=True,
        ),
        Stage("Gradients"),
        Sent(
            "other owner",
            "owner of labels",
            "product with its columns, behind a perfect mask",
            is_both=True,
        ),
        Sent(
            "owner of labels", "other owner", "the product, decrypted, still masked", is_both=True
        ),
        Sees("other owner", "learns the gradient of its own weights", is_result=True),
        Sees("owner of labels", "learns the gradient of its own weights", is_result=True),
    ),
)


def draw_all() -> dict[Path, str]:
    """Return every picture by its path."""
    planned = {name: draw_planned(name) for name in PROTOCOLS}
    planned["without-dealer"] = draw_planned(NO_DEALER)
    written = {
        "chat-permuted": PERMUTED_CHAT,
        "chat-sealed": SEALED_CHAT,
        "secagg": SECAGG,
        "shuffle": SHUFFLE,
        "split": SPLIT,
        "secureboost": SECUREBOOST,
        "regression": REGRESSION,
    }
    drawn = planned | {name: draw(diagram) for name, diagram in written.items()}
    return {FOLDER / f"{name}.svg": text for name, text in drawn.items()}


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for path, text in draw_all().items():
        path.write_text(text, encoding="utf-8")
