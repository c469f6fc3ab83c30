"""What a matching of ids promises."""

from collections.abc import Mapping

from tacit.result import Claim


def claims_of_matching(matched: Mapping[str, int]) -> tuple[Claim, ...]:
    """Return what a matching promises, by how many ids every owner had; nothing if none did."""
    if not matched:
        return ()
    return (
        Claim(
            subject="ids that not all parties have, towards the other parties",
            guarantee="hidden, but for how many there are"
            + (
                "; each learns which of its own ids every single other party has, and how many "
                "ids others have in common"
                if len(matched) > 2
                else ""
            ),
            assumptions=(
                "the parties follow the protocol; ids that one only guesses can be tried by "
                "putting them into its file",
                "Diffie–Hellman is hard on Curve25519; SHA-256 behaves like a random function",
            ),
        ),
    )
