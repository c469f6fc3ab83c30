"""The table of experiments, in the order of the page of attacks."""

from evidence import bits, chats, files, forecasts, messages, numbers, orders
from evidence.experiment import Experiment

_ALL = (
    Experiment("mask-reuse", chats.sessions, count=35, small=2),
    Experiment("recorded-passes", chats.recorded, count=12, small=3),
    Experiment("void-tokens", orders.slots, count=5000, small=300, is_daily=True),
    Experiment("pass-words", orders.words, count=60_000, small=3000, is_daily=True),
    Experiment("changed-messages", messages.changed, count=150, small=24),
    Experiment("bits", bits.transcripts, count=600, small=48),
    Experiment("pairs-of-bits", bits.pairs, count=6000, small=2000, is_daily=True),
    Experiment("one-opens", files.openers, count=60, small=5),
    Experiment("posted-programs", forecasts.programs, count=600, small=40),
    Experiment("largest-of", numbers.largest, count=80, small=20),
    Experiment("row-lengths", numbers.lengths, count=270, small=20),
    Experiment("mask-panels", numbers.panels, count=200, small=20),
    Experiment("spectral-norms", numbers.norms, count=300, small=40),
    Experiment("aligned-rows", numbers.rows, count=80, small=10),
    Experiment("curves", numbers.curves, count=60, small=12),
)
TABLE = {one.name: one for one in _ALL}
