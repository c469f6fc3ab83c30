"""Keys and secrets that a node's own config names: of another kind, or not there."""

import inspect
from types import SimpleNamespace

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

pytest.importorskip("flwr")

from tacit.errors import IdentityError, PartyError
from tacit.federated import apps, node


def context(tmp_path, name, made):
    file = tmp_path / "key"
    if made is not None:
        pem = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
        file.write_bytes(made.private_bytes(*pem, serialization.NoEncryption()))
    return SimpleNamespace(node_config={name: str(file)})


def test_a_signing_key_of_another_kind_is_refused_before_anything_is_signed(tmp_path):
    with pytest.raises(IdentityError, match="another kind than Ed25519"):
        apps._signing_key(context(tmp_path, "signing", X25519PrivateKey.generate()))


def test_a_helper_s_key_of_another_kind_is_refused(tmp_path):
    with pytest.raises(IdentityError, match="shuffler key is of another kind than X25519"):
        apps._helper_key(context(tmp_path, "shuffler", Ed25519PrivateKey.generate()), "shuffler")


def test_a_key_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(IdentityError, match="cannot be read as a private key"):
        apps._signing_key(context(tmp_path, "signing", None))
    (tmp_path / "key").write_text("no key")
    with pytest.raises(IdentityError, match="cannot be read as a private key"):
        apps._signing_key(context(tmp_path, "signing", None))


def test_a_secret_that_cannot_be_read_is_named_and_not_an_empty_one(tmp_path):
    with pytest.raises(IdentityError, match="cannot be read as a client's secret"):
        apps._secret(context(tmp_path, "secret", None))


@pytest.mark.parametrize("value", ["1", 1.0, None])
def test_a_number_of_a_message_is_a_whole_one(value):
    with pytest.raises(PartyError, match="wanted a whole number"):
        node.to_int(value)


def test_a_node_helps_no_aggregator_that_has_no_helper():
    spec = SimpleNamespace(federated=SimpleNamespace(aggregator="masked"))
    with pytest.raises(PartyError, match="aggregator 'masked' has no helper"):
        node.help_round(spec, *[None] * (len(inspect.signature(node.help_round).parameters) - 1))
