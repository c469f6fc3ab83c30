"""TOML, read strictly."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.errors import ConfigError
from tacit.jobs.toml import read_toml


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"none\.toml: no such file"):
        read_toml(tmp_path / "none.toml")


def test_a_folder_is_not_a_job(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read"):
        read_toml(tmp_path)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("[a]\nx = = 1\n", 2),
        ("[a]\nx = 1\n[a]\n", 3),
        ("x = 1\nx = 2\n", 2),
        ('x = "open', 1),
        ("[[", 1),
    ],
)
def test_a_syntax_error_names_the_line(tmp_path, text, line):
    file = tmp_path / "job.toml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=rf"job\.toml, line {line}: not TOML: "):
        read_toml(file)


@given(st.binary(max_size=300))
def test_bytes_are_read_or_refused(tmp_path_factory, content):
    file = tmp_path_factory.mktemp("t") / "job.toml"
    file.write_bytes(content)
    with contextlib.suppress(ConfigError):
        assert isinstance(read_toml(file), dict)


def test_a_file_that_nests_too_deeply_is_refused(tmp_path):
    file = tmp_path / "job.toml"
    file.write_text("x = " + "[" * 100_000)
    with pytest.raises(ConfigError, match=r"job\.toml"):
        read_toml(file)


def test_a_huge_file_is_refused(tmp_path):
    file = tmp_path / "job.toml"
    file.write_text("# " + "x" * (1 << 20))
    with pytest.raises(ConfigError, match="at most"):
        read_toml(file)
