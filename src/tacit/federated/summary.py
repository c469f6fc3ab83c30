"""What a federated run says about itself: claims, leaks, cost, measures and curves."""

import math
from collections.abc import Sequence

from tacit.data.metrics import ACCURACY
from tacit.dp import Event, Repeated, confirm, epsilon, sharpen, unroll
from tacit.federated.aggregators import find_aggregator
from tacit.federated.calibration import CalibratedMechanism
from tacit.federated.rounds import Outcome, RoundReport
from tacit.federated.secagg import plan_neighbourhood, secrecy_bits
from tacit.federated.spec import HELPERS, FederatedSpec
from tacit.result import Claim, Cost, Curve, Leak, LeakKind, Metric, Sheet, Traffic

_SUBJECT = "each client's update in a round, towards the server"
_HIDDEN = "hidden in the sum of those who stayed"
LAST = (
    "whoever knows all other updates of a sum knows the last, and two rounds on like models, one "
    "of them without a client, differ by its update"
)
CHOSEN = (
    "clients given different models have no sum; but a server that chooses the model, and who is "
    "in which round, can still make one client or few rows stand out of sums: only noise, "
    "privacy 'central' or 'local', bounds that"
)
RUNS = "nodes choose the code that they run, and in how many runs: each is counted anew"
_RANGE = "no proof of range: a client that lies can spoil the sum"
_LARGE_EPSILON = 10.0
_MOST_NOTES = 20
_SERVERS = {
    "curious": "the server follows the protocol and invents no clients",
    "malicious": (
        f"the server may do anything; the job names the clients' keys, and they are theirs; {RUNS}"
    ),
}


def describe(claim: Claim) -> str:
    """Write a claim about privacy in one line."""
    if claim.epsilon is None or claim.delta is None:
        return f"{claim.guarantee}: {claim.assumptions[0]}"
    return (
        f"ε = {claim.epsilon:.3f} at δ = {claim.delta:g} for {claim.relation} "
        f"({claim.accountant}), {claim.subject}"
    )


def warnings_about(claim: Claim) -> tuple[str, ...]:
    """Warn of an ε that means little."""
    if claim.epsilon is None or claim.epsilon <= _LARGE_EPSILON:
        return ()
    return (
        f"an ε above {_LARGE_EPSILON:g} promises little: plan fewer rounds or steps, or more noise",
    )


def sharp_claim(mechanism: CalibratedMechanism, rounds: int) -> Claim:
    """Return the claim about all rounds, as sharply as the accountant can say."""
    if mechanism.event is None:
        return mechanism.claim
    whole: list[Event] = [Repeated(event=mechanism.event, count=rounds)]
    return sharpen(mechanism.claim, [*whole, *([mechanism.first] if mechanism.first else [])])


def claims_of(spec: FederatedSpec, outcome: Outcome) -> tuple[Claim, ...]:
    """Return what the run promises: first about the models, then about single updates."""
    return (sharpen(outcome.rounds[-1].claim, outcome.ledger), *claims_about_updates(spec))


def claims_about_updates(spec: FederatedSpec) -> tuple[Claim, ...]:
    """Return what is promised about single updates, and about sums that are checked."""
    fed = spec.federated
    claims = list[Claim]()
    if fed.aggregator == "masked":
        named = len(fed.identities or ())
        is_chosen = fed.server == "malicious"
        whose = f"the {named} clients named" if is_chosen else "the clients of a round"
        claims.append(
            Claim(
                subject="each client's update in a round, towards the server",
                guarantee="hidden in the sum of those who stayed",
                assumptions=(
                    _SERVERS[fed.server],
                    f"at most {fed.colluding_share:.0%} of {whose} work with it; {LAST}",
                    *([CHOSEN] if fed.server == "malicious" else []),
                    f"at most {fed.drop_rate:.0%} of the clients fall silent in a round; "
                    "if more do, the round may be void",
                    f"X25519, AES-128, SHA-256 and Ed25519 hold{_graph(spec)}",
                    "no proof of range: a client that lies can spoil the sum",
                ),
            )
        )
    return (*claims, *promises(spec))


def _graph(spec: FederatedSpec) -> str:
    """Say with what probability the graph of a round does not hide what it should."""
    fed = spec.federated
    near = plan_neighbourhood(
        fed.clients,
        minimum=fed.minimum,
        drop_rate=fed.drop_rate,
        colluding_share=fed.share_in_round,
        server=fed.server,
    )
    bits = secrecy_bits(near, fed.clients, minimum=fed.minimum, colluding_share=fed.share_in_round)
    if math.isinf(bits):
        return ""
    return (
        f"; the ring of a list of clients fails with a probability of 2^-{math.floor(bits)}, "
        "whoever is silent, and with as many times that as lists were tried"
    )


