import pytest

from tacit.crypto import make_identity
from tacit.errors import ConfigError
from tacit.llm.backend.chat_file import ChatParty, load_chat, write_chat


@pytest.fixture
def entries(tmp_path):
    return {
        name: ChatParty(
            address=f"127.0.0.1:{4000 + i}", key=make_identity(name, tmp_path).fingerprint
        )
        for i, name in enumerate(("owner", "user", "dealer"))
    }


def test_what_is_written_is_read(tmp_path, entries):
    write_chat(tmp_path / "chat.toml", entries)
    job = load_chat(tmp_path / "chat.toml")
    assert job.parties == entries
    assert job.own_address("dealer") == ("127.0.0.1", 4002)
    assert set(job.peers("user")) == {"owner", "dealer"}


def test_addresses_may_differ_between_the_parties_but_keys_may_not(tmp_path, entries):
    write_chat(tmp_path / "a.toml", entries)
    moved = {**entries, "owner": ChatParty(address="10.0.0.1:1", key=entries["owner"].key)}
    write_chat(tmp_path / "b.toml", moved)
    swapped = {
        **entries,
        "owner": ChatParty(address="10.0.0.1:1", key=entries["user"].key),
        "user": ChatParty(address="10.0.0.2:1", key=entries["owner"].key),
    }
    write_chat(tmp_path / "c.toml", swapped)
    digests = [load_chat(tmp_path / f"{name}.toml").digest() for name in "abc"]
    assert digests[0] == digests[1] != digests[2]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "parties: missing"),
        ("[parties.owner]\n[parties.user]\n", "wanted owner, user, dealer, got owner, user"),
        ("[parties.owner]\n[parties.user]\n[parties.dealer]\n", r"parties\.user\.key: missing"),
        ("[chat]\nname = 'a b'\n", "chat.name"),
        ("[party.owner]\n", "party: unknown key"),
    ],
    ids=["no parties", "two parties", "no keys", "a name", "an unknown key"],
)
def test_a_wrong_file_is_refused_with_its_keys(tmp_path, text, words):
    path = tmp_path / "chat.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=words):
        load_chat(path)
