"""Attention over sequences packed into windows, a fast dropout, and groups of similar lengths."""

import copy

import numpy as np
import pytest
import torch
import transformers as hf
from encoder_kinds import vectors_of
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from lightning_cse.encoders import tiny_encoder
from lightning_cse.encoders.cpu import passes as cpu_passes
from lightning_cse.encoders.cpu import prepare
from lightning_cse.encoders.cpu.attention import attend as attend_in_windows
from lightning_cse.encoders.cpu.attention import window_attention
from lightning_cse.encoders.cpu.dropout import LANES, FastDropout, keep_mask
from lightning_cse.encoders.cpu.passes import pads_little
from lightning_cse.encoders.cpu.windows import NARROWEST, Windows
from lightning_cse.encoders.passes import cut_by_length

LENGTHS = np.array([4, 4, 4, 7, 7, 20, 1, 1, 31, 2])
WINDOWS = Windows.pack(LENGTHS)
HEADS, WIDTH = 2, 8
INSIDE = np.concatenate(
    [start + np.arange(n) for start, n in zip(WINDOWS.starts, LENGTHS, strict=True)]
)
SIZES = {
    "vocab_size": 50,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 40,
    "type_vocab_size": 2,
}
DTYPES = [torch.bfloat16, torch.float32]


@given(st.lists(st.integers(1, 130), min_size=1, max_size=60))
@settings(max_examples=50)
def test_every_sequence_lies_whole_in_one_window_and_none_overlap(lengths):
    windows = Windows.pack(np.array(lengths))
    assert windows.width % NARROWEST == 0
    counts = np.zeros(windows.count * windows.width, dtype=int)
    for start, length in zip(windows.starts, lengths, strict=True):
        assert start // windows.width == (start + length - 1) // windows.width
        counts[start : start + length] += 1

    assert counts.max() == 1
    filled = counts.reshape(windows.count, -1).sum(axis=1)
    assert filled.all(), "no window is empty"
    attends = sum(n * n for n in lengths) + sum(int(n) ** 2 for n in windows.width - filled)
    assert int((windows.bias == 0).sum()) == attends


def states(dtype=torch.float32):
    torch.manual_seed(0)
    shape = (1, HEADS, WINDOWS.count * WINDOWS.width, WIDTH)
    return [torch.randn(shape).to(dtype).requires_grad_() for _ in range(3)]


def attend(qkv, dropout):
    torch.manual_seed(5)
    mixed, _ = window_attention(nn.Identity(), *qkv, None, windows=WINDOWS, dropout=dropout)
    return mixed[0, INSIDE]


def one_by_one(query, key, value, bias, mask, p):
    """Attention spelled out, a sequence and a head at a time."""
    rows = []
    shape = (WINDOWS.count, HEADS, WINDOWS.width, WINDOWS.width)
    keeps = mask.view(shape)
    biases = bias.expand(shape)
    for start, length in zip(WINDOWS.starts.tolist(), LENGTHS.tolist(), strict=True):
        window, offset = divmod(start, WINDOWS.width)
        span = slice(offset, offset + length)
        heads = []
        for head in range(HEADS):
            q, k, v = (x[0, head, start : start + length] for x in (query, key, value))
            scores = q @ k.T / WIDTH**0.5 + biases[window, head][span, span]
            weights = torch.softmax(scores, -1)
            keep = keeps[window, head][span, span] != 0
            heads.append(torch.where(keep, weights / (1 - round(p * LANES) / LANES), 0.0) @ v)

        rows.append(torch.stack(heads, 1))

    return torch.cat(rows)


def test_large_scores_stay_finite():
    query, key, value = states()
    assert attend([query * 1000, key, value], 0.3).isfinite().all()


def drawn_mask(p):
    torch.manual_seed(5)
    return keep_mask((WINDOWS.count * HEADS, WINDOWS.width, WINDOWS.width), p)


