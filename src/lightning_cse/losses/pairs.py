"""Losses on pairs with a label or a score: softmax classification, and regression of the cosine."""

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from lightning_cse.errors import ConfigError, did_you_mean
from lightning_cse.losses.checks import Vectors, check_shapes, check_targets, vector_of
from lightning_cse.similarity import cosine

PARTS: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = {
    "first": lambda first, second: first,
    "second": lambda first, second: second,
    "difference": lambda first, second: (first - second).abs(),
    "product": lambda first, second: first * second,
    "larger_squared": lambda first, second: torch.maximum(first, second).square(),
}
"""What a classifier of pairs can see of two vectors, by name."""


class SoftmaxClassification(nn.Module):
    r"""Cross-entropy of a classifier on the vectors of a pair, which has weights of its own.

    .. math:: \ell_i = -\log \text{softmax}(W f(u_i, v_i) + b)_{y_i}, \qquad
              f(u, v) = (u, v, |u - v|)

    with vectors :math:`u` and :math:`v` of shape ``(n, d)`` and labels :math:`y` of shape ``(n,)``,
    the numbers of the classes. The loss is the mean over the ``n`` rows. Each width in ``hidden``
    puts another linear layer before the last one.

    Source: SBERT (Reimers and Gurevych 2019), section 3, and the authors' code (with a bias, which
    the paper's formula lacks); InferSent (Conneau et al. 2017), section 3, with the product
    :math:`u * v` and layers of 512, and the authors' code (no activation between layers unless
    ``nonlinear_fc`` is set, here ``tanh``).  Differs: nothing.

    Args:
        width: :math:`d`.
        classes: the number of labels, 2 or more (else ValueError).
        parts: what :math:`f` consists of: some of ``first``, ``second``, ``difference``,
            ``product`` and ``larger_squared`` (any other is a ValueError).
        hidden: the widths of the layers before the last one.
        tanh: whether these layers end with a tanh.

    Examples:
        >>> loss = SoftmaxClassification(8)
        >>> _ = nn.init.zeros_(loss.classifier[-1].weight), nn.init.zeros_(loss.classifier[-1].bias)
        >>> round(loss(torch.ones(2, 8), torch.ones(2, 8), torch.tensor([0, 2])).item(), 4)  # log 3
        1.0986
    """

    def __init__(
        self,
        width: int,
        classes: int = 3,
        *,
        parts: Sequence[str] = ("first", "second", "difference"),
        hidden: Sequence[int] = (),
        tanh: bool = False,
    ) -> None:
        super().__init__()
        if classes < 2:
            raise ValueError(f"classes must be 2 or more, got {classes}")

        for name in parts:
            if name not in PARTS:
                near = did_you_mean(name, PARTS)
                raise ValueError(f"parts: no {name!r}{near}; choose from: {', '.join(PARTS)}")

        self.classes = classes
        self.parts = tuple(parts)
        widths = [len(self.parts) * width, *hidden, classes]
        layers: list[nn.Module] = []
        for before, after in pairwise(widths):
            layers += [nn.Linear(before, after), nn.Tanh()] if tanh else [nn.Linear(before, after)]

        self.classifier = nn.Sequential(*layers[: len(layers) - tanh])

    def logits(self, first: Vectors, second: Vectors) -> Tensor:
        """Return the scores of every class: (n, classes), in the precision of the weights."""
        first = vector_of("first", first)
        second = vector_of("second", second)
        check_shapes(first, second, shape="(n, d)")
        dtype = next(self.parameters()).dtype
        u, v = first.to(dtype), second.to(dtype)
        features = torch.cat([PARTS[name](u, v) for name in self.parts], dim=1)
        with torch.autocast(features.device.type, enabled=False):
            scores: Tensor = self.classifier(features)

        return scores

    def check_labels(self, labels: Tensor) -> None:
        """Raise ConfigError for labels, in main memory, that are not among the classes."""
        largest = labels.numpy().max(initial=0)
        if largest >= self.classes:
            fault = f"{self.classes}, but a row has the label number {largest}, counted from 0"
            raise ConfigError([f"method.classes: {fault}; set it to the number of labels"])

    def forward(self, first: Vectors, second: Vectors, labels: Tensor) -> Tensor:
        """Return the mean loss, a scalar of float32 or float64; ConfigError for a wrong label."""
        check_targets(labels, len(first))
        if labels.is_cpu:  # those on a GPU are checked before training
            self.check_labels(labels)

        return nn.functional.cross_entropy(self.logits(first, second), labels)


class CosineRegression(nn.Module):
    r"""Squared error of the cosine of a pair against its score.

    .. math:: \ell_i = (\cos(u_i, v_i) - y_i)^2

    with vectors :math:`u` and :math:`v` of shape ``(n, d)`` and scores :math:`y` of shape ``(n,)``,
    from 0 to 1 (or down to -1). The loss is the mean over the ``n`` rows.

    Source: SBERT (Reimers and Gurevych 2019), section 3, regression objective, and the authors'
    code, which divides STS-B's scores by 5; Dino (Schick and Schütze 2021) and CLAIF (Cheng et al.
    2023) use it too.  Differs: nothing.

    Examples:
        >>> same = torch.ones(2, 8)
        >>> round(CosineRegression()(same, same, torch.tensor([1.0, 0.5])).item(), 4)  # 0.5^2 / 2
        0.125
    """

    def forward(self, first: Vectors, second: Vectors, scores: Tensor) -> Tensor:
        """Return the mean loss, a scalar of float32 or float64."""
        first = vector_of("first", first)
        second = vector_of("second", second)
        check_shapes(first, second, shape="(n, d)")
        check_targets(scores, len(first))

        return (cosine(first, second) - scores).square().mean()
