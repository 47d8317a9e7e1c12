"""Nearest vectors: against a full sort, among equals, and in whatever parts."""

from __future__ import annotations

import pytest
import torch

from lightning_cse.index import Best, nearest


def test_the_nearest_are_those_of_a_full_sort() -> None:
    generator = torch.Generator().manual_seed(0)
    queries, corpus = torch.randn(4, 8, generator=generator), torch.randn(50, 8, generator=generator)
    cosines, rows = nearest(queries, corpus, 5)
    assert cosines.dtype == torch.float32
    for query, got, scores in zip(queries.double(), rows.tolist(), cosines.tolist(), strict=True):
        want = [float(query @ v / query.norm() / v.norm()) for v in corpus.double()]
        order = sorted(range(50), key=lambda row: -want[row])[:5]
        assert got == order
        assert scores == pytest.approx([want[row] for row in order], abs=1e-6)


def test_equals_come_in_the_order_of_the_corpus() -> None:
    corpus = torch.tensor([[0.0, 1.0], [2.0, 0.0], [1.0, 0.0], [3.0, 0.0]])
    cosines, rows = nearest(torch.tensor([[5.0, 0.0]]), corpus, 9)
    assert rows.tolist() == [[1, 2, 3, 0]], "no more than there are"
    assert cosines.tolist() == [[1.0, 1.0, 1.0, 0.0]]
    with pytest.raises(ValueError, match="count of at least 1, got 0"):
        nearest(corpus, corpus, 0)


@pytest.mark.parametrize("size", [1, 3, 7, 100])
def test_parts_change_nothing(size: int) -> None:
    scores = torch.randint(5, (3, 40), generator=torch.Generator().manual_seed(1)).float()  # many equals
    best = Best(6)
    for part in scores.split(size, dim=1):
        best.add(part)
    want = scores.sort(dim=1, descending=True, stable=True)
    assert best.rows.tolist() == want.indices[:, :6].tolist()
    assert best.scores.tolist() == want.values[:, :6].tolist()
    assert best.seen == 40


def test_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = torch.randn(50, 4, generator=torch.Generator().manual_seed(2))
    want = nearest(corpus[:3], corpus, 4)[1].tolist()
    monkeypatch.setattr("lightning_cse.index.best.AT_ONCE", 7)
    assert nearest(corpus[:3], corpus, 4)[1].tolist() == want
