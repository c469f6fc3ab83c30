"""Sealed inference of a language model: nothing is shown but the next token, to the user alone.

The same three parties as in `tacit.llm.permuted`, on `tacit.mpc`'s sealed protocol. Slower by far,
and with approximated functions; for owners and users who accept no permuted values.
"""

from tacit.llm.claims import Reveal
from tacit.llm.sealed.choosing import check_wish
from tacit.llm.sealed.dealt import serve_dealt_owner
from tacit.llm.sealed.parties import (
    SealedVault,
    forecast_file,
    open_sealed_vault,
    plan_passes,
    serve_sealed_dealer,
    serve_sealed_owner,
)
from tacit.llm.sealed.passes import Pass
from tacit.llm.sealed.schedule import Schedule
from tacit.llm.sealed.talk import SealedClient, SealedMemory

__all__ = [
    "Pass",
    "Reveal",
    "Schedule",
    "SealedClient",
    "SealedMemory",
    "SealedVault",
    "check_wish",
    "forecast_file",
    "open_sealed_vault",
    "plan_passes",
    "serve_dealt_owner",
    "serve_sealed_dealer",
    "serve_sealed_owner",
]
