"""Reconstruction: the rows behind an update of federated learning."""

from tacit.audit.reconstruction.analytic import infer_labels, invert_linear
from tacit.audit.reconstruction.choice import choose_attacks
from tacit.audit.reconstruction.defences import add_noise, clip, in_turn, keep_largest
from tacit.audit.reconstruction.game import (
    ATTACKS,
    THREAT,
    Round,
    audit_all,
    audit_round,
    sweep_defence,
)
from tacit.audit.reconstruction.matching import (
    MatchDirection,
    MatchExactly,
    dlg,
    guess_blindly,
    idlg,
    match_cosine,
)
from tacit.audit.reconstruction.models import lenet, small_resnet
from tacit.audit.reconstruction.newton import MatchNewton, match_newton, match_together
from tacit.audit.reconstruction.score import (
    RECOVERED,
    line_up,
    pair,
    psnr,
    score_rows,
    show,
    squared_errors,
    ssim,
)
from tacit.audit.reconstruction.views import Defence, Rebuilt, SeenUpdate, see_sum, see_update
from tacit.audit.reconstruction.work import GRADIENT, Update, Work, do_work

__all__ = [
    "ATTACKS",
    "GRADIENT",
    "RECOVERED",
    "THREAT",
    "Defence",
    "MatchDirection",
    "MatchExactly",
    "MatchNewton",
    "Rebuilt",
    "Round",
    "SeenUpdate",
    "Update",
    "Work",
    "add_noise",
    "audit_all",
    "audit_round",
    "choose_attacks",
    "clip",
    "dlg",
    "do_work",
    "guess_blindly",
    "idlg",
    "in_turn",
    "infer_labels",
    "invert_linear",
    "keep_largest",
    "lenet",
    "line_up",
    "match_cosine",
    "match_newton",
    "match_together",
    "pair",
    "psnr",
    "score_rows",
    "see_sum",
    "see_update",
    "show",
    "small_resnet",
    "squared_errors",
    "ssim",
    "sweep_defence",
]
