import hashlib
import os
import ssl
import stat
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from tacit.crypto import (
    Identity,
    fingerprint,
    load_identity,
    make_identity,
    parse_fingerprint,
    renew_identity,
)
from tacit.errors import IdentityError


def der(identity: Identity) -> bytes:
    return ssl.PEM_cert_to_DER_cert(identity.certificate_file.read_text())


def write_certificate(identity: Identity, *, name: str, start: datetime, end: datetime) -> None:
    key = load_pem_private_key(identity.key_file.read_bytes(), None)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    builder = x509.CertificateBuilder(subject, subject, key.public_key(), 1, start, end)
    identity.certificate_file.write_bytes(builder.sign(key, None).public_bytes(Encoding.PEM))


def context(identity: Identity, side: int, peer: Identity) -> ssl.SSLContext:
    made = ssl.SSLContext(side)
    made.minimum_version = ssl.TLSVersion.TLSv1_3
    made.check_hostname = False
    made.verify_mode = ssl.CERT_REQUIRED
    made.verify_flags |= ssl.VERIFY_X509_STRICT
    made.load_cert_chain(identity.certificate_file, identity.key_file)
    made.load_verify_locations(cadata=der(peer))
    return made


def shake_hands(server: ssl.SSLContext, client: ssl.SSLContext) -> list[ssl.SSLObject]:
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [client.wrap_bio(down, up), server.wrap_bio(up, down, server_side=True)]
    waiting = list(ends)
    while waiting:
        end = waiting.pop(0)
        try:
            end.do_handshake()
        except ssl.SSLWantReadError:
            waiting.append(end)
    return ends


def test_two_identities_shake_hands_over_mutual_tls_1_3(tmp_path):
    alice, bob = make_identity("alice", tmp_path), make_identity("bob", tmp_path)
    client, server = shake_hands(
        context(bob, ssl.PROTOCOL_TLS_SERVER, alice), context(alice, ssl.PROTOCOL_TLS_CLIENT, bob)
    )
    assert client.version() == server.version() == "TLSv1.3"
    assert fingerprint(client.getpeercert(binary_form=True)) == bob.fingerprint
    assert fingerprint(server.getpeercert(binary_form=True)) == alice.fingerprint
    client.write(b"hello")
    assert server.read() == b"hello"


def test_an_identity_that_is_not_pinned_is_turned_away(tmp_path):
    alice, bob, eve = (make_identity(name, tmp_path) for name in ("alice", "bob", "eve"))
    server = context(bob, ssl.PROTOCOL_TLS_SERVER, alice)
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(server, context(eve, ssl.PROTOCOL_TLS_CLIENT, bob))


def test_what_is_made_is_what_is_loaded(tmp_path):
    made = make_identity("alice-2_x", tmp_path / "new" / "folder")
    assert made == load_identity(tmp_path / "new" / "folder", "alice-2_x")
    assert made.fingerprint == "sha256:" + hashlib.sha256(der(made)).hexdigest()


def test_files_have_their_modes_whatever_the_umask(tmp_path):
    for mask in (0o000, 0o022, 0o077):
        before = os.umask(mask)
        try:
            made = make_identity(f"mask{mask}", tmp_path)
        finally:
            os.umask(before)
        assert stat.S_IMODE(made.key_file.stat().st_mode) == 0o600
        assert stat.S_IMODE(made.certificate_file.stat().st_mode) == 0o644


def test_the_certificate_is_valid_from_yesterday_for_ten_years(tmp_path):
    certificate = x509.load_der_x509_certificate(der(make_identity("alice", tmp_path)))
    start, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    assert abs(datetime.now(UTC) - timedelta(days=1) - start) < timedelta(minutes=5)
    assert timedelta(days=3652) <= end - start <= timedelta(days=3653)


