"""Keys for transport tests."""

import datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519
from cryptography.x509.oid import NameOID

from tacit.transport import Credentials


@pytest.fixture(scope="session")
def make_credentials(tmp_path_factory):
    """Return a function that makes a key and a self-signed certificate."""

    def make(name: str, *, days: int = 1) -> Credentials:
        folder = tmp_path_factory.mktemp(name)
        key = ed25519.Ed25519PrivateKey.generate()
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        now = datetime.datetime.now(datetime.UTC)
        certificate = (
            x509.CertificateBuilder(subject, subject, key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=30))
            .not_valid_after(now + datetime.timedelta(days=days))
            .sign(key, None)
        )
        pem = serialization.Encoding.PEM
        made = Credentials(folder / "certificate.pem", folder / "key.pem")
        made.certificate_file.write_bytes(certificate.public_bytes(pem))
        made.key_file.write_bytes(
            key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        )
        return made

    return make


@pytest.fixture(scope="session")
def keys(make_credentials):
    """Return keys by party name, made once per session."""
    return {name: make_credentials(name) for name in ("ann", "bob", "cat")}
