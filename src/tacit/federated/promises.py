"""What every aggregator promises about single updates, and against whom: first who may do what."""

from tacit.federated.spec import FederatedSpec
from tacit.result import Claim

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


def promises(spec: FederatedSpec) -> tuple[Claim, ...]:
    """Return the claims about single updates and about the sum; none where there are none."""
    found = list[Claim]()
    if spec.aggregator == "encrypted":
        found.append(_encrypted(spec))
    if spec.aggregator == "keyed":
        found.append(_keyed(spec))
    if spec.aggregator == "bounded":
        found += _bounded(spec)
    if spec.verified:
        found.append(_verified(spec))
    return tuple(found)


def _encrypted(spec: FederatedSpec) -> Claim:
    if spec.threshold is None:
        who = (
            "semi-honest: every party follows the protocol, and no client works with the server: "
            "all clients share one key, so that one that does opens everybody's updates"
        )
    else:
        who = (
            "semi-honest: every party follows the protocol; the server may work with up to "
            f"{spec.threshold - 1} of the {spec.clients} clients, as {spec.threshold} decrypt "
            "together"
        )
    hard = (
        "ring-LWE is hard at 128 bits (BFV)"
        if spec.cipher == "bfv"
        else "deciding composite residues is hard at 3072 bits (Paillier)"
    )
    made = "whoever made the keys was not the server, and forgot them"
    return Claim(subject=_SUBJECT, guarantee=_HIDDEN, assumptions=(who, made, hard, LAST, _RANGE))


def _keyed(spec: FederatedSpec) -> Claim:
    is_chosen = spec.server == "malicious"
    whose = f"the {len(spec.keys or ())} clients named" if is_chosen else "the clients of a round"
    others = (
        f"at most {spec.colluding_share:.0%} of {whose} work with the server, and the authority "
        "does not"
    )
    if is_chosen:
        who = f"malicious: the server may do anything, the authority follows the protocol; {others}"
    else:
        who = f"semi-honest: every party follows the protocol; {others}"
    named = (
        "the job names the clients' keys, and they are theirs"
        if spec.keys is not None
        else "the server invents no clients: the job does not name their keys"
    )
    pinned = (
        "the authority's key is the one that the job pins"
        if spec.authority is not None
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
