"""Searching: every relation and view against the model's question asked of all sentences, in every kind of index."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from lightning_cse.analysis import searching
from lightning_cse.analysis.searching import (
    Searcher,
    comparison,
    default_folder,
    embedder,
    is_same_both_ways,
    open_folder,
)
from lightning_cse.embeddings import (
    DualEmbedding,
    DualGaussianEmbedding,
    Embedding,
    GaussianEmbedding,
    PointEmbedding,
    PragmaticEmbedding,
)
from lightning_cse.engine.load import load_model
from lightning_cse.errors import EncoderError, TaskError
from lightning_cse.index import IndexFolder, IndexFolderError, SentenceFile, build_index, kinds, open_index
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


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, IndexFolder]:
    """An index of 400 sentences by each kind of model."""
    path = tmp_path_factory.mktemp("indices")
    (path / "corpus.txt").write_text("".join(f"sentence {number}\n" for number in range(COUNT)))
    about = {"name": "made up", "decides": {}}
    corpus = SentenceFile(path / "corpus.txt")
    return {name: build_index(path / name, corpus, make().embed, model=about) for name, make in MODELS.items()}


def one(embedding: Embedding, row: int) -> Embedding:
    return embedding[torch.full((COUNT,), row)].to(torch.float64)


def wanted(model: Any, score: Callable[[Any, Any], Tensor], count: int) -> list[list[tuple[str, float]]]:
    """Return the best by asking about every pair."""
    sentences = [f"sentence {number}" for number in range(COUNT)]
    corpus, queries = model.embed(sentences).to(torch.float64), model.embed(QUERIES)
    best = []
    for row in range(len(QUERIES)):
        scores = score(one(queries, row), corpus)
        order = scores.sort(descending=True, stable=True).indices[:count].tolist()
        best.append([(sentences[place], float(scores[place])) for place in order])
    return best


def found(
    model: Any,
    folder: IndexFolder,
    kind: str,
    relation: str,
    count: int,
    view: str | None = None,
    against: str | None = None,
) -> list[list[tuple[str, float]]]:
    compared = comparison(model, model.embed(QUERIES), relation, view, against)
    searcher = Searcher(model.embed, folder, open_index(folder, kind), compared)
    return [[(hit.sentence, hit.score) for hit in hits] for hits in searcher.search(QUERIES, count)]


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
    name: str, relation: str, folders: dict[str, IndexFolder], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = MODELS[name]()

    def ask(query: Any, sentence: Any) -> Tensor:
        if relation == "similar":
            return model.similarity(query, sentence)
        return model.entailment_score(*((query, sentence) if relation == "entails" else (sentence, query)))

    want = wanted(model, ask, 7)
    monkeypatch.setattr(searching, "BLOCK", 90)
    assert found(model, folders[name], "exact", relation, 7) == want
    everything = [dict(hits) for hits in wanted(model, ask, COUNT)]
    for kind in ("ivf", "hnsw"):
        got = found(model, folders[name], kind, relation, 7)
        assert all(score == everything[row][sentence] for row, hits in enumerate(got) for sentence, score in hits)
        assert all([s for _, s in hits] == sorted((s for _, s in hits), reverse=True) for hits in got)
        share = sum(len(set(a) & set(b)) for a, b in zip(got, want, strict=True)) / 7 / len(QUERIES)
        assert share > 0.6, "half of the corpus are candidates"


def test_the_two_directions_differ(folders: dict[str, IndexFolder]) -> None:
    model = Gauss()
    entails, entailed_by = (found(model, folders["gauss"], "exact", r, 5) for r in ("entails", "entailed_by"))
    assert entails != entailed_by


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
@pytest.mark.parametrize("kind", ["exact", "ivf"])
def test_a_view_is_compared_by_cosine(
    kind: str,
    name: str,
    view: str | None,
    against: str | None,
    score: Callable[[Any, Any], Tensor],
    folders: dict[str, IndexFolder],
) -> None:
    model = MODELS[name]()
    want, got = wanted(model, score, 5), found(model, folders[name], kind, "similar", 5, view, against)
    if kind == "exact" or against not in (None, folders[name].primary):
        assert got == want, "no index is built over that view, so all are compared"
    else:
        assert sum(len(set(a) & set(b)) for a, b in zip(got, want, strict=True)) >= 0.8 * 5 * len(QUERIES)


def test_cosines_are_known_by_asking() -> None:
    def views(name: str, relation: str) -> object:
        model = MODELS[name]()
        return comparison(model, model.embed(QUERIES), relation, None, None).views

    assert views("points", "similar") == ("primary", "primary")
    assert views("dual", "similar") == ("explicit", "explicit")
    assert views("gauss", "similar") == ("mean", "mean")
    assert views("symmetric", "similar") is None
    assert views("dual", "entails") is None


def test_a_direction_is_not_asked_of_a_score_that_has_none() -> None:
    class Cosine(Points):
        def entailment_score(self, premise: PointEmbedding, hypothesis: PointEmbedding) -> Tensor:
            return cosine(premise.vector, hypothesis.vector)

    class Distance(Pragmatic):
        def similarity(self, a: PragmaticEmbedding, b: PragmaticEmbedding) -> Tensor:
            return -torch.linalg.vector_norm((a.pragmatic - b.pragmatic).float(), dim=-1)

        entailment_score = similarity

    for model in (Cosine(), Distance()):
        like = model.embed(QUERIES)
        for relation in ("entails", "entailed_by"):
            told = rf"^--relation {relation}: the score of {type(model).__name__} is the same both ways, so there is no"
            with pytest.raises(TaskError, match=rf"{told} direction to ask for; use --relation similar$"):
                comparison(model, like, relation, None, None)
        assert comparison(model, like, "similar", None, None).name == "similar"


@pytest.mark.parametrize("reduce", ["mean_of_sims", "sim_of_sum"])
def test_a_direction_is_seen_in_wide_embeddings(reduce: Any) -> None:
    like = GaussianEmbedding(torch.zeros(1, 1024), torch.zeros(1, 1024))
    assert not is_same_both_ways(lambda a, b: gaussian_similarity(b, a, reduce=reduce), like)
    assert is_same_both_ways(lambda a, b: symmetric_gaussian_similarity(a, b, reduce=reduce), like)


def test_what_a_model_does_not_have_is_told() -> None:
    points, pragmatic, dual, gauss = (make().embed(QUERIES) for make in (Points, Pragmatic, Dual, Gauss))
    with pytest.raises(TaskError, match=r"needs 'entailment_score', which Points does not answer; it has: similar$"):
        comparison(Points(), points, "entails", None, None)
    with pytest.raises(TaskError, match=r"Pragmatic does not answer; it has: none"):
        comparison(Pragmatic(), pragmatic, "similar", None, None)
    with pytest.raises(TaskError, match=r"--view: Dual has no view 'implict' - did you mean 'implicit'\? \(it has: ex"):
        comparison(Dual(), dual, "similar", "implict", None)
    with pytest.raises(TaskError, match=r"--against: Gauss has no view 'implicit' \(it has: mean\)"):
        comparison(Gauss(), gauss, "similar", None, "implicit")
    with pytest.raises(TaskError, match="leave --view and --against out"):
        comparison(Dual(), dual, "entails", "implicit", None)


def test_more_than_there_are_and_none(folders: dict[str, IndexFolder], monkeypatch: pytest.MonkeyPatch) -> None:
    model, folder = Points(), folders["points"]
    monkeypatch.setattr(searching, "QUERIES_AT_ONCE", 4)  # 6 queries in two parts
    for kind in kinds.KINDS:
        (hits, *others) = found(model, folder, kind, "similar", 10_000)
        assert len(hits) == COUNT
        assert len(others) == 5
    compared = comparison(model, model.embed(QUERIES), "similar", None, None)
    searcher = Searcher(model.embed, folder, open_index(folder, "exact"), compared)
    assert searcher.search([], 3) == []
    with pytest.raises(ValueError, match="count of at least 1, got 0"):
        searcher.search(QUERIES, 0)
    (hit,) = searcher.search(["query 17"], 1)[0]
    assert (hit.sentence, hit.line, hit.times) == ("sentence 17", 18, 1)
    assert hit.score == pytest.approx(1, abs=1e-12)


def test_broken_weights_are_told(folders: dict[str, IndexFolder]) -> None:
    def broken(sentences: Sequence[str]) -> Embedding:
        return PointEmbedding(torch.full((len(sentences), WIDTH), torch.nan))

    folder = folders["points"]
    compared = comparison(Points(), Points().embed(QUERIES), "similar", None, None)
    searcher = Searcher(broken, folder, open_index(folder, "exact"), compared)
    with pytest.raises(EncoderError, match="not finite"):
        searcher.search(QUERIES, 1)


# --------------------------------------------------------------------------------------------------- a model's index


def test_an_index_that_fits_is_used_and_another_is_told(tmp_path: Path) -> None:
    path = tmp_path / "pets.txt"
    path.write_text("A dog barks.\nA cat sleeps.\n\nA dog barks.\n")
    model = load_model("tiny")
    told: list[str] = []

    def opened(corpus: Path | None, precision: str = "32-true", rebuild: bool = False, **changed: Any) -> IndexFolder:
        like = SimpleNamespace(
            **{n: getattr(model, n) for n in ("answers", "name", "record", "digests", "encoder", "templates")}
        )
        vars(like).update(changed)
        embed = embedder(model, precision, "cpu")
        file = None if corpus is None else SentenceFile(corpus)
        return open_folder(
            tmp_path / "i",
            file,
            like,
            precision=precision,
            embed=embed,
            tell=told.append,
            rebuild=rebuild,  # type: ignore[arg-type]
        )

    with pytest.raises(IndexFolderError, match=r"no index there; give --corpus to build one"):
        opened(None)
    folder = opened(path)
    assert told == [
        f"index: building {tmp_path / 'i'}",
        "index: 2 sentences (1 empty, 1 for the second time or more left out)",
    ]
    assert torch.equal(folder.embedding(slice(0, 1)).vector, model.answers.embed(["A dog barks."]).vector)
    opened(path)
    opened(None)
    path.rename(tmp_path / "elsewhere.txt")
    opened(tmp_path / "elsewhere.txt", name="called otherwise")
    assert len(told) == 2, "used as it is"

    path.write_text("A dog barks.\n")
    with pytest.raises(
        IndexFolderError, match=r"something else:\n  corpus: sha256 was \w{12} and is \w{12}\ngive --corpus"
    ):
        opened(path)
    with pytest.raises(IndexFolderError, match=r"model: weights was .* and is 123"):
        opened(None, digests={**model.digests, "weights": "123"})
    with pytest.raises(IndexFolderError, match="model: precision was 32-true and is bf16-mixed"):
        opened(None, precision="bf16-mixed")
    with pytest.raises(IndexFolderError, match="model: run was null and is 0123456789"):
        opened(None, record={"config_hash": "0123456789"})
    assert opened(path, precision="bf16-mixed", rebuild=True).count == 1
    assert len(told) == 4


def test_the_place_of_an_index_says_what_it_is_of(tmp_path: Path) -> None:
    model = load_model("tiny")
    path = tmp_path / "pets.and.more.txt"
    path.write_text("A dog barks.\n")
    first = default_folder(tmp_path / "cache", SentenceFile(path), model, "32-true")
    assert first.parent == tmp_path / "cache" / "index"
    assert first.name.startswith("pets-")
    assert default_folder(tmp_path / "cache", SentenceFile(path), model, "32-true") == first
    assert default_folder(tmp_path / "cache", SentenceFile(path), model, "bf16-mixed") != first
    path.write_text("A dog barks.\nA cat sleeps.\n")
    assert default_folder(tmp_path / "cache", SentenceFile(path), model, "32-true") != first


def test_how_far_it_is_is_told_in_lines_too(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(searching.time, "monotonic", lambda: now[0])
    told: list[str] = []
    lines = searching._Lines(told.append)
    for at, done in ((100.0, 4_000), (110.0, 6_000), (140.0, 8_000), (150.0, 9_000)):
        now[0] = at
        lines(done, 100_000)
    assert told == [
        "index: going on after 4,000 of 100,000 sentences",
        "index: 8,000 of 100,000 sentences, 100 a second, 15 min left",
    ]
