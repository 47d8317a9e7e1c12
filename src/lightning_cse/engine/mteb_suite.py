"""Adapters for the mteb library: our models as its encoders, and its tasks as tasks of an evaluation."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from lightning_cse.errors import DataError, TaskError
from lightning_cse.evaluation import TaskResult
from lightning_cse.runs import Run
from lightning_cse.similarity import cosine, cosine_matrix


class MTEBModel:
    """A model with mteb's ``EncoderProtocol``, for ``mteb.evaluate(model, tasks)``: one vector per sentence, cosine.

    ``encode`` takes a list of sentences and returns an array or a tensor (n, d). The name and ``known`` (``revision``,
    ``embed_dim``, ``max_tokens`` and other fields of mteb's ModelMeta) go into mteb's results.
    """

    def __init__(self, encode: Callable[[list[str]], Any], *, name: str, **known: Any) -> None:
        self._encode = encode
        self.known = {
            "name": name if name.count("/") == 1 else f"lightning_cse/{name.replace('/', '_')}",
            "similarity_fn_name": "cosine",
            "framework": ["PyTorch"],
            "use_instructions": False,
            **known,
        }

    @classmethod
    def of(cls, evaluated: Any, revision: str) -> MTEBModel:
        """Wrap a model under evaluation; its vectors are those of the primary view."""
        model = evaluated.model
        return cls(
            lambda sentences: model.features(evaluated.embed(sentences)),
            name=evaluated.name,
            revision=revision,
            embed_dim=model.features(model.embed(["one"])).shape[1],
            max_tokens=evaluated.loaded.room,
        )

    @property
    def mteb_model_meta(self) -> Any:
        """The metadata that mteb writes into its results; unknown values are None."""
        meta = _mteb().models.ModelMeta
        return meta(
            **{key: None for key, field in meta.model_fields.items() if field.is_required()}
            | self.known
        )

    def encode(self, inputs: Iterable[Mapping[str, Any]], **_: Any) -> Tensor:
        """Return the vectors of all sentences in mteb's batches: (n, d), float32. mteb's prompts are not used."""
        return torch.as_tensor(
            self._encode([sentence for batch in inputs for sentence in batch["text"]])
        ).float()

    def similarity(self, embeddings1: Any, embeddings2: Any) -> Tensor:
        """Return the cosine of every row of one matrix with every row of the other: (n, m)."""
        return cosine_matrix(
            *(torch.atleast_2d(torch.as_tensor(one)) for one in (embeddings1, embeddings2))
        )

    def similarity_pairwise(self, embeddings1: Any, embeddings2: Any) -> Tensor:
        """Return the cosine row by row: (n,)."""
        return cosine(
            *(torch.atleast_2d(torch.as_tensor(one)) for one in (embeddings1, embeddings2))
        )


class MTEBTask:
    """A task of the mteb library, by its name there; the metric is ``main_score`` on its test split."""

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

    def evaluate(self, model: Any, run: Run) -> TaskResult:
        """Evaluate a model with mteb, which writes its own results to ``mteb/`` in the run's folder."""
        try:
            self._task.load_data()
        except Exception as error:
            raise DataError(f"mteb cannot load {self.name}: {error}") from error
        cache = _mteb().ResultCache(run.path / "mteb")
        options = {
            "encode_kwargs": {"batch_size": 1024},
            "co2_tracker": False,
            "show_progress_bar": False,
        }
        results = _mteb().evaluate(
            MTEBModel.of(model, run.config_hash), self._task, cache=cache, **options
        )
        return TaskResult({"main_score": float(results.task_results[0].get_score())})


def _mteb() -> Any:
    try:
        import mteb  # optional and slow to import
    except ModuleNotFoundError as error:
        raise TaskError(f"suite=mteb: {error}; pip install 'lightning_cse[mteb]'") from error
    return mteb
