"""Augmentation in the encoder: what each one changes, and that packed and padded passes agree."""

from itertools import pairwise

import pytest
import torch
from encoder_kinds import pad_groups, save_kind, vectors_of
from oracles import SENTENCES, normal

from lightning_cse.encoders import load_encoder, tiny_encoder
from lightning_cse.encoders.augmentation import (
    Augmentation,
    EmbeddingDropout,
    FeatureCutoff,
    ShuffledPositions,
    TokenEmbeddingCutoff,
)
from lightning_cse.errors import ConfigError, EncoderError

LENGTHS = torch.tensor([9, 1, 4, 5])
MASK = torch.arange(9) < LENGTHS[:, None]


class Changed(Augmentation):
    """Positions from the last to the first, and features that depend on length and place."""

    def positions(self, positions, lengths):
        last = lengths[:, None] - 1
        return torch.where(positions <= last, last - positions, positions)

    def embeddings(self, embeddings, mask):
        position = torch.arange(mask.shape[1])[None, :, None]
        changed = embeddings + position / mask.sum(1)[:, None, None]
        return changed.masked_fill(torch.arange(embeddings.shape[2]) == 1, 0.0)


@pytest.mark.parametrize("is_padded", [False, True], ids=["packed", "padded"])
def test_augmented_sentence_is_that_of_a_pass_of_its_own(load, is_padded, monkeypatch):
    encoder = load("roberta", pooling="mean")
    if is_padded:
        pad_groups(encoder, monkeypatch)

    backbone = encoder.backbone
    template = encoder.template()
    augmented = vectors_of(encoder, SENTENCES, augment=Changed())
    for vector, ids in zip(augmented, encoder.tokenizer(SENTENCES), strict=True):
        ids = torch.tensor([[*template.prefix, *ids, *template.suffix]])
        count = ids.shape[1]
        positions = torch.arange(count).flip(0)[None] + 2  # they start behind the padding id
        embedded = backbone.embeddings(input_ids=ids, position_ids=positions)
        changed = Changed().embeddings(embedded, torch.ones(1, count, dtype=torch.bool))
        states = backbone.encoder(changed).last_hidden_state[0]
        torch.testing.assert_close(vector, states.mean(0), atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_no_change_changes_nothing_and_leaves_nothing_behind():
    encoder = tiny_encoder(pooling="last_two").eval()
    plain = vectors_of(encoder, SENTENCES)
    for augment in (None, Augmentation()):
        torch.testing.assert_close(vectors_of(encoder, SENTENCES, augment=augment), plain)

    assert not torch.allclose(vectors_of(encoder, SENTENCES, augment=Changed()), plain, atol=1e-2)
    assert not encoder.backbone.embeddings._forward_hooks
    assert torch.equal(vectors_of(encoder, SENTENCES), plain)


@torch.no_grad()
def test_last_two_is_the_mean_over_two_layers():
    encoder = tiny_encoder(pooling="last_two", layers=3).eval()
    template = encoder.template()
    for vector, ids in zip(
        vectors_of(encoder, SENTENCES), encoder.tokenizer(SENTENCES), strict=True
    ):
        ids = torch.tensor([[*template.prefix, *ids, *template.suffix]])
        states = encoder.backbone(input_ids=ids, output_hidden_states=True).hidden_states
        want = (states[2][0] + states[3][0]).mean(0) / 2
        torch.testing.assert_close(vector, want, atol=1e-5, rtol=1e-5)


def test_shuffled_positions_are_permutations_of_the_tokens():
    torch.manual_seed(0)
    positions = torch.arange(9).expand(4, -1)
    draws = [ShuffledPositions().positions(positions, LENGTHS) for _ in range(60)]
    orders = set()
    for shuffled in draws:
        for row, length in zip(shuffled, LENGTHS.tolist(), strict=True):
            assert sorted(row[:length].tolist()) == list(range(length))
            assert row[length:].tolist() == list(range(length, 9))

        orders.add(tuple(shuffled[2, :4].tolist()))

    assert len(orders) > 15, "of 24 orders of four tokens"


def removed_of(augment, seed=0):
    torch.manual_seed(seed)
    matrices = normal(4, 9, 10)
    augmented = augment.embeddings(matrices, MASK)
    removed = augmented == 0
    assert torch.equal(augmented[~removed], matrices[~removed])

    return removed


def test_token_cutoff_removes_a_share_of_the_tokens():
    removed = removed_of(TokenEmbeddingCutoff(0.4))
    rows = removed.all(dim=2)
    assert torch.equal(rows, removed.any(dim=2))
    assert not rows[~MASK].any()
    assert rows.sum(1).tolist() == [3, 0, 1, 2]


def test_feature_cutoff_removes_a_share_of_the_features_of_all_tokens():
    removed = removed_of(FeatureCutoff(0.25))
    columns = removed.all(dim=1)
    assert torch.equal(columns, removed.any(dim=1))
    assert columns.sum(1).tolist() == [2, 2, 2, 2]
    assert any(not torch.equal(first, second) for first, second in pairwise(columns))


def test_dropout_removes_a_share_of_the_numbers():
    removed = removed_of(EmbeddingDropout(0.3))
    assert removed.double().mean().item() == pytest.approx(0.3, abs=0.08)
    assert not removed.all(dim=1).any()


@pytest.mark.parametrize(
    "augment", [TokenEmbeddingCutoff(0.4), FeatureCutoff(0.25), EmbeddingDropout(0.3)]
)
def test_torchs_seed_decides_what_is_removed(augment):
    assert torch.equal(removed_of(augment), removed_of(augment))
    assert not torch.equal(removed_of(augment), removed_of(augment, seed=1))


@pytest.mark.parametrize("share", [0.0, 1.0, -0.2, float("nan")])
def test_share_out_of_range_is_an_error(share):
    with pytest.raises(ConfigError, match=rf"share: must be in \(0, 1\), got {share}"):
        FeatureCutoff(share)


@pytest.mark.parametrize(
    ("model_type", "reason"),
    [("qwen2", "has no layer of its own for embeddings"), ("mpnet", "positions of mpnet")],
)
def test_encoder_that_cannot_augment_is_an_error(model_type, reason, tmp_path):
    folder = save_kind(model_type, tmp_path)
    encoder = load_encoder(name=model_type, source=str(folder), pooling="mean", max_length=64)
    with pytest.raises(EncoderError, match=f"method.first: .*{reason}"):
        encoder.check_augmentation("method.first")
