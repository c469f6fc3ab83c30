"""An observer of a run: what came to every party, beside what its ledger says it was told."""

from collections import Counter, defaultdict

from tacit import ring
from tacit.party import Session

SMALL = 1 << 24
"""A uniform word of 64 bits is below this with probability 2^-39; 256.0 with 16 bits is not."""
_LOOKED_AT = ("setup/", "serve/rows")
"""Tags of public numbers: of those `unsaid` asks whether they are in the ledger."""


class Tap:
    """A link that notes what comes in and what goes out."""

    def __init__(self, inner, came, sent):
        self._inner, self._came, self._sent = inner, came, sent
        self.peer = inner.peer

    def send(self, tag, frame, *, phase="online"):
        self._sent.append((self.peer, tag, frame))
        self._inner.send(tag, frame, phase=phase)

    def recv(self, tag):
        frame = self._inner.recv(tag)
        self._came.append((self.peer, tag, frame))
        return frame

    def close(self, *, failure=None):
        self._inner.close(failure=failure)


class Observer:
    """Notes all messages, by party; give `tap` to `run_threads` as its ``wrap``."""

    def __init__(self, monkeypatch):
        self.came, self.sent, self._told = (defaultdict(list) for _ in range(3))
        learn = Session.learn

        def noted(session, owner, fact, *, to=None):
            self._told[session.me].append((owner, fact))
            return learn(session, owner, fact, to=to)

        monkeypatch.setattr(Session, "learn", noted)

    def tap(self, me, link):
        return Tap(link, self.came[me], self.sent[me])

    def unsaid(self, me, ledger):
        """List what came to a party before it began that its ledger does not have."""
        known = {(one.to, one.what) for one in ledger}
        told = Counter((owner, f"setup/{fact.tag}") for owner, fact in self._told[me])
        agreed = {(to, tag, bytes(frame.data)) for to, tag, frame in self.sent[me]}
        found = []
        for peer, tag, frame in self.came[me]:
            is_agreed = (peer, tag, bytes(frame.data)) in agreed and frame.dtype == "u8"
            if not tag.startswith("setup/") or (frame.dtype == "u8" and _is_key(tag)) or is_agreed:
                continue
            told[peer, tag] -= 1
            if told[peer, tag] < 0:
                found.append(f"{tag} of {peer}: not noted when it came")
        for owner, fact in self._told[me]:
            leaks = fact.leaks(owner, (me,))
            if any((one.to, one.what) not in known for one in leaks):
                found.append(f"{fact.tag} of {owner}: not in the ledger")
            if not leaks and self._has_small(me, owner, fact):
                found.append(f"{fact.tag} of {owner}: no public coins")
        return found

    def _has_small(self, me, owner, fact):
        frames = (frame for peer, tag, frame in self.came[me] if tag == f"setup/{fact.tag}")
        return any(abs(word) < SMALL for frame in frames for word in values(frame))

    def plain(self, me):
        """Count the words that came to a party while it worked and are not uniform, by their tags.

        The last word of a message may be filled up with zeros; −1 marks places left empty.
        """
        found = Counter()
        for _, tag, frame in self.came[me]:
            if frame.dtype == "i64" and not tag.startswith(_LOOKED_AT):
                found[tag] += sum(abs(word) < SMALL and word != -1 for word in values(frame)[:-1])
        return +found


def _is_key(tag):
    return tag == "setup/seed" or tag.startswith("setup/key/")


def values(frame):
    return ring.from_bytes(frame.data, frame.dtype, frame.shape).flatten().tolist()
