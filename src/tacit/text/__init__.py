"""Private text: tune and use language models that do not repeat what a policy marks.

A policy says which characters are private; `fine_tune` trains a model on texts whose marked parts
never reach it without noise; `BudgetedWriter` writes texts in which numbers come out of a vote that
is paid for from a `Budget`.

    corpus = mark_corpus(texts, tokenizer, by_pattern())
    tuned = fine_tune(CausalModule(model), corpus, TextPlan(method="jft", epsilon=2))
    print(tuned.claim)
"""

from tacit.dp import Book
from tacit.dp.book import BudgetSpentError
from tacit.dp.policy import (
    PATTERNS,
    MarkedSpan,
    Policy,
    by_pattern,
    by_tagger,
    by_terms,
    read_terms,
    union,
)
from tacit.llm.model.module import CausalModule, language_model, tiny_model
from tacit.llm.model.saving import save_model, train_tokenizer
from tacit.text.corpus import Marked, Text, mark_corpus
from tacit.text.decode import BudgetedWriter, Places, decoder_losses, find_places
from tacit.text.forms import FORMS, coverage_sheet, draw_labelled, measure_recall
from tacit.text.front import Tuned, enter_book, fine_tune, planned_claim
from tacit.text.spec import TextPlan
from tacit.text.tune import Course, measure_perplexity, measure_scientificity
from tacit.text.vote import Ballot, Budget, stack_voters, train_voters

__all__ = [
    "FORMS",
    "PATTERNS",
    "Ballot",
    "Book",
    "Budget",
    "BudgetSpentError",
    "BudgetedWriter",
    "CausalModule",
    "Course",
    "Marked",
    "MarkedSpan",
    "Places",
    "Policy",
    "Text",
    "TextPlan",
    "Tuned",
    "by_pattern",
    "by_tagger",
    "by_terms",
    "coverage_sheet",
    "decoder_losses",
    "draw_labelled",
    "enter_book",
    "find_places",
    "fine_tune",
    "language_model",
    "mark_corpus",
    "measure_perplexity",
    "measure_recall",
    "measure_scientificity",
    "planned_claim",
    "read_terms",
    "save_model",
    "stack_voters",
    "tiny_model",
    "train_tokenizer",
    "train_voters",
    "union",
]
