"""Logistic regression on frozen features: many small fits on parts of one matrix, all of them at once."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

log = logging.getLogger(__name__)

SEED: Final = 1111
"""SentEval's seed: of the folds, of the first weights and of the order of batches."""

LOGITS_AT_ONCE: Final = 2**22
"""Bounds memory and changes no value; more at once is not faster."""

Rows = NDArray[np.int64]


@dataclass(frozen=True)
class Fit:
    """One classifier to be fitted.

    Attributes:
        train: the rows of the features that it learns from, in this order.
        l2: how much its weights are held down.
        dev: the rows that SentEval's classifier watches to stop; None to set 5 % of ``train`` apart for it.
    """

    train: Rows
    l2: float
    dev: Rows | None = None


@dataclass(frozen=True)
class Linear:
    """Linear classifiers: ``weight`` (fits, classes, d) and ``bias`` (fits, classes)."""

    weight: Tensor
    bias: Tensor

    def predict(self, fit: int, features: Tensor) -> Tensor:
        """Return the class that one of the classifiers gives each of these features: (n,)."""
        classes: Tensor = (features.to(self.weight.dtype) @ self.weight[fit].T + self.bias[fit]).argmax(dim=1)
        return classes


class Solver(Protocol):
    """Fits classifiers on parts of one matrix; ``tell`` is called with the number of fits that are done since."""

    def __call__(self, features: Tensor, labels: Tensor, fits: Sequence[Fit], tell: Callable[[int], None]) -> Linear:
        """Fit all; ``features`` (n, d), ``labels`` (n,) from 0 to classes - 1."""
        ...


# To the optimum -----------------------------------------------------------------------------------------------------


