"""Sums of ciphertexts: the server adds what it cannot read, and the clients decrypt the sum."""

from tacit.federated.encrypted.sides import (
    EncryptedClientSide,
    EncryptedServerSide,
    layout_of,
    upload_bytes,
)

__all__ = ["EncryptedClientSide", "EncryptedServerSide", "layout_of", "upload_bytes"]
