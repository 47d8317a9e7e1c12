"""Attention over sequences packed into windows is attention over each of them."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from transformers import (
    BertConfig,
    BertModel,
    ElectraConfig,
    ElectraModel,
    RobertaConfig,
    RobertaModel,
    XLMRobertaConfig,
    XLMRobertaModel,
)

from lightning_cse.encoders import packing as attention
from lightning_cse.encoders.packing import LANES, NARROWEST, Windows, keep_mask, use_window_attention, window_attention

LENGTHS = np.array([4, 4, 4, 7, 7, 20, 1, 1, 31, 2])
WINDOWS = Windows.pack(LENGTHS)
HEADS, WIDTH = 2, 8
TOKENS = WINDOWS.count * WINDOWS.width
INSIDE = np.concatenate([s + np.arange(n) for s, n in zip(WINDOWS.starts, LENGTHS, strict=True)])
SIZES = {
    "vocab_size": 50,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 40,
    "type_vocab_size": 2,
}
MODULE = torch.nn.Identity()  # attention functions are handed the module that calls them


def states(dtype: torch.dtype = torch.float32) -> list[Tensor]:
    torch.manual_seed(0)
    return [torch.randn(1, HEADS, TOKENS, WIDTH).to(dtype).requires_grad_() for _ in range(3)]


def one_by_one(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None, p: float = 0) -> Tensor:
    """Attention spelled out, a sequence and a head at a time: the tokens of all sequences, one after the other."""
    rows = []
    for start, length in zip(WINDOWS.starts.tolist(), LENGTHS.tolist(), strict=True):
        window, offset = divmod(start, WINDOWS.width)
        heads = []
        for head in range(HEADS):
            q, k, v = (x[0, head, start : start + length] for x in (query, key, value))
            weights = torch.softmax(q @ k.T / WIDTH**0.5, -1)
            if mask is not None:
                keep = mask.view(WINDOWS.count, HEADS, WINDOWS.width, WINDOWS.width)[window, head]
                keep = keep[offset : offset + length, offset : offset + length] != 0
                weights = torch.where(keep, weights / (1 - round(p * LANES) / LANES), 0.0)
            heads.append(weights @ v)
        rows.append(torch.stack(heads, 1))
    return torch.cat(rows)


@given(st.lists(st.integers(1, 130), min_size=1, max_size=60))
def test_every_sequence_lies_whole_in_one_window_and_none_overlap(lengths: list[int]) -> None:
    windows = Windows.pack(np.array(lengths))
    assert windows.width % NARROWEST == 0
    assert windows.bias.shape == (windows.count, 1, windows.width, windows.width)
    taken = np.zeros(windows.count * windows.width, dtype=int)
    for start, length in zip(windows.starts, lengths, strict=True):
        assert start // windows.width == (start + length - 1) // windows.width
        taken[start : start + length] += 1
    assert taken.max() == 1
    assert taken.reshape(windows.count, -1).any(axis=1).all(), "no window is empty"
    allowed = windows.bias == 0
    assert int(allowed.sum()) == sum(n * n for n in lengths) + sum(
        int(n) ** 2 for n in windows.width - taken.reshape(windows.count, -1).sum(axis=1)
    )


def test_a_batch_of_one_length_wastes_nothing_it_could_save() -> None:
    windows = Windows.pack(np.full(40, 48))
    assert windows.width == 96
    assert windows.count == 20


def test_without_dropout() -> None:
    q, k, v = states()
    got, _ = window_attention(MODULE, q, k, v, None, windows=WINDOWS)
    assert torch.isfinite(got).all()
    torch.testing.assert_close(got[0, INSIDE], one_by_one(q, k, v), atol=1e-6, rtol=1e-5)


def test_values_and_gradients_with_dropout() -> None:
    p = 0.3
    torch.manual_seed(5)
    mask = keep_mask((WINDOWS.count * HEADS, WINDOWS.width, WINDOWS.width), p)
    weight = torch.randn(len(INSIDE), HEADS, WIDTH)

    def gradients(result: Tensor, inputs: list[Tensor]) -> tuple[Tensor, ...]:
        return torch.autograd.grad((result * weight).sum(), inputs)

    qkv = states()
    torch.manual_seed(5)
    got, _ = window_attention(MODULE, *qkv, None, windows=WINDOWS, dropout=p)
    want = one_by_one(*qkv, mask=mask, p=p)
    torch.testing.assert_close(got[0, INSIDE], want, atol=1e-6, rtol=1e-5)
    for mine, theirs in zip(gradients(got[0, INSIDE], qkv), gradients(want, qkv), strict=True):
        torch.testing.assert_close(mine, theirs, atol=1e-5, rtol=1e-4)


def test_bfloat16_is_near_float32() -> None:
    def run(dtype: torch.dtype) -> list[Tensor]:
        qkv = states(dtype)
        torch.manual_seed(5)
        result, _ = window_attention(MODULE, *qkv, None, windows=WINDOWS, dropout=0.3)
        assert result.dtype == dtype
        return [result.detach().float(), *(g.float() for g in torch.autograd.grad(result.sum(), qkv))]

    for low, high in zip(run(torch.bfloat16), run(torch.float32), strict=True):
        assert (low - high).norm() < 0.02 * high.norm()


def test_softmax_of_large_scores_is_finite() -> None:
    scores = torch.tensor([[1e4, 0.0, -1e4], [-1e4, -1e4, -1e4]])
    bias = torch.tensor([[0.0, -torch.inf, 0.0], [0.0, 0.0, 0.0]])
    got = attention._softmax(scores.clone()[None], bias[None, None])[0]
    torch.testing.assert_close(got, torch.softmax(scores + bias, -1))


def models() -> list[Any]:
    config = {"bert": BertConfig, "roberta": RobertaConfig, "xlm-roberta": XLMRobertaConfig}
    model = {"bert": BertModel, "roberta": RobertaModel, "xlm-roberta": XLMRobertaModel}
    assert tuple(model) == attention.MODEL_TYPES
    return [pytest.param(model[kind], config[kind], id=kind) for kind in model]


@pytest.mark.parametrize(("model", "config"), models())
@pytest.mark.parametrize("padded", [False, True])
def test_equals_eager_attention_over_padded_sequences(model: Any, config: Any, padded: bool) -> None:
    torch.manual_seed(0)
    eager = model(config(**SIZES, attn_implementation="eager"), add_pooling_layer=False).eval()
    mine = copy.deepcopy(eager)
    assert use_window_attention(mine)
    lengths = [3, 5, 5, 9] if padded else [6, 6, 6, 6]
    ids = torch.randint(3, 50, (4, max(lengths)))
    inside = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    ids[~inside] = eager.config.pad_token_id
    first = 0 if model is BertModel else eager.config.pad_token_id + 1
    want = eager(input_ids=ids, attention_mask=inside.long()).last_hidden_state
    stock = mine(input_ids=ids, attention_mask=inside.long()).last_hidden_state
    windows = Windows.pack(np.array(lengths))
    places = (torch.from_numpy(windows.starts)[:, None] + torch.arange(max(lengths)))[inside]
    row, positions = (torch.full((windows.count * windows.width,), first) for _ in range(2))
    row[places] = ids[inside]
    positions[places] = torch.arange(max(lengths)).expand(4, -1)[inside] + first
    got = mine(
        inputs_embeds=mine.get_input_embeddings()(row)[None],
        position_ids=positions[None],
        token_type_ids=torch.zeros_like(positions)[None],
        windows=windows,
    ).last_hidden_state
    torch.testing.assert_close(got[0, places], want[inside], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(stock[inside], want[inside], atol=1e-5, rtol=1e-5)


def test_other_architectures_keep_their_own() -> None:
    sizes = SIZES | {"embedding_size": 16}
    electra = ElectraModel(ElectraConfig(**sizes))
    before = electra.config._attn_implementation
    assert not use_window_attention(electra)
    assert electra.config._attn_implementation == before


def test_a_saved_backbone_does_not_ask_for_it(tmp_path: Path) -> None:
    backbone = BertModel(BertConfig(**SIZES))
    use_window_attention(backbone)
    backbone.save_pretrained(tmp_path)
    assert "lightning_cse" not in json.dumps(json.loads((tmp_path / "config.json").read_text()))