@pytest.mark.parametrize("leftover", ["alice.key", "alice.crt"])
def test_nothing_is_ever_overwritten(tmp_path, leftover):
    (tmp_path / leftover).write_text("precious")
    with pytest.raises(IdentityError, match=f"{leftover} exists already and is never overwritten"):
        make_identity("alice", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [leftover]
    assert (tmp_path / leftover).read_text() == "precious"


def test_a_renewed_key_is_another_and_old_ones_are_kept_apart(tmp_path):
    first = make_identity("alice", tmp_path)
    kept = first.key_file.read_bytes()
    second, old, moved = renew_identity("alice", tmp_path)
    assert old == first.fingerprint != second.fingerprint
    assert load_identity(tmp_path, "alice") == second
    assert moved.read_bytes() == kept
    assert stat.S_IMODE(moved.stat().st_mode) == 0o600
    third, old, other = renew_identity("alice", tmp_path)
    assert (old, other != moved) == (second.fingerprint, True)
    names = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.*"))
    olds = [f"old/alice.{n}.{end}" for n in (1, 2) for end in ("crt", "key")]
    assert names == ["alice.crt", "alice.key", *olds]
    assert third.fingerprint not in (first.fingerprint, second.fingerprint)


@pytest.mark.parametrize("lost", ["alice.key", "alice.crt", "both"])
def test_what_is_not_there_is_not_renewed_and_nothing_moves(tmp_path, lost):
    make_identity("alice", tmp_path)
    for path in tmp_path.iterdir():
        if lost in (path.name, "both"):
            path.unlink()
    left = sorted(tmp_path.iterdir())
    with pytest.raises(IdentityError, match="does not exist"):
        renew_identity("alice", tmp_path)
    assert sorted(tmp_path.iterdir()) == left


def test_a_key_that_cannot_be_put_aside_stays_where_it_is(tmp_path):
    made = make_identity("alice", tmp_path)
    (tmp_path / "old").write_text("a file")
    with pytest.raises(IdentityError, match="cannot renew the identity 'alice'"):
        renew_identity("alice", tmp_path)
    assert load_identity(tmp_path, "alice") == made


def test_a_key_is_not_written_through_a_link(tmp_path):
    (tmp_path / "alice.key").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(IdentityError, match="exists already"):
        make_identity("alice", tmp_path)
    assert not (tmp_path / "elsewhere").exists()


def test_a_certificate_that_cannot_be_written_leaves_no_key(tmp_path):
    (tmp_path / "alice.crt").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(IdentityError, match="exists already"):
        make_identity("alice", tmp_path)
    assert not (tmp_path / "alice.key").exists()


def test_a_folder_that_is_a_file_is_refused(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(IdentityError):
        make_identity("alice", tmp_path / "file" / "below")


@pytest.mark.parametrize(
    "name", ["", "Alice", "-a", "_a", "a.b", "a/b", "..", "a" * 33, "ä", "a\n", "a b"]
)
def test_names_outside_the_rule_are_refused(tmp_path, name):
    with pytest.raises(IdentityError, match="1 to 32 characters"):
        make_identity(name, tmp_path)
    with pytest.raises(IdentityError, match="1 to 32 characters"):
        load_identity(tmp_path, name)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o601])
def test_a_key_that_others_can_use_is_refused(tmp_path, mode):
    make_identity("alice", tmp_path).key_file.chmod(mode)
    with pytest.raises(IdentityError, match=f"mode {mode:04o}, wanted 0600"):
        load_identity(tmp_path, "alice")


def test_a_missing_file_says_how_to_make_one(tmp_path):
    with pytest.raises(IdentityError, match="tacit keys alice"):
        load_identity(tmp_path, "alice")


def test_a_key_of_another_certificate_is_refused(tmp_path):
    alice, bob = make_identity("alice", tmp_path), make_identity("bob", tmp_path)
    bob.key_file.replace(alice.key_file)
    with pytest.raises(IdentityError, match="is not the key of"):
        load_identity(tmp_path, "alice")