def leaks_of(spec: FederatedSpec, dimension: int) -> tuple[Leak, ...]:
    """Return who is shown what in every round."""
    fed = spec.federated
    seen = find_aggregator(fed.aggregator).server_sees
    why, present = (
        f"aggregator {fed.aggregator!r}",
        "who takes part in a round and who drops out",
    )
    entries: list[tuple[str, str, str, LeakKind, int]] = [
        ("server", seen, why, "protocol", dimension),
        ("clients", "the model after every round", "the result", "output", dimension),
        ("server", present, "needed to add up", "size", fed.clients),
    ]
    in_sum = "who is in the sum of a round"
    more: dict[str, list[tuple[str, str, LeakKind, int]]] = {
        "masked": [("clients", present, "size", fed.clients)],
        "keyed": [("authority", in_sum, "size", fed.clients)],
        "encrypted": [
            ("clients", "the sum of a round, those who decrypt it", "protocol", dimension),
            ("clients", f"{in_sum}, those who decrypt it", "size", fed.clients),
        ],
        "shuffled": [
            ("shuffler", "how many clients report in a round", "size", 1),
            ("clients", "how many reports a round has", "size", 1),
        ],
        "bounded": [
            ("checker", "whose update comes, and whose is within the clip", "size", fed.clients),
            ("dealer", "how many updates are checked", "size", 1),
        ],
    }
    entries += [(to, what, why, kind, n) for to, what, kind, n in more.get(fed.aggregator, [])]
    if fed.verified:
        what = "the sum of a round and who is in it"
        entries.append(("clients", what, "verified", "protocol", dimension))
    if fed.largest_weight > 1:
        examples, count = "how many examples the clients of a round have together", 1
        if not fed.is_split:
            examples, count = "how many examples every client has", fed.clients
        entries.append(("server", examples, "updates are weighed by it", "size", count))
    adaptive = spec.privacy.adaptive
    if adaptive is not None and adaptive.relevance == "clients":
        what = "what parts of the model contribute on the rows of every client, once, under noise"
        entries.append(("server", what, "noise follows it", "protocol", fed.clients))
    return tuple(
        Leak(to=to, what=what, why=why, kind=kind, elements=elements)
        for to, what, why, kind, elements in entries
    )


def cost_of(spec: FederatedSpec, outcome: Outcome) -> Cost:
    """Return what all rounds moved."""
    fed = spec.federated
    rounds = outcome.rounds
    stages = find_aggregator(fed.aggregator).stages + fed.verified
    messages = stages * len(rounds) * fed.clients
    ways = {
        ("clients", "server"): (messages, fed.clients * sum(r.bytes_up for r in rounds)),
        ("server", "clients"): (messages, fed.clients * sum(r.bytes_down for r in rounds)),
    }
    helper = HELPERS.get(fed.aggregator)
    if helper is not None:
        asked, said = (sum(r.helper_down for r in rounds), sum(r.helper_up for r in rounds))
        count = sum(r.helper_down > 0 for r in rounds)
        ways |= {("server", helper): (count, asked), (helper, "server"): (count, said)}
    traffic = tuple(
        Traffic(
            sender=sender,
            receiver=receiver,
            phase="online",
            messages=count,
            payload_bytes=int(moved),
        )
        for (sender, receiver), (count, moved) in ways.items()
    )
    return Cost(traffic=traffic, offline_rounds=0, online_rounds=2 * stages * len(rounds))


def measures_of(outcome: Outcome) -> tuple[Metric, ...]:
    """Return how good the last model is, what rounds cost, and ε computed by other code.

    Raises:
        ClaimError: the other code contradicts the claim.
    """
    rounds = outcome.rounds
    mean_up = sum(report.bytes_up for report in rounds) / len(rounds)
    dropped = sum(len(report.dropped) for report in rounds) / len(rounds)
    void = sum(report.void is not None for report in rounds)
    return (
        *rounds[-1].metrics,
        Metric(name="bytes sent by a client in a round", value=mean_up, unit="B"),
        Metric(name="clients dropped in a round", value=dropped, unit="clients"),
        Metric(name="void rounds", value=float(void), unit="rounds", samples=len(rounds)),
        *_confirmed(outcome),
    )


