"""What a federated run says about itself: claims, leaks, cost, measures and curves."""

import math
from collections.abc import Sequence

from tacit.data.metrics import ACCURACY
from tacit.dp import Event, Repeated, confirm, epsilon, sharpen, unroll
from tacit.federated.aggregators import find_aggregator
from tacit.federated.calibration import CalibratedMechanism
from tacit.federated.rounds import Outcome, RoundReport
from tacit.federated.spec import HELPERS, FederatedSpec
from tacit.federated.verified import CLAIM
from tacit.result import Claim, Cost, Curve, Leak, LeakKind, Metric, Sheet, Traffic

_LARGE_EPSILON = 10.0
_MOST_NOTES = 20


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
    checked = (CLAIM,) if spec.federated.verified else ()
    return (*find_aggregator(spec.federated.aggregator).claims(spec), *checked)


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
