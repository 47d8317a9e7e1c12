"""Learning-rate schedules: the factor on the learning rate at each optimizer step."""

from dataclasses import dataclass
from typing import Literal

from lightning_cse.errors import ConfigError


@dataclass(frozen=True)
class Schedule:
    r"""Linear warm-up over a share of the steps, then linear decay to 0, or constant.

    .. math:: f(t) = \frac{t}{w} \;\; (t < w), \qquad f(t) = \frac{T - t}{T - w} \;\; (t \ge w)

    with step :math:`t` counted from 0, :math:`T` steps in all and
    :math:`w = \min(\lfloor \text{warmup} \cdot T \rfloor, T - 1)`. So ``warmup=1`` rises from 0 at
    the first step to 1 at the last, as GaussCSE's paper describes it.

    Source: transformers' ``get_linear_schedule_with_warmup``, used by the authors of GaussCSE
    (warm-up over a tenth of the steps) and of SimCSE and NGCSE (no warm-up).  Differs: nothing;
    ``constant`` is ours.

    Examples:
        >>> [Schedule()(step, total=4) for step in range(5)]
        [1.0, 0.75, 0.5, 0.25, 0.0]
    """

    name: Literal["linear", "constant"] = "linear"
    warmup: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.warmup <= 1:
            raise ConfigError([f"method.schedule.warmup: must be in [0, 1], got {self.warmup}"])

    def __call__(
        self,
        step: int,
        *,
        total: int,
    ) -> float:
        """Return the factor at a step."""
        warm = min(int(self.warmup * total), total - 1)
        if step < warm:
            return step / warm
        return 1.0 if self.name == "constant" else max(0.0, (total - step) / max(1, total - warm))
