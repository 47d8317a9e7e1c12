"""A model of ours as the mteb library wants it, and one of mteb's tasks as a step of an evaluation."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from lightning_cse.errors import DataError, TaskError
from lightning_cse.evaluation import Answers, TaskResult
from lightning_cse.similarity import cosine, cosine_matrix

__all__ = ["MTEBModel", "MTEBTask"]

_INSTALL = "pip install 'lightning_cse[mteb]'"


class Embeds(Answers, Protocol):
    """What is asked of a model here: embeddings, and their vectors for whatever mteb does with them."""

    def features(self, embedding: Any) -> Tensor:
        """Return the vectors of the primary view: (n, d)."""
        ...


class MTEBModel:
    """A model behind mteb's ``EncoderProtocol``: the vectors of its primary view, compared by cosine.

    mteb asks for vectors and one similarity between any two of them, so a Gaussian is its mean here and a dual
    embedding its explicit vector; the tasks of this project ask the method itself.

    Source: mteb 2, ``mteb.models.models_protocols``.

    Args:
        model: what embeds.
        name: its name, which mteb's results go by.
        revision: what tells this model from others of that name.
        width: the dimension of its vectors.
        max_tokens: how many tokens of a sentence it reads.
    """

    def __init__(self, model: Embeds, name: str, revision: str, *, width: int, max_tokens: int) -> None:
        self.model = model
        self.name = name
        self.revision = revision
        self.width = width
        self.max_tokens = max_tokens

    @cached_property
    def mteb_model_meta(self) -> Any:
        """What mteb writes into its results: what it cannot know stays unknown."""
        meta = _mteb().models.ModelMeta
        unknown = {key: None for key, field in meta.model_fields.items() if field.is_required()}
        name = self.name if self.name.count("/") == 1 else f"lightning_cse/{self.name.replace('/', '_')}"
        known = {
            "name": name,
            "revision": self.revision,
            "embed_dim": self.width,
            "max_tokens": self.max_tokens,
            "similarity_fn_name": "cosine",
            "framework": ["PyTorch"],
            "use_instructions": False,
        }
        return meta(**unknown | known)

    def encode(
        self,
        inputs: Iterable[Mapping[str, Any]],
        *,
        task_metadata: Any,
        hf_split: str,
        hf_subset: str,
        prompt_type: Any = None,
        **kwargs: Any,
    ) -> Tensor:
        """Return the vectors of all sentences of a loader of batches: (n, d), float32.

        mteb's batches and prompts play no part: sentences are batched by length here, and a prompt belongs to the
        encoder.
        """
        sentences = [sentence for batch in inputs for sentence in batch["text"]]
        return self.model.features(self.model.embed(sentences)).float()

    def similarity(self, embeddings1: Any, embeddings2: Any) -> Tensor:
        """Return the cosine of every row of one matrix with every row of the other: (n, m)."""
        return cosine_matrix(*(_matrix(embeddings) for embeddings in (embeddings1, embeddings2)))

    def similarity_pairwise(self, embeddings1: Any, embeddings2: Any) -> Tensor:
        """Return the cosine row by row: (n,)."""
        return cosine(*(_matrix(embeddings) for embeddings in (embeddings1, embeddings2)))


def _matrix(embeddings: Any) -> Tensor:
    tensor = torch.as_tensor(embeddings)
    return tensor[None] if tensor.ndim == 1 else tensor


class MTEBTask:
    """One task of the mteb library, by its name there; metric: ``main_score``, over its test split.

    Args:
        name: such as ``STSBenchmark``.

    Raises:
        TaskError: if the library is not installed, or has no task of that name.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._task = _find(name)

    @property
    def digests(self) -> dict[str, str]:
        """The revision of the data set, which mteb pins."""
        dataset = self._task.metadata.dataset
        return {f"mteb/{dataset['path']}": str(dataset["revision"]), "mteb": importlib.metadata.version("mteb")}

    def evaluate(self, model: Embeds, name: str, revision: str, cache: Path, *, width: int, room: int) -> TaskResult:
        """Hand the model to mteb, which keeps its own results in the folder ``cache``.

        Raises:
            DataError: if mteb cannot get its data.
        """
        mteb = _mteb()
        wrapped = MTEBModel(model, name, revision, width=width, max_tokens=room)
        try:
            self._task.load_data()
        except Exception as error:
            what = " ".join(str(error).split())[:300]
            raise DataError(
                f"mteb cannot load the data of {self.name} ({type(error).__name__}: {what}): it fetches them from the "
                "Hugging Face hub, so this suite needs a network, or its cache from a machine that has one"
            ) from error
        results = mteb.evaluate(
            wrapped,
            self._task,
            encode_kwargs={"batch_size": 1024},
            cache=mteb.ResultCache(cache),
            co2_tracker=False,
            show_progress_bar=False,
        )
        (result,) = results.task_results
        return TaskResult({"main_score": float(result.get_score())})


def _mteb() -> Any:
    try:
        import mteb  # an extra, and heavy
    except ModuleNotFoundError as error:
        if error.name != "mteb":
            raise
        raise TaskError(f"suite=mteb needs the mteb library, which is not installed: {_INSTALL}") from None
    return mteb


def _find(name: str) -> Any:
    mteb = _mteb()
    try:
        return mteb.get_task(name)
    except KeyError as error:
        raise TaskError(f"suite.tasks, mteb: {str(error.args[0]).removeprefix('KeyError: ')}") from error
