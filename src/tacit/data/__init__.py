"""Where rows come from: known sets, files, queries, and what a program hands in."""

from tacit.data.dataset import Dataset
from tacit.data.dataset import split as split_dataset
from tacit.data.memory import (
    Frame,
    features_and_labels,
    features_of,
    names_of,
    numbers_of,
    to_array,
)
from tacit.data.metrics import (
    add_majority,
    clopper_pearson,
    measure_classes,
    measure_odds,
    proportion,
    put_beside,
)
from tacit.data.partition import Partition, divide
from tacit.data.rows import Rows
from tacit.data.source import known_names, load_data, load_file, search_path
from tacit.data.source import load as load_dataset
from tacit.data.tables import load_csv
from tacit.data.texts import read_texts

__all__ = [
    "Dataset",
    "Frame",
    "Partition",
    "Rows",
    "add_majority",
    "clopper_pearson",
    "divide",
    "features_and_labels",
    "features_of",
    "known_names",
    "load_csv",
    "load_data",
    "load_dataset",
    "load_file",
    "measure_classes",
    "measure_odds",
    "names_of",
    "numbers_of",
    "proportion",
    "put_beside",
    "read_texts",
    "search_path",
    "split_dataset",
    "to_array",
]
