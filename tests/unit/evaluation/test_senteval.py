"""SentEval's classifier against its loop, written out with torch's Adam."""

import numpy as np
import pytest
import torch
from oracles import senteval_classifier

from lightning_cse.evaluation.senteval import Fold, fit_classifiers


def problem(classes, rows=200, width=6, seed=3):
    generator = torch.Generator().manual_seed(seed)
    scales = torch.logspace(0, -2, width)
    features = torch.randn(rows, width, generator=generator) * scales + 0.7
    noise = torch.randn(rows, classes, generator=generator)
    directions = torch.randn(width, classes, generator=generator)

    return features, ((features - 0.7) @ directions * 2 + noise).argmax(dim=1)


@pytest.mark.parametrize("classes", [2, 3])
def test_classifiers_are_those_of_sentevals_loop(classes):
    features, labels = problem(classes)
    folds: list[Fold] = [
        (np.arange(40, 200), np.arange(40)),
        (np.arange(160), np.arange(160, 200)),
        (np.arange(139), np.arange(139, 200)),
        (np.arange(200), None),
    ]
    decays = (1e-5, 1e-2)
    state = torch.get_rng_state()
    weights, accuracies = fit_classifiers(
        features, labels, folds, torch.tensor([decays] * len(folds))
    )
    assert torch.equal(torch.get_rng_state(), state)
    epochs = set()
    for fold, rows in enumerate(folds):
        for column, l2 in enumerate(decays):
            model, length = senteval_classifier(features, labels, rows, l2, classes)
            epochs.add(length)
            expected = torch.cat([model.weight, model.bias[:, None]], dim=1).detach().float()
            torch.testing.assert_close(weights[fold, column], expected, rtol=1e-3, atol=1e-4)
            if rows[1] is not None:
                is_right = model(features[rows[1]].double()).argmax(dim=1) == labels[rows[1]]
                assert accuracies[fold, column] == is_right.double().mean()

    assert len(epochs) > 1  # they stop at different times
