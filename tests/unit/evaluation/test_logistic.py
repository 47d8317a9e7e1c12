"""Both solvers against independent ones: scikit-learn's optimum, and SentEval's loop written out with torch's Adam."""

from __future__ import annotations

import copy
import logging

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from lightning_cse.evaluation.logistic import Fit, fit_lbfgs, fit_senteval

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
    trains = [np.arange(0, 100), np.arange(40, 150)]
    fits = [Fit(train, l2) for train in trains for l2 in DECAYS]
    found = fit_lbfgs(features, labels, fits, tolerance=1e-14)
    for number, fit in enumerate(fits):
        c = (2 if classes == 2 else 1) / (len(fit.train) * fit.l2)
        other = LogisticRegression(C=c, tol=1e-10, max_iter=10_000)
        other.fit(features[fit.train].double().numpy(), labels[fit.train].numpy())
        weight, bias = found.weight[number], found.bias[number]
        if classes == 2:
            weight, bias = weight[1:] - weight[:1], bias[1:] - bias[:1]
        else:
            bias = bias - bias.mean()
            other.intercept_ -= other.intercept_.mean()
        np.testing.assert_allclose(weight.numpy(), other.coef_, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(bias.numpy(), other.intercept_, rtol=1e-4, atol=1e-4)
        predicted = found.predict(number, features).numpy()
        assert (predicted == other.predict(features.double().numpy())).all()


@pytest.mark.parametrize("classes", [2, 3])
def test_at_the_optimum_the_gradient_of_the_stated_objective_is_zero(classes: int) -> None:
    features, labels = problem(classes)
    train = np.arange(20, 130)
    fits = [Fit(train, l2) for l2 in (1e-5, 1e-3, 1.0)]
    found = fit_lbfgs(features, labels, fits, tolerance=1e-15)
    for number, fit in enumerate(fits):
        weight, bias = (t[number].clone().requires_grad_() for t in (found.weight, found.bias))
        logits = features[train].double() @ weight.T + bias
        loss = nn.functional.cross_entropy(logits, labels[train]) + fit.l2 / 2 * weight.square().sum()
        loss.backward()
        for gradient in (weight.grad, bias.grad):
            assert gradient is not None
            assert gradient.abs().max() < 1e-6


def test_more_features_than_rows_and_features_that_are_all_alike() -> None:
    features, labels = problem(2, rows=12, width=40)
    features[:, 3] = 5.0
    found = fit_lbfgs(features, labels, [Fit(np.arange(12), 1e-3)], tolerance=1e-14)
    assert (found.predict(0, features) == labels).all()
    assert found.weight[0, :, 3].abs().max() < 1e-9


@pytest.mark.parametrize("solve", [fit_lbfgs, fit_senteval])
def test_fits_together_are_the_fits_alone_and_all_are_told(solve) -> None:  # type: ignore[no-untyped-def]
    features, labels = problem(3, rows=90)
    folds = [(np.arange(10, 90), np.arange(10)), (np.arange(80), np.arange(80, 90)), (np.arange(5, 90), np.arange(5))]
    fits = [Fit(train, l2, dev) for train, dev in folds for l2 in DECAYS] + [Fit(np.arange(90), 1e-3)]
    told: list[int] = []
    together = solve(features, labels, fits, told.append)
    assert sum(told) == len(fits)
    for number, fit in enumerate(fits):
        alone = solve(features, labels, [fit])
        torch.testing.assert_close(alone.weight[0], together.weight[number], rtol=1e-3, atol=1e-3)
        torch.testing.assert_close(alone.bias[0], together.bias[number], rtol=1e-3, atol=1e-3)


def test_one_that_does_not_converge_is_told(caplog: pytest.LogCaptureFixture) -> None:
    features, labels = problem(3)
    told: list[int] = []
    with caplog.at_level(logging.WARNING):
        fit_lbfgs(features, labels, [Fit(np.arange(150), 1e-4)] * 2, told.append, max_iterations=2)
    assert "2 of 2 logistic regressions did not converge in 2 steps" in caplog.text
    assert sum(told) == 2


def written_out(features: Tensor, labels: Tensor, fit: Fit, classes: int) -> tuple[nn.Linear, int]:
    """SentEval's classifier as a loop; returns also the number of epochs."""
    random = np.random.RandomState(1111)
    torch.manual_seed(1111)
    model = nn.Linear(features.shape[1], classes)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, weight_decay=fit.l2)
    train, dev = fit.train, fit.dev
    if dev is None:
        permutation = random.permutation(len(train))
        apart = int(0.05 * len(train))
        train, dev = train[permutation[apart:]], train[permutation[:apart]]
    best, best_model, epochs, count, stop = -1.0, model, 0, 0, False
    while not stop and epochs <= 200:
        for _ in range(4):
            permutation = random.permutation(len(train))
            for start in range(0, len(train), 64):
                batch = train[permutation[start : start + 64]]
                loss = nn.functional.cross_entropy(model(features[batch]), labels[batch])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        epochs += 4
        accuracy = (model(features[dev]).argmax(1) == labels[dev]).double().mean().item()
        if accuracy > best:
            best, best_model = accuracy, copy.deepcopy(model)
        else:
            stop = count >= 5
            count += 1
    return best_model, epochs


@pytest.mark.parametrize("classes", [2, 3])
def test_against_sentevals_loop(classes: int) -> None:
    features, labels = problem(classes, rows=200, seed=3)
    folds: list[tuple[np.ndarray, np.ndarray | None]] = [
        (np.arange(40, 200), np.arange(40)),
        (np.arange(160), np.arange(160, 200)),
        (np.arange(139), np.arange(139, 200)),
        (np.arange(200), None),
    ]
    fits = [Fit(train, l2, dev) for train, dev in folds for l2 in (1e-5, 1e-2)]
    state = torch.get_rng_state()
    found = fit_senteval(features, labels, fits)
    assert torch.equal(torch.get_rng_state(), state)
    epochs = []
    for number, fit in enumerate(fits):
        with torch.random.fork_rng():
            model, length = written_out(features, labels, fit, classes)
        epochs.append(length)
        torch.testing.assert_close(found.weight[number], model.weight.detach(), rtol=1e-3, atol=1e-4)
        torch.testing.assert_close(found.bias[number], model.bias.detach(), rtol=1e-3, atol=1e-4)
    assert len(set(epochs)) > 1  # they stop at different times
