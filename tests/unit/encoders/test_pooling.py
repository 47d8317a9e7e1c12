"""Pooling values, by hand."""

from __future__ import annotations

import pytest
import torch

from lightning_cse.encoders.encoder import pool

HIDDEN = torch.tensor([[[1.0, 2.0], [3.0, 4.0], [99.0, 99.0]], [[0.0, 0.0], [3.0, 3.0], [6.0, 9.0]]])
MASK = torch.tensor([[True, True, False], [True, True, True]])
PLACES = torch.tensor([1, 2])


@pytest.mark.parametrize(
    ("pooling", "want"),
    [
        ("cls", [[1.0, 2.0], [0.0, 0.0]]),
        ("mean", [[2.0, 3.0], [3.0, 4.0]]),
        ("first_last", [[2.0, 3.0], [3.0, 4.0]]),
        ("prompt", [[3.0, 4.0], [6.0, 9.0]]),
    ],
)
def test_pooled(pooling: str, want: list[list[float]]) -> None:
    assert pool(pooling, HIDDEN, MASK, PLACES).tolist() == want
    assert pool(pooling, HIDDEN.bfloat16(), MASK, PLACES).dtype == torch.float32


def test_mean_of_nothing_is_zero_not_nan() -> None:
    nothing = torch.zeros(1, 3, dtype=torch.bool)
    assert pool("mean", HIDDEN[:1], nothing, PLACES[:1]).tolist() == [[0.0, 0.0]]
