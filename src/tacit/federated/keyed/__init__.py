"""Pads that an authority takes off sums alone: one message of a client, whoever drops out."""

from tacit.federated.keyed.authority import AUTHORITY, Authority
from tacit.federated.keyed.sides import KeyedClientSide, KeyedServerSide, upload_bytes

__all__ = ["AUTHORITY", "Authority", "KeyedClientSide", "KeyedServerSide", "upload_bytes"]
