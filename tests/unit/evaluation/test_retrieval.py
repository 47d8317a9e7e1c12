"""Retrieval on folders in BEIR's layout: against a loop in float64, blocks, ties, a query's own
document, bad files.
"""

import json

import numpy as np
import pytest
import torch
from oracles import Numbers
from sklearn.metrics import ndcg_score

from lightning_cse import similarity
from lightning_cse.embeddings import PointEmbedding
from lightning_cse.errors import DataError
from lightning_cse.evaluation import Retrieval, run_tasks
from lightning_cse.similarity import cosine


class Points(Numbers):
    """A sentence is a fixed point, the same whenever it is embedded; similarity is the cosine."""

    def embed(self, sentences):
        self.embedded += sentences
        seeds = (int.from_bytes(sentence.encode()[-6:]) for sentence in sentences)
        return PointEmbedding(
            torch.stack([torch.randn(8, generator=torch.Generator().manual_seed(s)) for s in seeds])
        )

    def similarity(
        self,
        a,
        b,
    ):
        return cosine(a.vector, b.vector)


class Closeness(Numbers):
    """Similarity is minus the distance of two numbers, which is no cosine."""

    def similarity(
        self,
        a,
        b,
    ):
        return -(a.vector[:, 0] - b.vector[:, 0]).abs()


def write(
    folder,
    corpus,
    queries,
    judged,
    split="test",
):
    """Write a folder in BEIR's layout."""
    (folder / "qrels").mkdir(
        parents=True,
        exist_ok=True,
    )
    for name, texts in (("corpus", corpus), ("queries", queries)):
        rows = (
            {"_id": one} | (text if isinstance(text, dict) else {"text": text})
            for one, text in texts.items()
        )
        (folder / f"{name}.jsonl").write_text(
            "".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8"
        )

    lines = [
        f"{query}\t{one}\t{score:g}\n"
        for query, documents in judged.items()
        for one, score in documents.items()
    ]
    (folder / f"qrels/{split}.tsv").write_text(
        "query-id\tcorpus-id\tscore\n" + "".join(lines), encoding="utf-8"
    )

    return folder


def evaluate(
    folder,
    model,
    **options,
):
    return run_tasks(
        {
            "r": Retrieval(
                files=str(folder),
                **options,
            )
        },
        model,
        "test",
    )["r"]


def drawn(seed):
    """Draw documents, queries and the gains of 20 documents a query."""
    draws = np.random.default_rng(seed)
    corpus = {f"d{k}": f"document {draws.normal():.5f}" for k in range(150)}
    queries = {f"q{k}": f"query {draws.normal():.5f}" for k in range(11)}
    judged = {}
    for query in queries:
        documents = draws.choice(
            150,
            20,
            replace=False,
        )
        judged[query] = {f"d{d}": int(draws.integers(0, 3)) for d in documents}

    return corpus, queries, judged


def metrics_by_loop(
    model,
    query,
    corpus,
    judged,
):
    """Return the four metrics of a query, in float64."""
    texts = list(corpus.values())
    documents = model.embed(texts).to(torch.float64)
    repeated = model.embed([query] * len(texts)).to(torch.float64)
    scores = model.similarity(repeated, documents).numpy()
    gains = np.array([judged.get(name, 0) for name in corpus])
    ranked = gains[np.argsort(-scores, kind="stable")] > 0
    recalls = [ranked[:k].sum() / ranked.sum() for k in (10, 100)]

    return [
        ndcg_score(
            [gains],
            [scores],
            k=10,
        ),
        *recalls,
        ranked[0],
    ]


@pytest.mark.parametrize(
    "blocks",
    [(7, 3), (2**14, 2**9)],
    ids=["many blocks", "one block"],
)
@pytest.mark.parametrize("model", [Points, Closeness])
def test_metrics_equal_a_loop_in_float64(
    model,
    blocks,
    tmp_path,
    monkeypatch,
):
    monkeypatch.setattr(
        similarity,
        "_SENTENCES",
        blocks[0],
    )
    monkeypatch.setattr(
        similarity,
        "_QUERIES",
        blocks[1],
    )
    corpus, queries, judged = drawn(0)
    result = evaluate(
        write(
            tmp_path,
            corpus,
            queries,
            judged,
        ),
        model(),
    )
    want = [
        metrics_by_loop(
            model(),
            text,
            corpus,
            judged[q],
        )
        for q, text in queries.items()
    ]
    columns = ("ndcg@10", "recall@10", "recall@100", "correct")
    for name, column in zip(
        columns,
        np.transpose(want),
        strict=True,
    ):
        np.testing.assert_allclose(
            result.predictions[name],
            column,
            rtol=1e-12,
        )

    np.testing.assert_allclose(
        list(result.metrics.values()),
        np.mean(want, axis=0),
        rtol=1e-12,
    )
    assert tuple(result.metrics) == Retrieval.metrics


def test_a_querys_own_document_is_left_out_and_of_equals_the_first_counts(tmp_path):
    corpus = {
        "b": "b 2",
        "a": "a 1",
        "c": "c 2",
        "d": {"title": "of", "text": "d 9"},
    }
    queries = {
        "a": "a 1",
        "x": "x 2",
        "unjudged": "y 3",
    }
    result = evaluate(
        write(
            tmp_path,
            corpus,
            queries,
            {"a": {"b": 1}, "x": {"c": 1}},
        ),
        Closeness(),
    )
    assert result.predictions["first"] == ["b", "b"], (
        "b, not a itself; b stands before c in the file"
    )
    assert result.predictions["correct"] == [True, False]
    assert result.predictions["query"] == ["a", "x"]
    assert result.metrics["recall@10"] == 1
    model = Closeness()
    evaluate(tmp_path, model)
    assert sorted(model.embedded) == ["a 1", "b 2", "c 2", "of d 9", "x 2"]


CORPUS, QRELS = "corpus.jsonl", "qrels/test.tsv"


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        (CORPUS, None, "does not exist; a folder needs corpus.jsonl, queries.jsonl and"),
        (CORPUS, '{"id": "1", "text": "a 1"}\n', "corpus.jsonl:1: no column '_id'"),
        (
            QRELS,
            "query-id\tcorpus-id\tscore\nq\t1\thigh\n",
            "qrels/test.tsv:2: score 'high' is not a number",
        ),
        (QRELS, "query-id\tcorpus-id\tscore\nx\t1\t1\n", "1 of 1 queries are not in"),
    ],
)
def test_a_bad_file_is_one_error_with_its_line(
    name,
    text,
    message,
    tmp_path,
):
    folder = write(
        tmp_path / "beir",
        {"1": "a 1"},
        {"q": "q 1"},
        {"q": {"1": 1}},
    )
    (folder / name).unlink() if text is None else (folder / name).write_text(text)
    with pytest.raises(DataError) as raised:
        evaluate(
            folder,
            Closeness(),
            key="own.retrieval",
        )

    assert str(raised.value).startswith(f"own.retrieval: {folder}")
    assert message in str(raised.value)
