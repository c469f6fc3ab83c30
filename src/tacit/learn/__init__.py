"""Learning: data sets and their parts, local and joint training."""

from tacit.learn.data import (
    Dataset,
    known_names,
    load_csv,
    load_data,
    load_file,
    search_path,
)
from tacit.learn.data import load as load_dataset
from tacit.learn.data import split as split_dataset

__all__ = [
    "Dataset",
    "known_names",
    "load_csv",
    "load_data",
    "load_dataset",
    "load_file",
    "search_path",
    "split_dataset",
]
