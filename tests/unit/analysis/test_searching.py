"""Searching: every relation and view against the model's question asked of all sentences, exactly and by faiss."""

import gzip
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from lightning_cse.analysis import searching
from lightning_cse.analysis.searching import (
    Vectors,
    comparison,
    faiss_index,
    read_corpus,
    search,
    swapped,
)
from lightning_cse.data import read_corpus as read_split
from lightning_cse.data import sample_dir
from lightning_cse.embeddings import GaussianEmbedding, PointEmbedding
from lightning_cse.encoders import tiny_encoder
from lightning_cse.errors import DataError, EncoderError, TaskError
from lightning_cse.models import (
    DualGaussianModel,
    DualModel,
    GaussianModel,
    ImpScoreModel,
    PointModel,
)
from lightning_cse.similarity import (
    cosine,
    gaussian_similarity,
    is_same,
    symmetric_gaussian_similarity,
)

COUNT = 400
ROWS = read_split("inli", "train", sample_dir())
TEXTS = list(dict.fromkeys([*ROWS.column("premise"), *ROWS.column("implied_entailment")]))
SENTENCES, QUERIES = TEXTS[:COUNT], TEXTS[COUNT : COUNT + 6]
INDICES = ("Flat", "IVF4,Flat", "HNSW16")
KINDS: dict[str, tuple[Any, dict[str, Any]]] = {
    "points": (PointModel, {}),
    "dual": (DualModel, {}),
    "gauss": (GaussianModel, {}),
    "symmetric": (GaussianModel, {"sts_similarity": "symmetric"}),
    "dualgauss": (DualGaussianModel, {}),
    "impscore": (ImpScoreModel, {"dim": 8}),
}
RELATIONS = [
    *((name, "similar") for name in ("points", "symmetric", "impscore")),
    *(
        (name, relation)
        for name in ("dual", "gauss", "dualgauss")
        for relation in searching.QUESTIONS
    ),
]

Hits = list[list[tuple[int, float]]]


def make(name: str) -> Any:
    """An untrained model, whose views differ by the second segment or by the heads."""
    torch.manual_seed(0)
    kind, options = KINDS[name]
    return kind(tiny_encoder(max_length=48), **options).eval()


@pytest.fixture(scope="module")
def vectors(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Vectors]:
    """The embeddings of 400 sentences by each kind of model."""
    folder = tmp_path_factory.mktemp("vectors")
    return {name: Vectors(folder / f"{name}.npy", SENTENCES, make(name).embed) for name in KINDS}


@torch.no_grad()
def wanted(model: Any, vectors: Vectors, score: Callable[[Any, Any], Tensor], count: int) -> Hits:
    """Return the best by asking about every pair, in float64."""
    corpus, queries = (
        vectors[slice(0, COUNT)].to(torch.float64),
        model.embed(QUERIES).to(torch.float64),
    )
    best = []
    for row in range(len(QUERIES)):
        scores = score(queries[torch.full((COUNT,), row)], corpus)
        order = scores.sort(descending=True, stable=True).indices[:count].tolist()
        best.append([(place, float(scores[place])) for place in order])
    return best


def same(got: Hits, want: Hits) -> bool:
    scores = [[score for hits in found for _, score in hits] for found in (got, want)]
    rows = [[[row for row, _ in hits] for hits in found] for found in (got, want)]
    return rows[0] == rows[1] and scores[0] == pytest.approx(scores[1], abs=1e-9)


