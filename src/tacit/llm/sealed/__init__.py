"""Sealed inference of a language model: nothing is shown but the next token, to the user alone.

The same three parties as in `tacit.llm.permuted`, on `tacit.mpc`'s sealed protocol. Slower by far,
and with approximated functions; for owners and users who accept no permuted values.
"""

from tacit.llm.sealed.claims import sealed_claims
from tacit.llm.sealed.forecast import plan_passes
from tacit.llm.sealed.parties import (
    SEALED_DEALER_BYTES,
    SEALED_OWNER_BYTES,
    SEALED_USER_BYTES,
    SealedVault,
    open_sealed_vault,
    serve_sealed_dealer,
    serve_sealed_owner,
)
from tacit.llm.sealed.passes import Pass
from tacit.llm.sealed.program import Reveal
from tacit.llm.sealed.talk import SealedClient, SealedMemory
from tacit.llm.sealed.wishes import check_wish

__all__ = [
    "SEALED_DEALER_BYTES",
    "SEALED_OWNER_BYTES",
    "SEALED_USER_BYTES",
    "Pass",
    "Reveal",
    "SealedClient",
    "SealedMemory",
    "SealedVault",
    "check_wish",
    "open_sealed_vault",
    "plan_passes",
    "sealed_claims",
    "serve_sealed_dealer",
    "serve_sealed_owner",
]