@pytest.mark.parametrize("has_bias", [False, True], ids=["plain", "with a trained bias"])
@pytest.mark.parametrize("p", [0.0, 0.3])
def test_values_and_gradients_of_attention(p, has_bias):
    mask = drawn_mask(p)
    qkv = states()
    relative = torch.zeros(1, HEADS, WINDOWS.width, WINDOWS.width, requires_grad=has_bias)
    if not has_bias:
        got = attend(qkv, p)
    else:
        torch.nn.init.normal_(relative)
        rows = [x[0].transpose(0, 1) for x in qkv]
        torch.manual_seed(5)
        bias = WINDOWS.bias + relative
        options = {"count": WINDOWS.count, "dropout": p, "scale": WIDTH**-0.5}
        got = attend_in_windows(*rows, bias, **options)[INSIDE]

    want = one_by_one(*qkv, bias=WINDOWS.bias + relative, mask=mask, p=p)
    inputs = [*qkv, relative] if has_bias else qkv
    torch.testing.assert_close(got, want, atol=1e-6, rtol=1e-5)
    weight = torch.randn(len(INSIDE), HEADS, WIDTH)
    gradients = [torch.autograd.grad((result * weight).sum(), inputs) for result in (got, want)]
    torch.testing.assert_close(gradients[0], gradients[1], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("dtype", DTYPES)
def test_blocks_that_add_in_place_equal_those_of_transformers(dtype):
    config = hf.RobertaConfig(**SIZES, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    plain = hf.RobertaModel(config, add_pooling_layer=False)
    fast = copy.deepcopy(plain)
    prepare(fast)
    results = []
    for model in (plain, fast):
        with torch.autocast("cpu", dtype, enabled=dtype != torch.float32):
            hidden = model(torch.arange(2, 26).view(2, 12)).last_hidden_state

        hidden.square().sum().backward()
        gradients = [p.grad for p in model.parameters() if p.grad is not None]
        results.append([hidden.detach(), *gradients])

    torch.testing.assert_close(results[1], results[0], atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("p", [0.01, 0.1, 1 / 3, 0.9])
@pytest.mark.parametrize("dtype", DTYPES)
def test_keep_rate_and_scale_of_dropout(p, dtype):
    """``p`` is rounded to a multiple of ``1 / LANES``, and the scale is ``1 / (1 - p)`` of that."""
    torch.manual_seed(0)
    count = 400_000
    dropped = FastDropout(p)(torch.ones(count, dtype=dtype))
    share = (dropped != 0).double().mean().item()
    assert share == pytest.approx(1 - p, abs=5 * (p * (1 - p) / count) ** 0.5)
    scale = torch.tensor(1 / (1 - round(p * LANES) / LANES)).to(dtype)
    assert set(dropped.tolist()) == {0.0, scale.item()}


@pytest.mark.parametrize("dtype", DTYPES)
def test_gradient_goes_through_the_same_mask_also_of_a_strided_input(dtype):
    x = torch.ones(50, 20, dtype=dtype, requires_grad=True)
    dropped = FastDropout(0.3)(x.t())
    dropped.backward(torch.ones(50, 20, dtype=dtype).t())
    assert torch.equal(x.grad, dropped.detach().t())
    assert 0 < (x.grad == 0).sum() < x.numel()


@given(
    st.lists(st.integers(1, 12), min_size=1, max_size=30).map(sorted),
    st.integers(0, 30),
    st.none() | st.integers(1, 60),
)
def test_groups_cover_all_within_their_bounds_and_none_ends_too_early(lengths, overhead, most):
    ends = cut_by_length(np.array(lengths), overhead=overhead, most=most)
    assert ends[-1] == len(lengths)

    def fits(group):
        size = len(group) * max(group)
        return size - sum(group) <= overhead and (most is None or size <= most)

    for start, end in zip([0, *ends[:-1]], ends, strict=True):
        assert end - start == 1 or (end > start and fits(lengths[start:end]))
        assert end == len(lengths) or not fits(lengths[start : end + 1])


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


@torch.no_grad()
def test_vectors_are_the_same_packed_and_padded(monkeypatch):
    encoder = tiny_encoder(pooling="mean").eval()
    sentences = [f"Gate {number} " + "salt " * (number % 9) for number in range(60)]
    padded = vectors_of(encoder, sentences)
    monkeypatch.setattr(cpu_passes, "pads_little", lambda *_: False)
    torch.testing.assert_close(vectors_of(encoder, sentences), padded, atol=1e-5, rtol=1e-5)
