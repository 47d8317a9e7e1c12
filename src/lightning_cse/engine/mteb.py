"""An adapter for the mteb library: our models as its encoders."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lightning_cse.engine.embedder import Embedder
from lightning_cse.similarity import cosine, cosine_matrix


@dataclass
class MTEBModel:
    """A model with mteb's ``EncoderProtocol``: one vector per sentence (its primary view), compared
    by cosine.

    Its name, ``revision``, width and maximum length go into mteb's results.
    """

    model: Embedder
    revision: str

    @property
    def mteb_model_meta(self) -> Any:
        """The metadata that mteb writes into its results; unknown values are None."""
        import mteb  # optional and slow to import

        name = self.model.name
        unknown = {
            key: None
            for key, field in mteb.models.ModelMeta.model_fields.items()
            if field.is_required()
        }
        values = {
            "name": name if name.count("/") == 1 else f"lightning_cse/{name.replace('/', '_')}",
            "revision": self.revision,
            "embed_dim": len(self.model.encode("a")),
            "max_tokens": self.model.max_length,
            "similarity_fn_name": "cosine",
            "framework": ["PyTorch"],
            "use_instructions": bool(self.model.encoder.instructions),
        }

        return mteb.models.ModelMeta(**unknown | values)

    def encode(
        self, inputs: Iterable[Mapping[str, Any]], *, prompt_type: str | None = None, **_: Any
    ) -> Tensor:
        """Return the vectors of all sentences in mteb's batches: (n, d), float32.

        ``prompt_type`` (``query`` or ``document``, else None) chooses the encoder's instruction;
        mteb's prompts are not used.
        """
        sentences = [sentence for batch in inputs for sentence in batch["text"]]
        use: Any = "default" if prompt_type is None else getattr(prompt_type, "value", prompt_type)

        return self.model.answers.features(self.model.embed(sentences, use=use))

    def similarity(self, embeddings1: Any, embeddings2: Any) -> Tensor:
        """Return the cosine of every row of one matrix with every row of the other: (n, m)."""
        return cosine_matrix(_matrix(embeddings1), _matrix(embeddings2))

    def similarity_pairwise(self, embeddings1: Any, embeddings2: Any) -> Tensor:
        """Return the cosine row by row: (n,)."""
        return cosine(_matrix(embeddings1), _matrix(embeddings2))


def _matrix(vectors: Any) -> Tensor:
    matrix: Tensor = torch.atleast_2d(torch.as_tensor(vectors))
    return matrix
