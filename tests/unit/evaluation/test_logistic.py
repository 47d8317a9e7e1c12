"""Both solvers against independent ones: scikit-learn's optimum, and SentEval's loop written out with torch's Adam."""

import numpy as np
import pytest
import torch
from oracles import senteval_classifier
from torch import Tensor

from lightning_cse.evaluation.logistic import Fold, fit_lbfgs, fit_senteval

DECAYS = (1e-4, 1e-2)


def problem(classes: int, rows: int = 150, width: int = 6, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    scales = torch.logspace(0, -2, width)
    features = torch.randn(rows, width, generator=generator) * scales + 0.7
    noise = torch.randn(rows, classes, generator=generator)
    directions = torch.randn(width, classes, generator=generator)
    return features, ((features - 0.7) @ directions * 2 + noise).argmax(dim=1)


@pytest.mark.parametrize("classes", [2, 4])
def test_the_optimum_is_scikit_learns(classes: int) -> None:
    from sklearn.linear_model import LogisticRegression

    features, labels = problem(classes)
    folds: list[Fold] = [(np.arange(0, 100), None), (np.arange(40, 150), None)]
    found = fit_lbfgs(features, labels, folds, torch.tensor([DECAYS, DECAYS]))
    for fold, (train, _) in enumerate(folds):
        for place, l2 in enumerate(DECAYS):
            c = (2 if classes == 2 else 1) / (len(train) * l2)
            other = LogisticRegression(C=c, tol=1e-10, max_iter=10_000)
            other.fit(features[train].double().numpy(), labels[train].numpy())
            weight, bias = found.weight[fold, place], found.bias[fold, place]
            if classes == 2:
                weight, bias = weight[1:] - weight[:1], bias[1:] - bias[:1]
            else:
                bias = bias - bias.mean()
                other.intercept_ -= other.intercept_.mean()
            np.testing.assert_allclose(weight.numpy(), other.coef_, rtol=1e-3, atol=1e-3)
            np.testing.assert_allclose(bias.numpy(), other.intercept_, rtol=1e-3, atol=1e-3)
            predicted = found.predict(fold, place, features).numpy()
            assert (predicted == other.predict(features.double().numpy())).all()


@pytest.mark.parametrize("solve", [fit_lbfgs, fit_senteval])
def test_fits_together_are_the_fits_alone(solve) -> None:  # type: ignore[no-untyped-def]
    features, labels = problem(3, rows=90)
    folds = [
        (np.arange(10, 90), np.arange(10)),
        (np.arange(80), np.arange(80, 90)),
        (np.arange(5, 90), np.arange(5)),
    ]
    together = solve(features, labels, folds, torch.tensor([DECAYS] * 3))
    for number, fold in enumerate(folds):
        for place, l2 in enumerate(DECAYS):
            alone = solve(features, labels, [fold], torch.tensor([[l2]]))
            torch.testing.assert_close(
                alone.weight[0, 0], together.weight[number, place], rtol=2e-3, atol=2e-3
            )
            torch.testing.assert_close(
                alone.bias[0, 0], together.bias[number, place], rtol=2e-3, atol=2e-3
            )


@pytest.mark.parametrize("classes", [2, 3])
def test_against_sentevals_loop(classes: int) -> None:
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
