"""Kinds of index: exact is exact, the others find what they say they find, and find it again."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch

from lightning_cse.embeddings import DualEmbedding
from lightning_cse.errors import LightningCSEError
from lightning_cse.index import IndexFolder, IndexFolderError, kinds, nearest, open_index

MakeIndex = Callable[..., IndexFolder]
Embed = Callable[[Sequence[str]], DualEmbedding]


def recall(found: torch.Tensor, want: torch.Tensor) -> float:
    return sum(len(set(a) & set(b)) for a, b in zip(found.tolist(), want.tolist(), strict=True)) / want.numel()


@pytest.fixture
def large(make_index: MakeIndex, monkeypatch: pytest.MonkeyPatch) -> IndexFolder:
    """An index of 2,000 sentences around 40 centres."""
    monkeypatch.setattr(kinds, "SAMPLE", 50)
    return make_index(2000)


def test_exact_is_exact(make_index: MakeIndex, embed: Embed) -> None:
    folder = make_index(300)
    queries = embed([f"q {5000 + n}" for n in range(7)]).implicit
    want = nearest(queries, embed([f"x {n}" for n in range(300)]).explicit, 9)[1]
    assert open_index(folder, "exact").candidates(queries, 9).tolist() == want.tolist()
    assert open_index(folder, "exact").candidates(queries, 999).shape == (7, 300)
    assert open_index(folder).kind == "exact"


@pytest.mark.parametrize("kind", ["ivf", "hnsw"])
def test_most_of_the_nearest_are_found(kind: str, large: IndexFolder, embed: Embed) -> None:
    told: list[str] = []
    index = open_index(large, kind, told.append)
    facts = IndexFolder.open(large.path).about["kinds"][kind]
    assert facts["recall@10"] >= 0.95
    assert told[0] == f"{kind}: building for 2,000 sentences"
    assert (
        told[1]
        == f"{kind}: finds {100 * facts['recall@10']:.1f}% of the 10 nearest with an effort of {facts['effort']}"
    )
    embedding = embed([f"q {5000 + n}" for n in range(50)])
    for queries in (embedding.explicit, embedding.implicit):
        want = open_index(large, "exact").candidates(queries, 10)
        assert recall(torch.from_numpy(index.candidates(queries, 10)), torch.from_numpy(want)) > 0.9
    assert sorted(index.candidates(queries[:2], 5000)[1]) == list(range(2000)), "all, where all are asked for"


@pytest.mark.parametrize("kind", ["ivf", "hnsw"])
def test_a_second_build_finds_the_same(kind: str, large: IndexFolder, embed: Embed) -> None:
    queries = embed([f"q {5000 + n}" for n in range(20)]).explicit
    first = open_index(large, kind).candidates(queries, 30).tolist()
    facts = IndexFolder.open(large.path).about["kinds"][kind]
    built = (large.path / f"{kind}.faiss").read_bytes()
    (large.path / f"{kind}.faiss").unlink()
    assert open_index(IndexFolder.open(large.path), kind).candidates(queries, 30).tolist() == first
    assert IndexFolder.open(large.path).about["kinds"][kind] == facts
    assert (large.path / f"{kind}.faiss").read_bytes() == built


def test_an_index_is_built_once(make_index: MakeIndex) -> None:
    folder = make_index(60)
    told: list[str] = []
    open_index(folder, "ivf", told.append)
    assert len(told) == 2
    open_index(IndexFolder.open(folder.path), "ivf", told.append)
    assert open_index(IndexFolder.open(folder.path), "auto", told.append).kind == "ivf", "what is there"
    assert len(told) == 2
    (folder.path / "ivf.faiss").write_bytes(b"nothing")
    with pytest.raises(IndexFolderError, match=r"ivf\.faiss cannot be read; remove it"):
        open_index(IndexFolder.open(folder.path), "ivf")


def test_many_sentences_get_lists(make_index: MakeIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kinds, "LARGE", 100)
    assert open_index(make_index(99, "small")).kind == "exact"
    assert open_index(make_index(100, "large")).kind == "ivf"


@pytest.mark.parametrize(("kind", "count"), [("ivf", 1), ("ivf", 2), ("hnsw", 1), ("hnsw", 3)])
def test_few_sentences_will_do(kind: str, count: int, make_index: MakeIndex, embed: Embed) -> None:
    rows = open_index(make_index(count), kind).candidates(embed(["q 1"]).explicit, 10)
    assert sorted(rows[0]) == list(range(count))


def test_a_poor_index_is_told(make_index: MakeIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kinds, "_MOST_EFFORT", 1)
    told: list[str] = []
    folder = make_index(2000)
    open_index(folder, "ivf", told.append)
    assert "which is below 0.95: use --kind exact where that matters" in told[1]
    assert 0.05 < IndexFolder.open(folder.path).about["kinds"]["ivf"]["recall@10"] < 0.95


def test_without_faiss(make_index: MakeIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "faiss", None)
    monkeypatch.setattr(kinds.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(kinds, "LARGE", 10)
    folder = make_index(20)
    told: list[str] = []
    assert open_index(folder, "auto", told.append).kind == "exact"
    assert told == ["faiss is not installed, so all 20 sentences are compared; pip install faiss-cpu"]
    with pytest.raises(IndexFolderError, match="ivf needs faiss: pip install faiss-cpu, or use --kind exact"):
        open_index(folder, "ivf")
    with pytest.raises(ValueError, match="no kind 'lsh'"):
        open_index(folder, "lsh")


def test_a_folder_that_cannot_be_written_to(make_index: MakeIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    import faiss

    def full(index: object, path: str) -> None:
        Path(path).write_bytes(b"a part")
        raise RuntimeError("Error: could not write: No space left on device")

    monkeypatch.setattr(faiss, "write_index", full)
    folder = make_index(20)
    with pytest.raises(LightningCSEError, match=r"ivf\.faiss cannot be written \(Error: could not write: No space"):
        open_index(folder, "ivf")
    assert [file.name for file in folder.path.iterdir() if "faiss" in file.name or "lock" in file.name] == []
