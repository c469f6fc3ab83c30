"""Split learning from Python: a model's bottom where the features are, its top at the labels."""

from tacit.learn.split import Compression, Defence, Pace, SplitModel, fit

__all__ = ["Compression", "Defence", "Pace", "SplitModel", "fit"]
