"""Verification: exact robustness of tree ensembles.

``tacit.verify(model, x, eps)``, which is `tacit.verify.verify`, answers for one input of a fitted
model: its ``outcome`` is ROBUST, COUNTEREXAMPLE (with the input ``x``), NEAR_TIE or UNDECIDED.
`verify_many` asks about many rows, `closest` for the least radius, `prove` for a certificate that
`check_proof` follows alone.
"""

import sys
from types import ModuleType

from tacit.verify.batch import Inquiry, verify_each, verify_many, verify_on_ray
from tacit.verify.box import Box, Domain
from tacit.verify.closest import Closest, Margin, closest, margin
from tacit.verify.constrained import Limits, Sum, quantile_radii, verify_within
from tacit.verify.explain import (
    Importance,
    RobustSet,
    SmallestSet,
    count_importance,
    importance,
    robust_features,
    smallest_features,
)
from tacit.verify.findings import (
    Findings,
    RobustScorer,
    Size,
    Tally,
    measure_size,
    tally,
    verified_accuracy,
)
from tacit.verify.kernels.clock import tell_compiling
from tacit.verify.kernels.tables import Outcome
from tacit.verify.models.ensemble import Ensemble, with_integers
from tacit.verify.models.lightgbm import from_lightgbm
from tacit.verify.models.load import import_ensemble, load_ensemble, save_ensemble
from tacit.verify.models.sklearn import from_sklearn
from tacit.verify.models.xgboost import from_xgboost
from tacit.verify.proof.certificate import prove
from tacit.verify.proof.checker import check_proof
from tacit.verify.proof.proof import Proof, dump_proof, load_proof
from tacit.verify.robustness import attack, verify, verify_box
from tacit.verify.smt import verify_smt
from tacit.verify.verdict import Budget, Counterexample, Robust, Timed, Unknown, Verdict

VERIFIERS = {"search": verify, "smt": verify_smt}
"""Every way to answer the question of `verify`; one contract suite runs over all."""

__all__ = [
    "VERIFIERS",
    "Box",
    "Budget",
    "Closest",
    "Counterexample",
    "Domain",
    "Ensemble",
    "Findings",
    "Importance",
    "Inquiry",
    "Limits",
    "Margin",
    "Outcome",
    "Proof",
    "Robust",
    "RobustScorer",
    "RobustSet",
    "Size",
    "SmallestSet",
    "Sum",
    "Tally",
    "Timed",
    "Unknown",
    "Verdict",
    "attack",
    "check_proof",
    "closest",
    "count_importance",
    "dump_proof",
    "from_lightgbm",
    "from_sklearn",
    "from_xgboost",
    "import_ensemble",
    "importance",
    "load_ensemble",
    "load_proof",
    "margin",
    "measure_size",
    "prove",
    "quantile_radii",
    "robust_features",
    "save_ensemble",
    "smallest_features",
    "tally",
    "tell_compiling",
    "verified_accuracy",
    "verify",
    "verify_box",
    "verify_each",
    "verify_many",
    "verify_on_ray",
    "verify_smt",
    "verify_within",
    "with_integers",
]


class _Called(ModuleType):
    """A room that can be called, as well as imported from: `tacit.verify(model, x, eps)`."""

    __call__ = staticmethod(verify)


sys.modules[__name__].__class__ = _Called
