"""Identities: a party's key and self-signed certificate, known to the others by its fingerprint."""

import hashlib
import os
import re
import stat
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

from cryptography import x509
from cryptography.exceptions import InternalError, InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from tacit.errors import ConfigError, IdentityError

VALIDITY = timedelta(days=3653)
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}")
_FINGERPRINT = re.compile(r"sha256:[0-9a-f]{64}")
_LARGEST_FILE_BYTES = 65536


@dataclass(frozen=True)
class Identity:
    """A party's name, where its key lies, and the fingerprint that the others pin.

    The key itself is not held: it is read by whoever makes the connection.
    """

    name: str
    certificate_file: Path
    key_file: Path
    fingerprint: str


def make_identity(name: str, directory: Path) -> Identity:
    """Make an Ed25519 key and a self-signed certificate as ``name.key`` and ``name.crt``.

    Guarantee: the key comes from the operating system's entropy, its file can be read by its owner
    alone from the moment it exists, and no file that is there already is changed.
    Cost: 0 rounds, 0 bits.

    Raises:
        IdentityError: the name is not allowed, a file of that name exists, or it cannot be written.
    """
    certificate_file, key_file = _files(parse_name(name), directory)
    key = Ed25519PrivateKey.generate()
    certificate = _certify(name, key)
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if certificate_file.exists():
            raise FileExistsError(0, "", str(certificate_file))
        _write_new(key_file, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        _write_certificate(certificate_file, certificate, key_file)
    except FileExistsError as error:
        raise IdentityError(
            f"{error.filename} exists already and is never overwritten; to replace the identity "
            f"{name!r}: tacit keys {name} --renew; the others will have to pin the new fingerprint"
        ) from error
    except OSError as error:
        raise IdentityError(f"cannot write the identity {name!r}: {error}") from error
    seen = fingerprint(certificate.public_bytes(Encoding.DER))
    return Identity(name, certificate_file, key_file, seen)


def renew_identity(name: str, directory: Path) -> tuple[Identity, str, Path]:
    """Make a new key in place of an old one, which moves aside into ``old``.

    The old key is not destroyed: jobs that pin it can be finished, and what was sealed for it can
    be opened. It ends when nobody pins it any more.

    Guarantee: as `make_identity`; no file in ``old`` is written over, and the new key takes the
    place of the old one only when it is on the disk.
    Cost: 0 rounds, 0 bits.

    Returns:
        The new identity, the fingerprint that the others must give up, and where the old key is.

    Raises:
        IdentityError: there is no old one, it cannot be read, or the new one cannot be written.
    """
    certificate_file, key_file = _files(parse_name(name), directory)
    old = fingerprint(_read_certificate(certificate_file).public_bytes(Encoding.DER))
    _read(key_file)
    aside = directory / "old"
    try:
        aside.mkdir(mode=0o700, exist_ok=True)
        number = next(n for n in count(1) if not any(aside.glob(f"{name}.{n}.*")))
        with TemporaryDirectory(prefix=".new-", dir=directory) as made:
            new = make_identity(name, Path(made))
            for file in (certificate_file, key_file):
                file.rename(aside / f"{name}.{number}{file.suffix}")
            new.certificate_file.rename(certificate_file)
            new.key_file.rename(key_file)
    except OSError as error:
        raise IdentityError(f"cannot renew the identity {name!r}: {error}") from error
    moved = aside / f"{name}.{number}{key_file.suffix}"
    return Identity(name, certificate_file, key_file, new.fingerprint), old, moved


def load_identity(directory: Path, name: str) -> Identity:
    """Check a party's key and certificate, and return where they are.

    Guarantee: nobody but the owner (and root) could read the key file when it was checked, the key
    belongs to the certificate, and the certificate is valid today and signed by the key.
    Cost: 0 rounds, 0 bits.

    Raises:
        IdentityError: any of that does not hold, or a file is missing or broken.
    """
    certificate_file, key_file = _files(parse_name(name), directory)
    key = _read_key(key_file)
    certificate = _read_certificate(certificate_file)
    if certificate.public_key() != key.public_key():
        raise IdentityError(
            f"{key_file} is not the key of {certificate_file}; put back the file that belongs to "
            "the other, or make a new identity"
        )
    _check_certificate(certificate, certificate_file, name)
    seen = fingerprint(certificate.public_bytes(Encoding.DER))
    return Identity(name, certificate_file, key_file, seen)


def load_pinned(
    directory: Path, name: str, pinned: str | None, *, who: str = "the job", table: str = "parties"
) -> Identity:
    """Load a party's key, and make sure that it is the one that the others know.

    Args:
        directory: the folder with keys.
        name: whose key.
        pinned: its fingerprint, as the file says that all parties share.
        who: what that file is called.
        table: where it says so.

    Raises:
        ConfigError: it is another one.
        IdentityError: as `load_identity`.
    """
    identity = load_identity(directory, name)
    if identity.fingerprint != pinned:
        raise ConfigError(
            f"{who} knows {name!r} by the key {pinned}, but {identity.certificate_file} is "
            f"{identity.fingerprint}; use the right folder with --keys, or correct "
            f"{table}.{name}.key"
        )
    return identity


def sign(identity: Identity, message: bytes) -> tuple[bytes, bytes]:
    """Sign with a party's key; return the signature and the certificate to check it with (DER).

    Guarantee: without the key nobody makes a signature of a message that it did not sign, if
    Ed25519 is unforgeable. The message must say what it is for: a key serves several purposes.
    Cost: 0 rounds; 64 bytes and the certificate.
    """
    certificate = _read_certificate(identity.certificate_file)
    return _read_key(identity.key_file).sign(message), certificate.public_bytes(Encoding.DER)


def verify_signature(certificate_der: bytes, message: bytes, signature: bytes) -> bool:
    """Tell whether the key of a certificate has signed a message; False for whatever is broken."""
    try:
        key = x509.load_der_x509_certificate(certificate_der).public_key()
        if not isinstance(key, Ed25519PublicKey):
            return False
        key.verify(signature, message)
    except (ValueError, InvalidSignature, UnsupportedAlgorithm):
        return False
    return True


def fingerprint(certificate_der: bytes) -> str:
    """Compute the fingerprint by which a certificate is pinned.

    Guarantee: nobody finds a second certificate with the same fingerprint, if SHA-256 is collision
    resistant.
    Cost: 0 rounds, 0 bits.
    """
    return "sha256:" + hashlib.sha256(certificate_der).hexdigest()


def parse_fingerprint(text: str) -> str:
    """Check that a text is a fingerprint exactly as `fingerprint` writes it, and return it.

    Raises:
        IdentityError: it is anything else.
    """
    if not _FINGERPRINT.fullmatch(text):
        raise IdentityError(
            f"wanted a fingerprint, 'sha256:' and 64 lower-case hexadecimal digits, got {text!r}"
        )
    return text


def parse_name(text: str) -> str:
    """Check that a text can be the name of a party or a job, and return it.

    Raises:
        IdentityError: it is too long or has other characters: names become file names.
    """
    if not _NAME.fullmatch(text):
        raise IdentityError(
            "wanted a name of 1 to 32 characters out of a-z, 0-9, _ and -, starting with a letter "
            f"or a digit, got {text!r}"
        )
    return text


def _files(name: str, directory: Path) -> tuple[Path, Path]:
    return directory / f"{name}.crt", directory / f"{name}.key"


def _certify(name: str, key: Ed25519PrivateKey) -> x509.Certificate:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    # A day early: the clocks of two parties need not agree to the minute.
    start = datetime.now(UTC) - timedelta(days=1)
    usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(start + VALIDITY)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_SIGNS_ONLY, critical=True)
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        .sign(key, algorithm=None)
    )


