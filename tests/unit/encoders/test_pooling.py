"""Pooling values, by hand."""

from __future__ import annotations

import torch

from lightning_cse.encoders.pooling import cls_pooling, mean_pooling, prompt_pooling

HIDDEN = torch.tensor([[[1.0, 2.0], [3.0, 4.0], [99.0, 99.0]], [[0.0, 0.0], [3.0, 3.0], [6.0, 9.0]]])
MASK = torch.tensor([[True, True, False], [True, True, True]])
PLACES = torch.tensor([1, 2])


def test_cls_takes_the_first_token() -> None:
    assert cls_pooling(HIDDEN, MASK, PLACES).tolist() == [[1.0, 2.0], [0.0, 0.0]]


def test_mean_averages_the_real_tokens() -> None:
    assert mean_pooling(HIDDEN, MASK, PLACES).tolist() == [[2.0, 3.0], [3.0, 4.0]]


def test_mean_of_nothing_is_zero_not_nan() -> None:
    assert mean_pooling(HIDDEN[:1], torch.zeros(1, 3, dtype=torch.bool), PLACES[:1]).tolist() == [[0.0, 0.0]]


def test_prompt_takes_the_token_at_its_place() -> None:
    assert prompt_pooling(HIDDEN, MASK, PLACES).tolist() == [[3.0, 4.0], [6.0, 9.0]]
