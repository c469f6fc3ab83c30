"""The one sentence at the top of a report: what came out, what was promised, who saw what."""

from collections.abc import Sequence

from tacit.report.format import clean, enumerate_names, shorten, show_bound, show_count
from tacit.report.format import show_quantity as show
from tacit.report.tally import is_alone, list_absent
from tacit.result import Claim, Leak, Metric, Result

LONGEST = 150
"""Characters of a headline: two lines of the page on a desk."""

GAMES = ("audit", "leakage")
"""Kinds of results in which whoever holds everything plays the attacker."""

_ACCURACY, _MAJORITY = "accuracy", "most frequent class"
_QUALITY = frozenset({_ACCURACY, _MAJORITY, "F1", "AUC", "KS", "calibration error", "loss"})
"""What a split job measures of its model; the rest of its measures are attacks."""

IDLE = "no better than always answering the most frequent class"
"""What is said of an accuracy that nobody needs a model for."""

_NAME = 40  # characters of a name that others chose


def state_headline(result: Result) -> str:
    """Say in one sentence what the job came to; the ledger and the claims below say it in full."""
    if result.kind in GAMES:
        text = _state_attack(result)
    elif result.kind == "verify" and is_alone(result):
        text = _state_robust(result)
    else:
        text = _state_job(result)
    return shorten(text[:1].upper() + text[1:], LONGEST)


def pick_headline_metric(result: Result) -> Metric | None:
    """Pick the metric to show first: one with a plaintext reference, else the first.

    What a split job compares are attacks, which are not what it was run for. An audit was run for
    nothing else: a claim that an ε contradicts, then the strongest attack. Before all comes an
    accuracy that is worth nothing.
    """
    found = find_majority(result)
    if found is not None and is_idle(result):
        return found[0]
    compared = [metric for metric in result.utility if metric.reference is not None]
    if result.kind in GAMES:
        broken = [one for one in compared if one.unit == "ε" and is_beyond(one)]
        compared = [*broken, *_rank_attacks(result, compared)]
    if result.kind == "split":
        compared = []
    return next(iter((*compared, *result.utility)), None)


def pick_private_claim(result: Result) -> Claim | None:
    """Pick the claim of a run whose ε is shown first; an audit's are claims of somebody else."""
    bounded = (one for one in result.claims if one.epsilon is not None and one.delta is not None)
    return None if result.kind in GAMES else next(bounded, None)


def split_utility(result: Result) -> tuple[tuple[Metric, ...], tuple[Metric, ...]]:
    """Tell the measures of a job's own result from those of attackers, where it has both."""
    if result.kind != "split":
        return result.utility, ()
    own = tuple(one for one in result.utility if one.name in _QUALITY)
    return own, tuple(one for one in result.utility if one.name not in _QUALITY)


def find_strongest_on_split(result: Result) -> Metric | None:
    """Find the attack on a split job that gets the most rows right."""
    shares = [one for one in split_utility(result)[1] if one.unit == "fraction"]
    known = [one for one in shares if one.value is not None]
    return max(known, key=lambda one: one.value or 0.0, default=None)


def find_majority(result: Result) -> tuple[Metric, Metric] | None:
    """Find an accuracy and the share of the most frequent class among the same rows.

    Rows that are all of one class tell nothing.
    """
    by_name = {one.name: one for one in split_utility(result)[0]}
    found, often = by_name.get(_ACCURACY), by_name.get(_MAJORITY)
    if found is None or often is None or found.value is None or often.value in (None, 1.0):
        return None
    return found, often


def is_idle(result: Result) -> bool:
    """Say whether naming the most frequent class for every row is right as often."""
    found = None if result.kind in GAMES else find_majority(result)
    return found is not None and (found[0].value or 0.0) <= (found[1].value or 0.0)


def is_beyond(metric: Metric) -> bool:
    """Say whether a measurement lies beyond its reference, with its whole interval."""
    if metric.reference is None or metric.value is None:
        return False
    if metric.unit == "squared error":
        return (metric.value if metric.high is None else metric.high) < metric.reference
    return (metric.value if metric.low is None else metric.low) > metric.reference


