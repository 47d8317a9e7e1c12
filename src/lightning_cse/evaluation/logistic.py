"""Logistic regression on frozen features, for several training sets and weight decays at once."""

import logging
import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

log = logging.getLogger(__name__)

SEED = 1111
"""SentEval's seed, for the folds, the initial weights and the order of batches."""

MAX_ITERATIONS = 1000  # of L-BFGS

Numbers = NDArray[np.int64]
Fold = tuple[Numbers, Numbers | None]
"""The rows of the features to fit on, in this order, and those for early stopping (None: 5 % of the
former).
"""


@dataclass(frozen=True)
class Linear:
    """Linear classifiers by fold and weight decay: ``weight`` (folds, decays, classes, d), ``bias``
    without the d.
    """

    weight: Tensor
    bias: Tensor

    def predict(self, fold: int, decay: int, features: Tensor) -> Tensor:
        """Return the class that one classifier predicts for each row of features: (n,)."""
        weight = self.weight[fold, decay]
        logits = features.to(weight.dtype) @ weight.T + self.bias[fold, decay]

        return logits.argmax(dim=1)


Solver = Callable[[Tensor, Tensor, Sequence[Fold], Tensor], Linear]
"""Fits classifiers from features (n, d) and labels (n,) in 0, ..., classes - 1, for folds and their
weight decays.
"""


def fit_lbfgs(features: Tensor, labels: Tensor, folds: Sequence[Fold], l2: Tensor) -> Linear:
    r"""Fit multinomial logistic regressions to their optimum.

    .. math:: \min_{W, b} \; \frac{1}{n} \sum_{i=1}^{n} - \log \mathrm{softmax}(W x_i + b)_{y_i}
              + \frac{\lambda}{2} \lVert W \rVert_F^2

    with features :math:`x` ``(n, d)``, labels :math:`y` ``(n,)``, one row of :math:`W` per
    class (also for two classes) and :math:`\lambda` = ``l2``, which adds the gradient of a
    weight decay of :math:`\lambda`; the bias is not decayed. The fit is in float64 and starts
    at zero; the second part of a fold is not used.

    The objectives are independent and minimized as one sum. They are scaled along the principal
    axes of the features, so that the Hessian at :math:`W = 0` is nearly the identity; this
    takes tens of iterations instead of hundreds.

    Source: L-BFGS-B of scipy.  Differs: nothing; the optimum is that of scikit-learn's
    ``LogisticRegression`` with ``C=1 / (n * l2)`` (for two classes ``C=2 / (n * l2)``, since it
    has one weight vector where softmax has two). That one fits a fold and a decay at a time:
    the 400 fits to choose L2 for MR (10,662 sentences, 768 dimensions) take 35 s here and about
    540 s there, on one core.

    The fit ends when the largest entry of the gradient is 1e-5, or with a warning after 1,000
    iterations.
    """
    from scipy.optimize import minimize  # takes half a second to import

    objective = _Objective(features, labels, folds, l2)
    options = {
        "maxcor": 20,
        "maxiter": MAX_ITERATIONS,
        "maxfun": 2 * MAX_ITERATIONS,
        "gtol": 1e-5,
        "ftol": 0,
    }
    start = np.zeros(math.prod(objective.shape))
    found = minimize(objective, start, jac=True, method="L-BFGS-B", options=options)
    if found.nit >= MAX_ITERATIONS:
        log.warning("logistic regression did not converge in %d iterations", MAX_ITERATIONS)

    return objective.classifiers(found.x)


