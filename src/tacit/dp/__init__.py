"""Differential privacy: events, accountants, calibration, and mechanisms that write events.

A mechanism returns a value and an event. Events go into a `Ledger`; `epsilon(ledger, delta=…)` is
the only place where an ε comes from. Randomness is a `tacit.ring.Prg` that is handed in.
"""

from tacit.dp.accountant import ACCOUNTANTS, Accountant, choose_accountant, supporting
from tacit.dp.additive import (
    GAUSSIANS,
    GaussianKind,
    add_binomial,
    add_discrete_gaussian,
    add_exact_gaussian,
    add_gaussian,
    add_laplace,
    exact_gaussian_event,
    laplace_event,
    normal,
)
from tacit.dp.alone import alone_epsilon, binomial_epsilon
from tacit.dp.book import Book
from tacit.dp.bounded import (
    Bounded,
    QuantileClip,
    clip,
    clip_layers,
    follow_quantile,
    joint_bound,
)
from tacit.dp.calibrate import BudgetTarget, Plan, largest_budget, least_noise
from tacit.dp.check import delta_among
from tacit.dp.codec import (
    event_from_record,
    event_to_record,
    ledger_from_record,
    ledger_to_record,
)
from tacit.dp.detection import FALSE_POSITIVES, detection_of, gaussian_detection
from tacit.dp.direction import DirectionReport, estimate_direction_sum, respond_direction
from tacit.dp.dpsgd import DpSgd, train_dp_sgd
from tacit.dp.event import (
    ADD_REMOVE_CLIENT,
    ADD_REMOVE_CLIENT_MARKS,
    ADD_REMOVE_MARKS,
    ADD_REMOVE_RECORD,
    REPLACE_CLIENT,
    REPLACE_CLIENT_MARKS,
    REPLACE_RECORD,
    Approximate,
    Binomial,
    DiscreteGaussian,
    DiscreteLaplace,
    Event,
    FixedSample,
    Gaussian,
    Laplace,
    Poisson,
    Pure,
    Relation,
    Repeated,
    Response,
    Shuffled,
    Unaccountable,
    unroll,
)
from tacit.dp.ledger import Entry, Ledger, epsilon, sharpen
from tacit.dp.private import Private, make_private
from tacit.dp.response import Responder, dummies, estimate_sum, respond
from tacit.dp.rounding import round_randomly, rounded_bound
from tacit.dp.second import Second, confirm
from tacit.dp.shuffle import closed_form_epsilon, shuffled_delta, shuffled_epsilon
from tacit.dp.sparse import SparseVector, select_above

__all__ = [
    "ACCOUNTANTS",
    "ADD_REMOVE_CLIENT",
    "ADD_REMOVE_CLIENT_MARKS",
    "ADD_REMOVE_MARKS",
    "ADD_REMOVE_RECORD",
    "FALSE_POSITIVES",
    "GAUSSIANS",
    "REPLACE_CLIENT",
    "REPLACE_CLIENT_MARKS",
    "REPLACE_RECORD",
    "Accountant",
    "Approximate",
    "Binomial",
    "Book",
    "Bounded",
    "BudgetTarget",
    "DirectionReport",
    "DiscreteGaussian",
    "DiscreteLaplace",
    "DpSgd",
    "Entry",
    "Event",
    "FixedSample",
    "Gaussian",
    "GaussianKind",
    "Laplace",
    "Ledger",
    "Plan",
    "Poisson",
    "Private",
    "Pure",
    "QuantileClip",
    "Relation",
    "Repeated",
    "Responder",
    "Response",
    "Second",
    "Shuffled",
    "SparseVector",
    "Unaccountable",
    "add_binomial",
    "add_discrete_gaussian",
    "add_exact_gaussian",
    "add_gaussian",
    "add_laplace",
    "alone_epsilon",
    "binomial_epsilon",
    "choose_accountant",
    "clip",
    "clip_layers",
    "closed_form_epsilon",
    "confirm",
    "delta_among",
    "detection_of",
    "dummies",
    "epsilon",
    "estimate_direction_sum",
    "estimate_sum",
    "event_from_record",
    "event_to_record",
    "exact_gaussian_event",
    "follow_quantile",
    "gaussian_detection",
    "joint_bound",
    "laplace_event",
    "largest_budget",
    "least_noise",
    "ledger_from_record",
    "ledger_to_record",
    "make_private",
    "normal",
    "respond",
    "respond_direction",
    "round_randomly",
    "rounded_bound",
    "select_above",
    "sharpen",
    "shuffled_delta",
    "shuffled_epsilon",
    "supporting",
    "train_dp_sgd",
    "unroll",
]
