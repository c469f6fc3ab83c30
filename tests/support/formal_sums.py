"""What somebody can compute from all that it is sent, with inputs and masks as formal variables.

A row is what was sent: a whole-number combination of inputs and masks that nobody else knows. Those
combinations of rows in which all masks cancel are what its receiver reads. `Masked` is a round of
secure aggregation between the product's own clients and a server that shows each of them what it
likes: `tacit` alone decides which masks are put on, which shares are given up, and what recovers.
"""

from collections import Counter
from contextlib import contextmanager
from copy import copy
from functools import cache
from struct import pack as to_bytes
from unittest.mock import patch

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tacit.crypto import ShamirShare, recover_bytes, unseal
from tacit.errors import PartyError
from tacit.federated.contract import pack
from tacit.federated.secagg import SecAggClient, client, messages
from tacit.federated.secagg.messages import (
    ATTESTED,
    COMMIT_BYTES,
    DELIVERY,
    PAIR,
    PARCEL_BYTES,
    ROSTER,
    SELF,
    SHARE_BYTES,
    SURVIVORS,
    TAG_BYTES,
    attest_text,
    key_pair_of,
    pair_key,
    read_roster,
    seal_context,
    self_key,
    to_bitmap,
)
from tacit.ring import Prg

MODULI = (2, 2**31 - 1)  # words are added modulo 2^32: what holds modulo 2 may differ from the rest
HEAD = 9  # bytes before the first field of a message, with its length


def sums(rows, names):
    """Return the sets of names whose sums can be read, or "more than sums"."""
    found = set()
    for modulus in MODULI:
        for line in readable(rows, [("input", name) for name in names], modulus):
            some = frozenset(name for name, c in zip(names, line, strict=True) if c)
            found.add(some if set(line) <= {0, 1} else "more than sums")
    return found


def readable(rows, inputs, modulus):
    """Return a basis, in echelon form, of what the rows say about the inputs alone.

    Args:
        rows: each a dictionary of variables with their coefficients; all but inputs are masks.
        inputs: in the order of the columns of the answer.
        modulus: a prime.
    """
    masks = sorted({name for row in rows for name in row} - set(inputs), key=repr)
    at = {name: column for column, name in enumerate([*masks, *inputs])}
    matrix = np.zeros((len(rows), len(at)), np.int64)
    for line, row in zip(matrix, rows, strict=True):
        for name, coefficient in row.items():
            line[at[name]] = coefficient % modulus
    bare = _reduce(matrix, modulus, len(masks))
    found = _reduce(bare[:, len(masks) :], modulus, len(inputs), rest=False)
    return [tuple(line) for line in found.tolist()]


def _reduce(matrix, modulus, columns, *, rest=True):
    """Eliminate the first columns; return the rows without one of them, or those with one."""
    matrix, pivots = matrix.copy(), []
    for number in range(len(matrix)):
        filled = np.flatnonzero(matrix[number, :columns])
        if not filled.size:
            continue
        line = matrix[number] * pow(int(matrix[number, filled[0]]), -1, modulus) % modulus
        factors = matrix[:, filled[0]].copy()
        factors[number] = 0
        matrix = (matrix - factors[:, None] * line) % modulus
        matrix[number] = line
        pivots.append(number)
    kept = [number for number in range(len(matrix)) if (number in pivots) != rest]
    return matrix[kept]


@contextmanager
def quick():
    """Agree on every key once: the same clients go through a round in many ways."""
    known = {}

    def agree_once(mine, theirs):
        if (mine.public, theirs) not in known:
            known[mine.public, theirs] = agree(mine, theirs)
        return known[mine.public, theirs]

    agree = messages.agree
    with patch.object(messages, "agree", agree_once):
        yield


