"""Texts in lines of JSON."""

import json
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tacit.errors import DataError
from tacit.files import refuse_endless


def read_texts(file: Path, *, label: str | None) -> tuple[list[str], npt.NDArray[np.int64]]:
    """Read texts and classes of lines of JSON: "text", and "label" or a key of another name.

    Raises:
        DataError: a line is something else.
    """
    texts, classes = [], []
    refuse_endless(file)
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot read {file}: {error}") from error
    for number, line in enumerate(lines, start=1):
        try:
            found = json.loads(line)
            text, one = found["text"], found[label or "label"]
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(
                f'{file}:{number}: wanted {{"text": "…", "{label or "label"}": 0}}'
            ) from error
        if not isinstance(text, str) or not isinstance(one, int) or isinstance(one, bool):
            raise DataError(f"{file}:{number}: wanted a text, and a class as a whole number from 0")
        texts.append(text)
        classes.append(one)
    if not texts:
        raise DataError(f"{file}: wanted lines of JSON, got none")
    return texts, np.array(classes, dtype=np.int64)
