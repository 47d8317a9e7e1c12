"""The base class of every method: training mode, outputs, gradient clipping, the optimizer."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal, NotRequired, TypedDict

import pytorch_lightning as pl
import torch
from pytorch_lightning.utilities import rank_zero_warn
from pytorch_lightning.utilities.types import OptimizerLRSchedulerConfig
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

from lightning_cse.embeddings import Embedding
from lightning_cse.encoders import SentenceEncoder, Template
from lightning_cse.errors import ConfigError, EncoderError, TrainingError
from lightning_cse.models import Model


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

    watches: ClassVar[bool] = False
    """Whether it depends on dev scores, as `DevSchedule` does."""

    name: Literal["linear", "constant"] = "linear"
    warmup: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.warmup <= 1:
            raise ConfigError([f"method.schedule.warmup: must be in [0, 1], got {self.warmup}"])

    def __call__(self, step: int, *, total: int) -> float:
        """Return the factor at a step."""
        warm = min(int(self.warmup * total), total - 1)
        if step < warm:
            return step / warm

        return 1.0 if self.name == "constant" else max(0.0, (total - step) / max(1, total - warm))


@dataclass(frozen=True)
class DevSchedule:
    r"""A learning rate that falls when the dev score does not rise, until training ends.

    .. math:: f_0 = 1, \qquad f_{k} = d \cdot f_{k-1} \cdot
              \begin{cases} 1 & m_k > \max_{j < k} m_j \\ 1/s & \text{else} \end{cases}

    with the ``monitor`` :math:`m_k` at the evaluations :math:`k = 1, 2, \dots` after step 0, decay
    :math:`d` and divisor :math:`s` (``shrink``). Between two evaluations it is constant. Training
    ends when a division leaves less than ``least`` of the first learning rate.

    Source: InferSent (Conneau et al. 2017), section 3.3, and the authors' code, where an evaluation
    ends an epoch (here with ``eval_every=null``).  Differs: nothing.

    Examples:
        >>> schedule = DevSchedule(decay=0.5, shrink=5.0, least=0.06)
        >>> [schedule(0, total=9, scores=[0.7, 0.6][:count]) for count in range(3)]
        [1.0, 0.5, 0.05]
        >>> schedule.is_over([0.7, 0.6]), schedule.is_over([0.7, 0.6, 0.6])
        (False, True)
    """

    watches: ClassVar[bool] = True

    decay: float = 0.99
    shrink: float = 5.0
    least: float = 1e-4

    def __post_init__(self) -> None:
        if not (0 < self.decay <= 1 <= self.shrink and 0 <= self.least < 1):
            raise ConfigError(
                [
                    "method.schedule: needs decay in (0, 1], shrink >= 1 and least in [0, 1), got "
                    f"{self.decay}, {self.shrink} and {self.least}"
                ]
            )

    def __call__(self, step: int, *, total: int, scores: Sequence[float] = ()) -> float:
        """Return the factor at a step after evaluations with these scores."""
        return self._after(scores)[0]

    def is_over(self, scores: Sequence[float]) -> bool:
        """Whether training ends after evaluations with these scores."""
        return self._after(scores)[1] < self.least

    def _after(self, scores: Sequence[float]) -> tuple[float, float]:
        """Return the factor, and what the last division left."""
        factor = left = 1.0
        best = -math.inf
        for score in scores:
            if score > best:
                best = score
            else:
                factor /= self.shrink
                left = factor

            factor *= self.decay

        return factor, left


MakeOptimizer = Callable[[Iterable[nn.Parameter]], Optimizer]


class Training(TypedDict):
    """The options that every method passes on to `Method`."""

    optimizer: MakeOptimizer
    schedule: Schedule | DevSchedule
    chunk_size: NotRequired[int | None]


class Method(pl.LightningModule, ABC):
    """A way to train a model of sentence embeddings.

    A method owns the model that evaluation uses (``model``), the loss, and the layers used in
    training only. It defines ``training_step``, which reads like its paper. Its class declares

    - ``roles``: the roles that a training batch must have;
    - ``pairs``: for each view of its embeddings, the two roles whose alignment is measured;
    - ``optional``: the roles that a row may lack; the loss then leaves out their terms;
    - ``spread``: the roles whose uniformity is measured; all roles of the data if empty;
    - ``needs_dropout``: whether the positive is the anchor under another dropout mask: dropout is
      then required.
    - ``needs_all_rows``: whether it reads all training rows before its first step, which a stream
      cannot give it;
    - ``papers``: what to cite, as BibTeX entries or keys of ``experiments/references.bib``.

    ``optimizer`` is a partial of an optimizer class, completed with the parameters. ``chunk_size``
    is for batches whose activations do not fit into memory: the encoder takes that many sentences
    at a time and drops their activations. It encodes each chunk again, under the same dropout
    masks, to compute its gradient. The numbers are those of a plain step, and a step takes about a
    third longer. (Gradient caching, Gao et al. 2021, by torch's checkpoints.)
    """

    roles: tuple[str, ...]
    optional: tuple[str, ...] = ()
    spread: tuple[str, ...] = ()
    needs_dropout: bool = False
    needs_all_rows: bool = False
    papers: tuple[str, ...] = ()

    def __init__(
        self,
        model: Model,
        loss: nn.Module,
        *,
        optimizer: MakeOptimizer,
        schedule: Schedule | DevSchedule,
        chunk_size: int | None = None,
    ) -> None:
        super().__init__()
        self.model = model
        self.loss = loss
        self.make_optimizer = optimizer
        self.schedule = schedule
        for part in model.modules():
            if isinstance(part, SentenceEncoder):
                part.chunk_size = chunk_size
                if part.compiled and torch.cuda.is_available():
                    part.backbone.compile(dynamic=True)

        self._dev_scores: list[float] = []  # for a schedule that watches them
        self._rows: list[Tensor] = []  # training rows of the batches since the last optimizer step

    @property
    @abstractmethod
    def pairs(self) -> Mapping[str, tuple[str, str]]:
        """The two roles whose alignment is measured, by view, the primary view first."""

    @property
    def templates(self) -> tuple[Template, ...]:
        """Every template that training puts around a sentence."""
        return self.model.templates

    def view(self, number: int) -> AbstractContextManager[None]:
        """Return a context in which the model embeds sentences as the first (0) or second (1) of
        the pairs that training makes of one sentence; by default, they differ by dropout alone.
        """
        return nullcontext()

    def on_fit_start(self) -> None:
        """Set training mode: the Trainer leaves a loaded encoder in evaluation mode."""
        self.train()
        encoder = self.model.encoder
        if encoder.has_dropout:
            return

        if self.needs_dropout:
            raise EncoderError(
                f"{type(self).__name__} learns from two dropout passes over one sentence, but the "
                f"encoder {encoder.name} has no dropout: set encoder.dropout=0.1"
            )

        rank_zero_warn(
            f"the encoder {encoder.name} has no dropout; set encoder.dropout=0.1 to train with it"
        )

    def embed(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Embed the roles that at least one row of the batch has, in one pass; return them by
        role.
        """
        tokens = {role: batch["roles"][role] for role in self.roles if len(batch["roles"][role])}
        return dict(zip(tokens, self.model.encode(*tokens.values()), strict=True))

    def output(
        self,
        loss: Tensor,
        index: Tensor,
        parts: Mapping[str, Tensor] | None = None,
        /,
        **embeddings: Embedding,
    ) -> dict[str, Any]:
        """Return ``loss``, ``index``, ``sentences`` and, detached, ``parts`` and ``embeddings``."""
        if not torch.isfinite(loss):
            raise self._not_finite(
                f"the loss of step {self.global_step + 1} is {loss.item()}", index.tolist()
            )

        self._rows.append(index)
        tensors = {}
        for role, embedding in embeddings.items():
            tensors[role] = {name: field.detach() for name, field in embedding.fields().items()}

        return {
            "loss": loss,
            "index": index,
            "sentences": sum(map(len, embeddings.values())),
            "parts": {name: part.detach() for name, part in (parts or {}).items()},
            "embeddings": tensors,
        }

    def configure_gradient_clipping(
        self,
        optimizer: Optimizer,
        gradient_clip_val: int | float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        """Clip as Lightning does, also with a fused optimizer, which it refuses under float16.

        Raises TrainingError if the gradient is not finite.
        """
        rows = self._rows
        self._rows = []
        scaler = getattr(self.trainer.precision_plugin, "scaler", None)
        if scaler is not None and getattr(optimizer, "_step_supports_amp_scaling", False):
            scaler.unscale_(optimizer)  # Lightning has already unscaled any other optimizer

        by_value = gradient_clip_algorithm == "value"
        most = float("inf") if by_value or not gradient_clip_val else gradient_clip_val
        norm = nn.utils.clip_grad_norm_(self.parameters(), most)
        if by_value and gradient_clip_val:
            nn.utils.clip_grad_value_(self.parameters(), gradient_clip_val)

        if scaler is None and not torch.isfinite(norm):  # the scaler of float16 skips such a step
            what = f"the gradient of step {self.global_step + 1} has the norm {norm.item()}"
            raise self._not_finite(what, torch.cat(rows).tolist())

    def _not_finite(self, what: str, rows: list[int]) -> TrainingError:
        return TrainingError(
            f"{what}; training rows {rows}. The last checkpoint is kept: lower "
            "method.optimizer.lr, use trainer.precision=32-true, or look at these rows",
            rows,
        )

    def configure_optimizers(self) -> OptimizerLRSchedulerConfig:
        """Complete the optimizer with the trainable parameters, and the schedule with the steps."""
        try:
            optimizer = self.make_optimizer([p for p in self.parameters() if p.requires_grad])
        except ValueError as error:  # betas outside [0, 1)
            raise ConfigError([f"method.optimizer: {error}"]) from error

        factor = partial(self.schedule, total=int(self.trainer.estimated_stepping_batches))
        if self.schedule.watches:
            factor = partial(factor, scores=self._dev_scores)

        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": LambdaLR(optimizer, factor), "interval": "step"},
        }

    def on_evaluation(self, score: float) -> None:
        """Take note of a dev score: a schedule that watches it sets the next learning rate."""
        if not self.schedule.watches:
            return

        self._dev_scores.append(score)
        for config in self.trainer.lr_scheduler_configs:
            scheduler: Any = config.scheduler
            # The factors of this step were computed before its evaluation.
            factors = [factor(scheduler.last_epoch) for factor in scheduler.lr_lambdas]
            groups = zip(scheduler.optimizer.param_groups, scheduler.base_lrs, factors, strict=True)
            for group, first, factor in groups:
                group["lr"] = first * factor

    @property
    def is_over(self) -> bool:
        """Whether the schedule ends training before its last step."""
        schedule = self.schedule
        return isinstance(schedule, DevSchedule) and schedule.is_over(self._dev_scores)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Save the dev scores that the schedule has seen."""
        if self.schedule.watches:
            checkpoint["dev_scores"] = list(self._dev_scores)

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Restore these scores."""
        self._dev_scores[:] = checkpoint.get("dev_scores", [])
