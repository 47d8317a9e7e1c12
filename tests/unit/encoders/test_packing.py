"""Attention over sequences packed into windows, a fast dropout, and groups of similar lengths to
pad.
"""

import copy
import os
import pickle
import platform
import subprocess
import sys

import numpy as np
import pytest
import torch
import transformers as hf
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from lightning_cse.encoders.batching import cut_by_length
from lightning_cse.encoders.packing import (
    LANES,
    NARROWEST,
    FastDropout,
    FastOutput,
    Windows,
    keep_mask,
    make_dropout_fast,
    use_window_attention,
    window_attention,
)

LENGTHS = np.array([4, 4, 4, 7, 7, 20, 1, 1, 31, 2])
WINDOWS = Windows.pack(LENGTHS)
HEADS, WIDTH = 2, 8
INSIDE = np.concatenate(
    [
        s + np.arange(n)
        for s, n in zip(
            WINDOWS.starts,
            LENGTHS,
            strict=True,
        )
    ]
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


# Windows


@given(
    st.lists(
        st.integers(1, 130),
        min_size=1,
        max_size=60,
    )
)
@settings(max_examples=50)
def test_every_sequence_lies_whole_in_one_window_and_none_overlap(lengths):
    windows = Windows.pack(np.array(lengths))
    assert windows.width % NARROWEST == 0
    taken = np.zeros(windows.count * windows.width, dtype=int)
    for start, length in zip(
        windows.starts,
        lengths,
        strict=True,
    ):
        assert start // windows.width == (start + length - 1) // windows.width
        taken[start : start + length] += 1
    assert taken.max() == 1
    filled = taken.reshape(windows.count, -1).sum(axis=1)
    assert filled.all(), "no window is empty"
    attends = sum(n * n for n in lengths) + sum(int(n) ** 2 for n in windows.width - filled)
    assert int((windows.bias == 0).sum()) == attends


# Attention


def states(dtype=torch.float32):
    torch.manual_seed(0)
    shape = (1, HEADS, WINDOWS.count * WINDOWS.width, WIDTH)
    return [torch.randn(shape).to(dtype).requires_grad_() for _ in range(3)]


def attend(qkv, dropout):
    torch.manual_seed(5)
    mixed, _ = window_attention(
        nn.Identity(),
        *qkv,
        None,
        windows=WINDOWS,
        dropout=dropout,
    )
    return mixed[0, INSIDE]


def one_by_one(query, key, value, mask, p):
    """Attention spelled out, a sequence and a head at a time: the tokens of all sequences, one
    after the other.
    """
    rows = []
    for start, length in zip(
        WINDOWS.starts.tolist(),
        LENGTHS.tolist(),
        strict=True,
    ):
        window, offset = divmod(start, WINDOWS.width)
        heads = []
        for head in range(HEADS):
            q, k, v = (x[0, head, start : start + length] for x in (query, key, value))
            weights = torch.softmax(q @ k.T / WIDTH**0.5, -1)
            keep = mask.view(
                WINDOWS.count,
                HEADS,
                WINDOWS.width,
                WINDOWS.width,
            )[window, head]
            keep = keep[offset : offset + length, offset : offset + length] != 0
            heads.append(
                torch.where(
                    keep,
                    weights / (1 - round(p * LANES) / LANES),
                    0.0,
                )
                @ v
            )
        rows.append(torch.stack(heads, 1))
    return torch.cat(rows)


@pytest.mark.parametrize("p", [0.0, 0.3])
def test_values_and_gradients_of_attention(p):
    torch.manual_seed(5)
    mask = keep_mask((WINDOWS.count * HEADS, WINDOWS.width, WINDOWS.width), p)
    qkv, weight = (
        states(),
        torch.randn(
            len(INSIDE),
            HEADS,
            WIDTH,
        ),
    )
    got, want = (
        attend(qkv, p),
        one_by_one(
            *qkv,
            mask=mask,
            p=p,
        ),
    )
    torch.testing.assert_close(
        got,
        want,
        atol=1e-6,
        rtol=1e-5,
    )
    gradients = (torch.autograd.grad((result * weight).sum(), qkv) for result in (got, want))
    for mine, theirs in zip(*gradients, strict=True):
        torch.testing.assert_close(
            mine,
            theirs,
            atol=1e-5,
            rtol=1e-4,
        )


def attention_and_gradients(dtype):
    """Return attention with dropout, and the gradients of its sum for query, key and value."""
    qkv = states(dtype)
    result = attend(qkv, 0.3)
    total = result.sum()
    gradients = torch.autograd.grad(total, qkv)
    return [result.detach(), *gradients]


def test_bfloat16_attention_is_near_float32():
    """The same masks are drawn for both, so that only rounding differs."""
    low = attention_and_gradients(torch.bfloat16)
    high = attention_and_gradients(torch.float32)

    for rounded, exact in zip(low, high, strict=True):
        assert rounded.dtype == torch.bfloat16
        error = rounded.float() - exact
        assert error.norm() < 0.02 * exact.norm()


def test_large_scores_stay_finite():
    q, k, v = states()
    assert torch.isfinite(
        attend(
            [
                q * 1000,
                k,
                v,
            ],
            0.3,
        )
    ).all()


def test_other_architectures_keep_their_own_and_what_is_saved_does_not_ask_for_it(tmp_path):
    mpnet = hf.MPNetModel(hf.MPNetConfig(**SIZES))
    before = mpnet.config._attn_implementation
    assert not use_window_attention(mpnet)
    assert mpnet.config._attn_implementation == before
    bert = hf.BertModel(hf.BertConfig(**SIZES))
    use_window_attention(bert)
    bert.save_pretrained(tmp_path)
    assert "lightning_cse" not in (tmp_path / "config.json").read_text()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "kind", [(hf.BertConfig, hf.BertModel), (hf.RobertaConfig, hf.RobertaModel)]
)
def test_blocks_that_add_in_place_equal_those_of_transformers(kind, dtype):
    config = kind[0](
        **SIZES,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    plain = kind[1](config, add_pooling_layer=False)
    ours = copy.deepcopy(plain)
    use_window_attention(ours)
    assert (
        sum(type(module) is FastOutput for module in ours.modules()) == 2 * config.num_hidden_layers
    )
    assert ours.state_dict().keys() == plain.state_dict().keys()
    results = []
    for model in (plain, pickle.loads(pickle.dumps(ours))):
        with torch.autocast(
            "cpu",
            dtype,
            enabled=dtype != torch.float32,
        ):
            hidden = model(torch.arange(2, 26).view(2, 12)).last_hidden_state
        hidden.square().sum().backward()
        results.append(
            [hidden.detach(), *(p.grad for p in model.parameters() if p.grad is not None)]
        )
    torch.testing.assert_close(
        results[1],
        results[0],
        atol=1e-6,
        rtol=1e-5,
    )


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the setting is glibc's")
def test_freed_memory_is_kept_for_the_next_tensor():
    code = """if True:
        import resource, torch
        from lightning_cse.encoders.packing import keep_freed_memory
        keep_freed_memory()
        for _ in range(30):
            before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
            torch.ones(2**22)
            print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
    """
    environment = {key: value for key, value in os.environ.items() if not key.startswith("MALLOC_")}
    faults = subprocess.run(
        [
            sys.executable,
            "-c",
            code,
        ],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert (
        min(map(int, faults.stdout.split())) < 100
    )  # of 4,096 pages; the first ones grow the heap


# Dropout


@pytest.mark.parametrize("p", [0.01, 0.1, 0.5, 0.9])
@pytest.mark.parametrize("dtype", DTYPES)
def test_keep_rate_and_mean(p, dtype):
    torch.manual_seed(0)
    count = 400_000
    dropped = FastDropout(p)(torch.ones(count, dtype=dtype))
    kept = (dropped != 0).double().mean().item()
    deviation = (p * (1 - p) / count) ** 0.5
    assert kept == pytest.approx(1 - p, abs=5 * deviation)
    # bfloat16 rounds the scale 1 / (1 - p) to 8 bits, so the mean of ones is off by as much.
    rounding = 2**-9 if dtype == torch.bfloat16 else 1e-6
    assert dropped.double().mean().item() == pytest.approx(
        1, abs=5 * deviation / (1 - p) + rounding
    )


@pytest.mark.parametrize("p", [1 / 3, 0.1])
def test_scale_is_that_of_the_probability_drawn(p):
    """``p`` is rounded to a multiple of ``1 / LANES``, and the scale is ``1 / (1 - p)`` of that."""
    drawn = round(p * LANES) / LANES
    assert drawn != p

    ones = torch.ones(1000)
    dropped = FastDropout(p)(ones)
    scale = torch.tensor(1 / (1 - drawn))
    values = set(dropped.tolist())
    assert values == {0.0, scale.item()}


def test_masks_are_independent_between_calls_and_neighbours():
    """The covariance of two masks is zero within five standard errors.

    A mask is compared with the next one, and with itself shifted by one and by the four lanes
    of one random number.
    """
    torch.manual_seed(0)
    count = 200_000
    limit = 5 * 0.25 / count**0.5
    first = keep_mask((count,), 0.5).double()
    second = keep_mask((count,), 0.5).double()

    for other in (
        second,
        first.roll(1),
        first.roll(4),
    ):
        products = (first - 0.5) * (other - 0.5)
        covariance = products.mean().item()
        assert abs(covariance) < limit


@pytest.mark.parametrize("dtype", DTYPES)
def test_torchs_random_state_decides_and_calls_differ(dtype):
    module, x = FastDropout(0.5), torch.ones(64, 7, dtype=dtype)
    torch.manual_seed(3)
    first, second = module(x), module(x)
    torch.manual_seed(3)
    assert torch.equal(module(x), first)
    assert not torch.equal(first, second)
    torch.manual_seed(4)
    assert not torch.equal(module(x), first)


@pytest.mark.parametrize("dtype", DTYPES)
def test_gradient_goes_through_the_same_mask_also_of_a_strided_input(dtype):
    x = torch.ones(
        50,
        20,
        dtype=dtype,
        requires_grad=True,
    )
    dropped = FastDropout(0.3)(x.t())
    dropped.backward(
        torch.ones(
            50,
            20,
            dtype=dtype,
        ).t()
    )
    assert torch.equal(x.grad, dropped.detach().t())
    assert 0 < (x.grad == 0).sum() < x.numel()


@pytest.mark.parametrize("dtype", DTYPES)
def test_all_or_nothing(dtype):
    x = torch.randn(5, 5, dtype=dtype)
    state = torch.get_rng_state()
    assert torch.equal(FastDropout(0.0)(x), x)
    assert torch.equal(FastDropout(0.5).eval()(x), x)
    assert torch.equal(torch.get_rng_state(), state)
    assert not FastDropout(1.0)(x).any()


def test_replaced_modules_keep_their_probability_and_mode():
    root = nn.Sequential(
        nn.Linear(2, 2),
        nn.Sequential(nn.Dropout(0.25)),
        nn.Dropout(0.5),
    ).eval()
    make_dropout_fast(root)
    kinds = [
        (type(module), module.p, module.training)
        for module in root.modules()
        if isinstance(module, nn.Dropout)
    ]
    assert kinds == [(FastDropout, 0.25, False), (FastDropout, 0.5, False)]


# Groups of similar lengths


@given(
    st.lists(
        st.integers(1, 12),
        min_size=1,
        max_size=30,
    ).map(sorted),
    st.integers(0, 30),
    st.none() | st.integers(1, 60),
)
def test_groups_cover_all_within_their_bounds_and_none_ends_too_early(lengths, overhead, most):
    ends = cut_by_length(
        np.array(lengths),
        overhead=overhead,
        most=most,
    )
    assert ends[-1] == len(lengths)

    def fits(group):
        size = len(group) * max(group)
        return size - sum(group) <= overhead and (most is None or size <= most)

    for start, end in zip(
        [0, *ends[:-1]],
        ends,
        strict=True,
    ):
        assert end - start == 1 or (end > start and fits(lengths[start:end]))
        assert end == len(lengths) or not fits(lengths[start : end + 1])
