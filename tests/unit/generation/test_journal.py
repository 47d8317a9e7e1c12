"""Settled sources on disk: every line whole, none lost but the one that a crash cut short."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path

import pytest

from lightning_cse.errors import DataError, LightningCSEError
from lightning_cse.generation import Journal, Rejected, Settled


def settled(position: int, *, complete: bool = True) -> Settled:
    sentences = {"positive": f'Wohlan \u2028 \U0001f642 "{position}"\\', "negative": "No.\n"} if complete else {}
    rejected = (Rejected("positive", "empty", "\x00 é"),) if not complete else ()
    return Settled(position, f"source {position}", sentences, rejected, 2, 30, 4, 0, {"m-1": 2}, complete)


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "folder" / "journal.jsonl")


def test_what_is_written_is_read(journal: Journal) -> None:
    given = [settled(position, complete=position % 3 > 0) for position in (4, 0, 2, 1, 3)]
    assert list(journal.read()) == list(journal.in_order()) == []
    with journal:
        for each in given:
            journal.append(each)
        assert list(journal.read()) == given  # while it is open, too
    assert list(Journal(journal.path).read()) == given
    assert [each.position for each in journal.in_order()] == [0, 1, 2, 3, 4]
    assert sorted(given, key=lambda each: each.position) == list(journal.in_order())


def test_a_half_written_last_line_is_dropped_wherever_it_was_cut(
    journal: Journal, caplog: pytest.LogCaptureFixture
) -> None:
    with journal:
        journal.append(settled(0))
        whole = journal.path.stat().st_size
        journal.append(settled(1))
    content = journal.path.read_bytes()
    for length in range(whole + 1, len(content)):
        journal.path.write_bytes(content[:length])
        caplog.clear()
        assert list(journal.read()) == list(journal.in_order()) == [settled(0)]
        assert journal.path.read_bytes() == content[:length]  # whoever reads changes nothing
        journal.repair()
        assert "1 damaged line" in caplog.text
        assert journal.path.read_bytes() == content[:whole]
        with journal:
            journal.append(settled(2))
        assert list(journal.read()) == [settled(0), settled(2)]


def test_a_cut_line_that_nobody_read_does_not_spoil_the_next(journal: Journal) -> None:
    with journal:
        journal.append(settled(0))
    with journal.path.open("ab") as file:
        file.write(b'{"position": 1, "anch')
    with journal:
        journal.append(settled(2))
    assert list(journal.read()) == [settled(0), settled(2)]


@pytest.mark.parametrize(
    "damage", [b"\0" * 40 + b"\n", b"[1]\n", b"7\n", b"null\n", b'{"position": 1\n', b"\xff\xfe\n", b"\n"]
)
def test_a_damaged_line_in_the_middle_is_taken_out(
    journal: Journal, damage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    with journal:
        journal.append(settled(0))
        journal.append(settled(1))
    first, second = journal.path.read_bytes().splitlines(keepends=True)
    journal.path.write_bytes(first + damage + second)
    assert [each.position for each in journal.in_order()] == [0, 1]
    assert list(journal.read()) == [settled(0), settled(1)]
    assert not caplog.text
    journal.repair()
    assert str(journal.path) in caplog.text
    assert journal.path.read_bytes() == first + second
    assert journal.path.with_name("journal.damaged.jsonl").read_bytes() == damage
    caplog.clear()
    journal.repair()
    assert not caplog.text


@pytest.mark.parametrize("line", [b'{"position": 1}\n', b"{}\n"])
def test_another_version_s_journal_is_left_alone(journal: Journal, line: bytes) -> None:
    journal.path.parent.mkdir()
    journal.path.write_bytes(line)
    for reading in (lambda: list(journal.read()), journal.repair, lambda: list(journal.in_order())):
        with pytest.raises(DataError, match="was written by another version of lightning_cse"):
            reading()
    assert journal.path.read_bytes() == line


def test_of_two_lines_for_one_source_the_first_counts(journal: Journal) -> None:
    with journal:
        journal.append(settled(0))
        journal.append(settled(0, complete=False))
    assert list(journal.read()) == list(journal.in_order()) == [settled(0)]


def test_a_full_disk_leaves_whole_lines(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    with journal:
        journal.append(settled(0))
        real = os.write

        def full(descriptor: int, content: bytes) -> int:
            if len(content) < 20:
                raise OSError(28, "No space left on device")
            return real(descriptor, bytes(content[:10]))

        monkeypatch.setattr(os, "write", full)
        with pytest.raises(LightningCSEError, match="no space left"):
            journal.append(settled(1))
        monkeypatch.undo()
        journal.append(settled(2))
    assert list(journal.read()) == [settled(0), settled(2)]


def test_thousands_in_any_order(journal: Journal) -> None:
    order = random.Random(0).sample(range(3000), 3000)
    with journal:
        for position in order:
            journal.append(settled(position))
    assert [each.position for each in journal.read()] == order
    assert [each.position for each in journal.in_order()] == list(range(3000))
    assert all(json.loads(line)["served"] == {"m-1": 2} for line in journal.path.open(encoding="utf-8"))
