"""What a run does, noted where every run passes: at its links, sessions, aggregators, accountants.

Nothing here knows how a job is described or where a room lies, so that it sees the same of a job,
of a call from Python and of an example.
"""

import functools
import json
import re
import sys
from collections import defaultdict
from contextlib import ExitStack
from dataclasses import replace
from unittest.mock import patch

from golden.product import AGGREGATORS, LINK, Accountant, Session, event_to_record
from golden.words import leak_lines, rounded, rounds_table, traffic_lines

HELPER = -1


class Watch:
    """While it is open, notes messages, ledgers, costs and what accountants were asked."""

    def __init__(self):
        self._sent = defaultdict(lambda: defaultdict(list))
        self._ended = defaultdict(list)
        self._asked = {}
        self._stack = ExitStack()

    def __enter__(self):
        forget_searches()
        stamp, finish, epsilon = LINK.stamp, Session.finish, Accountant.epsilon

        def noted(link, tag, frame, phase):
            packet = stamp(link, tag, frame, phase)
            channel, _, label = tag.partition("/")
            shape = "×".join(map(str, frame.shape))
            # Each channel has an order; between channels threads take turns as they like.
            self._sent[f"{link._meter.me} → {link.peer}"][channel].append(
                (label, f"{phase} {frame.dtype}[{shape}]")
            )
            return packet

        def ended(session):
            finish(session)
            self._ended[session.me].append((session.ledger.entries(), session.cost()))

        def asked(known, events, *, delta):
            events = tuple(events)
            found = epsilon(known, events, delta=delta)
            self._asked[known.name, delta, found] = events
            return found

        self._stack.enter_context(patch.object(LINK, "stamp", noted))
        self._stack.enter_context(patch.object(Session, "finish", ended))
        self._stack.enter_context(patch.object(Accountant, "epsilon", asked))
        tapped = {name: self._tapped(one) for name, one in AGGREGATORS.items()}
        self._stack.enter_context(patch.dict(AGGREGATORS, tapped))
        return self

    def __exit__(self, *raised):
        return self._stack.__exit__(*raised)

    def seen(self, *, rounds=True):
        """Return what was noted, as plain tables; without rounds, where they follow the clock."""
        messages = {
            link: {name: fold(one) for name, one in sorted(channels.items())}
            for link, channels in sorted(self._sent.items())
        }
        return {
            "messages": together(messages),
            "sessions": {
                me: [
                    {
                        "ledger": leak_lines(leaks),
                        "metered": traffic_lines(cost, sender=me),
                        **(rounds_table(cost) if rounds else {}),
                    }
                    for leaks, cost in ended
                ]
                for me, ended in sorted(self._ended.items())
            },
        }

    def events_of(self, claims):
        """Return, for each ε that is promised, the events that an accountant got it from."""
        found = {}
        for claim in claims:
            if claim.epsilon is None:
                continue
            # A claim may state another δ than its accountant was given, where events need none.
            events = [
                events
                for (name, _, spent), events in self._asked.items()
                if (name, spent) == (claim.accountant, claim.epsilon)
            ]
            told = counted(events[0]) if events else "of no accountant"
            found[claim.subject, rounded(claim.epsilon)] = told
        return [{"of": of, "epsilon": spent, "events": told} for (of, spent), told in found.items()]

    def _tapped(self, known):
        """Return an aggregator whose messages are noted: federated rounds have no links here."""

        def make_server(config, prg):
            return _Server(known.make_server(config, prg), self._sent)

        return replace(known, make_server=make_server)


class _Server:
    """The server's side of a round, which all messages pass."""

    def __init__(self, inner, sent):
        self._inner, self._sent = inner, sent

    def invite(self):
        return self._out(self._inner.invite())

    def accept(self, index, message):
        self._sent[f"{_name(index)} → server"]["round"].append(("message", f"{len(message)} bytes"))
        self._inner.accept(index, message)

    def close(self):
        return self._out(self._inner.close())

    def __getattr__(self, name):
        return getattr(self._inner, name)

    def _out(self, messages):
        for index, message in messages.items():
            self._sent[f"server → {_name(index)}"]["round"].append(
                ("message", f"{len(message)} bytes")
            )
        return messages


def _name(index):
    return "helper" if index == HELPER else f"client {index}"


def together(messages):
    """Write links of clients that carry the same once, with the clients' numbers."""
    found = defaultdict(list)
    for link, said in messages.items():
        found[re.sub(r"client \d+", "client *", link), json.dumps(said)].append(link)
    told = {}
    for (name, _), links in found.items():
        numbers = sorted(int(number) for link in links for number in re.findall(r"\d+", link))
        told[name.replace("client *", f"client {spans(numbers)}")] = messages[links[0]]
    return told


def spans(numbers):
    """Write ascending numbers, those that follow each other as first–last."""
    runs = []
    for one in numbers:
        if runs and runs[-1][1] == one - 1:
            runs[-1][1] = one
        else:
            runs.append([one, one])
    return ", ".join(f"{first}–{last}" if last > first else f"{first}" for first, last in runs)


def fold(messages):
    """Write the messages of a channel in their order; a run like another is named alone."""
    blocks, lines, known = [], [], {}
    for label, text in messages:
        head, _, rest = label.partition(".")
        if not blocks or blocks[-1][0] != head or not rest:
            blocks.append((head, []))
        blocks[-1][1].append(f"{rest} {text}".strip())
    at = 0
    while at < len(blocks):
        head, said = blocks[at]
        end = at
        while end < len(blocks) and blocks[end][1] == said and _goes_on(head, blocks[end][0]):
            end += 1
        last = blocks[end - 1][0]
        name = head if last == head else f"{head} … {last}"
        name += f" ({end - at} times)" if end - at > 1 else ""
        if tuple(said) in known and len(said) > 1:
            lines.append(f"{name}: as {known[tuple(said)]}")
        else:
            known[tuple(said)] = head
            lines += [f"{name}: {one}".removeprefix(": ") for one in said]
        at = end
    return lines


def _goes_on(head, later):
    return head == later or (head.isdigit() and later.isdigit())


def counted(events):
    """Write events in their order, like ones that follow each other once with their count."""
    found = []
    for event in events:
        record = rounded(event_to_record(event))
        if found and found[-1]["event"] == record:
            found[-1]["times"] += 1
        else:
            found.append({"times": 1, "event": record})
    return found


def forget_searches():
    """Empty what is remembered of earlier searches for noise: accountants are asked again."""
    for name, module in list(sys.modules.items()):
        if not name.startswith("tacit."):
            continue
        for one in list(vars(module).values()):
            # Without a limit it is what was compiled, which is dear and says nothing of noise.
            if isinstance(one, functools._lru_cache_wrapper) and one.cache_parameters()["maxsize"]:
                one.cache_clear()
