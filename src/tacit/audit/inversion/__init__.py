"""Model inversion from confidences, and pictures painted by a participant or by the server."""

from tacit.audit.inversion.attacks import Climb, climb, decode_answers, guess_column
from tacit.audit.inversion.game import (
    ANSWER_THREAT,
    CLASS_THREAT,
    COLUMN_THREAT,
    SERVER_THREAT,
    score_answers,
    score_column,
    score_representatives,
    score_victim,
)
from tacit.audit.inversion.painters import Painter, Painting, PaintVictim, train_with
from tacit.audit.inversion.views import (
    Ask,
    Defence,
    SeenAnswers,
    SeenConfidences,
    SeenCourse,
    SeenRecords,
    ask_of,
    round_to,
    see_answers,
    see_course,
    see_records,
)

__all__ = [
    "ANSWER_THREAT",
    "CLASS_THREAT",
    "COLUMN_THREAT",
    "SERVER_THREAT",
    "Ask",
    "Climb",
    "Defence",
    "PaintVictim",
    "Painter",
    "Painting",
    "SeenAnswers",
    "SeenConfidences",
    "SeenCourse",
    "SeenRecords",
    "ask_of",
    "climb",
    "decode_answers",
    "guess_column",
    "round_to",
    "score_answers",
    "score_column",
    "score_representatives",
    "score_victim",
    "see_answers",
    "see_course",
    "see_records",
    "train_with",
]
