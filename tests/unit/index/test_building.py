"""Building: what is on the disk in the end, however often it was stopped."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from lightning_cse.embeddings import DualEmbedding, PointEmbedding
from lightning_cse.errors import DataError, EncoderError, LightningCSEError
from lightning_cse.index import IndexFolder, IndexFolderError, SentenceFile, build_index, building, differences
from lightning_cse.runs import Busy, locked

Corpus = Callable[[int], SentenceFile]
MakeIndex = Callable[..., IndexFolder]
Embed = Callable[[Sequence[str]], DualEmbedding]
Model = dict[str, Any]


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(building, "CHUNK", 4)


class Dies:
    """Embeds so many chunks, then fails."""

    def __init__(self, chunks: int, embed: Embed) -> None:
        self.embed = embed
        self.left = chunks
        self.seen: list[str] = []

    def __call__(self, sentences: Sequence[str]) -> object:
        if not self.left:
            raise KeyboardInterrupt
        self.left -= 1
        self.seen += sentences
        return self.embed(sentences)


def content(path: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in path.iterdir()}


def test_every_distinct_sentence_once_with_its_place(tmp_path: Path, embed: Embed, model: Model) -> None:
    path = tmp_path / "a.txt"
    path.write_text("Äpfel 7\n\nbirds 3\nÄpfel 7\ncats 1\ndogs 5\nelks 2\nbirds 3\nÄpfel 7\n")
    told: list[tuple[int, int]] = []
    folder = build_index(tmp_path / "x", SentenceFile(path), embed, model=model, advance=lambda *now: told.append(now))
    sentences = ["Äpfel 7", "birds 3", "cats 1", "dogs 5", "elks 2"]
    assert [folder.sentence(row) for row in range(5)] == sentences
    assert [folder.line(row) for row in range(5)] == [1, 3, 5, 6, 7]
    assert [folder.times(row) for row in range(5)] == [3, 2, 1, 1, 1]
    assert told == [(0, 5), (4, 5), (5, 5)]
    whole = embed(sentences)
    assert torch.equal(folder.embedding(slice(0, 5)).explicit, whole.explicit)
    parts = list(folder.blocks(2))
    assert torch.equal(torch.cat([part.implicit for part in parts]), whole.implicit)
    assert (folder.count, folder.width, folder.primary) == (5, 16, "explicit")
    assert (folder.about["lines"], folder.about["empty"]) == (9, 1)
    assert folder.about["corpus"]["decides"]["sha256"] == SentenceFile(path).sha256
    assert not list(tmp_path.glob(".x.*")), "nothing is left beside it"


@pytest.mark.parametrize("chunks", [0, 1, 3])
def test_a_stopped_build_goes_on(
    chunks: int, tmp_path: Path, corpus: Corpus, make_index: MakeIndex, embed: Embed, model: Model
) -> None:
    want = content(make_index(18, "whole").path)
    dies = Dies(chunks, embed)
    with pytest.raises(KeyboardInterrupt):
        build_index(tmp_path / "x", corpus(18), dies, model=model)
    assert not (tmp_path / "x").exists(), "there as a whole or not at all"
    part = tmp_path / ".x.building"
    for name in ("sentences.txt", "ends.i8", "explicit.f4") if chunks else ():
        with (part / name).open("ab") as file:  # a chunk that did not get to its progress
            file.write(b"torn" * 5)
    told: list[int] = []
    goes_on = Dies(99, embed)
    build_index(tmp_path / "x", corpus(18), goes_on, model=model, advance=lambda done, _: told.append(done))
    assert dies.seen + goes_on.seen == [f"Sentence {n}" for n in range(18)]
    assert told[0] == 4 * chunks
    assert content(tmp_path / "x") == want


def test_one_killed_between_the_renames_embeds_nothing_again(
    tmp_path: Path, corpus: Corpus, make_index: MakeIndex, monkeypatch: pytest.MonkeyPatch, embed: Embed, model: Model
) -> None:
    make_index(6)
    with monkeypatch.context() as patch:
        patch.setattr(building, "_put", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            build_index(tmp_path / "index", corpus(9), embed, model=model, replace=True)
    assert IndexFolder.open(tmp_path / "index").count == 6, "the old one is there as long as can be"
    assert build_index(tmp_path / "index", corpus(9), Dies(0, embed), model=model, replace=True).count == 9


@pytest.mark.parametrize("what", ["model", "corpus", "progress", "file"])
def test_what_was_begun_otherwise_begins_anew(
    what: str, tmp_path: Path, corpus: Corpus, embed: Embed, model: Model
) -> None:
    with pytest.raises(KeyboardInterrupt):
        build_index(tmp_path / "x", corpus(18), Dies(2, embed), model=model)
    part = tmp_path / ".x.building"
    if what == "progress":
        (part / "progress.json").write_text("{")
    if what == "file":
        (part / "implicit.f4").write_bytes(b"")
    other = {"name": "m", "decides": {"weights": "cd"}} if what == "model" else model
    again = Dies(99, embed)
    folder = build_index(tmp_path / "x", corpus(17 if what == "corpus" else 18), again, model=other)
    assert len(again.seen) == folder.count
    assert torch.equal(folder.embedding(slice(0, 17)).implicit, embed([f"x {n}" for n in range(17)]).implicit)


def test_what_is_there_is_not_written_over(
    tmp_path: Path, corpus: Corpus, make_index: MakeIndex, embed: Embed, model: Model
) -> None:
    make_index(5)
    with pytest.raises(IndexFolderError, match="is there already"):
        build_index(tmp_path / "index", corpus(6), embed, model=model)
    assert build_index(tmp_path / "index", corpus(6), embed, model=model, replace=True).count == 6
    (tmp_path / "empty").mkdir()
    assert build_index(tmp_path / "empty", corpus(6), embed, model=model).count == 6
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    with pytest.raises(IndexFolderError, match="mine is there already"):
        build_index(tmp_path / "mine", corpus(6), embed, model=model, replace=True)
    assert (tmp_path / "mine" / "thesis.txt").is_file()


def test_two_do_not_build_one_index(tmp_path: Path, corpus: Corpus, embed: Embed, model: Model) -> None:
    with locked(tmp_path / ".x.lock", "it"), pytest.raises(Busy, match=r"the index .*x .*is in use"):
        build_index(tmp_path / "x", corpus(3), embed, model=model)


def test_faults_are_told(tmp_path: Path, corpus: Corpus, make_index: MakeIndex, embed: Embed, model: Model) -> None:
    def broken(sentences: Sequence[str]) -> PointEmbedding:
        return PointEmbedding(torch.full((len(sentences), 2), float("nan")))

    with pytest.raises(EncoderError, match="not finite"):
        build_index(tmp_path / "x", corpus(3), broken, model=model)

    file = corpus(9)

    def changes(sentences: Sequence[str]) -> DualEmbedding:
        file.path.write_text("".join(f"Sentence {number}\n" for number in range(9)) + "Sentence 8\n")
        return embed(sentences)

    with pytest.raises(DataError, match=r"9\.txt changed while it was read; give the same command again"):
        build_index(tmp_path / "y", file, changes, model=model)

    folder = make_index(5)
    about = json.loads((folder.path / "index.json").read_text())
    for change, told in (
        (lambda: (folder.path / "implicit.f4").write_bytes(b"short"), r"implicit\.f4 has 5 bytes and not 320"),
        ((folder.path / "lines.i8").unlink, r"lines\.i8 is missing|implicit\.f4 has"),
        (lambda: (folder.path / "index.json").write_text(json.dumps(about | {"format": 0})), "an index of format 0"),
        (lambda: (folder.path / "index.json").write_text("{"), r"index\.json cannot be read"),
        (lambda: (folder.path / "index.json").write_text('{"format": 1}'), r"lacks corpus, count, .*--rebuild"),
        ((folder.path / "index.json").unlink, "is no index, as it has no index"),
    ):
        change()
        with pytest.raises(LightningCSEError, match=told):
            IndexFolder.open(folder.path)


def test_what_an_index_was_made_of_is_compared(make_index: MakeIndex, model: Model) -> None:
    about = make_index(3).about
    assert differences(about, {"model": model, "corpus": about["corpus"]}) == []
    other = {"name": "b", "decides": {**model["decides"], "weights": "cd" * 32, "run": "0123456789"}}
    assert differences(about, {"model": other}) == [
        "model: weights was abababababab and is cdcdcdcdcdcd",
        "model: run was null and is 0123456789",
    ]
    assert differences(about, {"model": {**model, "name": "called otherwise"}}) == []
