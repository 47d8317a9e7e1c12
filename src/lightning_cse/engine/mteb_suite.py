"""Adapters for the mteb library: our models as its encoders, and its tasks as tasks of an
evaluation.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from lightning_cse.errors import DataError, TaskError
from lightning_cse.evaluation import TaskResult
from lightning_cse.runs import Run
from lightning_cse.similarity import cosine, cosine_matrix

if TYPE_CHECKING:
    from lightning_cse.engine.inference import SentenceModel


class MTEBModel:
    """A model with mteb's ``EncoderProtocol``: one vector per sentence (its primary view), compared
    by cosine.

    Its name, ``revision``, width and maximum length go into mteb's results.
    """

    def __init__(
        self,
        model: SentenceModel,
        *,
        revision: str,
    ) -> None:
        self.model = model
        self.revision = revision

    @property
    def mteb_model_meta(self) -> Any:
        """The metadata that mteb writes into its results; unknown values are None."""
        name = self.model.name
        meta = _mteb().models.ModelMeta
        unknown = {key: None for key, field in meta.model_fields.items() if field.is_required()}
        known = {
            "name": name if name.count("/") == 1 else f"lightning_cse/{name.replace('/', '_')}",
            "revision": self.revision,
            "embed_dim": len(self.model.encode("a")),
            "max_tokens": self.model.max_length,
            "similarity_fn_name": "cosine",
            "framework": ["PyTorch"],
            "use_instructions": False,
        }
        return meta(**unknown | known)

    def encode(
        self,
        inputs: Iterable[Mapping[str, Any]],
        **_: Any,
    ) -> Tensor:
        """Return the vectors of all sentences in mteb's batches: (n, d), float32. mteb's prompts
        are not used.
        """
        sentences = [sentence for batch in inputs for sentence in batch["text"]]
        return self.model.answers.features(self.model.embed(sentences))

    def similarity(
        self,
        embeddings1: Any,
        embeddings2: Any,
    ) -> Tensor:
        """Return the cosine of every row of one matrix with every row of the other: (n, m)."""
        return cosine_matrix(_matrix(embeddings1), _matrix(embeddings2))

    def similarity_pairwise(
        self,
        embeddings1: Any,
        embeddings2: Any,
    ) -> Tensor:
        """Return the cosine row by row: (n,)."""
        return cosine(_matrix(embeddings1), _matrix(embeddings2))


class MTEBTask:
    """A task of the mteb library, by its name there; the metric is ``main_score`` on its test
    split.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        try:
            self._task = _mteb().get_task(name)
        except KeyError as error:
            raise TaskError(f"suite.tasks, mteb: {error.args[0]}") from error

    @property
    def digests(self) -> dict[str, str]:
        """The revision of the data set, which mteb pins, and the version of mteb."""
        dataset = self._task.metadata.dataset
        return {
            f"mteb/{dataset['path']}": str(dataset["revision"]),
            "mteb": importlib.metadata.version("mteb"),
        }

    def evaluate(
        self,
        model: SentenceModel,
        run: Run,
    ) -> TaskResult:
        """Evaluate a model with mteb, which writes its own results to ``mteb/`` in the run's
        folder.
        """
        try:
            self._task.load_data()
        except Exception as error:
            raise DataError(f"mteb cannot load {self.name}: {error}") from error
        results = _mteb().evaluate(
            MTEBModel(model, revision=run.config_hash),
            self._task,
            cache=_mteb().ResultCache(run.path / "mteb"),
            encode_kwargs={"batch_size": 1024},
            co2_tracker=False,
            show_progress_bar=False,
        )
        return TaskResult({"main_score": float(results.task_results[0].get_score())})


def _matrix(vectors: Any) -> Tensor:
    matrix: Tensor = torch.atleast_2d(torch.as_tensor(vectors))
    return matrix


def _mteb() -> Any:
    try:
        import mteb  # optional and slow to import
    except ModuleNotFoundError as error:
        raise TaskError(f"suite=mteb: {error}; pip install 'lightning_cse[mteb]'") from error
    return mteb
