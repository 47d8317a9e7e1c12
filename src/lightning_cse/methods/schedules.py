"""Learning-rate schedules: the factor on the learning rate at each optimizer step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from lightning_cse.errors import ConfigError


@dataclass(frozen=True)
class Schedule:
    r"""Linear warm-up over a share of the steps, then linear decay to 0, or constant.

    .. math:: f(t) = \min\left(\frac{t + 1}{w + 1}, 1\right) \cdot \max\left(\frac{T - t}{T - w}, 0\right)_{t \ge w}

    with step :math:`t` counted from 0, :math:`T` steps in all and :math:`w = \lfloor \text{warmup} \cdot T \rfloor`.

    Source: SimCSE and NGCSE train with ``linear`` and no warm-up (Hugging Face Trainer).  Differs: with warm-up, the
    first step has a learning rate above 0, so that no step is wasted.

    Examples:
        >>> [Schedule()(step, total=4) for step in range(5)]
        [1.0, 0.75, 0.5, 0.25, 0.0]
    """

    name: Literal["linear", "constant"] = "linear"
    warmup: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.warmup < 1:
            raise ConfigError([f"method.schedule.warmup: must be a share of the steps in [0, 1), got {self.warmup}"])

    def __call__(self, step: int, *, total: int) -> float:
        """Return the factor at a step."""
        warm = int(self.warmup * total)
        if step < warm:
            return (step + 1) / (warm + 1)
        return 1.0 if self.name == "constant" else max(0.0, (total - step) / max(1, total - warm))
