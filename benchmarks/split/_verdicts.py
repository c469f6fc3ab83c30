"""What a table of attacked split models says of the goals."""

from split._pool import Item, summarise

OURS = ("potential-energy", "plane-energy", "energy+correlation")
KEYS = ("accuracy", "fine_tune", "fine_tune_averaged", "fine_tune_before", "k_means")
BASE = "base line"


def report(rows: list[Item]) -> Item:
    """Return the summary of all rows and what it says of the goals."""
    table = summarise(rows, KEYS, ("task", "name", "strength"))
    return {"summary": table, "verdicts": _verdicts(table)}


def _verdicts(table: list[Item]) -> list[str]:
    found = []
    for task in dict.fromkeys(one["task"] for one in table):
        mine = [one for one in table if one["task"] == task]
        place = {(one["name"], one["strength"]): one for one in mine}
        if (BASE, 0.0) not in place or ("none", 0.0) not in place:
            continue  # stopped before both were there
        base, plain = place[BASE, 0.0], place["none", 0.0]
        good = [
            one
            for one in mine
            if one["name"] in OURS
            and one["fine_tune"] <= base["fine_tune"]
            and one["accuracy"] >= plain["accuracy"] - 0.015
        ]
        found.append(
            f"{task}: at or below the base line within 1.5 points: "
            f"{[(one['name'], one['strength']) for one in good] or 'NEVER'}"
        )
        below = [(one["name"], one["strength"]) for one in good if one["k_means"] < base["k_means"]]
        found.append(f"{task}: and k-means below that of the raw inputs: {below or 'NEVER'}")
        still = [
            (one["name"], one["strength"])
            for one in good
            if one.get("fine_tune_averaged", 0.0) <= base["fine_tune"]
        ]
        found.append(f"{task}: and also if the attacker averages quarters: {still or 'NEVER'}")
        for other in ("distance-correlation", "label-dp"):
            above = _beaten(mine, other)
            found.append(
                f"{task}: frontier above {other} at {above[0]} of {above[1]} of its points"
            )
    return found


def _beaten(rows: list[Item], other: str) -> tuple[int, int]:
    """Count the other defence's points that one of ours beats in both, or equals in one."""
    ours = [one for one in rows if one["name"] in OURS]
    theirs = [one for one in rows if one["name"] == other]
    beaten = sum(
        any(a["accuracy"] >= b["accuracy"] and a["fine_tune"] <= b["fine_tune"] for a in ours)
        for b in theirs
    )
    return beaten, len(theirs)
