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
    classifiers = fit_classifiers(features, labels, folds, torch.tensor([decays] * len(folds)))
    assert torch.equal(torch.get_rng_state(), state)
    epochs = set()
    for fold, rows in enumerate(folds):
        for column, l2 in enumerate(decays):
            model, length = senteval_classifier(features, labels, rows, l2, classes)
            epochs.add(length)
            for name in ("weight", "bias"):
                torch.testing.assert_close(
                    getattr(classifiers, name)[fold, column],
                    getattr(model, name).detach().float(),
                    rtol=1e-3,
                    atol=1e-4,
                )

            expected = model(features.double()).argmax(dim=1)
            assert torch.equal(classifiers.predict(fold, column, features), expected)

    assert len(epochs) > 1  # they stop at different times
