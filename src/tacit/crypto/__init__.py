"""Cryptography that parties build on: agreement, derivation, sealing, sharing, identities."""

from tacit.crypto.aead import seal, unseal
from tacit.crypto.agreement import KeyPair, agree, derive, make_key_pair
from tacit.crypto.identity import (
    Identity,
    fingerprint,
    load_identity,
    load_pinned,
    make_identity,
    parse_fingerprint,
    parse_name,
    renew_identity,
    sign,
    verify_signature,
)
from tacit.crypto.matching import Matcher
from tacit.crypto.shamir import ShamirShare, recover, recover_bytes, share, share_bytes

__all__ = [
    "Identity",
    "KeyPair",
    "Matcher",
    "ShamirShare",
    "agree",
    "derive",
    "fingerprint",
    "load_identity",
    "load_pinned",
    "make_identity",
    "make_key_pair",
    "parse_fingerprint",
    "parse_name",
    "recover",
    "recover_bytes",
    "renew_identity",
    "seal",
    "share",
    "share_bytes",
    "sign",
    "unseal",
    "verify_signature",
]
