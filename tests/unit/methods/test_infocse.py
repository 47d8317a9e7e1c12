"""InfoCSE: what is masked, what restores it, and which weights learn from it."""

import numpy as np
import pytest
import torch
from method_steps import batch_of, logged_step, method_of
from oracles import normal

from lightning_cse.errors import ConfigError
from lightning_cse.losses import InfoNCE
from lightning_cse.methods import InfoCSE


def make(**options):
    return method_of(InfoCSE, InfoNCE(), **{"weight": 0.5, "share": 0.4} | options)


def test_step_adds_the_weighted_loss():
    method = make().train()
    step, logged = logged_step(method, batch_of(method))
    want = logged["train/contrastive"] + 0.5 * logged["train/restoration"]
    assert step["loss"].item() == logged["train/loss"] == pytest.approx(want)
    views = [step["embeddings"][role]["vector"] for role in ("anchor", "positive")]
    assert logged["train/contrastive"] == pytest.approx(InfoNCE()(*views).item(), rel=1e-5)
    step["loss"].backward()
    learn = {name for name, weight in method.named_parameters() if weight.grad is not None}
    assert {"restoration.bias", "head.0.weight"} <= learn
    assert not any(
        weight.requires_grad for weight in method.restoration.frozen.backbone.parameters()
    )
    assert not any("frozen" in name for name in method.state_dict())


def test_masks_are_a_share_of_the_bare_tokens_and_the_same_for_a_step():
    restoration = make(share=0.25).restoration
    ids = torch.randint(5, 900, (40, 60), generator=torch.Generator().manual_seed(1))
    is_bare = np.zeros((40, 60), dtype=bool)
    is_bare[:, 1:50] = True
    changed, chosen = restoration.mask_tokens(ids, is_bare, 3)
    assert not chosen[~is_bare].any()
    assert chosen[is_bare].mean() == pytest.approx(0.25, abs=0.04)
    assert torch.equal(changed[~chosen], ids[~chosen])
    chosen_ids = changed[chosen]
    assert (chosen_ids == restoration.mask_id).double().mean().item() == pytest.approx(
        0.8, abs=0.06
    )
    assert (chosen_ids == ids[chosen]).double().mean().item() == pytest.approx(0.1, abs=0.05)
    same_step, _ = restoration.mask_tokens(ids, is_bare, 3)
    next_step, _ = restoration.mask_tokens(ids, is_bare, 4)
    assert torch.equal(same_step, changed)
    assert not torch.equal(next_step, changed)


@torch.no_grad()
def test_restoration_is_the_mean_over_the_masked_tokens():
    """Against the same layers, sentence by sentence and without padding."""
    restoration = make().restoration.eval()
    lengths = [17, 4, 20]
    ids = torch.randint(5, 900, (3, 20), generator=torch.Generator().manual_seed(1))
    is_token = np.arange(20) < np.array(lengths)[:, None]
    is_bare = is_token & (np.arange(20) > 0)
    vectors = normal(3, 32, dtype=torch.float32)
    loss = restoration(vectors, ids, is_token, is_bare, 2)
    masked_ids, chosen = restoration.mask_tokens(ids, is_bare, 2)
    frozen = restoration.frozen.backbone
    losses = []
    for row, length in enumerate(lengths):
        output = frozen(input_ids=masked_ids[row : row + 1, :length], output_hidden_states=True)
        states = output.hidden_states[1].clone()
        states[0, 0] = vectors[row]
        before = restoration.before_vocabulary(restoration.layers(states))[0]
        logits = before @ frozen.get_input_embeddings().weight.T + restoration.bias
        logarithms = logits.log_softmax(1)
        indices = np.flatnonzero(chosen[row]).tolist()
        losses += [-logarithms[index, ids[row, index]] for index in indices]

    assert len(losses) > 3
    assert loss.item() == pytest.approx(torch.stack(losses).mean().item(), rel=1e-4)


def test_vectors_learn_from_the_restoration():
    method = make()
    vectors = normal(2, 32, dtype=torch.float32).requires_grad_()
    ids = torch.arange(10, 30).view(2, 10)
    is_token = np.ones((2, 10), dtype=bool)
    method.restoration(vectors, ids, is_token, is_token, 0).backward()
    assert vectors.grad is not None
    assert vectors.grad.abs().sum(1).min() > 0


@torch.no_grad()
def test_without_a_masked_token_the_loss_is_0():
    restoration = make().restoration
    ids = torch.full((2, 3), 7)
    nothing = np.zeros((2, 3), dtype=bool)
    loss = restoration(torch.ones(2, 32), ids, ~nothing, nothing, 0)
    assert loss.item() == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"share": 1.0}, r"method\.share: must be in \(0, 1\), got 1\.0"),
        ({"frozen_layers": 3}, r"method\.frozen_layers: must be from 1 to 2, got 3"),
    ],
)
def test_options_out_of_range_are_errors(options, message):
    with pytest.raises(ConfigError, match=message):
        make(**options)
