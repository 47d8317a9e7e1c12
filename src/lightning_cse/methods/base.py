"""The base class of every method: training mode, outputs, gradient clipping, the optimizer."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal, NamedTuple, NotRequired, TypedDict

import torch
from pytorch_lightning.utilities import rank_zero_warn
from pytorch_lightning.utilities.types import OptimizerLRSchedulerConfig
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

from lightning_cse.embeddings import Embedding
from lightning_cse.encoders import SentenceEncoder, Template
from lightning_cse.errors import ConfigError, EncoderError, TrainingError
from lightning_cse.methods.evaluated import Evaluated
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
        factor = divided = 1.0
        best = -math.inf
        for score in scores:
            if score > best:
                best = score
            else:
                factor /= self.shrink
                divided = factor

            factor *= self.decay

        return factor, divided


MakeOptimizer = Callable[..., Optimizer]
"""Takes the parameters to train, and perhaps ``lr``."""


class Measured(NamedTuple):
    """A number of a training step that is still on the device, and the rows it was made from."""

    name: str
    step: int
    value: Tensor
    rows: list[Tensor]


class Training(TypedDict):
    """The options that every method passes on to `Method`."""

    optimizer: MakeOptimizer
    schedule: Schedule | DevSchedule
    chunk_size: NotRequired[int | None]


class Method(Evaluated, ABC):
    """A way to train a model of sentence embeddings.

    A method owns the model that evaluation uses (``model``), the loss, and the layers used in
    training only. It defines ``training_step``, which reads like its paper. Its class declares

    - ``roles``: the roles that a training batch must have;
    - ``pairs``: for each view of its embeddings, the two roles whose alignment is measured;
    - ``optional``: the roles that a row may lack; the loss then leaves out their terms;
    - ``spread``: the roles whose uniformity is measured; all roles of the data if empty;
    - ``needs_dropout``: whether the positive is the anchor under another dropout mask: dropout is
      then required.
    - ``papers``: what to cite, as BibTeX entries or keys of ``experiments/references.bib``;
    - ``version``: an integer in the record of each run, raised whenever the method's numbers
      change, so that tables mark runs of another version.

    ``optimizer`` is a partial of an optimizer class, completed with the parameters. ``chunk_size``
    is for batches whose activations do not fit into memory: the encoder takes that many sentences
    at a time and drops their activations. It encodes each chunk again, under the same dropout
    masks, to compute its gradient. The numbers are those of a plain step, and a step takes about a
    third longer. (Gradient caching, Gao et al. 2021, by torch's checkpoints.)
    """

    model: Model
    roles: tuple[str, ...]
    optional: tuple[str, ...] = ()
    spread: tuple[str, ...] = ()
    needs_dropout: bool = False
    papers: tuple[str, ...] = ()
    version: ClassVar[int] = 1

    def __init__(
        self,
        model: Model,
        loss: nn.Module,
        *,
        optimizer: MakeOptimizer,
        schedule: Schedule | DevSchedule,
        chunk_size: int | None = None,
    ) -> None:
        super().__init__(model)
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
        self._unchecked: list[Measured] = []
        self._losses: dict[str, list[Tensor]] = {}  # loss and parts of the same batches
        self._fixed_vectors: dict[bytes, list[Tensor]] = {}  # of a frozen encoder

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

    def setup(self, stage: str) -> None:
        """Set training mode: the Trainer leaves a loaded encoder in evaluation mode."""
        if stage == "fit":
            self.train()

    def on_fit_start(self) -> None:
        """Check that the encoder has dropout, if the method learns from it."""
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

    def on_fit_end(self) -> None:
        """Release the vectors that were kept between evaluations."""
        self._fixed_vectors = {}

    def embed(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Embed the roles that at least one row of the batch has, in one pass; return them by
        role.
        """
        tokens = {role: batch["roles"][role] for role in self.roles if len(batch["roles"][role])}
        return dict(zip(tokens, self.model.encode(*tokens.values()), strict=True))

    def embed_sentences(self, batch: Mapping[str, Any]) -> Embedding:
        """Return the embeddings of the sentences of a batch, in main memory.

        The vectors of a frozen encoder are computed at the first evaluation and kept.
        """
        encoder = self.model.encoder
        with encoder.keeping(self._fixed_vectors) if self.trainer.validating else nullcontext():
            embedding: Embedding = self.model.embed(batch["sentences"], batch["tokens"])

        return embedding

    def output(
        self,
        loss: Tensor,
        index: Tensor,
        parts: Mapping[str, Tensor] | None = None,
        /,
        **embeddings: Embedding,
    ) -> dict[str, Any]:
        """Log the loss and its ``parts``, each as the mean over the batches of the step that have
        it; return ``loss``, ``index``, ``sentences`` and, detached, ``embeddings``.
        """
        self._rows.append(index)
        self._unchecked.append(Measured("the loss", self.global_step + 1, loss.detach(), [index]))
        # The steps that are made, as in validation; a number from main memory would wait for a GPU.
        self.log("step", loss.detach().new_full((), self.global_step + 1, dtype=torch.float32))
        for name, value in {"loss": loss, **(parts or {})}.items():
            self._losses.setdefault(name, []).append(value.detach())

        # A step may lack a part; Lightning would log that of an earlier one again.
        lacking = loss.detach().new_full((), math.nan)
        for name, values in self._losses.items():
            mean = torch.stack(values).mean() if values else lacking
            self.log(f"train/{name}", mean, prog_bar=name == "loss")

        tensors = {}
        for role, embedding in embeddings.items():
            tensors[role] = {name: field.detach() for name, field in embedding.fields().items()}

        return {
            "loss": loss,
            "index": index,
            "sentences": sum(map(len, embeddings.values())),
            "embeddings": tensors,
        }

    def configure_gradient_clipping(
        self,
        optimizer: Optimizer,
        gradient_clip_val: int | float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        """Clip as Lightning does, also with a fused optimizer, which it refuses under float16."""
        rows = self._rows
        self._rows = []
        self._losses = {name: [] for name in self._losses}
        scaler = getattr(self.trainer.precision_plugin, "scaler", None)
        if scaler is not None and getattr(optimizer, "_step_supports_amp_scaling", False):
            scaler.unscale_(optimizer)  # Lightning has already unscaled any other optimizer

        by_value = gradient_clip_algorithm == "value"
        most = float("inf") if by_value or not gradient_clip_val else gradient_clip_val
        norm = nn.utils.clip_grad_norm_(self.parameters(), most)
        if by_value and gradient_clip_val:
            nn.utils.clip_grad_value_(self.parameters(), gradient_clip_val)

        if scaler is None:  # the scaler of float16 skips a step whose gradient is not finite
            measure = "the norm of the gradient"
            self._unchecked.append(Measured(measure, self.global_step + 1, norm, rows))

    def check_finite(self) -> None:
        """Raise TrainingError for the first loss or gradient since the last call that is not
        finite; the only place where training reads numbers from the device.
        """
        unchecked = self._unchecked
        self._unchecked = []
        if not unchecked:
            return

        is_finite = torch.stack([measured.value for measured in unchecked]).isfinite()
        if bool(is_finite.all()):
            return

        first = unchecked[int(is_finite.int().argmin())]
        rows = torch.cat(first.rows).tolist()
        raise TrainingError(
            f"{first.name} of step {first.step} is {first.value.item()}; training rows {rows}. "
            "The last checkpoint is kept: lower method.optimizer.lr, use "
            "trainer.precision=32-true, or look at these rows",
            rows,
        )

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Check the numbers of the last steps at each step that is logged."""
        every: int = self.trainer.log_every_n_steps  # type: ignore[attr-defined]  # set by Lightning
        if self.global_step % every == 0:
            self.check_finite()

    def on_validation_start(self) -> None:
        """Check the numbers of the last steps."""
        self.check_finite()

    def configure_optimizers(self) -> OptimizerLRSchedulerConfig:
        """Complete the optimizer with the trainable parameters, and the schedule with the steps."""
        try:
            optimizer = self.make_optimizer([p for p in self.parameters() if p.requires_grad])
        except ValueError as error:  # betas outside [0, 1)
            raise ConfigError([f"method.optimizer: {error}"]) from error

        return {
            "optimizer": optimizer,
            "lr_scheduler": {
                "scheduler": self._scheduler(optimizer),
                "interval": "step",
                "name": "train/learning_rate",  # of LearningRateMonitor
            },
        }

    def _scheduler(self, optimizer: Optimizer) -> LambdaLR:
        total = int(self.trainer.estimated_stepping_batches)
        factor = partial(self.schedule, total=total)
        if self.schedule.watches:
            factor = partial(factor, scores=self._dev_scores)

        return LambdaLR(optimizer, factor)

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
        """Save the dev scores that the schedule has seen; a broken model is not saved."""
        self.check_finite()
        if self.schedule.watches:
            checkpoint["dev_scores"] = list(self._dev_scores)

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Restore them."""
        self._dev_scores[:] = checkpoint.get("dev_scores", [])
