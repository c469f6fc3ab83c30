"""The page of attacks names tests that are there."""

import re

from docs.follow import ROOT

PAGE = ROOT / "docs" / "explanation" / "attacks.md"
NAMES = {path.name: path for path in (ROOT / "tests").rglob("test_*.py")}


def test_every_test_that_the_page_of_attacks_names_exists():
    text = PAGE.read_text()
    missing = []
    for path, name in re.findall(r"((?:tests/[\w/]+/)?test_\w+\.py)(?:::(test_\w+))?", text):
        file = ROOT / path if path.startswith("tests/") else NAMES.get(path)
        if file is None or not file.exists():
            missing.append(path)
        elif name and f"def {name}" not in file.read_text():
            missing.append(f"{path}::{name}")
    assert not missing


def test_every_benchmark_and_job_that_the_page_of_attacks_names_exists():
    text = PAGE.read_text()
    named = re.findall(r"(?:benchmarks|examples/jobs)/[\w.-]+\.(?:py|toml)", text)
    assert named
    assert [path for path in named if not (ROOT / path).exists()] == []
