"""Attention over sequences laid end to end is attention over each of them."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import torch
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

from lightning_cse.encoders import attention
from lightning_cse.encoders.attention import block_attention, use_block_attention
from lightning_cse.encoders.dropout import LANES, keep_mask

BLOCKS = [(3, 4), (2, 7), (1, 20), (5, 1)]
HEADS, WIDTH = 2, 8
TOKENS = sum(count * length for count, length in BLOCKS)
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


def one_by_one(query: Tensor, key: Tensor, value: Tensor, masks: list[Tensor] | None = None, p: float = 0) -> Tensor:
    """Attention spelled out, a sequence and a head at a time; masks as `keep_mask` draws them, a block each."""
    rows = []
    start = 0
    for number, (count, length) in enumerate(BLOCKS):
        for index in range(count):
            heads = []
            for head in range(HEADS):
                q, k, v = (x[0, head, start : start + length] for x in (query, key, value))
                weights = torch.softmax(q @ k.T / WIDTH**0.5, -1)
                if masks is not None:
                    keep = masks[number].view(count, HEADS, length, length)[index, head] != 0
                    weights = torch.where(keep, weights / (1 - round(p * LANES) / LANES), 0.0)
                heads.append(weights @ v)
            rows.append(torch.stack(heads, 1))
            start += length
    return torch.cat(rows)[None]


def masks_of(p: float) -> list[Tensor]:
    entries = [count * HEADS * length * length for count, length in BLOCKS]
    return list(keep_mask((sum(entries),), p).split(entries))


def test_without_dropout() -> None:
    q, k, v = states()
    got, _ = block_attention(MODULE, q, k, v, None, blocks=BLOCKS)
    torch.testing.assert_close(got, one_by_one(q, k, v), atol=1e-6, rtol=1e-5)


def test_values_and_gradients_with_dropout() -> None:
    p = 0.3
    torch.manual_seed(5)
    masks = masks_of(p)
    weight = torch.randn(1, TOKENS, HEADS, WIDTH)

    def gradients(result: Tensor, inputs: list[Tensor]) -> tuple[Tensor, ...]:
        return torch.autograd.grad((result * weight).sum(), inputs)

    qkv = states()
    torch.manual_seed(5)
    got, _ = block_attention(MODULE, *qkv, None, blocks=BLOCKS, dropout=p)
    want = one_by_one(*qkv, masks=masks, p=p)
    torch.testing.assert_close(got, want, atol=1e-6, rtol=1e-5)
    for mine, theirs in zip(gradients(got, qkv), gradients(want, qkv), strict=True):
        torch.testing.assert_close(mine, theirs, atol=1e-5, rtol=1e-4)


def test_bfloat16_is_near_float32() -> None:
    def run(dtype: torch.dtype) -> list[Tensor]:
        qkv = states(dtype)
        torch.manual_seed(5)
        result, _ = block_attention(MODULE, *qkv, None, blocks=BLOCKS, dropout=0.3)
        assert result.dtype == dtype
        return [result.detach().float(), *(g.float() for g in torch.autograd.grad(result.sum(), qkv))]

    for low, high in zip(run(torch.bfloat16), run(torch.float32), strict=True):
        assert (low - high).norm() < 0.02 * high.norm()


def test_softmax_of_large_scores_is_finite() -> None:
    scores = torch.tensor([[1e4, 0.0, -1e4], [-1e4, -1e4, -1e4]])
    torch.testing.assert_close(attention._softmax(scores.clone()), torch.softmax(scores, -1))


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
    assert use_block_attention(mine)
    lengths = [3, 5, 5, 9] if padded else [6, 6, 6, 6]
    ids = torch.randint(3, 50, (4, max(lengths)))
    inside = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    ids[~inside] = eager.config.pad_token_id
    first = 0 if model is BertModel else eager.config.pad_token_id + 1
    want = eager(input_ids=ids, attention_mask=inside.long()).last_hidden_state
    stock = mine(input_ids=ids, attention_mask=inside.long()).last_hidden_state
    positions = torch.arange(max(lengths)).expand(4, -1)[inside] + first
    got = mine(
        inputs_embeds=mine.get_input_embeddings()(ids[inside])[None],
        position_ids=positions[None],
        token_type_ids=torch.zeros_like(positions)[None],
        blocks=[(1, 3), (2, 5), (1, 9)] if padded else [(4, 6)],
    ).last_hidden_state
    torch.testing.assert_close(got[0], want[inside], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(stock[inside], want[inside], atol=1e-5, rtol=1e-5)


def test_other_architectures_keep_their_own() -> None:
    sizes = SIZES | {"embedding_size": 16}
    electra = ElectraModel(ElectraConfig(**sizes))
    before = electra.config._attn_implementation
    assert not use_block_attention(electra)
    assert electra.config._attn_implementation == before


def test_a_saved_backbone_does_not_ask_for_it(tmp_path: Path) -> None:
    backbone = BertModel(BertConfig(**SIZES))
    use_block_attention(backbone)
    backbone.save_pretrained(tmp_path)
    assert "lightning_cse" not in json.dumps(json.loads((tmp_path / "config.json").read_text()))