class Masked:
    """Honest clients of one round, others that tell the server all they know, and that server.

    Args:
        plan: of the round.
        colluding: at which places of the ring of all clients they stand that do.
    """

    def __init__(self, plan, colluding=()):
        self.plan = plan
        signing = [Ed25519PrivateKey.generate() for _ in range(plan.clients)]
        known = frozenset(one.public_key().public_bytes_raw() for one in signing)
        prg = Prg.from_os()
        self.first = [
            SecAggClient(plan, i, signing=key, prg=prg, known=known)
            for i, key in enumerate(signing)
        ]
        self.adverts = [one.advertise()[HEAD:] for one in self.first]
        self.roster = cache(self.roster)
        self.shared = cache(self.shared)
        self.masked = cache(self.masked)
        self.opened = cache(self.opened)
        self.keys_behind = cache(self.keys_behind)
        self.everybody = frozenset(range(plan.clients))
        self.ring = self.roster(self.everybody).ring
        self.colluding = frozenset(self.ring[place] for place in colluding)
        self.honest = sorted(self.everybody - self.colluding)

    def roster(self, listed):
        """Read the list of some clients as every client does."""
        return read_roster(self.plan, b"".join(self.adverts[i] for i in sorted(listed)))

    def shared(self, index, listed):
        """Let a client share its secrets among those of a list: (client, parcel for each)."""
        one = copy(self.first[index])
        one._shares = {}
        body = one.share(pack(ROSTER, self.roster(listed).body))[HEAD + COMMIT_BYTES + 4 :]
        roster = one._roster
        around = [roster.adverts[at].index for at in roster.holders(roster.position[index])]
        parcels = [body[at : at + PARCEL_BYTES] for at in range(0, len(body), PARCEL_BYTES)]
        return one, dict(zip(around, parcels, strict=True))

    def masked(self, index, listed, senders):
        """Let a client mask its input with those whose parcels it gets: (client, row), or None.

        The senders come with the list that each of them was shown.
        """
        one, seen = self._fork(self.shared(index, listed)[0]), []
        parcels = []
        for owner, shown in sorted(senders, key=lambda one: one[0]):
            parcel = self.shared(owner, shown)[1].get(index)
            if parcel is not None:
                parcels.append(to_bytes("<I", owner) + parcel)

        def record(words, *, plus, minus):
            seen.append(Counter(plus))
            seen[0].subtract(minus)

        with patch.object(client, "add_masks", record):
            try:
                one.mask(pack(DELIVERY, b"".join(parcels)), np.zeros(self.plan.length, np.uint32))
            except PartyError:
                return None
        return one, {("input", index): 1, **seen[0]}

    def around(self, index, listed):
        """List who holds shares of a client, itself among them."""
        roster = self.roster(listed)
        return {roster.adverts[at].index for at in roster.holders(roster.position[index])}

    def rows(self, views):
        """Run the round and return all that the server and its friends can compute with.

        Args:
            views: of each honest client that is listed, what the server shows it: (who is listed,
                whose parcels it gets, who is said to have stayed).
        """
        views = {index: view for index, view in views.items() if self._takes(index, view[0])}
        self.lists = {index: view[0] for index, view in views.items()}
        went_on = {}
        for index, (listed, present, _) in views.items():
            senders = self.around(index, listed) & present - {index}
            lists = frozenset((owner, self.lists.get(owner, listed)) for owner in senders)
            found = self.masked(index, listed, lists)
            if found is not None:
                went_on[index] = found
        vouched = {}
        for index, (one, _) in went_on.items():
            stayed, roster = self._fork(one), self.roster(views[index][0])
            alive = [roster.position[i] for i in views[index][2] if i in roster.position]
            try:
                tags = stayed.attest(pack(SURVIVORS, to_bitmap(alive, len(roster.adverts))))[HEAD:]
            except PartyError:
                continue
            others = [roster.adverts[at].index for at in roster.holders(roster.position[index])[1:]]
            made = (tags[at : at + TAG_BYTES] for at in range(0, len(tags), TAG_BYTES))
            vouched[index] = stayed, dict(zip(others, made, strict=True))
        shares = self._friends_shares(views)
        for index, (one, _) in vouched.items():
            try:
                said = one.unmask(pack(ATTESTED, self._tags_for(one, vouched)))[HEAD:]
            except PartyError:
                continue
            alive = views[index][2]
            for at in range(0, len(said), 4 + SHARE_BYTES):
                owner = int.from_bytes(said[at : at + 4], "little")
                which = SELF if owner in alive else PAIR
                shares.setdefault((owner, which), {})[index] = said[at + 4 : at + 4 + SHARE_BYTES]
        known = self._known_keys(shares)
        return [
            {name: sign for name, sign in row.items() if name not in known}
            for _, row in went_on.values()
        ]

    def read(self, views):
        """Return the sets of honest clients whose sums the server reads; see `sums`."""
        return sums(self.rows(views), self.honest)

    def same(self, listed, present, alive):
        """Show everybody the same: what a server does that follows the protocol."""
        view = frozenset(listed), frozenset(present), frozenset(alive)
        return dict.fromkeys(sorted(view[0] - self.colluding), view)

    def _takes(self, index, listed):
        try:
            return index in listed and self.shared(index, listed) is not None
        except PartyError:
            return False

    def _fork(self, one):
        other = copy(one)
        other._shares = dict(one._shares)
        return other

    def _tags_for(self, one, vouched):
        text, given = attest_text(one._roster, one._survivors), []
        mine = one._roster.position[one._index]
        for at in one._roster.holders(mine)[1:]:
            sender = one._roster.adverts[at].index
            if sender in self.colluding:
                tag = self.first[sender]._tag(one._roster.adverts[mine], text)
            else:
                tag = vouched[sender][1].get(one._index) if sender in vouched else None
            if tag is not None:
                given.append(to_bytes("<I", sender) + tag)
        return b"".join(given)

    def _friends_shares(self, views):
        """Open all parcels that were sealed to colluding clients, asked for or not."""
        found = {}
        for owner, (listed, _, _) in views.items():
            for holder in self.around(owner, listed) & self.colluding:
                both = self.opened(owner, listed, holder)
                for which in (SELF, PAIR):
                    share = both[which * SHARE_BYTES : (which + 1) * SHARE_BYTES]
                    found.setdefault((owner, which), {})[holder] = share
        return found

    def opened(self, owner, listed, holder):
        """Open a parcel as its holder does."""
        sealed = self.shared(owner, listed)[1][holder][2 * COMMIT_BYTES :]
        advert = self.roster(listed).adverts[self.roster(listed).position[owner]]
        key = self.first[holder]._keys_with(advert)[0]
        return unseal(key, sealed, associated=seal_context(self.plan.session, owner, holder))

    def _known_keys(self, shares):
        threshold, found = self.plan.neighbourhood.threshold, set()
        for index in self.colluding:
            for which in (SELF, PAIR):
                found |= self.keys_behind(index, which, self.first[index]._seeds[which])
        for (owner, which), given in shares.items():
            roster = self.roster(self.lists[owner]) if owner in self.lists else None
            if roster is None or len(given) < threshold:
                continue
            places = [roster.adverts[at].index for at in roster.holders(roster.position[owner])]
            points = [
                ShamirShare(places.index(holder) + 1, threshold, np.frombuffer(share, "<u8"))
                for holder, share in given.items()
            ]
            found |= self.keys_behind(owner, which, recover_bytes(points[:threshold]))
        return found

    def keys_behind(self, index, which, seed):
        """Derive the keys of all masks that follow from a seed."""
        session = self.plan.session
        if which == SELF:
            return frozenset([self_key(seed, session)])
        pairs = key_pair_of(seed, session, b"mask")
        return frozenset(
            pair_key(pairs, other._masking.public, session, between=(index, other._index))
            for other in self.first
            if other._index != index
        )