def _confirmed(outcome: Outcome) -> tuple[Metric, ...]:
    claim = outcome.rounds[-1].claim
    found = confirm(outcome.ledger, claim)
    if found is None:
        return ()
    note = f"by {found.accountant}, for {claim.relation}; claimed by {claim.accountant}"
    name = f"ε at δ = {claim.delta:g}, computed again"
    return (Metric(name=name, value=found.epsilon, unit="", note=note),)


def curves_of(outcome: Outcome) -> tuple[Curve, ...]:
    """Draw accuracy against rounds and ε, and what rounds cost."""
    rounds = outcome.rounds
    scored = [(report, report.accuracy) for report in rounds if report.accuracy is not None]
    curves = [
        _curve("Accuracy", "round", "accuracy", [(one.number, score) for one, score in scored]),
        _curve("Upload of a client", "round", "bytes", [(r.number, r.bytes_up) for r in rounds]),
        _curve("Clients dropped", "round", "clients", [(r.number, len(r.dropped)) for r in rounds]),
    ]
    spent = [(one.claim.epsilon, score) for one, score in scored if one.claim.epsilon is not None]
    if spent:
        delta = rounds[-1].claim.delta
        curves.insert(1, _curve("Accuracy against ε", f"ε at δ = {delta:g}", "accuracy", spent))
    return tuple(curves)


def _curve(title: str, x_label: str, y_label: str, points: Sequence[tuple[float, float]]) -> Curve:
    pairs = tuple((float(x), float(y)) for x, y in points)
    return Curve(title=title, x_label=x_label, y_label=y_label, name=y_label, points=pairs)


def sheets_of(
    spec: FederatedSpec, outcome: Outcome, files: Sequence[str] = ()
) -> tuple[Sheet, ...]:
    """List who was not in the sum of a round, and what each client's own ledger comes to.

    Args:
        spec: what was asked for.
        outcome: of the run.
        files: where the clients' rows came from, if each has a file.
    """
    rows = tuple(
        (str(one.number), ", ".join(map(str, one.dropped)) or "nobody", one.void or "")
        for one in outcome.rounds
    )
    heads = ("#round", "clients not in the sum", "why it is void")
    found = [Sheet(title="Who was dropped", heads=heads, rows=rows)]
    last = outcome.rounds[-1].claim
    if spec.privacy.kind == "record" and last.delta is not None:
        found.append(_ledgers(spec, outcome, last, files))
    return tuple(found)


def _ledgers(spec: FederatedSpec, outcome: Outcome, claim: Claim, files: Sequence[str]) -> Sheet:
    rows = []
    for index in range(spec.federated.clients):
        name = f"client {index}"
        steps = sum(unroll(outcome.ledger.events_of(name)).values())
        file = files[index] if files else ""
        rows.append((name, file, str(steps), f"{_spent(outcome, name, claim):.3f}"))
    heads = ("client", "file", "#steps", f"#ε at δ = {claim.delta:g}")
    return Sheet(title="What each client's own ledger comes to", heads=heads, rows=tuple(rows))


def _spent(outcome: Outcome, name: str, claim: Claim) -> float:
    if not outcome.ledger.events_of(name) or claim.delta is None or claim.accountant is None:
        return 0.0
    found = epsilon(
        outcome.ledger, delta=claim.delta, accountant=claim.accountant, client=name
    ).epsilon
    return math.inf if found is None else found


def _fallen(rounds: Sequence[RoundReport]) -> list[str]:
    """Say that the last model is worse than one before, by more than the test rows leave open."""
    last = next((one for one in rounds[-1].metrics if one.name == ACCURACY), None)
    best = max(rounds, key=lambda one: -1.0 if one.accuracy is None else one.accuracy)
    if last is None or last.high is None or (best.accuracy or 0.0) <= last.high:
        return []  # the interval of the last holds the best
    return [
        f"accuracy fell from {100 * (best.accuracy or 0.0):.4g} % after round {best.number} to "
        f"{100 * (last.value or 0.0):.4g} % after the last: fewer or smaller steps may keep it"
    ]


