"""Both solvers against independent ones: scikit-learn's optimum, and SentEval's loop written out
with torch's Adam.
"""

import numpy as np
import pytest
import torch
from oracles import senteval_classifier
from sklearn.linear_model import LogisticRegression

from lightning_cse.evaluation.logistic import Fold, fit_lbfgs, fit_senteval

DECAYS = (1e-4, 1e-2)


def problem(classes, rows=150, width=6, seed=0):
    generator = torch.Generator().manual_seed(seed)
    scales = torch.logspace(0, -2, width)
    features = torch.randn(rows, width, generator=generator) * scales + 0.7
    noise = torch.randn(rows, classes, generator=generator)
    directions = torch.randn(width, classes, generator=generator)

    return features, ((features - 0.7) @ directions * 2 + noise).argmax(dim=1)


def sklearn_optimum(features, labels, l2, classes):
    """Return scikit-learn's weights and biases, in our terms."""
    c = (2 if classes == 2 else 1) / (len(features) * l2)
    model = LogisticRegression(C=c, tol=1e-10, max_iter=10_000)
    model.fit(features.double().numpy(), labels.numpy())
    if classes == 2:  # one vector, the difference of ours
        return np.concatenate([-model.coef_, model.coef_]) / 2, np.outer(
            [-0.5, 0.5], model.intercept_
        )[:, 0]

    return model.coef_, model.intercept_ - model.intercept_.mean()


@pytest.mark.parametrize("classes", [2, 4])
def test_lbfgs_finds_the_optimum_of_scikit_learn(classes):
    features, labels = problem(classes)
    folds: list[Fold] = [(np.arange(0, 100), None), (np.arange(40, 150), None)]
    found = fit_lbfgs(features, labels, folds, torch.tensor([DECAYS, DECAYS]))
    for fold, (train, _) in enumerate(folds):
        for place, l2 in enumerate(DECAYS):
            weight, bias = sklearn_optimum(features[train], labels[train], l2, classes)
            ours = found.bias[fold, place] - found.bias[fold, place].mean()
            np.testing.assert_allclose(found.weight[fold, place], weight, rtol=1e-3, atol=1e-3)
            np.testing.assert_allclose(ours, bias, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("classes", [2, 3])
def test_against_sentevals_loop(classes):
    features, labels = problem(classes, rows=200, seed=3)
    folds: list[Fold] = [
        (np.arange(40, 200), np.arange(40)),
        (np.arange(160), np.arange(160, 200)),
        (np.arange(139), np.arange(139, 200)),
        (np.arange(200), None),
    ]
    decays = (1e-5, 1e-2)
    state = torch.get_rng_state()
    found = fit_senteval(features, labels, folds, torch.tensor([decays] * len(folds)))
    assert torch.equal(torch.get_rng_state(), state)
    epochs = set()
    for number, fold in enumerate(folds):
        for place, l2 in enumerate(decays):
            model, length = senteval_classifier(features, labels, fold, l2, classes)
            epochs.add(length)
            torch.testing.assert_close(
                found.weight[number, place], model.weight.detach().float(), rtol=1e-3, atol=1e-4
            )
            torch.testing.assert_close(
                found.bias[number, place], model.bias.detach().float(), rtol=1e-3, atol=1e-4
            )

    assert len(epochs) > 1  # they stop at different times
