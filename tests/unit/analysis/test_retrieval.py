"""Retrieval: in one part and in many, and with vectors whose order is known."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from lightning_cse.analysis import retrieval
from lightning_cse.analysis.retrieval import Passage, hypotheses, retrieve
from lightning_cse.data import Rows, SourceFile, read_corpus, sample_dir
from lightning_cse.embeddings import DualEmbedding, PointEmbedding
from lightning_cse.errors import DataError, EncoderError


class Letters:
    """Explicit: how often each letter occurs; implicit: the same of the sentence without its first word."""

    def embed(self, sentences: Sequence[str]) -> DualEmbedding:
        return DualEmbedding(counted(sentences), counted([s.partition(" ")[2] for s in sentences]))


def counted(sentences: Sequence[str]) -> Tensor:
    letters = "abcdefghijklmnopqrstuvwxyz"
    return torch.tensor([[float(sentence.lower().count(letter)) for letter in letters] for sentence in sentences])


def rows_of(*premises: str) -> Rows:
    file = SourceFile("INLI/val.csv", "/somewhere/INLI/val.csv", "")
    return Rows.of({"premise": premises}, files=[file], lines=range(2, 2 + len(premises)))


@pytest.mark.parametrize("at_once", [1, 2, 3, 1000])
def test_parts_change_nothing(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    inli = read_corpus("inli", "train", sample_dir()).select(range(20))
    corpus, queries = hypotheses(inli), read_corpus("inli", "val", sample_dir()).select(range(3))
    want = retrieve(Letters(), queries, corpus)
    monkeypatch.setattr(retrieval, "AT_ONCE", at_once)
    got = retrieve(Letters(), queries, corpus)
    for one, other in zip(got, want, strict=True):
        assert one.query == other.query
        for view in ("explicit", "implicit"):
            assert [hit.passage for hit in one.by_view[view]] == [hit.passage for hit in other.by_view[view]]
            cosines = [hit.cosine for hit in other.by_view[view]]
            assert [hit.cosine for hit in one.by_view[view]] == pytest.approx(cosines, abs=1e-6)


def test_a_query_that_is_searched_finds_itself_first() -> None:
    corpus = hypotheses(read_corpus("inli", "train", sample_dir()).select(range(30)))
    chosen = [corpus[k].sentence for k in (0, 17, 41)]
    for found, sentence in zip(retrieve(Letters(), rows_of(*chosen), corpus), chosen, strict=True):
        first = found.by_view["explicit"][0]
        assert first.passage.sentence == sentence
        assert first.cosine == pytest.approx(1, abs=1e-6)


def test_both_views_of_a_query_meet_the_explicit_vectors() -> None:
    corpus = [Passage(s, "neutral", "") for s in ("xx ab", "ab", "xx")]
    (found,) = retrieve(Letters(), rows_of("xx ab"), corpus, count=2)
    assert [hit.passage.sentence for hit in found.by_view["explicit"]] == ["xx ab", "xx"]
    # The implicit vector of the query is that of "ab": the corpus's implicit vectors would rank "xx ab" first.
    assert [hit.passage.sentence for hit in found.by_view["implicit"]] == ["ab", "xx ab"]
    assert found.by_view["implicit"][1].cosine == pytest.approx(2 / math.sqrt(2 * 6), abs=1e-6)
    assert (found.query.kind, found.query.where) == ("premise", "INLI/val.csv:2")


def test_one_vector_gives_one_list() -> None:
    class Points:
        def embed(self, sentences: Sequence[str]) -> PointEmbedding:
            return PointEmbedding(counted(sentences))

    (found,) = retrieve(Points(), rows_of("ab"), [Passage("ab", "neutral", "")])
    assert list(found.by_view) == ["primary"]


def test_hypotheses_are_distinct_and_know_their_place() -> None:
    rows = read_corpus("inli", "train", sample_dir())
    found = hypotheses(rows)
    every = [
        s
        for name in ("implied_entailment", "explicit_entailment", "neutral", "contradiction")
        for s in rows.column(name)
    ]
    assert len({passage.sentence for passage in found}) == len(found) == len(set(every))
    assert not {passage.sentence for passage in found} & (set(rows.column("premise")) - set(every))
    first = found[0]
    assert first.sentence == rows.column(first.kind)[0]
    assert first.where == "INLI/train.csv:2"
    with pytest.raises(DataError, match=r"INLI/val\.csv: no hypothesis to search"):
        hypotheses(rows_of("a"))


def test_broken_weights_are_told() -> None:
    class Broken:
        def embed(self, sentences: Sequence[str]) -> PointEmbedding:
            return PointEmbedding(torch.full((len(sentences), 2), math.nan))

    with pytest.raises(EncoderError, match="not finite numbers"):
        retrieve(Broken(), rows_of("a"), [Passage("b", "neutral", "")])