@pytest.mark.parametrize(
    ("name", "first_day", "last_day", "reason"),
    [
        ("alice", -20, -10, "not today"),
        ("alice", 10, 20, "not today"),
        ("bob", -1, 1, "made for 'CN=bob', wanted 'CN=alice'"),
    ],
)
def test_certificates_of_another_time_or_name_are_refused(
    tmp_path, name, first_day, last_day, reason
):
    made, now = make_identity("alice", tmp_path), datetime.now(UTC)
    start, end = now + timedelta(days=first_day), now + timedelta(days=last_day)
    write_certificate(made, name=name, start=start, end=end)
    with pytest.raises(IdentityError, match=reason):
        load_identity(tmp_path, "alice")


@pytest.mark.parametrize(
    ("key", "encryption"),
    [
        (ec.generate_private_key(ec.SECP256R1()), NoEncryption()),
        (Ed25519PrivateKey.generate(), BestAvailableEncryption(b"password")),
    ],
)
def test_keys_of_another_form_are_refused(tmp_path, key, encryption):
    made = make_identity("alice", tmp_path)
    made.key_file.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption))
    with pytest.raises(IdentityError, match=r"Ed25519|unencrypted"):
        load_identity(tmp_path, "alice")


@pytest.fixture(scope="module")
def workshop(tmp_path_factory):
    return make_identity("alice", tmp_path_factory.mktemp("identity"))


@pytest.mark.filterwarnings("ignore:Parsed a serial number which wasn't positive")
def test_a_certificate_with_a_changed_bit_is_refused_wherever_the_bit_is(tmp_path):
    made = make_identity("alice", tmp_path)
    original = der(made)
    # The byte before the signature counts its unused bits; read with one fewer, a signature that
    # ends in a zero stays the same, only the fingerprint changes.
    count_of_unused_bits = len(original) - 65
    for position in set(range(len(original))) - {count_of_unused_bits}:
        for bit in (0, position % 7 + 1):
            changed = bytearray(original)
            changed[position] ^= 1 << bit
            made.certificate_file.write_text(ssl.DER_cert_to_PEM_cert(bytes(changed)))
            with pytest.raises(IdentityError):
                load_identity(tmp_path, "alice")


@given(st.binary(max_size=300), st.sampled_from(["crt", "key"]))
def test_garbage_in_a_file_is_refused(workshop, tmp_path_factory, garbage, suffix):
    folder = tmp_path_factory.mktemp("garbage")
    for file in (workshop.certificate_file, workshop.key_file):
        (folder / file.name).touch(mode=0o600)
        (folder / file.name).write_bytes(file.read_bytes())
    (folder / f"alice.{suffix}").write_bytes(garbage)
    with pytest.raises(IdentityError, match="is not a"):
        load_identity(folder, "alice")


def test_an_identity_shows_no_secret(workshop):
    secret = "".join(workshop.key_file.read_text().splitlines()[1:-1])
    assert secret not in repr(workshop)
    assert workshop.fingerprint in repr(workshop)


def test_a_fingerprint_is_parsed_as_it_is_written(workshop):
    assert parse_fingerprint(workshop.fingerprint) == workshop.fingerprint


@pytest.mark.parametrize(
    "text",
    [
        "",
        "sha256:",
        "sha256:" + "a" * 63,
        "sha256:" + "a" * 65,
        "sha256:" + "A" * 64,
        "SHA256:" + "a" * 64,
        "sha256:" + "g" * 64,
        " sha256:" + "a" * 64,
        "sha256:" + "a" * 64 + "\n",
        "sha1:" + "a" * 64,
        "sha256:" + "٣" * 64,
    ],
)
def test_anything_else_is_no_fingerprint(text):
    with pytest.raises(IdentityError, match="64 lower-case hexadecimal digits"):
        parse_fingerprint(text)


def test_a_key_file_that_is_a_folder_is_named(tmp_path):
    make_identity("alice", tmp_path)
    (tmp_path / "alice.crt").unlink()
    (tmp_path / "alice.crt").mkdir()
    with pytest.raises(IdentityError, match=r"cannot read .*alice.crt"):
        load_identity(tmp_path, "alice")
