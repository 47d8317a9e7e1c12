"""Values of the command line that several commands read alike."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from lightning_cse.config.arguments import count, path


def test_a_home_is_found_or_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/somewhere")
    assert path("~/runs") == Path("/somewhere/runs")
    with pytest.raises(argparse.ArgumentTypeError, match="'~nobody-of-this-name/x': "):
        path("~nobody-of-this-name/x")


@pytest.mark.parametrize("text", ["0", "-1", "2.5", "many", ""])
def test_a_count_is_a_whole_number(text: str) -> None:
    assert count("3") == 3
    with pytest.raises(argparse.ArgumentTypeError, match="need a whole number of at least 1"):
        count(text)
