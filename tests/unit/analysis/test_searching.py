"""Searching: every relation and view against the model's question asked of all sentences, exactly and by faiss."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from lightning_cse.analysis import searching
from lightning_cse.analysis.searching import Vectors, comparison, faiss_index, is_same, read_corpus, search, swapped
from lightning_cse.embeddings import (
    DualEmbedding,
    DualGaussianEmbedding,
    Embedding,
    GaussianEmbedding,
    PointEmbedding,
    PragmaticEmbedding,
)
from lightning_cse.errors import ConfigError, DataError, EncoderError, TaskError
from lightning_cse.similarity import cosine, gaussian_similarity, symmetric_gaussian_similarity

COUNT = 400
WIDTH = 8


def drawn(sentences: Sequence[str], part: int) -> Tensor:
    """Return a seeded vector for each sentence, by its number: (n, d)."""
    seeds = [1000 * part + int(sentence.split()[-1]) for sentence in sentences]
    return torch.stack([torch.randn(WIDTH, generator=torch.Generator().manual_seed(seed)) for seed in seeds])


class Points:
    def embed(self, sentences: Sequence[str]) -> Embedding:
        return PointEmbedding(drawn(sentences, 0))

    def similarity(self, a: PointEmbedding, b: PointEmbedding) -> Tensor:
        return cosine(a.vector, b.vector)


class Dual:
    def similarity(self, a: DualEmbedding, b: DualEmbedding) -> Tensor:
        return cosine(a.explicit, b.explicit)

    def entailment_score(self, premise: DualEmbedding, hypothesis: DualEmbedding) -> Tensor:
        said, implied = (cosine(view, hypothesis.explicit) for view in (premise.explicit, premise.implicit))
        return torch.maximum(said, implied)

    def embed(self, sentences: Sequence[str]) -> Embedding:
        explicit = drawn(sentences, 0)
        return DualEmbedding(explicit, explicit + drawn(sentences, 1))


class Gauss:
    def similarity(self, a: GaussianEmbedding, b: GaussianEmbedding) -> Tensor:
        return cosine(a.mean, b.mean)

    def entailment_score(self, premise: GaussianEmbedding, hypothesis: GaussianEmbedding) -> Tensor:
        return gaussian_similarity(hypothesis, premise)

    def embed(self, sentences: Sequence[str]) -> Embedding:
        return GaussianEmbedding(drawn(sentences, 0).tanh(), 0.3 * drawn(sentences, 1))


class Symmetric(Gauss):
    def similarity(self, a: GaussianEmbedding, b: GaussianEmbedding) -> Tensor:
        return symmetric_gaussian_similarity(a, b)


class DualGaussian:
    """Answers as DualGauss does: whichever is the larger, said or implied."""

    def embed(self, sentences: Sequence[str]) -> Embedding:
        return DualGaussianEmbedding(*(0.5 * drawn(sentences, part) for part in range(4)))

    def similarity(self, a: DualGaussianEmbedding, b: DualGaussianEmbedding) -> Tensor:
        return cosine(a.explicit_mean, b.explicit_mean)

    def entailment_score(self, premise: DualGaussianEmbedding, hypothesis: DualGaussianEmbedding) -> Tensor:
        said = gaussian_similarity(hypothesis.explicit, premise.explicit)
        return torch.maximum(said, gaussian_similarity(hypothesis.explicit, premise.implicit))


class Pragmatic:
    def embed(self, sentences: Sequence[str]) -> Embedding:
        return PragmaticEmbedding(semantic=drawn(sentences, 0), pragmatic=drawn(sentences, 1))


MODELS: dict[str, Callable[[], Any]] = {
    "points": Points,
    "dual": Dual,
    "gauss": Gauss,
    "symmetric": Symmetric,
    "dualgauss": DualGaussian,
    "pragmatic": Pragmatic,
}
QUERIES = [f"query {5000 + number}" for number in range(6)]
SENTENCES = [f"sentence {number}" for number in range(COUNT)]
INDICES = ("Flat", "IVF4,Flat", "HNSW16")

Hits = list[list[tuple[int, float]]]


@pytest.fixture(scope="module")
def vectors(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Vectors]:
    """The embeddings of 400 sentences by each kind of model."""
    folder = tmp_path_factory.mktemp("vectors")
    return {name: Vectors(folder / f"{name}.npy", SENTENCES, make().embed) for name, make in MODELS.items()}


def wanted(model: Any, score: Callable[[Any, Any], Tensor], count: int) -> Hits:
    """Return the best by asking about every pair, in float64."""
    corpus, queries = model.embed(SENTENCES).to(torch.float64), model.embed(QUERIES).to(torch.float64)
    best = []
    for row in range(len(QUERIES)):
        scores = score(queries[torch.full((COUNT,), row)], corpus)
        order = scores.sort(descending=True, stable=True).indices[:count].tolist()
        best.append([(place, float(scores[place])) for place in order])
    return best


def same(got: Hits, want: Hits) -> bool:
    rows = [[row for row, _ in hits] for hits in got] == [[row for row, _ in hits] for hits in want]
    scores = ([score for hits in found for _, score in hits] for found in (got, want))
    return rows and next(scores) == pytest.approx(next(scores), abs=1e-12)


RELATIONS = [
    ("points", "similar"),
    ("dual", "similar"),
    ("dual", "entails"),
    ("dual", "entailed_by"),
    ("gauss", "similar"),
    ("gauss", "entails"),
    ("gauss", "entailed_by"),
    ("symmetric", "similar"),
    ("dualgauss", "similar"),
    ("dualgauss", "entails"),
    ("dualgauss", "entailed_by"),
]


@pytest.mark.parametrize(("name", "relation"), RELATIONS)
def test_a_relation_is_the_question_asked_of_every_sentence(
    name: str, relation: str, vectors: dict[str, Vectors], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = MODELS[name]()

    def ask(query: Any, sentence: Any) -> Tensor:
        if relation == "similar":
            return model.similarity(query, sentence)
        return model.entailment_score(*((query, sentence) if relation == "entails" else (sentence, query)))

    monkeypatch.setattr(searching, "BLOCK", 90)
    compared, queries = comparison(model, model.embed(QUERIES), relation), model.embed(QUERIES)
    want, everything = wanted(model, ask, 7), [dict(hits) for hits in wanted(model, ask, COUNT)]
    assert same(search(vectors[name], compared, queries, 7), want)
    view = next(iter(queries.views()))
    for factory in INDICES:
        index = faiss_index(factory, tmp_path / f"{factory}.faiss", vectors[name], view)
        got = search(vectors[name], compared, queries, 7, index)
        for row, hits in enumerate(got):
            assert [score for _, score in hits] == sorted((score for _, score in hits), reverse=True)
            assert all(score == pytest.approx(everything[row][place], abs=1e-12) for place, score in hits)
        share = sum(len(dict(a).keys() & dict(b).keys()) for a, b in zip(got, want, strict=True)) / 7 / len(QUERIES)
        assert share > (0.95 if compared.views else 0.6), "half of the corpus are candidates"
        assert [file.name for file in tmp_path.glob(f"{factory}*")] == [f"{factory}.faiss"]
        faiss_index(factory, tmp_path / f"{factory}.faiss", vectors[name], view)  # read again


@pytest.mark.parametrize(
    ("name", "view", "against", "score"),
    [
        ("points", "primary", None, lambda q, s: cosine(q.vector, s.vector)),
        ("dual", "explicit", None, lambda q, s: cosine(q.explicit, s.explicit)),
        ("dual", "implicit", None, lambda q, s: cosine(q.implicit, s.explicit)),
        ("dual", "implicit", "implicit", lambda q, s: cosine(q.implicit, s.implicit)),
        ("dual", None, "implicit", lambda q, s: cosine(q.explicit, s.implicit)),
        ("gauss", "mean", None, lambda q, s: cosine(q.mean, s.mean)),
        ("dualgauss", "implicit", None, lambda q, s: cosine(q.implicit_mean, s.explicit_mean)),
        ("pragmatic", "pragmatic", None, lambda q, s: cosine(q.pragmatic, s.pragmatic)),
        ("pragmatic", "semantic", "semantic", lambda q, s: cosine(q.semantic, s.semantic)),
    ],
)
def test_a_view_is_compared_by_cosine(
    name: str,
    view: str | None,
    against: str | None,
    score: Callable[[Any, Any], Tensor],
    vectors: dict[str, Vectors],
    tmp_path: Path,
) -> None:
    model = MODELS[name]()
    queries = model.embed(QUERIES)
    compared = comparison(model, queries, "similar", view, against)
    assert compared.views is not None
    index = faiss_index("Flat", tmp_path / "index", vectors[name], compared.views[1])
    for kind in (None, index):
        assert same(search(vectors[name], compared, queries, 5, kind), wanted(model, score, 5))


@pytest.mark.parametrize(
    ("name", "relation", "views"),
    [
        ("points", "similar", ("primary", "primary")),
        ("dual", "similar", ("explicit", "explicit")),
        ("gauss", "similar", ("mean", "mean")),
        ("symmetric", "similar", None),
        ("dual", "entails", None),
    ],
)
def test_cosines_are_known_by_asking(name: str, relation: str, views: object) -> None:
    model = MODELS[name]()
    assert comparison(model, model.embed(QUERIES), relation).views == views


@pytest.mark.parametrize("reduce", ["mean_of_sims", "sim_of_sum"])
def test_a_direction_is_seen_in_wide_embeddings(reduce: Any) -> None:
    def score(a: Any, b: Any) -> Tensor:
        return gaussian_similarity(b, a, reduce=reduce)

    like = GaussianEmbedding(torch.zeros(1, 1024), torch.zeros(1, 1024))
    assert not is_same(score, swapped(score), like)
    assert is_same(symmetric_gaussian_similarity, swapped(symmetric_gaussian_similarity), like)


class Undirected(Points):
    entailment_score = Points.similarity


@pytest.mark.parametrize(
    ("make", "relation", "view", "against", "message"),
    [
        (Undirected, "entails", None, None, "--relation entails: the score of Undirected is the same both ways"),
        (Undirected, "entailed_by", None, None, "same both ways; use --relation similar"),
        (Points, "entails", None, None, "Points has no entailment_score"),
        (Pragmatic, "similar", None, None, "Pragmatic has no similarity"),
        (
            Dual,
            "similar",
            "implict",
            None,
            r"--view: Dual has no view 'implict' - did you mean 'implicit'\? \(it has: ex",
        ),
        (Gauss, "similar", None, "implicit", r"--against: Gauss has no view 'implicit' \(it has: mean\)"),
        (Dual, "entails", "implicit", None, "leave --view and --against out"),
    ],
)
def test_what_a_model_lacks(
    make: Callable[[], Any], relation: str, view: str | None, against: str | None, message: str
) -> None:
    model = make()
    with pytest.raises(TaskError, match=message):
        comparison(model, model.embed(QUERIES), relation, view, against)


def test_embeddings_are_kept_and_broken_weights_are_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(searching, "AT_ONCE", 30)
    asked: list[int] = []

    def embed(sentences: Sequence[str]) -> Embedding:
        asked.append(len(sentences))
        return Dual().embed(sentences)

    first = Vectors(tmp_path / "kept.npy", SENTENCES, embed)
    assert sum(asked) == COUNT + 1
    again = Vectors(tmp_path / "kept.npy", SENTENCES, embed)
    assert asked[-1] == 1, "one sentence, for the kind of embedding"
    for name, value in Dual().embed(SENTENCES).fields().items():
        for kept in (first, again):
            assert torch.equal(kept[slice(0, COUNT)].fields()[name], value)
    with pytest.raises(EncoderError, match="not finite"):
        Vectors(tmp_path / "broken.npy", SENTENCES, lambda s: PointEmbedding(torch.full((len(s), WIDTH), torch.nan)))
    assert [path.name for path in tmp_path.iterdir()] == ["kept.npy"]


def test_more_than_there_are_and_equal_scores(vectors: dict[str, Vectors], tmp_path: Path) -> None:
    model = Points()
    compared = comparison(model, model.embed(QUERIES))
    (hits,) = search(vectors["points"], compared, model.embed(["query 17"]), 10_000)
    assert (len(hits), hits[0][0]) == (COUNT, 17)
    assert hits[0][1] == pytest.approx(1, abs=1e-12)
    same_ones = Vectors(tmp_path / "same.npy", ["sentence 1"] * 50, model.embed)
    (first,) = search(same_ones, compared, model.embed(["query 1"]), 3)
    assert [row for row, _ in first] == sorted(row for row, _ in first)


def test_a_factory_string_that_faiss_refuses(vectors: dict[str, Vectors], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--index IFV: "):
        faiss_index("IFV", tmp_path / "index", vectors["points"], "primary")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "text", "column", "want"),
    [
        (
            "a.txt",
            'One.\n\n  Two , "three" \nÖne.\nOne.',
            None,
            [("One.", 1, 2), ('Two , "three"', 3, 1), ("Öne.", 4, 1)],
        ),
        ("a.txt.gz", "\nOne.\nNA\tx\nOne.\n", None, [("One.", 2, 2), ("NA\tx", 3, 1)]),
        ("a.csv", 'id,text\n1,"one, two"\n2,\n3, three \n', "text", [("one, two", 2, 1), ("three", 4, 1)]),
        ("a.tsv", "text\tid\na\t1\n", "text", [("a", 2, 1)]),
        ("a.jsonl", '{"text": "one"}\n{"text": null}\n{"text": "two"}\n', None, [("one", 1, 1), ("two", 3, 1)]),
    ],
)
def test_a_corpus_has_each_sentence_once(
    name: str, text: str, column: str | None, want: list[tuple[str, int, int]], tmp_path: Path
) -> None:
    data = text.encode()
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    found = read_corpus(str(tmp_path / name), column)
    assert list(found.itertuples(index=False, name=None)) == want


@pytest.mark.parametrize(
    ("name", "text", "column", "message"),
    [
        ("a.txt", b"", None, "no line has a sentence"),
        ("a.txt", b" \n \n", None, "no line has a sentence"),
        ("a.txt", b"one\ntw\xf6\n", None, "'utf-8' codec can't decode byte 0xf6"),
        ("a.txt", b"one\n", "text", r"no column 'text' \(has: column 1\)"),
        ("a.csv", b"id,text\n1,one\n", None, "choose the column of the sentences with --column"),
        ("a.csv", b"id,text\n1,one\n", "txt", "no column 'txt' - did you mean 'text'"),
        ("a.csv", b"id,text\n1,one\n2,two,three\n", "text", "Expected 2 fields in line 3, saw 3"),
        ("a.csv", b"id,text\n1,one,two\n", "text", "the first row has more cells than the header"),
        ("a.jsonl", b'{"text": "one"}\n{\n', None, "cannot be read as jsonl"),
        ("a.txt.gz", gzip.compress(b"one\n" * 1000)[:-12], None, "end-of-stream"),
        ("a.txt.gz", b"one\n", None, "gzip"),
    ],
)
def test_what_is_not_a_corpus(name: str, text: bytes, column: str | None, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(text)
    with pytest.raises(DataError, match=message):
        read_corpus(str(tmp_path / name), column)
