"""Results for people: JSON, one self-contained HTML file, CSV, PDF, and a view for the terminal."""

from tacit.report.codec import from_json, load, save, to_json
from tacit.report.html import render, write
from tacit.report.pdf import write_pdf
from tacit.report.tables import write_csv
from tacit.report.terminal import preview, summarise

__all__ = [
    "from_json",
    "load",
    "preview",
    "render",
    "save",
    "summarise",
    "to_json",
    "write",
    "write_csv",
    "write_pdf",
]
