"""Model inversion from confidences, and class representatives painted by a participant."""

from tacit.audit.inversion.attacks import Climb, climb, decode_answers, guess_column
from tacit.audit.inversion.game import (
    ANSWER_THREAT,
    CLASS_THREAT,
    COLUMN_THREAT,
    score_answers,
    score_column,
    score_representatives,
)
from tacit.audit.inversion.participant import Painter, Painting, train_with
from tacit.audit.inversion.views import (
    Ask,
    Defence,
    SeenAnswers,
    SeenConfidences,
    SeenRecords,
    ask_of,
    round_to,
    see_answers,
    see_records,
)

__all__ = [
    "ANSWER_THREAT",
    "CLASS_THREAT",
    "COLUMN_THREAT",
    "Ask",
    "Climb",
    "Defence",
    "Painter",
    "Painting",
    "SeenAnswers",
    "SeenConfidences",
    "SeenRecords",
    "ask_of",
    "climb",
    "decode_answers",
    "guess_column",
    "round_to",
    "score_answers",
    "score_column",
    "score_representatives",
    "see_answers",
    "see_records",
    "train_with",
]
