"""Where rows come from: known sets, files, queries, and what a program hands in."""

from tacit.data.catalogue import known_names, load_dataset, search_path
from tacit.data.memory import (
    features_and_labels,
    features_of,
    names_of,
    numbers_of,
    take_rows,
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
from tacit.data.partition import split as split_dataset
from tacit.data.prepare import ColumnTable, prepare_rows
from tacit.data.rows import Holding, Rows, state_far
from tacit.data.source import Given, OwnerTable, Source, load_file
from tacit.data.tables import load_csv, read_texts

__all__ = [
    "ColumnTable",
    "Given",
    "Holding",
    "OwnerTable",
    "Partition",
    "Rows",
    "Source",
    "add_majority",
    "clopper_pearson",
    "divide",
    "features_and_labels",
    "features_of",
    "known_names",
    "load_csv",
    "load_dataset",
    "load_file",
    "measure_classes",
    "measure_odds",
    "names_of",
    "numbers_of",
    "prepare_rows",
    "proportion",
    "put_beside",
    "read_texts",
    "search_path",
    "split_dataset",
    "state_far",
    "take_rows",
    "to_array",
]
