"""Privacy mechanisms that know about models: relevance, adaptive noise, baselines, DP-SGD."""

from tacit.learn.noise.adaptive import (
    AttributeNoise,
    Selection,
    contribution_event,
    floored,
    layer_factors,
    layer_shares,
    perturb_attributes,
    perturb_layers,
    private_shares,
    show_contributions,
    unwhiten,
    upload_selected,
    whiten,
)
from tacit.learn.noise.baselines import (
    central_mean,
    local_gaussian,
    local_laplace,
    mean_of,
    nbafl_downlink_sigma,
    nbafl_uplink,
    nbafl_uplink_sigma,
)
from tacit.learn.noise.dpsgd import DpSgd, train_dp_sgd
from tacit.learn.noise.objective import ObjectiveSettings, fit_private_logistic
from tacit.learn.noise.relevance import Relevance, contributions, relevance

__all__ = [
    "AttributeNoise",
    "DpSgd",
    "ObjectiveSettings",
    "Relevance",
    "Selection",
    "central_mean",
    "contribution_event",
    "contributions",
    "fit_private_logistic",
    "floored",
    "layer_factors",
    "layer_shares",
    "local_gaussian",
    "local_laplace",
    "mean_of",
    "nbafl_downlink_sigma",
    "nbafl_uplink",
    "nbafl_uplink_sigma",
    "perturb_attributes",
    "perturb_layers",
    "private_shares",
    "relevance",
    "show_contributions",
    "train_dp_sgd",
    "unwhiten",
    "upload_selected",
    "whiten",
]