@pytest.mark.parametrize(("name", "relation"), RELATIONS)
def test_a_relation_is_the_question_asked_of_every_sentence(
    name: str,
    relation: str,
    vectors: dict[str, Vectors],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = make(name)

    def ask(query: Any, sentence: Any) -> Tensor:
        if relation == "similar":
            return model.similarity(query, sentence)
        return model.entailment_score(
            *((query, sentence) if relation == "entails" else (sentence, query))
        )

    monkeypatch.setattr(searching, "BLOCK", 90)
    compared, queries = comparison(model, model.embed(QUERIES), relation), model.embed(QUERIES)
    want = wanted(model, vectors[name], ask, 7)
    everything = [dict(hits) for hits in wanted(model, vectors[name], ask, COUNT)]
    assert same(search(vectors[name], compared, queries, 7), want)
    view = next(iter(queries.views()))
    for factory in INDICES:
        index = faiss_index(factory, tmp_path / f"{factory}.faiss", vectors[name], view)
        got = search(vectors[name], compared, queries, 7, index)
        for row, hits in enumerate(got):
            assert [score for _, score in hits] == sorted(
                (score for _, score in hits), reverse=True
            )
            assert all(
                score == pytest.approx(everything[row][place], abs=1e-9) for place, score in hits
            )
        share = (
            sum(len(dict(a).keys() & dict(b).keys()) for a, b in zip(got, want, strict=True))
            / 7
            / len(QUERIES)
        )
        assert share > (0.95 if compared.views else 0.6), "half of the corpus are candidates"
        assert [file.name for file in tmp_path.glob(f"{factory}*")] == [f"{factory}.faiss"]
        faiss_index(factory, tmp_path / f"{factory}.faiss", vectors[name], view)  # read again


@pytest.mark.parametrize(
    ("name", "view", "against", "score"),
    [
        ("dual", "implicit", None, lambda q, s: cosine(q.implicit, s.explicit)),
        ("dual", "implicit", "implicit", lambda q, s: cosine(q.implicit, s.implicit)),
        ("dual", None, "implicit", lambda q, s: cosine(q.explicit, s.implicit)),
        ("dualgauss", "implicit", None, lambda q, s: cosine(q.implicit_mean, s.explicit_mean)),
        ("impscore", "semantic", "semantic", lambda q, s: cosine(q.semantic, s.semantic)),
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
    model = make(name)
    queries = model.embed(QUERIES)
    compared = comparison(model, queries, "similar", view, against)
    assert compared.views is not None
    index = faiss_index("Flat", tmp_path / "index", vectors[name], compared.views[1])
    for kind in (None, index):
        assert same(
            search(vectors[name], compared, queries, 5, kind),
            wanted(model, vectors[name], score, 5),
        )


@pytest.mark.parametrize("reduce", ["mean_of_sims", "sim_of_sum"])
def test_a_direction_is_seen_in_wide_embeddings(reduce: Any) -> None:
    def score(a: Any, b: Any) -> Tensor:
        return gaussian_similarity(b, a, reduce=reduce)

    like = GaussianEmbedding(torch.zeros(1, 1024), torch.zeros(1, 1024))
    assert not is_same(score, swapped(score), like)
    assert is_same(symmetric_gaussian_similarity, swapped(symmetric_gaussian_similarity), like)


@pytest.mark.parametrize(
    ("name", "relation", "view", "against", "message"),
    [
        (
            "points",
            "entails",
            None,
            None,
            "--relation entails: the score of PointModel is symmetric",
        ),
        ("impscore", "entailed_by", None, None, "is symmetric; use --relation similar"),
        (
            "dual",
            "similar",
            "implict",
            None,
            r"DualModel has no view 'implict' - did you mean 'implicit'\?",
        ),
        (
            "gauss",
            "similar",
            None,
            "implicit",
            r"--against: GaussianModel has no view 'implicit' \(it has: mean\)",
        ),
        ("dual", "entails", "implicit", None, "leave --view and --against out"),
    ],
)
def test_what_a_model_lacks(
    name: str, relation: str, view: str | None, against: str | None, message: str
) -> None:
    model = make(name)
    with pytest.raises(TaskError, match=message):
        comparison(model, model.embed(QUERIES), relation, view, against)


def test_embeddings_are_kept_and_broken_weights_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(searching, "BLOCK", 30)
    asked: list[int] = []

    def embed(numbers: Sequence[Any]) -> GaussianEmbedding:
        asked.append(len(numbers))
        mean = torch.tensor(list(numbers))[:, None].expand(-1, 3).float()
        return GaussianEmbedding(mean, mean + 0.5)

    first = Vectors(tmp_path / "kept.npy", range(100), embed)  # type: ignore[arg-type]  # numbers as sentences
    assert sum(asked) == 101
    again = Vectors(tmp_path / "kept.npy", range(100), embed)  # type: ignore[arg-type]
    assert asked[-1] == 1, "one sentence, for the kind of embedding"
    for kept in (first, again):
        assert torch.equal(kept[slice(0, 100)].log_variance, embed(range(100)).log_variance)  # type: ignore[attr-defined]
    with pytest.raises(EncoderError, match="not finite"):
        Vectors(
            tmp_path / "broken.npy",
            ["a"],
            lambda some: PointEmbedding(torch.full((len(some), 3), torch.nan)),
        )
    assert [path.name for path in tmp_path.iterdir()] == ["kept.npy"]


def test_more_than_there_are_and_equal_scores(vectors: dict[str, Vectors], tmp_path: Path) -> None:
    model = make("points")
    compared = comparison(model, model.embed(QUERIES))
    (hits,) = search(vectors["points"], compared, model.embed(SENTENCES[17:18]), 10_000)
    assert (len(hits), hits[0][0]) == (COUNT, 17)
    equal = Vectors(tmp_path / "equal.npy", SENTENCES[:1] * 50, model.embed)
    for count in (1, 3):
        (first,) = search(equal, compared, model.embed(QUERIES[:1]), count)
        assert [row for row, _ in first] == sorted(row for row, _ in first)


@pytest.mark.parametrize(
    ("name", "text", "column", "want"),
    [
        (
            "a.txt",
            'One.\n\n  Two , "x" \nÖne.\nOne.',
            None,
            [("One.", 1, 2), ('Two , "x"', 3, 1), ("Öne.", 4, 1)],
        ),
        ("a.txt.gz", "\nOne.\nNA\tx\nOne.\n", None, [("One.", 2, 2), ("NA\tx", 3, 1)]),
        (
            "a.csv",
            'id,text\n1,"one, two"\n2,\n3, three \n',
            "text",
            [("one, two", 2, 1), ("three", 4, 1)],
        ),
        ("a.tsv", "text\tid\na\t1\n", "text", [("a", 2, 1)]),
        (
            "a.jsonl",
            '{"text": "one"}\n{"text": null}\n{"text": "two"}\n',
            None,
            [("one", 1, 1), ("two", 3, 1)],
        ),
    ],
)
def test_a_corpus_has_each_sentence_once(
    name: str, text: str, column: str | None, want: list[tuple[str, int, int]], tmp_path: Path
) -> None:
    data = text.encode()
    (tmp_path / name).write_bytes(gzip.compress(data, mtime=0) if name.endswith(".gz") else data)
    found = read_corpus(str(tmp_path / name), column)
    assert list(found.itertuples(index=False, name=None)) == want


@pytest.mark.parametrize(
    ("name", "text", "column", "message"),
    [
        ("a.txt", b" \n \n", None, "contains no sentence"),
        ("a.jsonl", b"", None, "the file is empty"),
        ("a.txt", b"one\ntw\xf6\n", None, "'utf-8' codec can't decode byte 0xf6"),
        (
            "a.csv",
            b"id,text\n1,one\n",
            None,
            "has several columns: name the one of the sentences with --column",
        ),
        ("a.csv", b"id,text\n1,one\n", "txt", "no column 'txt' - did you mean 'text'"),
        ("a.txt.gz", gzip.compress(b"one\n" * 1000, mtime=0)[:-12], None, "end-of-stream"),
    ],
)
def test_what_is_not_a_corpus(
    name: str, text: bytes, column: str | None, message: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(text)
    with pytest.raises(DataError, match=message):
        read_corpus(str(tmp_path / name), column)
