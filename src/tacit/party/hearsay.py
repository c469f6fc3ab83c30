"""What a party may believe that hears of a failure from another.

Of cheating, that one of the two cheats: whoever cheats can accuse as well as whoever was cheated,
so an accusation names two parties, the accused and the accuser. Only the one that has checked tags
itself knows which. Of its own silence, that what it sent did not arrive.
"""

from tacit.errors import CheatingError, PartyError

CHEATED = "cheated: "
"""How the reason begins that a party gives when it has caught another."""
OR_OWNER = " or an owner"
"""Follows the name of the other party where somebody who brings an input may have done it."""


def as_heard(error: PartyError, me: str, pair: tuple[str, str]) -> PartyError:
    """Say what is known after an accusation between two computing parties."""
    first, second = pair
    is_heard = type(error) is PartyError and error.reason.startswith(CHEATED)
    if is_heard and error.party in (f"{first}{OR_OWNER}", f"{second}{OR_OWNER}"):
        others = ", ".join(one for one in pair if one != me)
        return CheatingError(f"{others}{OR_OWNER}", error.reason)
    if is_heard and error.party not in pair and " or " not in error.party:
        others = " or ".join(one for one in (*pair, error.party) if one != me)
        return CheatingError(others, f"{error.party!r} is said to have {error.reason}")
    if not is_heard or error.party not in pair:
        return error
    accuser = error.said_by or (second if error.party == first else first)
    if me == error.party:
        return CheatingError(
            accuser, f"{CHEATED}it accuses this party, which follows the protocol; no result"
        )
    return CheatingError(
        f"{first} or {second}" if accuser in pair else f"{error.party} or {accuser}",
        f"{accuser!r} says that {error.party!r} {error.reason}. One of the two cheats, and this "
        "party cannot know which",
    )


def about_me(error: PartyError, me: str) -> PartyError:
    """Say what is known after another has said that I failed: who says so, and that I run.

    Who runs did not go away: what it sent has not arrived, or it stood still for a while.
    """
    if error.party != me or error.said_by is None:
        return error
    return PartyError(
        error.said_by,
        f"says that {me!r} failed ({error.reason}), while {me!r} runs; if it was not heard, see "
        "whether it stood still, or whether the link between the two carries everything, both ways",
    )