def notes_of(outcome: Outcome) -> tuple[str, ...]:
    """List warnings, void rounds and refusals; not more than a few of them."""
    refused = [f"round {one.number}: {why}" for one in outcome.rounds for why in one.refused]
    void = [f"round {one.number} is void: {one.void}" for one in outcome.rounds if one.void]
    shown = [*warnings_about(outcome.rounds[-1].claim), *_fallen(outcome.rounds), *void, *refused]
    rest = len(shown) - _MOST_NOTES
    return (*shown[:_MOST_NOTES], *([f"and {rest} more like these"] if rest > 0 else []))


def promises(spec: FederatedSpec) -> tuple[Claim, ...]:
    """Return the claims about single updates and about the sum; none where there are none."""
    fed = spec.federated
    found = list[Claim]()
    if fed.aggregator == "encrypted":
        found.append(_encrypted(spec))
    if fed.aggregator == "keyed":
        found.append(_keyed(spec))
    if fed.aggregator == "bounded":
        found += _bounded(spec)
    if fed.verified:
        found.append(_verified(spec))
    return tuple(found)


def _encrypted(spec: FederatedSpec) -> Claim:
    fed = spec.federated
    if fed.threshold is None:
        who = (
            "semi-honest: every party follows the protocol, and no client works with the server: "
            "all clients share one key, so that one that does opens everybody's updates"
        )
    else:
        who = (
            "semi-honest: every party follows the protocol; the server may work with up to "
            f"{fed.threshold - 1} of the {fed.clients} clients, as {fed.threshold} decrypt "
            "together"
        )
    hard = (
        "ring-LWE is hard at 128 bits (BFV)"
        if fed.cipher == "bfv"
        else "deciding composite residues is hard at 3072 bits (Paillier)"
    )
    made = "whoever made the keys was not the server, and forgot them"
    return Claim(subject=_SUBJECT, guarantee=_HIDDEN, assumptions=(who, made, hard, LAST, _RANGE))


def _keyed(spec: FederatedSpec) -> Claim:
    fed = spec.federated
    is_chosen = fed.server == "malicious"
    whose = (
        f"the {len(fed.identities or ())} clients named" if is_chosen else "the clients of a round"
    )
    others = (
        f"at most {fed.colluding_share:.0%} of {whose} work with the server, and the authority "
        "does not"
    )
    if is_chosen:
        who = f"malicious: the server may do anything, the authority follows the protocol; {others}"
    else:
        who = f"semi-honest: every party follows the protocol; {others}"
    named = (
        "the job names the clients' keys, and they are theirs"
        if fed.identities is not None
        else "the server invents no clients: the job does not name their keys"
    )
    pinned = (
        "the authority's key is the one that the job pins"
        if fed.authority is not None
        else "the server passes the authority's key on as it is: the job does not pin it, and a "
        "server that puts in its own opens every update"
    )
    kept = (
        "the authority keeps what it has released: one that forgets it releases two sums of a round"
    )
    hard = "X25519, AES-128, HMAC-SHA256 and Ed25519 hold"
    chosen = [CHOSEN, RUNS] if is_chosen else []
    return Claim(
        subject=_SUBJECT,
        guarantee=_HIDDEN,
        assumptions=(who, pinned, named, kept, hard, LAST, *chosen, _RANGE),
    )


def _bounded(spec: FederatedSpec) -> tuple[Claim, Claim]:
    who = (
        "semi-honest: server, checker and dealer follow the protocol and pool with nobody; they "
        "are three parties, which a simulation plays itself"
    )
    return (
        Claim(
            subject=_SUBJECT,
            guarantee="hidden in the sum of those within the clip, but for whether it is",
            assumptions=(who, LAST, "AES-128 holds"),
        ),
        Claim(
            subject="the sum of a round, against clients",
            guarantee="no update longer than the clip counts, but with probability 2^-40 each",
            assumptions=(
                f"malicious: clients may do anything. {who[0].upper()}{who[1:]}",
                f"an update within the clip of {spec.privacy.clip:g} may still be poisoned",
            ),
        ),
    )


def _verified(spec: FederatedSpec) -> Claim:
    return Claim(
        subject="the sum of a round that a client is shown, against the server",
        guarantee="a wrong sum is found out with probability 1 - 2^-40",
        assumptions=(
            "malicious: the server may do anything, but no client works with it: the tags are "
            "under one key that all clients share",
            "clients follow the protocol, and one of those who stayed is still there to check",
            "about the sum of the clients in the list that is shown: who is left out, in which "
            "round the others sent theirs (a server can open two under one session), and what is "
            "made of the sum, the next model, is not checked",
            "AES-128 and HMAC-SHA256 hold",
        ),
    )