def name_reference(result: Result, metric: Metric) -> str:
    """Name what one metric is compared with."""
    if result.kind in GAMES:
        return "claimed" if metric.unit == "ε" else "blind guess"
    if result.kind == "text":
        return "no protection"
    # The references of a split job are what attackers manage by themselves.
    return "reference" if is_alone(result) or result.kind == "split" else "plaintext"


def _state_job(result: Result) -> str:
    if not result.parties:
        return "No party reported"
    outcome, privacy, revealed = _outcome(result), _privacy(result), _revealed(result)
    attack, is_seen = _strongest_on_split(result), any(e.kind == "protocol" for e in result.leakage)
    idle = is_idle(result)
    if privacy or attack or is_seen or idle or is_alone(result):
        orders = [[outcome, privacy, one, attack] for one in revealed]
    else:  # that nothing else was shown is the news
        orders = [[one, outcome] for one in revealed]
    if attack:
        orders.append([outcome, privacy, attack])
    # That a model is worth nothing is never left out for want of room.
    return _fit([*orders, [outcome, revealed[-1]], [outcome if idle else revealed[-1]]])


def _rank_attacks(result: Result, compared: Sequence[Metric]) -> list[Metric]:
    """Put the strongest attack first.

    An audit lists its attacks so already: it allows for how many it tried, and puts last what
    tells of no one's row.
    """
    attacks = [one for one in compared if one.unit != "ε"]
    if result.kind == "audit":
        return attacks
    return sorted(attacks, key=lambda one: (not is_beyond(one), -_gain(one)))


def _gain(metric: Metric) -> float:
    """Say how far an attack came on the way from a blind guess, 0, to certainty, 1."""
    value, blind = metric.value or 0.0, metric.reference or 0.0
    if metric.unit == "squared error":
        return 1 - value / blind if blind > 0 else 0.0
    return (value - blind) / (1 - blind) if blind < 1 else 0.0


def _state_attack(result: Result) -> str:
    """Say how well the strongest attack did."""
    metric = pick_headline_metric(result)
    if metric is None or metric.reference is None:
        return "Attacked by its owner: the tables say what each view tells"
    if metric.unit == "ε":
        return _state_broken(result, metric)
    blind = f"{name_reference(result, metric)}: {show(metric.reference, metric.unit)}"
    lead = "Strongest attack: "
    if not is_beyond(metric):
        lead = "No attack tried clearly beat a guess, which proves nothing; the best: "
    samples = "" if metric.samples is None else f"; n = {show_count(metric.samples)}"
    comma = "" if ": " in metric.name else ","
    figure = f"{comma} {show(metric.value, metric.unit)} ({blind}{samples})"
    room = max(LONGEST - len(lead) - len(figure), 12)
    return f"{lead}{shorten(metric.name, room)}{figure}"


def _state_broken(result: Result, metric: Metric) -> str:
    """Say by how much a measured ε contradicts the claimed one."""
    delta = next((one.delta for one in result.claims if one.epsilon == metric.reference), None)
    at = "" if delta is None else f" at δ = {show_bound(delta)}"
    attack = shorten(metric.name.removeprefix("ε lower bound, "), _NAME)
    return (
        f"A claim is contradicted: an attack ({attack}) shows ε ≥ "
        f"{show_bound(metric.value, upper=False)}{at}, claimed was ε ≤ "
        f"{show_bound(metric.reference)}"
    )


def _state_robust(result: Result) -> str:
    by_name = {one.name: one for one in result.utility}
    accuracy, unsolved = by_name.get("verified robust accuracy"), by_name.get("unsolved rows")
    parts = [f"{clean(one.subject)} are robust: {clean(one.guarantee)}" for one in result.claims]
    figures = []
    if accuracy is not None and accuracy.value is not None:
        figures.append(f"verified robust accuracy {show(accuracy.value, accuracy.unit)}")
    if unsolved is not None and unsolved.value:
        figures.append(f"unsolved: {show(unsolved.value, unsolved.unit)}")
    return _fit([[*parts[:1], *figures], [*parts[:1], *figures[-1:]], figures, [_outcome(result)]])


