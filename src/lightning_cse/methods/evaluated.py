"""Validation and test in Lightning: embed the sentences of the data module, then ask its tasks."""

from collections.abc import Mapping
from typing import Any

import pytorch_lightning as pl

from lightning_cse.embeddings import Embedding
from lightning_cse.errors import TrainingError
from lightning_cse.evaluation import Embedded, TaskResult, evaluate_tasks, keyed
from lightning_cse.evaluation.task import Answers, Split


class Evaluated(pl.LightningModule):
    """A model whose answers are evaluated by the tasks of a `ContrastiveDataModule`.

    A batch of validation or test holds distinct sentences (`SentenceBatches`). After the last one,
    every task that suits the model is asked, and each metric is logged, as
    ``val/stsb/spearman`` or ``test/stsb/spearman``. ``results`` has the results of the last
    evaluation by task, with predictions. Raises TrainingError if an embedding is not finite.
    """

    def __init__(self, model: Answers) -> None:
        super().__init__()
        self.model = model
        self.results: dict[str, TaskResult] = {}
        self._batches: list[tuple[list[str], Embedding]] = []
        self._embedded: Embedded | None = None
        self._is_asked = False

    def embed_sentences(self, batch: Mapping[str, Any]) -> Embedding:
        """Return the embeddings of the sentences of a batch, in main memory."""
        embedding: Embedding = self.model.embed(batch["sentences"])
        return embedding

    def validation_step(self, batch: Mapping[str, Any], batch_idx: int) -> None:
        """Embed the sentences of a batch."""
        self._batches.append((batch["sentences"], self.embed_sentences(batch)))

    def test_step(self, batch: Mapping[str, Any], batch_idx: int) -> None:
        """Embed the sentences of a batch."""
        self.validation_step(batch, batch_idx)

    def on_validation_epoch_start(self) -> None:
        """Forget the embeddings of an evaluation that was stopped."""
        self._batches = []
        self._embedded = None
        self._is_asked = False

    def on_test_epoch_start(self) -> None:
        """Forget the embeddings of an evaluation that was stopped."""
        self.on_validation_epoch_start()

    def on_validation_batch_end(
        self, outputs: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Ask the tasks about the dev split after the last batch: before the end of the epoch,
        where a callback that averages weights puts the current ones back.
        """
        if batch_idx + 1 == sum(self.trainer.num_val_batches):
            self._ask_tasks("dev")

    def on_validation_epoch_end(self) -> None:
        """Log the metrics of the dev split."""
        self._log_metrics("dev", "val/")

    def on_test_epoch_end(self) -> None:
        """Ask the tasks about the test split, and log their metrics."""
        self._log_metrics("test", "test/")

    @property
    def embedded(self) -> Embedded:
        """The sentences of this evaluation with their embeddings, until its metrics are logged."""
        if self._embedded is None:
            sentences = [sentence for part, _ in self._batches for sentence in part]
            embedding = Embedding.cat([embedding for _, embedding in self._batches])
            check_finite(embedding, self.trainer.global_step)
            self._embedded = Embedded(self.model, sentences, lambda _: embedding)
            self._batches = []

        return self._embedded

    def _ask_tasks(self, split: Split) -> None:
        data: Any = self.trainer.datamodule  # type: ignore[attr-defined]  # set by Lightning
        self.results = evaluate_tasks(data.tasks, self.embedded, split)
        self._is_asked = True

    def _log_metrics(self, split: Split, prefix: str) -> None:
        if not self._is_asked:
            self._ask_tasks(split)

        self._embedded = None
        metrics = {name: result.metrics for name, result in self.results.items()}
        for key, value in keyed(metrics, prefix).items():
            self.log(key, value, batch_size=1)

        # Lightning would take the number of steps before the last one.
        self.log("step", float(self.trainer.global_step), batch_size=1)


def check_finite(embedding: Embedding, step: int) -> None:
    """Raise TrainingError if a number of an embedding is not finite."""
    if not embedding.is_finite:
        raise TrainingError(
            f"after step {step} some embeddings are not finite numbers. The checkpoint before it "
            "is kept: lower method.optimizer.lr, or use trainer.precision=32-true"
        )
