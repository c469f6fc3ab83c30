"""Inference in floating-point shares: Gaussian noise λ times as large as what it covers.

PermLLM's option for accelerators without fast integers. It carries **no guarantee** (`CLAIM`):
noise averages out over repeated texts, as a test shows. `tacit.llm.permuted` is exact and hides.
"""

from tacit.llm.floating.parties import (
    CLAIM,
    FloatingVault,
    open_floating_vault,
    serve_floating_dealer,
    serve_floating_owner,
)
from tacit.llm.floating.talk import FloatingClient, FloatingMemory, check_sampling

__all__ = [
    "CLAIM",
    "FloatingClient",
    "FloatingMemory",
    "FloatingVault",
    "check_sampling",
    "open_floating_vault",
    "serve_floating_dealer",
    "serve_floating_owner",
]
