"""A loaded model embeds sentences: in order, batch by batch, without Lightning or Hydra."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor

from lightning_cse.embeddings import Embedding
from lightning_cse.encoders import SentenceEncoder, Template
from lightning_cse.encoders.instructions import USES, Use, as_prompts
from lightning_cse.engine.quantization import Precision, quantized
from lightning_cse.errors import ConfigError, DataError, TaskError
from lightning_cse.models import Model
from lightning_cse.models.base import finite
from lightning_cse.progress import progress
from lightning_cse.tokens import TokenTable

if TYPE_CHECKING:
    from lightning_cse.encoders.instructions import Tokenizer

Sentences = str | Iterable[str]

BATCH_SIZE = 1024
"""The sentences that are handed to the encoder at a time."""


@dataclass(repr=False)
class Embedder:
    """A model that embeds sentences, in evaluation mode.

    ``views`` are the names of a sentence's vectors, the primary one first: ``primary``; ``mean``,
    ``variance`` (GaussCSE); ``explicit``, ``implicit`` (DualCSE), and ``explicit_variance``,
    ``implicit_variance`` (DualGauss); ``pragmatic``, ``semantic`` (ImpScore). Sentences longer than
    ``max_length`` tokens are truncated; ``truncated`` counts them since the model was
    loaded. ``answers`` is the torch module, ``method`` the qualified class of the method
    that trained it (of the module, if it was not trained here), ``run`` the run's folder,
    ``record`` the run's record, and ``digests`` the sha256 of weights and tokenizer. ``prompts``
    are texts to put before sentences, by name; None for the encoder's instructions.
    """

    answers: Model
    name: str
    method: str
    digests: dict[str, str]
    run: Path | None = None
    record: dict[str, Any] = field(default_factory=dict)
    device: torch.device = torch.device("cpu")  # noqa: RUF009 - a device is immutable
    dtype: torch.dtype = torch.float32
    truncated: int = 0
    prompts: dict[str, str] | None = None

    def __post_init__(self) -> None:
        if self.prompts is None:
            self.prompts = as_prompts(self.encoder.instructions).get("prompts", {})

        self.answers.to(self.device).eval()

    def __repr__(self) -> str:
        """Return name, method, views and device."""
        fields = (
            f"{self.name!r}, {self.method_name}, views={self.views}, device={str(self.device)!r}"
        )
        return f"SentenceModel({fields})"

    @property
    def method_name(self) -> str:
        """The method's class without its module, for titles."""
        return self.method.rpartition(".")[2]

    @property
    def encoder(self) -> SentenceEncoder:
        """The encoder of the model."""
        return self.answers.encoder

    @property
    def templates(self) -> tuple[Template, ...]:
        """The templates around a sentence, one for each time that it is encoded."""
        return self.answers.templates

    @property
    def max_length(self) -> int:
        """The number of tokens read from a sentence with its instruction: the encoder's maximum
        minus the longest template.
        """
        return self.encoder.max_length - max(len(template) for template in self.templates)

    @cached_property
    def views(self) -> list[str]:
        """The names of a sentence's vectors, the primary one first."""
        return list(_vectors(self._example))

    def to(self, device: str | torch.device) -> Self:
        """Move the model to a device, and return it."""
        self.device = torch.device(device)
        self.answers.to(self.device)

        return self

    def embed(
        self,
        sentences: Sentences,
        *,
        use: Use = "default",
        prompt_name: str | None = None,
        prompt: str | None = None,
        batch_size: int = BATCH_SIZE,
        show_progress_bar: bool | None = False,
        label: str = "",
    ) -> Embedding:
        """Return all views of sentences at once, as an `Embedding` in main memory; EncoderError if
        it is not finite. The arguments are those of `encode`; ``label`` is shown before the bar.
        """
        texts = checked_sentences(sentences)
        tokenizer = self._tokenizer(use, prompt_name, prompt)
        check_count("batch_size", batch_size)
        if not texts:
            return self._example[:0]

        table = TokenTable.of(texts, tokenizer)
        self.truncated += int((table.lengths > self.max_length).sum())
        # Sorted as a whole, so that sentences of one length need no padding.
        lengths = torch.from_numpy(table.lengths).clamp(max=self.max_length)
        order = lengths.argsort(descending=True, stable=True)
        vectors = {
            name: value.new_empty(len(texts), value.shape[1])
            for name, value in self._example.fields().items()
        }
        title = f"{label}: {len(texts):,} sentences" if label else f"{len(texts):,} sentences"
        with self._autocast(), progress(shown=show_progress_bar) as bar:
            task = bar.add_task(title, total=len(texts))
            for rows in order.split(batch_size):
                batch = [texts[row] for row in rows.tolist()]
                tokens = table.tokens(batch, self.encoder.max_length)
                embedded = self.answers.embed(batch, tokens)
                for name, value in embedded.fields().items():
                    vectors[name][rows] = value

                bar.advance(task, len(rows))

        return finite(type(self._example)(**vectors))

    def _tokenizer(
        self, use: Use = "default", prompt_name: str | None = None, prompt: str | None = None
    ) -> Tokenizer:
        """Return the tokenizer of a use, or that of a prompt."""
        if use not in USES:
            raise ConfigError([f"use: must be one of {', '.join(USES)}, got {use!r}"])
        if sum((use != "default", prompt_name is not None, prompt is not None)) > 1:
            raise ConfigError(["use, prompt_name, prompt: each replaces the others; give one"])

        if prompt_name is not None:
            prompts = self.prompts or {}
            if prompt_name not in prompts:
                names = ", ".join(name for name in prompts if name) or "none"
                raise ConfigError(
                    [f"prompt_name: {self.name} has no prompt {prompt_name!r} (it has: {names})"]
                )

            prompt = prompts[prompt_name]

        return self.encoder.instructed[use] if prompt is None else self.encoder.prompted(prompt)

    def encode(
        self,
        sentences: Sentences,
        view: str | None = None,
        *,
        use: Use = "default",
        prompt_name: str | None = None,
        prompt: str | None = None,
        batch_size: int = BATCH_SIZE,
        precision: Precision = "float32",
        normalize_embeddings: bool = False,
        truncate_dim: int | None = None,
        convert_to_tensor: bool = False,
        show_progress_bar: bool | None = None,
        device: str | torch.device | None = None,
    ) -> Any:
        """Return the vectors of sentences in one of the ``views``: (d,) for a string, else (n, d).

        A NumPy array, or a tensor with ``convert_to_tensor``, in the order of the sentences. The
        names of the arguments are those of ``SentenceTransformer.encode``, as far as it has them.

        Args:
            sentences: a string, or several.
            view: None for the primary one.
            use: ``query`` or ``document`` chooses the instruction of an encoder that has
                instructions.
            prompt_name: the name of one of ``prompts``, in place of an instruction.
            prompt: a text before each sentence, in place of an instruction.
            batch_size: how many sentences are handed to the encoder at a time, which packs or pads
                them by tokens. A smaller number saves memory; the vectors are the same.
            precision: ``int8``, ``uint8``, ``binary`` or ``ubinary`` for smaller numbers; see
                `quantized`.
            normalize_embeddings: scale each vector to length 1.
            truncate_dim: the first dimensions to keep, before vectors are scaled.
            convert_to_tensor: return a torch tensor in place of a NumPy array.
            show_progress_bar: None shows it on a terminal only.
            device: move the model there first; it stays there.

        Raises:
            TaskError: if there is no such view.
            ConfigError: for an argument out of its choices.
            DataError: if a sentence is not a string, or one that no file could have.
            EncoderError: if a vector is not finite, or a prompt leaves no room for a sentence.
        """
        view = self._checked_view(view, self.views)
        if truncate_dim is not None:
            check_count("truncate_dim", truncate_dim)
        if device is not None:
            self.to(device)

        embedded = self.embed(
            sentences,
            use=use,
            prompt_name=prompt_name,
            prompt=prompt,
            batch_size=batch_size,
            show_progress_bar=show_progress_bar,
        )
        vectors = _vectors(embedded)[view][:, :truncate_dim]
        if normalize_embeddings:
            vectors = torch.nn.functional.normalize(vectors, dim=1)

        array = quantized(vectors.numpy(), precision)
        if isinstance(sentences, str):
            array = array[0]

        return torch.from_numpy(array) if convert_to_tensor else array

    @cached_property
    def _example(self) -> Embedding:
        """The embedding of one sentence, which has the kind and width of all others."""
        with self._autocast():
            return finite(self.answers.embed(["a"]))

    def _checked_view(self, view: str | None, names: Sequence[str]) -> str:
        if view is not None and view not in names:
            raise TaskError(f"{self} has no view {view!r}")

        return view or names[0]

    def _autocast(self) -> torch.autocast:
        is_reduced = self.dtype != torch.float32
        return torch.autocast(self.device.type, torch.bfloat16, is_reduced)


def checked_sentences(sentences: Sentences, argument: str = "sentences") -> list[str]:
    """Return sentences as a list; raise DataError, which names the row, if one is not a text."""
    if not isinstance(sentences, Iterable):
        raise DataError(f"{argument}: must be a string, or several, got {sentences!r}")

    texts = [sentences] if isinstance(sentences, str) else list(sentences)
    for row, text in enumerate(texts):
        if not isinstance(text, str):
            raise DataError(f"{argument}[{row}]: must be a string, got {text!r}")

        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise DataError(
                f"{argument}[{row}]: is no text: {error.reason} (character {error.start}, "
                f"{text[error.start]!r}); decode it again, or replace it"
            ) from None

    return texts


def check_count(key: str, value: int) -> None:
    """Raise ConfigError, which names an argument, if it is not a positive integer."""
    if not isinstance(value, int) or value < 1:
        raise ConfigError([f"{key}: must be an integer of at least 1, got {value}"])


def _vectors(embedding: Embedding) -> dict[str, Tensor]:
    """Return the views of an embedding, and its variances, by name."""
    vectors = dict(embedding.views())
    for name, value in embedding.fields().items():
        if "log_variance" in name:
            vectors[name.replace("log_", "")] = value.exp()

    return vectors