def fit_lbfgs(
    features: Tensor,
    labels: Tensor,
    fits: Sequence[Fit],
    tell: Callable[[int], None] = lambda _: None,
    *,
    tolerance: float = 1e-9,
    max_iterations: int = 1000,
) -> Linear:
    r"""Fit multinomial logistic regressions to their optimum.

    .. math:: \min_{W, b} \; \frac{1}{n} \sum_{i=1}^{n} - \log \mathrm{softmax}(W x_i + b)_{y_i}
              + \frac{\lambda}{2} \lVert W \rVert_F^2

    with features :math:`x` ``(n, d)``, labels :math:`y` ``(n,)``, one row of :math:`W` a class (also for two classes)
    and :math:`\lambda` = ``l2``, which is what a weight decay of :math:`\lambda` adds to the gradient; the bias is not
    held down. Float64, until about ``tolerance`` is left to be gained; ``dev`` is not looked at.

    All fits go through L-BFGS together, each with its own history and step, so that an iteration is two matrix products
    for all of them. Along the features' principal axes the Hessian at :math:`W = 0` is nearly diagonal, and its inverse
    there is the first guess of every iteration's. It takes tens of iterations in place of hundreds.

    Source: Nocedal and Wright, algorithms 7.4 and 7.5.  Differs: nothing; scikit-learn's optimum, which for two classes
    is that of ``LogisticRegression(C=2 / (n * l2))``, because it has one weight vector where softmax has two (else
    ``C=1 / (n * l2)``).
    """
    rows = features.double()
    mean = rows.mean(dim=0)
    variances, axes = torch.linalg.eigh((rows - mean).T @ (rows - mean) / len(rows))
    told = variances > variances[-1] * 1e-14  # along the others all features are alike, and weights are zero
    variances, axes = variances[told], axes[:, told]
    rotated = (rows - mean) @ axes
    classes = int(labels.max()) + 1
    weights, biases = [], []
    at_once = max(1, LOGITS_AT_ONCE // (len(rows) * classes))
    for start in range(0, len(fits), at_once):
        some = fits[start : start + at_once]
        objective = _Objective(rotated, labels, some, classes)
        # The Hessian at zero: variances / classes for softmax, variances for the halved margin of two classes.
        scale = 1 if classes == 2 else classes
        curvature = variances / scale + objective.l2[:, :, 0]
        curvature = torch.cat([curvature, torch.full_like(curvature[:, :1], 1 / scale)], dim=1).clamp(min=1e-12)
        inverse = (1 / curvature).repeat(1, objective.points)
        found = _minimize(objective, inverse, tolerance, max_iterations, tell).view(len(some), objective.points, -1)
        if classes == 2:
            found = torch.cat([-found, found], dim=1)
        weights.append(found[:, :, :-1] @ axes.T)
        biases.append(found[:, :, -1] - weights[-1] @ mean)
    return Linear(torch.cat(weights), torch.cat(biases))


class _Objective:
    """Value and gradient of several fits at points (fits, classes * (d + 1)): for each class its weights and bias.

    Of two classes only the second's weights are points; the first's are their negatives, as they are at the optimum.
    """

    def __init__(self, rows: Tensor, labels: Tensor, fits: Sequence[Fit], classes: int) -> None:
        self.rows = torch.cat([rows, torch.ones(len(rows), 1, dtype=rows.dtype)], dim=1)
        self.classes = classes
        self.share = torch.zeros(len(rows), len(fits), dtype=rows.dtype)  # of a row in the mean of a fit
        for number, fit in enumerate(fits):
            self.share[torch.from_numpy(fit.train), number] = 1 / len(fit.train)
        self.l2 = torch.tensor([fit.l2 for fit in fits], dtype=rows.dtype)[:, None, None]
        if classes == 2:
            self.l2 *= 2  # both classes' weights are held down
            self.sign = (2 * labels - 1).to(rows.dtype)[:, None]
        else:
            self.truth = (labels[:, None] == torch.arange(classes))[:, None].to(rows.dtype)

    @property
    def points(self) -> int:
        """How many classes' weights are looked for."""
        return 1 if self.classes == 2 else self.classes

    def __call__(self, points: Tensor, fits: Tensor) -> tuple[Tensor, Tensor]:
        weights = points.view(len(fits), self.points, -1)
        share, l2 = self.share[:, fits], self.l2[fits]
        scores = self.rows @ points.view(-1, weights.shape[2]).T
        if self.classes == 2:
            margin = scores.mul_(2 * self.sign)
            loss = nn.functional.softplus(-margin).mul_(share).sum(dim=0)
            error = margin.neg_().sigmoid_().mul_(share).mul_(-2 * self.sign)
        else:
            likelihood = scores.view(len(scores), len(fits), -1).log_softmax(dim=2)
            loss = -((likelihood * self.truth).sum(dim=2) * share).sum(dim=0)
            error = likelihood.exp_().sub_(self.truth).mul_(share[:, :, None]).view_as(scores)
        held = weights.clone()
        held[:, :, -1] = 0
        gradient = (error.T @ self.rows).view_as(weights) + l2 * held
        return loss + (l2 / 2 * held.square()).sum(dim=(1, 2)), gradient.view_as(points)


def _minimize(
    objective: _Objective, inverse: Tensor, tolerance: float, max_iterations: int, tell: Callable[[int], None]
) -> Tensor:
    """Minimize every fit by L-BFGS from zero, with ``inverse`` (fits, parameters) for the inverse Hessian at first.

    A fit is done when half of gradient * inverse * gradient, about what is left to be gained, is at most ``tolerance``.
    """
    memory = 20
    solution = torch.zeros_like(inverse)
    active = torch.arange(len(inverse))
    point = torch.zeros_like(inverse)
    value, gradient = objective(point, active)
    moves: list[tuple[Tensor, Tensor]] = []
    for _ in range(max_iterations):
        going = (gradient.square() * inverse).sum(dim=1) / 2 > tolerance
        if not going.all():
            solution[active[~going]] = point[~going]
            tell(int((~going).sum()))
            active, point, value, gradient, inverse = (t[going] for t in (active, point, value, gradient, inverse))
            moves = [(step[going], change[going]) for step, change in moves]
        if not len(active):
            return solution
        direction = -_inverse_hessian_times(gradient, moves, inverse)
        slope = (direction * gradient).sum(dim=1)
        length = torch.ones_like(slope)
        nearer = point + direction
        new_value, new_gradient = objective(nearer, active)
        for _ in range(30):
            # The last term: near the optimum the gain is smaller than the rounding of the value.
            too_far = ~(new_value <= value + 1e-4 * length * slope + 1e-14 * value.abs())
            if not too_far.any():
                break
            length[too_far] /= 2
            nearer[too_far] = point[too_far] + length[too_far, None] * direction[too_far]
            new_value[too_far], new_gradient[too_far] = objective(nearer[too_far], active[too_far])
        moves = [*moves[-memory + 1 :], (nearer - point, new_gradient - gradient)]
        point, value, gradient = nearer, new_value, new_gradient
    log.warning(
        "%d of %d logistic regressions did not converge in %d steps", len(active), len(solution), max_iterations
    )
    solution[active] = point
    tell(len(active))
    return solution


def _inverse_hessian_times(gradient: Tensor, moves: list[tuple[Tensor, Tensor]], inverse: Tensor) -> Tensor:
    """Return L-BFGS's two-loop recursion, fit by fit: (fits, parameters)."""
    result = gradient.clone()
    products = [(step * change).sum(dim=1, keepdim=True).clamp(min=1e-300) for step, change in moves]
    weights = []
    for (step, change), product in zip(reversed(moves), reversed(products), strict=True):
        weights.append((step * result).sum(dim=1, keepdim=True) / product)
        result -= weights[-1] * change
    result *= inverse
    if moves:
        change = moves[-1][1]
        result *= products[-1] / (change.square() * inverse).sum(dim=1, keepdim=True).clamp(min=1e-300)
    for (step, change), product, weight in zip(moves, products, reversed(weights), strict=True):
        result += step * (weight - (change * result).sum(dim=1, keepdim=True) / product)
    return result


# As SentEval does ---------------------------------------------------------------------------------------------------


def fit_senteval(
    features: Tensor,
    labels: Tensor,
    fits: Sequence[Fit],
    tell: Callable[[int], None] = lambda _: None,
    *,
    batch_size: int = 64,
    tenacity: int = 5,
    epoch_size: int = 4,
    max_epoch: int = 200,
    learning_rate: float = 1e-3,
) -> Linear:
    r"""Fit softmax classifiers by Adam with early stopping, as SentEval's full mode does.

    .. math:: \frac{1}{n} \sum_{i=1}^{n} - \log \mathrm{softmax}(W x_i + b)_{y_i}

    with features :math:`x` ``(n, d)`` and labels :math:`y` ``(n,)``; ``l2`` is Adam's weight decay, of the bias too.
    After every ``epoch_size`` epochs the accuracy on ``dev`` is looked at: the best weights are kept, and fitting stops
    at the (``tenacity`` + 1)-th look without a new best (the count starts once and is never reset) or after
    ``max_epoch`` epochs. Weights and batches come from one seed for every fit.

    Source: SentEval, ``tools/classifier.py`` with ``nhid=0, optim=adam``.  Differs: nothing in what is computed; fits
    with equally many rows have the same batches by number, so that they go through a step together. Float32.
    """
    rows = features.float()
    classes = int(labels.max()) + 1
    weight = torch.empty(len(fits), classes, rows.shape[1])
    bias = torch.empty(len(fits), classes)
    sets: dict[bytes, list[int]] = {}
    for number, fit in enumerate(fits):
        sets.setdefault(fit.train.tobytes(), []).append(number)
    # What must be equal for fits to go together: the random numbers they get, and how many share their training rows.
    kinds = {key: (len(fits[n[0]].train), fits[n[0]].dev is None, len(n)) for key, n in sets.items()}
    for kind in sorted(set(kinds.values())):
        total, apart, _ = kind
        numbers = np.array([sets[key] for key in sets if kinds[key] == kind])
        adam = _Adam(rows, labels, [[_with_dev(fits[n]) for n in some] for some in numbers], classes, learning_rate)
        random = np.random.RandomState(SEED)
        if apart:
            random.permutation(total)  # SentEval draws what it sets apart from the same stream
        best = torch.full(numbers.shape, -1.0, dtype=torch.float64)
        looks = torch.zeros(numbers.shape, dtype=torch.long)
        going = torch.ones(numbers.shape, dtype=torch.bool)
        for _ in range(max_epoch // epoch_size + 1):
            for _ in range(epoch_size):
                permutation = torch.from_numpy(random.permutation(adam.trained.shape[1]))
                for batch in permutation.split(batch_size):
                    adam.step(batch)
            accuracy = adam.accuracy()
            better = going & (accuracy > best)
            best[better] = accuracy[better]
            found = torch.from_numpy(numbers)[better]
            weight[found], bias[found] = adam.weight[better], adam.bias[better]
            stopped = going & ~better & (looks >= tenacity)
            looks += ~better
            going &= ~stopped
            tell(int(stopped.sum()))
            some = going.any(dim=1)
            if not some.any():
                break
            best, looks, going, numbers = best[some], looks[some], going[some], numbers[some.numpy()]
            adam.keep(some)
        tell(int(going.sum()))
    return Linear(weight, bias)


def _with_dev(fit: Fit) -> Fit:
    """Return a fit that has a dev side: SentEval's 5 % of its rows where it was given none."""
    if fit.dev is not None:
        return fit
    permutation = np.random.RandomState(SEED).permutation(len(fit.train))
    count = max(1, int(0.05 * len(fit.train)))  # SentEval cannot do with fewer than 20 rows
    return Fit(fit.train[permutation[count:]], fit.l2, fit.train[permutation[:count]])


class _Adam:
    """Classifiers, and their Adam steps on the same batch numbers: sets of equally many fits with one set's rows.

    Fits that differ in L2 alone share their training rows, and a batch of them is looked up once for all.
    """

    def __init__(self, rows: Tensor, labels: Tensor, sets: list[list[Fit]], classes: int, learning_rate: float) -> None:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(SEED)
            start = nn.Linear(rows.shape[1], classes)
        self.rows, self.labels = rows, labels
        self.truth = nn.functional.one_hot(labels, classes).float()
        self.learning_rate = learning_rate
        self.trained = torch.stack([torch.from_numpy(fits[0].train) for fits in sets])
        self.dev = [[torch.from_numpy(fit.dev) for fit in fits if fit.dev is not None] for fits in sets]
        self.l2 = torch.tensor([[fit.l2 for fit in fits] for fits in sets])[:, :, None, None]
        both = torch.cat([start.weight.detach(), start.bias.detach()[:, None]], dim=1)
        self.both = both.expand(*self.l2.shape[:2], -1, -1).clone()
        self.first, self.second = torch.zeros_like(self.both), torch.zeros_like(self.both)
        self.steps = 0

    @property
    def weight(self) -> Tensor:
        """(sets, fits, classes, d)."""
        return self.both[..., :-1]

    @property
    def bias(self) -> Tensor:
        """(sets, fits, classes)."""
        return self.both[..., -1]

    def step(self, batch: Tensor) -> None:
        """Make one step of every fit, on the rows that have these numbers in it."""
        chosen = self.trained[:, batch]
        rows = self.rows[chosen]
        flat = self.both.flatten(1, 2)
        scores = torch.baddbmm(flat[:, None, :, -1], rows, flat[:, :, :-1].transpose(1, 2))
        error = scores.unflatten(2, self.both.shape[1:3]).softmax(dim=3)
        error = error.sub_(self.truth[chosen][:, :, None]).div_(len(batch)).flatten(2, 3)
        gradient = torch.cat([error.transpose(1, 2) @ rows, error.sum(dim=1)[:, :, None]], dim=2).view_as(self.both)
        gradient.addcmul_(self.both, self.l2)
        self.steps += 1
        self.first.lerp_(gradient, 0.1)
        self.second.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
        size = self.learning_rate / (1 - 0.9**self.steps)
        root = self.second.sqrt().div_(math.sqrt(1 - 0.999**self.steps)).add_(1e-8)
        self.both.addcdiv_(self.first, root, value=-size)

    def accuracy(self) -> Tensor:
        """Return the share of its dev rows that each fit gets right: (sets, fits)."""
        return torch.tensor(
            [
                [
                    (torch.addmm(bias, self.rows[dev], weight.T).argmax(dim=1) == self.labels[dev]).double().mean()
                    for weight, bias, dev in zip(weights, biases, devs, strict=True)
                ]
                for weights, biases, devs in zip(self.weight, self.bias, self.dev, strict=True)
            ],
            dtype=torch.float64,
        )

    def keep(self, sets: Tensor) -> None:
        """Go on with some of the sets."""
        self.dev = [dev for dev, kept in zip(self.dev, sets.tolist(), strict=True) if kept]
        self.trained, self.l2 = self.trained[sets], self.l2[sets]
        self.both, self.first, self.second = self.both[sets], self.first[sets], self.second[sets]