_SIGNS_ONLY = x509.KeyUsage(
    digital_signature=True,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=False,
    crl_sign=False,
    encipher_only=False,
    decipher_only=False,
)


def _write_new(file: Path, content: bytes) -> None:
    """Write a file that only its owner can read, unless there is one or even a link."""
    with os.fdopen(os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())


def _write_certificate(file: Path, certificate: x509.Certificate, key_file: Path) -> None:
    try:
        _write_new(file, certificate.public_bytes(Encoding.PEM))
        file.chmod(0o644)
    except OSError:
        # The key was made a moment ago and nobody has pinned it: do not leave it without its pair.
        with suppress(OSError):
            key_file.unlink()
        raise


def _read_key(file: Path) -> Ed25519PrivateKey:
    pem, mode = _read(file)
    if stat.S_IMODE(mode) & 0o077:
        raise IdentityError(
            f"{file} can be used by others than its owner (mode {stat.S_IMODE(mode):04o}, wanted "
            f"0600); run chmod 600 on it, and if others may have read it make a new identity"
        )
    try:
        key = load_pem_private_key(pem, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm, InternalError) as error:
        raise IdentityError(f"{file} is not an unencrypted private key in PEM form") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise IdentityError(f"{file} holds a key of another kind than Ed25519; make a new identity")
    return key


def _read_certificate(file: Path) -> x509.Certificate:
    pem, _ = _read(file)
    try:
        certificate = x509.load_pem_x509_certificate(pem)
        certificate.public_key()
    except (ValueError, x509.InvalidVersion, UnsupportedAlgorithm, InternalError) as error:
        raise IdentityError(f"{file} is not a certificate in PEM form") from error
    return certificate


def _check_certificate(certificate: x509.Certificate, file: Path, name: str) -> None:
    try:
        certificate.verify_directly_issued_by(certificate)
    except (ValueError, TypeError, InvalidSignature) as error:
        raise IdentityError(f"{file} is not signed by its own key; make a new identity") from error
    start, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if not start <= datetime.now(UTC) <= end:
        raise IdentityError(
            f"{file} is valid from {start:%Y-%m-%d} to {end:%Y-%m-%d}, not today; check the clock, "
            "or make a new identity"
        )
    if certificate.subject != x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]):
        subject = certificate.subject.rfc4514_string()
        raise IdentityError(f"{file} was made for {subject!r}, wanted 'CN={name}'")


def _read(file: Path) -> tuple[bytes, int]:
    """Read a small file, with the mode that it had while it was read."""
    try:
        with file.open("rb") as stream:
            mode = os.fstat(stream.fileno()).st_mode
            content = stream.read(_LARGEST_FILE_BYTES)
    except FileNotFoundError as error:
        raise IdentityError(
            f"{file} does not exist; make an identity with: tacit keys {file.stem}"
        ) from error
    except OSError as error:
        raise IdentityError(f"cannot read {file}: {error.strerror}") from error
    return content, mode