def _outcome(result: Result) -> str:
    """Say the first figure beside its reference, with its sample size."""
    metric = pick_headline_metric(result)
    if metric is None or metric.value is None:
        return ""
    figure = show(metric.value, metric.unit)
    samples = "" if metric.samples is None else f" (n = {show_count(metric.samples)})"
    text = f"{shorten(metric.name, _NAME)} {figure}{samples}"
    if is_idle(result):
        return f"{text}, {IDLE}"
    if metric.reference is None:
        return text
    theirs, name = show(metric.reference, metric.unit), name_reference(result, metric)
    if theirs != figure:
        return f"{text}, {name} {theirs}"
    return f"{text}, as in plaintext" if name == "plaintext" else f"{text}, as the {name}"


def _privacy(result: Result) -> str:
    claim = pick_private_claim(result)
    if claim is None:
        return ""
    relation = shorten(claim.relation, _NAME) if claim.relation else "a relation not stated"
    return f"ε = {show_bound(claim.epsilon)} at δ = {show_bound(claim.delta)} for {relation}"


def _strongest_on_split(result: Result) -> str:
    attack = find_strongest_on_split(result)
    if attack is None:
        return ""
    return f"strongest attack: {clean(attack.name)}, {show(attack.value, attack.unit)}"


def _revealed(result: Result) -> list[str]:
    """Say what was shown to whom: in full, then by party, then in one clause."""
    if is_alone(result):
        return ["computed by one party alone, nothing was sent"]
    outputs, seen = (
        [leak for leak in result.leakage if leak.kind == kind] for kind in ("output", "protocol")
    )
    if seen:
        who = _who(seen)
        texts = [_seen_in_full(seen), _seen_by(seen), f"{who} saw more than the result"]
        texts.append(f"{who} saw more")
    else:
        texts = _shown(result, outputs)
    if not list_absent(result):
        return texts
    names = [shorten(party.name, 24) for party in result.parties]
    few = enumerate_names(names) if len(names) < 3 else "those who reported"
    return [f"as far as {few} can tell, {text}" for text in texts]


def _shown(result: Result, outputs: Sequence[Leak]) -> list[str]:
    has_sizes = any(leak.kind == "size" for leak in result.leakage)
    sizes = " and sizes" if has_sizes else ""
    if not outputs:
        return [f"{'nothing but sizes' if has_sizes else 'nothing'} was revealed to anyone"]
    receivers = [*dict.fromkeys(shorten(leak.to, 24) for leak in outputs)]
    to = enumerate_names(receivers) if len(receivers) < 4 else f"{len(receivers)} parties"
    return [
        *([f"nothing but {_describe(outputs)}{sizes} was revealed"] if len(outputs) < 4 else []),
        f"nothing but declared results (to {to}){sizes} was revealed",
        f"nothing but declared results{sizes} was revealed",
    ]


def _describe(leaks: Sequence[Leak]) -> str:
    return enumerate_names(
        [
            f"{leak.what} ({show_count(leak.elements)} "
            f"{'value' if leak.elements == 1 else 'values'}, to {leak.to})"
            for leak in leaks
        ]
    )


def _seen_in_full(leaks: Sequence[Leak]) -> str:
    if len(leaks) > 2:
        return _seen_by(leaks)
    return " and ".join(f"{clean(leak.to)} saw {clean(leak.what)}" for leak in leaks)


def _seen_by(leaks: Sequence[Leak]) -> str:
    return f"{_who(leaks)} saw more than the declared result"


def _who(leaks: Sequence[Leak]) -> str:
    parties = [*dict.fromkeys(shorten(leak.to, 24) for leak in leaks)]
    return enumerate_names(parties) if len(parties) < 4 else f"{len(parties)} parties"


def _fit(choices: Sequence[Sequence[str]]) -> str:
    """Join the parts of the first choice that is short enough, else of the last."""
    texts = ["; ".join(filter(None, choice)) for choice in choices]
    known = [text for text in texts if text] or ["nothing was measured"]
    return next((text for text in known if len(text) <= LONGEST), known[-1])
