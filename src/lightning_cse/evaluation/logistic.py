"""Logistic regression on frozen features, for several training sets and weight decays at once."""

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

log = logging.getLogger(__name__)

SEED: Final = 1111
"""SentEval's seed, for the folds, the initial weights and the order of batches."""

MAX_ITERATIONS: Final = 1000  # of L-BFGS

Numbers = NDArray[np.int64]
Fold = tuple[Numbers, Numbers | None]
"""The rows of the features to fit on, in this order, and those for early stopping (None: 5 % of the former)."""


@dataclass(frozen=True)
class Linear:
    """Linear classifiers by fold and weight decay: ``weight`` (folds, decays, classes, d), ``bias`` without the d."""

    weight: Tensor
    bias: Tensor

    def predict(self, fold: int, decay: int, features: Tensor) -> Tensor:
        """Return the class that one classifier predicts for each row of features: (n,)."""
        logits = (
            features.to(self.weight.dtype) @ self.weight[fold, decay].T + self.bias[fold, decay]
        )
        return logits.argmax(dim=1)


Solver = Callable[[Tensor, Tensor, Sequence[Fold], Tensor], Linear]
"""Fits classifiers from features (n, d) and labels (n,) in 0, ..., classes - 1, for folds and their weight decays."""


def fit_lbfgs(features: Tensor, labels: Tensor, folds: Sequence[Fold], l2: Tensor) -> Linear:
    r"""Fit multinomial logistic regressions to their optimum.

    .. math:: \min_{W, b} \; \frac{1}{n} \sum_{i=1}^{n} - \log \mathrm{softmax}(W x_i + b)_{y_i}
              + \frac{\lambda}{2} \lVert W \rVert_F^2

    with features :math:`x` ``(n, d)``, labels :math:`y` ``(n,)``, one row of :math:`W` per class (also for two classes)
    and :math:`\lambda` = ``l2``, which adds the gradient of a weight decay of :math:`\lambda`; the bias is not decayed.
    The fit is in float64 and starts at zero; the second part of a fold is not used.

    The objectives are independent and minimized as one sum. They are scaled along the principal axes of the features,
    so that the Hessian at :math:`W = 0` is nearly the identity; this takes tens of iterations instead of hundreds.

    Source: L-BFGS-B of scipy.  Differs: nothing; the optimum is that of scikit-learn's ``LogisticRegression`` with
    ``C=1 / (n * l2)`` (for two classes ``C=2 / (n * l2)``, since it has one weight vector where softmax has two).

    The fit ends when the largest entry of the gradient is 1e-5, or with a warning after 1,000 iterations.
    """
    from scipy.optimize import minimize  # takes half a second to import

    mean = features.double().mean(dim=0)
    centred = features.double() - mean
    variances, axes = torch.linalg.eigh(centred.T @ centred / len(centred))
    spread = (
        variances > variances[-1] * 1e-14
    )  # other directions have no variance: their weights are zero
    variances, axes = variances[spread], axes[:, spread]
    inputs = torch.cat([centred @ axes, torch.ones(len(centred), 1, dtype=torch.float64)], dim=1)
    truth = nn.functional.one_hot(labels).double()
    share = torch.zeros(
        len(inputs), len(folds), 1, 1, dtype=torch.float64
    )  # the weight of a row in a fold's mean
    for number, (train, _) in enumerate(folds):
        share[torch.from_numpy(train), number] = 1 / len(train)
    classes = truth.shape[1]
    decay = l2.double()[:, :, None, None]
    curvature = variances / classes + decay
    scale = torch.cat([curvature, torch.full_like(curvature[..., :1], 1 / classes)], dim=3).rsqrt()
    shape = (*l2.shape, classes, inputs.shape[1])

    def objective(point: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        weights = torch.from_numpy(point).view(shape) * scale
        logits = (inputs @ weights.view(-1, shape[3]).T).view(-1, *shape[:3])
        likelihood = logits.log_softmax(dim=3)
        decayed = weights.clone()
        decayed[..., -1] = 0
        value = (decay * decayed.square()).sum() / 2 - (
            likelihood * truth[:, None, None] * share
        ).sum()
        error = likelihood.exp_().sub_(truth[:, None, None]).mul_(share).view(len(inputs), -1)
        gradient = ((error.T @ inputs).view(shape) + decay * decayed) * scale
        return value.item(), gradient.view(-1).numpy()

    start = np.zeros(int(np.prod(shape)))
    options = {
        "maxcor": 20,
        "maxiter": MAX_ITERATIONS,
        "maxfun": 2 * MAX_ITERATIONS,
        "gtol": 1e-5,
        "ftol": 0,
    }
    found = minimize(objective, start, jac=True, method="L-BFGS-B", options=options)
    if found.nit >= MAX_ITERATIONS:
        log.warning("logistic regression did not converge in %d iterations", MAX_ITERATIONS)
    weights = torch.from_numpy(found.x).view(shape) * scale
    weight = weights[..., :-1] @ axes.T
    return Linear(weight, weights[..., -1] - weight @ mean)


def fit_senteval(features: Tensor, labels: Tensor, folds: Sequence[Fold], l2: Tensor) -> Linear:
    r"""Fit softmax classifiers by Adam with early stopping, as SentEval's full mode does.

    .. math:: \frac{1}{n} \sum_{i=1}^{n} - \log \mathrm{softmax}(W x_i + b)_{y_i}

    with features :math:`x` ``(n, d)`` and labels :math:`y` ``(n,)``; ``l2`` is Adam's weight decay, also of the bias.
    Accuracy on the second part of a fold is measured after every 4 epochs: the best weights are kept, and fitting stops
    at the 6th measurement without a new best (the count is never reset) or the first after 200 epochs. One seed draws
    the initial weights and the batches (of 64) of every fit; the learning rate is 0.001.

    Source: SentEval, ``tools/classifier.py`` with ``nhid=0, optim=adam``.  Differs: nothing in what is computed. Folds
    with equally many rows have the same batches by row number, so that they are fitted together. Float32.
    """
    inputs = torch.cat([features.float(), torch.ones(len(features), 1)], dim=1)
    truth = nn.functional.one_hot(labels).float()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        layer = nn.Linear(features.shape[1], truth.shape[1])
    first = torch.cat([layer.weight.detach(), layer.bias.detach()[:, None]], dim=1)
    result = first.expand(*l2.shape, -1, -1).clone()
    kinds = [(len(train), dev is None) for train, dev in folds]
    for kind in sorted(set(kinds)):
        numbers = np.array([number for number, other in enumerate(kinds) if other == kind])
        random = np.random.RandomState(SEED)
        trains, devs = (
            [folds[number][0] for number in numbers],
            [folds[number][1] for number in numbers],
        )
        if kind[1]:  # SentEval holds out 5 %, and fails with fewer than 20 rows
            order, count = random.permutation(kind[0]), max(1, int(0.05 * kind[0]))
            trains, devs = (
                [train[order[count:]] for train in trains],
                [train[order[:count]] for train in trains],
            )
        rows, decay = torch.from_numpy(np.stack(trains)), l2[numbers].float()[:, :, None, None]
        weights = result[numbers]
        mean, square = torch.zeros_like(weights), torch.zeros_like(weights)  # Adam's moments
        best, misses = (
            torch.full(weights.shape[:2], -1.0, dtype=torch.float64),
            torch.zeros(weights.shape[:2]),
        )
        step = 0
        for _ in range(51):
            for _ in range(4):
                for batch in torch.from_numpy(random.permutation(rows.shape[1])).split(64):
                    chosen, step = rows[:, batch], step + 1
                    gradient = _gradient(weights, inputs[chosen], truth[chosen]).addcmul_(
                        weights, decay
                    )
                    mean.lerp_(gradient, 0.1)
                    square.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
                    root = square.sqrt().div_(math.sqrt(1 - 0.999**step)).add_(1e-8)
                    weights.addcdiv_(mean, root, value=-0.001 / (1 - 0.9**step))
            pairs = zip(weights, devs, strict=True)
            accuracy = torch.stack([_accuracy(own, inputs[dev], labels[dev]) for own, dev in pairs])
            better = (misses <= 5) & (accuracy > best)
            best[better] = accuracy[better]
            misses += ~better
            for place, number in enumerate(numbers):
                result[number, better[place]] = weights[place, better[place]]
            running = (misses <= 5).any(dim=1)
            if not running.any():
                break
            rows, decay, weights, mean, square, best, misses = (
                tensor[running] for tensor in (rows, decay, weights, mean, square, best, misses)
            )
            devs = [dev for dev, kept in zip(devs, running, strict=True) if kept]
            numbers = numbers[running.numpy()]
    return Linear(result[..., :-1], result[..., -1])


def _gradient(weights: Tensor, inputs: Tensor, truth: Tensor) -> Tensor:
    """Return the gradient of each mean cross entropy; weights (folds, decays, classes, d), inputs (folds, n, d)."""
    logits = torch.bmm(inputs, weights.flatten(1, 2).transpose(1, 2)).unflatten(
        2, weights.shape[1:3]
    )
    error = logits.softmax(dim=3).sub_(truth[:, :, None]).div_(inputs.shape[1]).flatten(2, 3)
    return torch.bmm(error.transpose(1, 2), inputs).view_as(weights)


def _accuracy(weights: Tensor, inputs: Tensor, labels: Tensor) -> Tensor:
    """Return the accuracy of each of several classifiers (decays, classes, d): (decays,)."""
    predicted = (
        torch.mm(inputs, weights.flatten(0, 1).T).unflatten(1, weights.shape[:2]).argmax(dim=2)
    )
    return torch.eq(predicted, labels[:, None]).double().mean(dim=0)
