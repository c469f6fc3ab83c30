"""The HTML report's account of privacy: what each party learned, and what was promised."""

from collections.abc import Sequence

from tacit.report.format import show_count
from tacit.report.markup import Markup, tag
from tacit.report.tally import group_leaks
from tacit.report.words import KIND_NAMES, is_unprotected, mood_of, state_learned, state_privacy
from tacit.result import Claim, Leak, LeakKind, Result

_KINDS: tuple[LeakKind, ...] = ("output", "protocol", "size")


def lay_learned(result: Result) -> Markup:
    """Lay out the leakage ledger, one card per party."""
    roles = {party.name: party.role for party in result.parties}
    cards = [
        _lay_party(result, party, roles.get(party, ""), leaks)
        for party, leaks in group_leaks(result).items()
    ]
    return tag("div", *cards, class_="cards") if cards else tag("p", "The ledger is empty.")


def lay_promised(result: Result) -> Markup:
    """Lay out the claims, each with everything it rests on."""
    if not result.claims:
        return tag("p", "Nothing is promised: no guarantee was stated.", class_="notice")
    return lay_claims(result.claims)


def lay_claims(claims: Sequence[Claim]) -> Markup:
    """Lay out claims, a card each."""
    return tag("div", *map(_lay_claim, claims), class_="cards wide")


def _lay_party(result: Result, party: str, role: str, leaks: Sequence[Leak]) -> Markup:
    sentence, mood = state_learned(result, party, leaks)
    entries = [lay_leak(leak) for kind in _KINDS for leak in leaks if leak.kind == kind]
    return tag(
        "article",
        tag("h3", party, tag("span", f" {role}", class_="role") if role else ""),
        tag("p", sentence, class_=f"sentence {mood}"),
        tag("ul", *entries, class_="leaks") if entries else "",
        class_=f"card {mood}",
    )


def lay_leak(leak: Leak) -> Markup:
    """Lay out one entry of the ledger."""
    noun = "value" if leak.elements == 1 else "values"
    count = f" · {show_count(leak.elements)} {noun}" if leak.kind != "size" else ""
    return tag(
        "li",
        tag("span", KIND_NAMES[leak.kind], class_="badge"),
        tag("strong", leak.what),
        count,
        tag("span", leak.why, class_="why"),
        class_=f"leak {leak.kind}",
    )


def _lay_claim(claim: Claim) -> Markup:
    privacy = state_privacy(claim)
    assumptions = [tag("li", text) for text in claim.assumptions]
    mood, lead = mood_of(claim), "Because:" if is_unprotected(claim) else "This rests on:"
    return tag(
        "article",
        tag("h3", claim.subject),
        tag("p", claim.guarantee, class_=f"sentence {mood}"),
        tag("p", privacy, class_="privacy") if privacy else "",
        tag("p", lead if assumptions else "No assumption is stated.", class_="why"),
        tag("ul", *assumptions) if assumptions else "",
        class_=f"card claim {mood}",
    )
