"""Linear layers with prepacked weights, and the choice between padding and packing."""

import copy

import numpy as np
import pytest
import torch
from oracles import untrained
from torch import nn

from lightning_cse.encoders.packing import cut_by_length, pads_little
from lightning_cse.encoders.prepacked import PrepackedLinear, prepack
from lightning_cse.models import PointModel


def layers(bias=True):
    torch.manual_seed(0)
    plain = nn.Linear(24, 40, bias=bias)
    ours = nn.Sequential(copy.deepcopy(plain))
    prepack(ours)

    return plain, ours[0]


@pytest.mark.parametrize("bias", [True, False])
def test_products_are_those_of_torch_also_after_a_change(bias):
    plain, ours = layers(bias)
    assert type(ours) is PrepackedLinear
    x = torch.randn(3, 7, 24)
    with torch.no_grad():
        for _ in range(2):
            torch.testing.assert_close(ours(x), plain(x), atol=1e-5, rtol=1e-5)
            with torch.autocast("cpu", torch.bfloat16):
                assert ours(x).dtype == torch.bfloat16
                torch.testing.assert_close(ours(x), plain(x), atol=1e-2, rtol=1e-2)

            for layer in (plain, ours):
                for value in layer.parameters():
                    value.mul_(3)

        again = copy.deepcopy(ours)
        torch.testing.assert_close(again(x), ours(x))


def test_gradients_are_those_of_torch():
    plain, ours = layers()
    x = torch.randn(5, 24)
    with torch.no_grad():
        ours(x)

    for layer in (plain, ours):
        layer(x).square().sum().backward()

    torch.testing.assert_close(ours.weight.grad, plain.weight.grad)


def test_weights_that_were_made_in_inference_mode():
    with torch.inference_mode():
        plain, ours = layers()
        x = torch.randn(5, 24)
        torch.testing.assert_close(ours(x), plain(x), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("lengths", "expected"),
    [
        (np.full(200, 30), True),
        (np.repeat(np.arange(15, 41), 40), True),
        (np.arange(10, 200, 9), False),
        (np.array([7]), True),
    ],
)
def test_sequences_are_padded_where_their_lengths_are_alike(lengths, expected):
    assert pads_little(lengths, cut_by_length(lengths, 64, 2048), 64) is expected


def test_vectors_do_not_depend_on_the_way_nor_on_the_order(monkeypatch):
    model = untrained(PointModel)
    sentences = [f"Gate {number} " + "salt " * (number % 9) for number in range(60)]
    padded = model.encode(sentences)
    backwards = model.encode(sentences[::-1])[::-1]
    monkeypatch.setattr(model.encoder, "_pads", lambda *_: False)
    packed = model.encode(sentences)
    np.testing.assert_allclose(padded, packed, atol=1e-5)
    np.testing.assert_allclose(padded, backwards, atol=1e-5)
