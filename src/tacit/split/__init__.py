"""Split learning from Python: a model's bottom where the features are, its top at the labels."""

from tacit.split.bottom import BottomTrainer
from tacit.split.checkpoint import load_weights, save_weights
from tacit.split.codec import COMPRESSORS, Codec, Compression, make_codec
from tacit.split.defend import (
    DEFENCES,
    Defence,
    angle_energies,
    claims_of,
    epsilon_of,
    keep_probability,
    label_events,
)
from tacit.split.exchange import OnReturned, Returned, introduce
from tacit.split.fit import SplitModel, fit
from tacit.split.local import (
    Candidate,
    CompressionTrial,
    Halves,
    cut_model,
    fit_locally,
    fitting,
    recommend,
    training_bytes,
    try_candidates,
)
from tacit.split.models import (
    CUT,
    MODELS,
    READS_TOKENS,
    Flat,
    NetworkSpec,
    ShapedTop,
    cut,
    cut_shape,
    make_head,
    make_model,
)
from tacit.split.serve import Answered, answer, ask, stop_asking
from tacit.split.spec import CutSpec, SplitData, SplitSpec, TrainingPace
from tacit.split.stepping import steps_per_epoch
from tacit.split.summary import forecast
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
    "CompressionTrial",
    "CutSpec",
    "Defence",
    "Epoch",
    "Flat",
    "Halves",
    "NetworkSpec",
    "OnReturned",
    "OwnFeatures",
    "Returned",
    "ShapedTop",
    "SplitData",
    "SplitModel",
    "SplitSpec",
    "TopTrainer",
    "TrainingPace",
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
