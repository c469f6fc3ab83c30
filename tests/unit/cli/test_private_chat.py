"""What the user's side says while it waits, and what all three parties must choose alike."""

from types import SimpleNamespace

import pytest

from private_llm import MEETING
from tacit.cli.chat_job import ChatHead
from tacit.cli.chat_protocol import ChatProtocol
from tacit.cli.private_chat import _waiting
from tacit.errors import ConfigError, DisagreementError
from tacit.llm import Sampling
from tacit.llm.private import BRIEF, Precision
from tacit.party import run_threads


class Notes(list):
    def tell(self, party, text):
        self.append(text)


def test_a_slow_dealer_is_told_of_at_growing_intervals_and_every_time():
    notes = Notes()
    wait = _waiting(notes, "the dealer")
    for seconds in (1, 4, 6, 7, 31, 1, 6):  # the last two are another wait
        wait(seconds)
    assert [note.removeprefix("has waited for the dealer for more than ") for note in notes] == [
        "5 s",
        "30 s",
        "5 s",
    ]


def agreeing(*protocols):
    programs = zip(("owner", "user", "dealer"), protocols, strict=True)
    return run_threads({name: protocol.agree for name, protocol in programs}, MEETING)


def test_three_that_chose_alike_begin():
    agreeing(*[ChatProtocol(name="sealed")] * 3)


@pytest.mark.parametrize(
    "other",
    [
        {"name": "permuted"},
        {"name": "sealed", "reveal": "scores"},
        {"name": "floating", "noise": 50.0},
    ],
)
def test_three_that_chose_otherwise_do_not(other):
    chosen = ChatProtocol(name="sealed")
    with pytest.raises(DisagreementError, match="another --protocol, --reveal, --noise or"):
        agreeing(chosen, ChatProtocol(**other), chosen)


def test_an_owner_can_refuse_to_show_counts():
    quiet = ChatProtocol(counts=False)
    agreeing(quiet, quiet, quiet)
    with pytest.raises(DisagreementError, match="--no-counts"):
        agreeing(quiet, ChatProtocol(), quiet)
    assert quiet.arguments("owner")[-1] == "--no-counts"
    quiet.check(Sampling(temperature=0.5))
    with pytest.raises(ConfigError, match="--no-counts offers no repetition penalty"):
        quiet.check(Sampling(repetition_penalty=1.2))


def test_options_survive_the_way_to_a_child():
    protocol = ChatProtocol(name="floating", noise=64.0)
    assert protocol.arguments("dealer")[:2] == ["--protocol", "floating"]
    assert protocol.arguments("dealer")[-2:] == ["--noise", "64.0"]
    assert protocol.ratio == 64.0


def job(precision):
    return SimpleNamespace(chat=ChatHead(precision=precision))


def test_the_owner_chooses_the_precision_by_option_or_else_by_its_files():
    assert ChatProtocol().bits([job("fitted")]) is None
    assert ChatProtocol().bits([job("brief"), job("brief")]) == BRIEF
    assert ChatProtocol(precision="wide").bits([job("fitted"), job("brief")]) == Precision()
    with pytest.raises(ConfigError, match=r"must be the same in all files .* brief, fitted"):
        ChatProtocol().bits([job("fitted"), job("brief")])


def test_only_the_owner_is_given_a_precision():
    chosen = ChatProtocol(precision="brief")
    assert chosen.arguments("owner")[-2:] == ["--precision", "brief"]
    assert "--precision" not in chosen.arguments("dealer")
    with pytest.raises(ConfigError, match="--precision belongs to --protocol permuted"):
        ChatProtocol(name="sealed", precision="brief")


def test_only_a_chat_without_any_guarantee_warns_before_it_begins():
    assert ChatProtocol().warning is None
    assert ChatProtocol(name="sealed").warning is None
    assert "no guarantee" in ChatProtocol(name="floating").warning


def test_settings_of_another_protocol_are_refused():
    with pytest.raises(ConfigError, match="--protocol sealed"):
        ChatProtocol(reveal="scores")
    with pytest.raises(ConfigError, match="--protocol floating"):
        ChatProtocol(name="sealed", noise=3.0)
    with pytest.raises(ConfigError, match="--protocol permuted"):
        ChatProtocol(name="sealed", counts=False)
