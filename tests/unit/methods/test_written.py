"""CLHAIF: the labels of positives are scores, and the negatives of all rows are candidates."""

import math

import pytest
import torch
from method_steps import batch_of, method_of
from oracles import SENTENCES

from lightning_cse.errors import ConfigError
from lightning_cse.losses import SoftInfoNCE
from lightning_cse.methods import CLHAIF


@pytest.fixture
def method():
    return method_of(CLHAIF, SoftInfoNCE()).eval()


def test_loss_is_that_of_a_loop(method):
    scores = torch.linspace(0.2, 1.0, len(SENTENCES))
    inputs = batch_of(method, targets=scores)
    outputs = method.training_step(inputs, 0)
    anchors, positives, negatives = (
        embedding.vector.detach().double()
        for embedding in method.model.encode(*inputs["roles"].values())
    )
    losses = []
    for row, anchor in enumerate(anchors):
        cosines = [
            float(anchor @ candidate / anchor.norm() / candidate.norm())
            for candidate in (*positives, *negatives)
        ]
        total = sum(math.exp(cosine / 0.05) for cosine in cosines)
        losses.append(-float(scores[row]) * (cosines[row] / 0.05 - math.log(total)))

    assert outputs["loss"].item() == pytest.approx(sum(losses) / len(losses), rel=1e-5)
    assert set(outputs["embeddings"]) == set(method.roles)


def test_rows_without_scores_are_refused(method):
    with pytest.raises(ConfigError, match="CLHAIF needs a score in each row"):
        method.training_step(batch_of(method), 0)
