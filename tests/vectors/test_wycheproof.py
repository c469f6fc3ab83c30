"""C2SP's Wycheproof against what we call: edge cases of curves, forged tags, odd signatures."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from tacit.crypto import KeyPair, agree, derive, unseal
from tacit.crypto.identity import verify_signature
from tacit.crypto.joint.transfer import _CURVE, _load
from tacit.crypto.matching import Matcher
from tacit.errors import DataError, InputError, PartyError
from tacit.federated.secagg import messages

FOLDER = Path(__file__).parents[3] / "shared" / "vectors" / "wycheproof"
PRIME = 2**255 - 19


def cases(name):
    """Read the tests of a file, each with the settings of its group."""
    file = FOLDER / f"{name}_test.json"
    if not file.is_file():
        pytest.skip(f"{file.name} is not here: it is Wycheproof's, of github.com/C2SP/wycheproof")
    content = json.loads(file.read_text())
    found = [(group, one) for group in content["testGroups"] for one in group["tests"]]
    assert len(found) == content["numberOfTests"] > 80
    return found


def hexed(text):
    return bytes.fromhex(text)


def test_agreement_gives_their_secrets_and_refuses_points_of_small_order():
    agreed = refused = 0
    for _, one in cases("x25519"):
        private = X25519PrivateKey.from_private_bytes(hexed(one["private"]))
        mine = KeyPair(private.public_key().public_bytes_raw(), private)
        if "ZeroSharedSecret" in one["flags"]:
            with pytest.raises(InputError, match="small order"):
                agree(mine, hexed(one["public"]))
            refused += 1
        else:
            assert agree(mine, hexed(one["public"])).hex() == one["shared"], one["tcId"]
            agreed += 1
    assert agreed > 480
    assert refused > 20


def test_matching_multiplies_points_and_refuses_those_that_are_written_in_another_way():
    refused = 0
    for _, one in cases("x25519"):
        matcher, point = Matcher(["id"]), hexed(one["public"])
        matcher._secret = X25519PrivateKey.from_private_bytes(hexed(one["private"]))
        if "ZeroSharedSecret" in one["flags"] or int.from_bytes(point, "little") >= PRIME:
            with pytest.raises(DataError, match="no points of the curve"):
                matcher.raise_points(point)
            refused += 1
        else:
            assert matcher.raise_points(point).hex() == one["shared"], one["tcId"]
    assert refused > 40


def test_what_is_unsealed_is_theirs_and_no_changed_tag_opens():
    opened = refused = 0
    for group, one in cases("aes_gcm"):
        if (group["keySize"], group["ivSize"], group["tagSize"]) != (256, 96, 128):
            continue
        sealed = hexed(one["iv"]) + hexed(one["ct"]) + hexed(one["tag"])
        if one["result"] == "valid":
            found = unseal(hexed(one["key"]), sealed, associated=hexed(one["aad"]))
            assert found.hex() == one["msg"], one["tcId"]
            opened += 1
        else:
            with pytest.raises(InputError, match="does not open"):
                unseal(hexed(one["key"]), sealed, associated=hexed(one["aad"]))
            refused += 1
    assert (opened > 30, refused > 20) == (True, True)


def test_derived_keys_are_theirs():
    derived = 0
    for _, one in cases("hkdf_sha256"):
        secret, info, size = hexed(one["ikm"]), hexed(one["info"]), one["size"]
        salt = hexed(one["salt"])
        if one["result"] != "valid" or len(secret) < 16 or not info:
            with pytest.raises(InputError):
                derive(secret, context=info, length=size, salt=salt)
            continue
        found = derive(secret, context=info, length=size, salt=salt)
        assert found.hex() == one["okm"], one["tcId"]
        derived += 1
    assert derived > 50


def certificate_of(key):
    """Certify a key that we have not: only the signature below is in question."""
    name, now = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a")]), datetime.now(UTC)
    built = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(Ed25519PublicKey.from_public_bytes(key))
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .sign(Ed25519PrivateKey.generate(), algorithm=None)
    )
    return built.public_bytes(Encoding.DER)


def test_signatures_hold_and_malleable_truncated_and_padded_ones_do_not():
    for group, one in cases("ed25519"):
        key, message = hexed(group["publicKey"]["pk"]), hexed(one["msg"])
        signature, is_good = hexed(one["sig"]), one["result"] == "valid"
        assert verify_signature(certificate_of(key), message, signature) == is_good, one["tcId"]
        if is_good:
            messages.check_signature(key, signature, message, of="a client")
        else:
            with pytest.raises(PartyError, match="does not fit"):
                messages.check_signature(key, signature, message, of="a client")


def test_base_transfers_take_compressed_points_of_their_curve_and_no_others():
    agreed = refused = 0
    for _, one in cases("ecdh_secp256r1"):
        # What stands behind the header of the key is the point: one of the two ways to write it.
        data = hexed(one["public"])
        if {"CompressedPoint", "CompressedPublic", "InvalidCompressedPublic"} & {*one["flags"]}:
            point = data[-33:]
        elif one["result"] == "valid" and data[-65:-64] == b"\4":
            point = bytes([2 + data[-1] % 2]) + data[-64:-32]
        else:  # what is wrong with it is wrong with the header, which we do not send
            continue
        if one["result"] == "invalid":
            with pytest.raises(DataError, match="no point of P-256"):
                _load(point)
            refused += 1
            continue
        private = ec.derive_private_key(int(one["private"], 16), _CURVE)
        assert private.exchange(ec.ECDH(), _load(point)).hex() == one["shared"], one["tcId"]
        agreed += 1
    assert agreed > 300
    assert refused > 0
