from dataclasses import asdict

import pytest

from support.llm import ARCHITECTURES, LLAMA
from tacit.errors import ConfigError, FrameError
from tacit.llm import announce, hear
from tacit.llm.backend.protocol import ARCHITECTURE, read_architecture
from tacit.party import Meeting, run_threads

MEETING = Meeting(parties=("owner", "user", "dealer"), job_digest=bytes(32))


def run(tell):
    return run_threads(
        {
            "owner": tell,
            "user": lambda session: hear(session, "owner"),
            "dealer": lambda session: hear(session, "owner"),
        },
        MEETING,
    )


@pytest.mark.parametrize("architecture", ARCHITECTURES.values(), ids=ARCHITECTURES)
def test_everyone_hears_what_the_owner_announces(architecture):
    heard = run(lambda session: announce(session, architecture))
    assert heard["user"] == heard["dealer"] == architecture


def test_an_endless_announcement_is_refused():
    with pytest.raises(FrameError, match=r"party 'owner' failed: announces .* of 5000000 bytes"):
        run(lambda session: session.publish(ARCHITECTURE, (5_000_000,)))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"layers": "2"}, "layers cannot be '2'"),
        ({"layers": True}, "layers cannot be True"),
        ({"layers": -1}, "layers from 1 to 4096, got -1"),
        ({"norm": "batch"}, "norm cannot be 'batch'"),
        ({"extra": 1}, "wanted the keys"),
    ],
)
def test_what_is_no_architecture_is_refused(change, words):
    with pytest.raises(ConfigError, match=words):
        read_architecture({**asdict(LLAMA), **change})
