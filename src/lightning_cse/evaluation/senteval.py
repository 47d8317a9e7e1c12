"""SentEval's classifier on frozen features, for several training sets and weight decays at once."""

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

SEED = 1111
"""SentEval's seed, for the folds, the initial weights and the order of batches."""

BATCH_SIZE = 64
LEARNING_RATE = 0.001
EPOCHS = 4  # between two measurements of the accuracy
MEASUREMENTS = 51  # SentEval stops after the first one beyond 200 epochs
PATIENCE = 5

Numbers = NDArray[np.int64]
Fold = tuple[Numbers, Numbers | None]
"""The rows of the features to fit on, in this order, and those for early stopping (None: 5 % of the
former).
"""


def fit_classifiers(
    features: Tensor, labels: Tensor, folds: Sequence[Fold], l2: Tensor
) -> tuple[Tensor, Tensor]:
    r"""Fit softmax classifiers by Adam with early stopping, as SentEval's full mode does.

    Return the weights (folds, decays, classes, d + 1), the bias last, and the accuracy of each
    classifier on the second part of its fold (folds, decays), float64.

    .. math:: \frac{1}{n} \sum_{i=1}^{n} - \log \mathrm{softmax}(W x_i + b)_{y_i}

    with features :math:`x` ``(n, d)``, labels :math:`y` ``(n,)`` in 0, ..., classes - 1, and the
    weight decays ``l2`` (folds, decays) of Adam, also of the bias. Accuracy on the second part of
    a fold is measured after every 4 epochs: the best weights are kept, and fitting stops at the 6th
    measurement without a new best (the count is never reset) or the first after 200 epochs. One
    seed draws the initial weights and the batches (of 64) of every fit; the learning rate is 0.001.

    Source: SentEval, ``tools/classifier.py`` with ``nhid=0, optim=adam``.  Differs: nothing in
    what is computed. Folds with equally many rows have the same batches by row number, so that
    they are fitted together. Float32.
    """
    inputs = with_ones(features)
    classes = int(labels.max()) + 1
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        layer = nn.Linear(features.shape[1], classes)

    initial = torch.cat([layer.weight.detach(), layer.bias.detach()[:, None]], dim=1)
    weights = initial.expand(*l2.shape, -1, -1).clone()
    accuracies = torch.empty(l2.shape, dtype=torch.float64)

    groups = defaultdict(list)
    for number, (train, dev) in enumerate(folds):
        groups[len(train), dev is None].append(number)  # which decides the batches

    for _, numbers in sorted(groups.items()):
        weights[numbers], accuracies[numbers] = _fit_group(
            [folds[number] for number in numbers],
            l2[numbers].float()[:, :, None, None],
            weights[numbers],
            inputs,
            labels,
        )

    return weights, accuracies


def with_ones(features: Tensor) -> Tensor:
    """Return features (n, d) as the classifiers read them: (n, d + 1) in float32."""
    return torch.cat([features.float(), torch.ones(len(features), 1)], dim=1)


def _fit_group(
    folds: Sequence[Fold], decay: Tensor, weights: Tensor, inputs: Tensor, labels: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the best weights of each classifier and their accuracy, for folds with equal
    batches.
    """
    random = np.random.RandomState(SEED)
    train, dev = _train_and_dev(folds, random)
    train_rows = torch.from_numpy(np.stack(train))
    targets = nn.functional.one_hot(labels).float()
    adam = torch.optim.Adam([weights], lr=LEARNING_RATE)
    best_weights = weights.clone()
    best = torch.full(weights.shape[:2], -1.0, dtype=torch.float64)
    misses = torch.zeros_like(best)

    for _ in range(MEASUREMENTS):
        for _ in range(EPOCHS):
            order = torch.from_numpy(random.permutation(train_rows.shape[1]))
            for batch in order.split(BATCH_SIZE):
                rows = train_rows[:, batch]
                gradient = _gradient(weights, inputs[rows], targets[rows])
                weights.grad = gradient.addcmul_(weights, decay)
                adam.step()

        accuracy = _accuracies(weights, dev, inputs, labels)
        is_better = (misses <= PATIENCE) & (accuracy > best)
        best[is_better] = accuracy[is_better]
        misses += ~is_better
        best_weights[is_better] = weights[is_better]

        if (misses > PATIENCE).all():
            break

    return best_weights, best


def _train_and_dev(
    folds: Sequence[Fold], random: np.random.RandomState
) -> tuple[list[Numbers], list[Numbers]]:
    """Return the rows to fit on and those for early stopping; folds without the latter give 5 %."""
    train = [rows for rows, _ in folds]
    dev = [rows for _, rows in folds if rows is not None]
    if dev:
        return train, dev

    order = random.permutation(len(train[0]))
    count = max(1, int(0.05 * len(order)))  # SentEval fails with fewer than 20 rows
    dev = [rows[order[:count]] for rows in train]

    return [rows[order[count:]] for rows in train], dev


def _accuracies(weights: Tensor, dev: Sequence[Numbers], inputs: Tensor, labels: Tensor) -> Tensor:
    """Return the accuracy of each classifier on dev: (folds, decays)."""
    accuracies = []
    for of_fold, rows in zip(weights, dev, strict=True):
        logits = torch.mm(inputs[rows], of_fold.flatten(0, 1).T).unflatten(1, of_fold.shape[:2])
        is_right = torch.eq(logits.argmax(dim=2), labels[rows, None])
        accuracies.append(is_right.double().mean(dim=0))

    return torch.stack(accuracies)


def _gradient(weights: Tensor, inputs: Tensor, targets: Tensor) -> Tensor:
    """Return the gradient of each mean cross entropy.

    Weights (folds, decays, classes, d), inputs (folds, n, d).
    """
    logits = torch.bmm(inputs, weights.flatten(1, 2).transpose(1, 2))
    logits = logits.unflatten(2, weights.shape[1:3])
    error = logits.softmax(dim=3).sub_(targets[:, :, None]).div_(inputs.shape[1]).flatten(2, 3)

    return torch.bmm(error.transpose(1, 2), inputs).view_as(weights)
