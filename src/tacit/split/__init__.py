"""Split learning from Python: a model's bottom where the features are, its top at the labels."""

from tacit.split.advise import Candidate, Trial, fitting, recommend, try_candidates
from tacit.split.bottom import BottomTrainer
from tacit.split.checkpoint import load_weights, save_weights
from tacit.split.codec import Codec
from tacit.split.compress import COMPRESSORS, Compression, make_codec
from tacit.split.cut import Flat, Shaped, cut, cut_shape
from tacit.split.defend import (
    DEFENCES,
    Defence,
    claims_of,
    epsilon_of,
    keep_probability,
    label_events,
)
from tacit.split.energy import angle_energies
from tacit.split.exchange import introduce
from tacit.split.fit import SplitModel, fit
from tacit.split.forecast import forecast
from tacit.split.local import (
    Halves,
    cut_model,
    fit_locally,
    halve,
    training_bytes,
)
from tacit.split.models import CUT, MODELS, READS_TOKENS, Network, make_head, make_model
from tacit.split.returned import OnReturned, Returned
from tacit.split.serve import Answered, answer, ask, stop_asking
from tacit.split.task import Pace, SplitTask, steps_per_epoch
from tacit.split.top import Epoch, OwnFeatures, TopTrainer

__all__ = [
    "COMPRESSORS",
    "CUT",
    "DEFENCES",
    "MODELS",
    "READS_TOKENS",
    "Answered",
    "BottomTrainer",
    "Candidate",
    "Codec",
    "Compression",
    "Defence",
    "Epoch",
    "Flat",
    "Halves",
    "Network",
    "OnReturned",
    "OwnFeatures",
    "Pace",
    "Returned",
    "Shaped",
    "SplitModel",
    "SplitTask",
    "TopTrainer",
    "Trial",
    "angle_energies",
    "answer",
    "ask",
    "claims_of",
    "cut",
    "cut_model",
    "cut_shape",
    "epsilon_of",
    "fit",
    "fit_locally",
    "fitting",
    "forecast",
    "halve",
    "introduce",
    "keep_probability",
    "label_events",
    "load_weights",
    "make_codec",
    "make_head",
    "make_model",
    "recommend",
    "save_weights",
    "steps_per_epoch",
    "stop_asking",
    "training_bytes",
    "try_candidates",
]