class _Objective:
    """The sum of the objectives of all folds and decays, of weights along the principal axes of the
    features.
    """

    def __init__(self, features: Tensor, labels: Tensor, folds: Sequence[Fold], l2: Tensor) -> None:
        self.mean = features.double().mean(dim=0)
        centred = features.double() - self.mean
        variances, axes = torch.linalg.eigh(centred.T @ centred / len(centred))
        # Other directions have no variance: their weights are zero.
        has_variance = variances > variances[-1] * 1e-14
        variances = variances[has_variance]
        self.axes = axes[:, has_variance]
        ones = torch.ones(len(centred), 1, dtype=torch.float64)
        self.inputs = torch.cat([centred @ self.axes, ones], dim=1)
        self.truth = nn.functional.one_hot(labels).double()[:, None, None]
        self.share = _shares(len(centred), folds)
        self.decay = l2.double()[:, :, None, None]

        classes = self.truth.shape[-1]
        curvature = variances / classes + self.decay
        of_bias = torch.full_like(curvature[..., :1], 1 / classes)
        self.scale = torch.cat([curvature, of_bias], dim=3).rsqrt()
        self.shape = (*l2.shape, classes, self.inputs.shape[1])

    def __call__(self, point: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        """Return the value and the gradient."""
        weights = torch.from_numpy(point).view(self.shape) * self.scale
        logits = self.inputs @ weights.view(-1, self.shape[3]).T
        likelihood = logits.view(-1, *self.shape[:3]).log_softmax(dim=3)
        decayed = weights.clone()
        decayed[..., -1] = 0
        penalty = (self.decay * decayed.square()).sum() / 2
        value = penalty - (likelihood * self.truth * self.share).sum()

        error = likelihood.exp_().sub_(self.truth).mul_(self.share).view(len(self.inputs), -1)
        gradient = (error.T @ self.inputs).view(self.shape) + self.decay * decayed

        return value.item(), (gradient * self.scale).view(-1).numpy()

    def classifiers(self, point: NDArray[np.float64]) -> Linear:
        """Return the classifiers on the features themselves."""
        weights = torch.from_numpy(point).view(self.shape) * self.scale
        weight = weights[..., :-1] @ self.axes.T

        return Linear(weight, weights[..., -1] - weight @ self.mean)


def _shares(rows: int, folds: Sequence[Fold]) -> Tensor:
    """Return the weight of each row in the mean of each fold: (rows, folds, 1, 1)."""
    share = torch.zeros(rows, len(folds), 1, 1, dtype=torch.float64)
    for number, (train, _) in enumerate(folds):
        share[torch.from_numpy(train), number] = 1 / len(train)

    return share


def fit_senteval(features: Tensor, labels: Tensor, folds: Sequence[Fold], l2: Tensor) -> Linear:
    r"""Fit softmax classifiers by Adam with early stopping, as SentEval's full mode does.

    .. math:: \frac{1}{n} \sum_{i=1}^{n} - \log \mathrm{softmax}(W x_i + b)_{y_i}

    with features :math:`x` ``(n, d)`` and labels :math:`y` ``(n,)``; ``l2`` is Adam's weight
    decay, also of the bias. Accuracy on the second part of a fold is measured after every 4
    epochs: the best weights are kept, and fitting stops at the 6th measurement without a new
    best (the count is never reset) or the first after 200 epochs. One seed draws the initial
    weights and the batches (of 64) of every fit; the learning rate is 0.001.

    Source: SentEval, ``tools/classifier.py`` with ``nhid=0, optim=adam``.  Differs: nothing in
    what is computed. Folds with equally many rows have the same batches by row number, so that
    they are fitted together. Float32.
    """
    inputs = torch.cat([features.float(), torch.ones(len(features), 1)], dim=1)
    classes = int(labels.max()) + 1
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        layer = nn.Linear(features.shape[1], classes)

    first = torch.cat([layer.weight.detach(), layer.bias.detach()[:, None]], dim=1)
    result = first.expand(*l2.shape, -1, -1).clone()

    groups = defaultdict(list)
    for number, (train, dev) in enumerate(folds):
        groups[len(train), dev is None].append(number)  # which decides the batches

    for _, numbers in sorted(groups.items()):
        result[numbers] = _fit_group(
            [folds[number] for number in numbers],
            l2[numbers].float()[:, :, None, None],
            result[numbers],
            inputs,
            labels,
        )

    return Linear(result[..., :-1], result[..., -1])


def _fit_group(
    folds: Sequence[Fold], decay: Tensor, weights: Tensor, inputs: Tensor, labels: Tensor
) -> Tensor:
    """Return the best weights of each classifier, for folds with equal batches."""
    random = np.random.RandomState(SEED)
    trains, devs = _train_and_dev(folds, random)
    folded = torch.from_numpy(np.stack(trains))
    truth = nn.functional.one_hot(labels).float()
    adam = torch.optim.Adam([weights], lr=0.001)
    fitted = weights.clone()
    best = torch.full(weights.shape[:2], -1.0, dtype=torch.float64)
    misses = torch.zeros_like(best)

    for _ in range(51):
        for _ in range(4):
            order = torch.from_numpy(random.permutation(folded.shape[1]))
            for batch in order.split(64):
                rows = folded[:, batch]
                gradient = _gradient(weights, inputs[rows], truth[rows])
                weights.grad = gradient.addcmul_(weights, decay)
                adam.step()

        accuracy = _accuracies(weights, devs, inputs, labels)
        is_better = (misses <= 5) & (accuracy > best)
        best[is_better] = accuracy[is_better]
        misses += ~is_better
        fitted[is_better] = weights[is_better]

        if (misses > 5).all():
            break

    return fitted


def _train_and_dev(
    folds: Sequence[Fold], random: np.random.RandomState
) -> tuple[list[Numbers], list[Numbers]]:
    """Return the rows to fit on and those for early stopping; folds without the latter give 5 %."""
    trains = [train for train, _ in folds]
    devs = [dev for _, dev in folds if dev is not None]
    if devs:
        return trains, devs

    order = random.permutation(len(trains[0]))
    count = max(1, int(0.05 * len(order)))  # SentEval fails with fewer than 20 rows
    devs = [train[order[:count]] for train in trains]

    return [train[order[count:]] for train in trains], devs


def _accuracies(weights: Tensor, devs: Sequence[Numbers], inputs: Tensor, labels: Tensor) -> Tensor:
    """Return the accuracy of each classifier on dev: (folds, decays)."""
    accuracies = []
    for each, dev in zip(weights, devs, strict=True):
        logits = torch.mm(inputs[dev], each.flatten(0, 1).T).unflatten(1, each.shape[:2])
        is_right = torch.eq(logits.argmax(dim=2), labels[dev, None])
        accuracies.append(is_right.double().mean(dim=0))

    return torch.stack(accuracies)


def _gradient(weights: Tensor, inputs: Tensor, truth: Tensor) -> Tensor:
    """Return the gradient of each mean cross entropy.

    Weights (folds, decays, classes, d), inputs (folds, n, d).
    """
    logits = torch.bmm(inputs, weights.flatten(1, 2).transpose(1, 2))
    logits = logits.unflatten(2, weights.shape[1:3])
    error = logits.softmax(dim=3).sub_(truth[:, :, None]).div_(inputs.shape[1]).flatten(2, 3)

    return torch.bmm(error.transpose(1, 2), inputs).view_as(weights)
