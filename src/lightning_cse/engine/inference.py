"""A loaded model: it embeds sentences and answers questions about them, without Lightning or
Hydra.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self, TypedDict, Unpack, overload

import numpy as np
import torch
from torch import Tensor

from lightning_cse.devices import launched, wait_for_all
from lightning_cse.embeddings import Embedding, PointEmbedding
from lightning_cse.encoders import SentenceEncoder, Template
from lightning_cse.encoders.instructions import USES, Use
from lightning_cse.errors import ConfigError, TaskError
from lightning_cse.models import Model
from lightning_cse.models.base import finite
from lightning_cse.progress import progress
from lightning_cse.similarity import Comparison, cosine, is_same
from lightning_cse.tokens import TokenTable

if TYPE_CHECKING:
    from lightning_cse.data.sentences import Source
    from lightning_cse.encoders.encoder import Tokenizer
    from lightning_cse.engine.mteb import MTEBModel

Sentences = str | Iterable[str]
Scores = float | np.ndarray
Relation = Literal["similar", "entails", "entailed_by"]

QUESTIONS = {
    "similarity": "similarity",
    "entailment": "entailment_score",
    "implicitness": "implicitness",
}
BATCH_SIZE = 1024
"""The sentences that are handed to the encoder at a time."""


class Encoding(TypedDict, total=False):
    """The arguments of `SentenceModel.encode` that do not change the type of its result."""

    use: Use
    prompt: str | None
    batch_size: int
    normalize_embeddings: bool
    show_progress_bar: bool | None
    device: str | torch.device | None


class Hit(NamedTuple):
    """A sentence found by `SentenceModel.search`: its row in the corpus, and its score."""

    row: int
    score: float


@dataclass(repr=False)
class SentenceModel:
    """A model that embeds sentences and answers questions about them, in evaluation mode.

    A question takes one string or several sentences, row by row; a single string is compared with
    each of several sentences. The answer is a float if every argument is a string, else an array
    (n,). A question that the model does not answer raises TaskError.

    ``views`` are the names of a sentence's vectors, the primary one first: ``primary``; ``mean``,
    ``variance`` (GaussCSE); ``explicit``, ``implicit`` (DualCSE), and ``explicit_variance``,
    ``implicit_variance`` (DualGauss); ``pragmatic``, ``semantic`` (ImpScore). Sentences longer than
    ``max_length`` tokens are truncated; ``embedded`` and ``truncated`` count sentences since the
    model was loaded. ``answers`` is the torch module, ``method`` the qualified class of the method
    that trained it (of the module, if it was not trained here), ``run`` the run's folder,
    ``record`` the run's record, and ``digests`` the sha256 of weights and tokenizer.
    """

    answers: Model
    name: str
    method: str
    digests: dict[str, str]
    run: Path | None = None
    record: dict[str, Any] = field(default_factory=dict)
    device: torch.device = torch.device("cpu")  # noqa: RUF009 - a device is immutable
    dtype: torch.dtype = torch.float32
    embedded: int = 0
    truncated: int = 0

    def __post_init__(self) -> None:
        self.answers.to(self.device).eval()

    def __repr__(self) -> str:
        """Return name, method, views and device."""
        shown = f"{self.name!r}, {self.method_name}, views={self.views}"
        return f"SentenceModel({shown}, device={str(self.device)!r})"

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

    @cached_property
    def questions(self) -> list[str]:
        """The names of the questions that this model answers."""
        known = [name for name, question in QUESTIONS.items() if hasattr(self.answers, question)]
        if self._has_direction:
            known.append("direction")

        return known

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
        prompt: str | None = None,
        batch_size: int = BATCH_SIZE,
        show_progress_bar: bool | None = False,
        label: str = "",
    ) -> Embedding:
        """Return all views of sentences at once, as an `Embedding` in main memory; EncoderError if
        it is not finite. The arguments are those of `encode`; ``label`` is shown before the bar.
        """
        texts = [sentences] if isinstance(sentences, str) else list(sentences)
        tokenizer = self._tokenizer(use, prompt)
        _check_count("batch_size", batch_size)
        title = f"{label}: {len(texts):,} sentences" if label else f"{len(texts):,} sentences"
        with progress(shown=show_progress_bar) as bar:
            task = bar.add_task(title, total=len(texts))
            advance = functools.partial(bar.advance, task)
            return self._embed(texts, tokenizer, advance, batch_size)

    def _tokenizer(self, use: Use, prompt: str | None = None) -> Tokenizer:
        """Return the tokenizer of a use, or that of a prompt."""
        if use not in USES:
            raise ConfigError([f"use: must be one of {', '.join(USES)}, got {use!r}"])
        if prompt is None:
            return self.encoder.instructed[use]
        if use != "default":
            raise ConfigError(["prompt: is given in place of use; leave one of them out"])

        return self.encoder.prompted(prompt)

    def _embed(
        self,
        texts: Sequence[str],
        tokenizer: Tokenizer,
        advance: Callable[[int], None],
        batch_size: int = BATCH_SIZE,
    ) -> Embedding:
        """Embed sentences, the longest first; ``advance`` is told of each part of them."""
        if not texts:
            return self._example[:0]

        table = TokenTable.of(texts, tokenizer)
        self.embedded += len(texts)
        self.truncated += int((table.lengths > self.max_length).sum())
        # Sorted as a whole, so that sentences of one length need no padding.
        lengths = torch.from_numpy(table.lengths).clamp(max=self.max_length)
        order = lengths.argsort(descending=True, stable=True)
        vectors = {}
        for name, value in self._example.fields().items():
            vectors[name] = value.new_empty(len(texts), value.shape[1])

        with self._autocast():
            for rows in order.split(batch_size):
                sentences = [texts[row] for row in rows.tolist()]
                tokens = table.tokens(sentences, self.encoder.max_length)
                embedded = self.answers.embed(sentences, tokens)
                for name, value in embedded.fields().items():
                    vectors[name][rows] = value

                advance(len(rows))

        return finite(type(self._example)(**vectors))

    @overload
    def encode(
        self,
        sentences: Sentences,
        view: str | None = ...,
        *,
        convert_to_tensor: Literal[False] = ...,
        **options: Unpack[Encoding],
    ) -> np.ndarray: ...

    @overload
    def encode(
        self,
        sentences: Sentences,
        view: str | None = ...,
        *,
        convert_to_tensor: Literal[True],
        **options: Unpack[Encoding],
    ) -> Tensor: ...

    def encode(
        self,
        sentences: Sentences,
        view: str | None = None,
        *,
        use: Use = "default",
        prompt: str | None = None,
        batch_size: int = BATCH_SIZE,
        normalize_embeddings: bool = False,
        convert_to_tensor: bool = False,
        show_progress_bar: bool | None = None,
        device: str | torch.device | None = None,
    ) -> np.ndarray | Tensor:
        """Return the vectors of sentences in one of the ``views``, in float32: (d,) for a string,
        else (n, d).

        The vectors are as in an evaluation, in the order of the sentences, and in main memory. The
        names of the arguments are those of ``SentenceTransformer.encode``, as far as it has them.

        Args:
            sentences: a string, or several.
            view: None for the primary one.
            use: ``query`` or ``document`` chooses the instruction of an encoder that has
                instructions.
            prompt: a text before each sentence, in place of an instruction.
            batch_size: how many sentences are handed to the encoder at a time, which packs or pads
                them by tokens. A smaller number saves memory; the vectors are the same.
            normalize_embeddings: scale each vector to length 1.
            convert_to_tensor: return a torch tensor in place of a NumPy array.
            show_progress_bar: None shows it on a terminal only.
            device: move the model there first; it stays there.

        Raises:
            TaskError: if there is no such view.
            ConfigError: for an argument out of its choices.
            EncoderError: if a vector is not finite, or a prompt leaves no room for a sentence.
        """
        view = self._checked_view(view, self.views)
        if device is not None:
            self.to(device)

        embedded = self.embed(
            sentences,
            use=use,
            prompt=prompt,
            batch_size=batch_size,
            show_progress_bar=show_progress_bar,
        )
        vectors = _vectors(embedded)[view]
        if normalize_embeddings:
            vectors = torch.nn.functional.normalize(vectors, dim=1)
        if isinstance(sentences, str):
            vectors = vectors[0]

        return vectors if convert_to_tensor else np.asarray(vectors.numpy())

    def encode_to(
        self,
        path: str | Path,
        sentences: Source,
        view: str | None = None,
        *,
        column: str | None = None,
        dtype: Literal["float32", "float16"] = "float32",
        shard_size: int = 32_768,
        normalize_embeddings: bool = False,
        show_progress_bar: bool | None = None,
        use: Use = "default",
    ) -> int:
        """Write the vectors of sentences to a folder of Arrow shards, and return how many sentences
        there are.

        ``sentences`` are an iterable of strings, a data set of `datasets` or the name of a file
        (`lightning_cse.data.sentences.stream`, with its ``column``), and are read one after the
        other: a shard of ``shard_size`` sentences is in memory at a time. Row i is sentence i. The
        columns are those of `embed` or, with a ``view``, the ``vector`` of this view;
        ``normalize_embeddings`` scales it to length 1. ``use`` is that of `encode`.

        A call that was killed is continued by the same call: the shards that are there are kept.
        The processes that torchrun starts share the shards; each returns when its own are written,
        or, in a process group, when all are. Then `datasets.load_from_disk` and `search` read the
        folder.

        Raises ConfigError if the folder has other vectors (of another model, dtype or input, say),
        DataError if ``sentences`` cannot be read, and EncoderError if ``dtype`` cannot hold a
        number.
        """
        from lightning_cse.data.sentences import count, stream
        from lightning_cse.engine.vectors import DTYPES, VectorFolder, in_shards

        manifest = self._manifest(view, normalize_embeddings, use)
        if dtype not in DTYPES:
            raise ConfigError([f"dtype: must be one of {', '.join(DTYPES)}, got {dtype!r}"])

        _check_count("shard_size", shard_size)
        manifest |= {"dtype": dtype, "shard_size": shard_size}
        folder = VectorFolder.claim(Path(path).expanduser(), manifest)
        rank, processes = launched()
        rows = shards = 0
        with progress(shown=show_progress_bar if rank == 0 else False) as bar:
            task = bar.add_task(folder.path.name, total=count(sentences))
            advance = functools.partial(bar.advance, task)
            for number, texts in enumerate(in_shards(stream(sentences, column), shard_size)):
                if folder.has(number, texts) or number % processes != rank:
                    advance(len(texts))
                else:
                    embedded = self._embed(texts, self._tokenizer(use), advance)
                    columns = self._columns(embedded, view, normalize_embeddings)
                    folder.write(number, texts, columns)

                rows += len(texts)
                shards += 1

        folder.complete(shards)
        wait_for_all()

        return rows

    def _manifest(self, view: str | None, normalize: bool, use: Use) -> dict[str, Any]:
        """Return what decides the vectors of a folder, besides its sentences."""
        self._checked_view(view, self.views)
        if normalize and view is None and len(self._example.fields()) > 1:
            views = ", ".join(self.views)
            raise ConfigError([f"normalize_embeddings: needs a view, one of {views}"])

        return {
            **self.digests,
            "pooling": self.encoder.pooling,
            "max_length": self.encoder.max_length,
            "templates": [[*template.prefix, *template.suffix] for template in self.templates],
            "instruction": self._tokenizer(use).instruction,
            "precision": str(self.dtype).removeprefix("torch."),
            "view": view,
            "normalize": normalize,
        }

    def _columns(self, embedded: Embedding, view: str | None, normalize: bool) -> dict[str, Tensor]:
        """Return the vectors that a folder has, by column."""
        columns = embedded.fields() if view is None else {"vector": _vectors(embedded)[view]}
        if normalize:
            for name, value in columns.items():
                columns[name] = torch.nn.functional.normalize(value, dim=1)

        return columns

    def similarity(self, a: Sentences, b: Sentences) -> Scores:
        """Return how similar sentences are by the model's own symmetric measure, mostly the cosine
        of a view.
        """
        return self._ask(self._question("similarity"), a, b)

    def similarity_matrix(self, a: Sentences, b: Sentences | None = None) -> np.ndarray:
        """Return the similarity of each of ``a`` (n) with each of ``b`` (m), by default with each
        of ``a``: (n, m).
        """
        first = self.embed(a)
        second = first if b is None else self.embed(b)
        compared = Comparison.of(self._question("similarity"), self._example)
        with torch.no_grad():
            return np.asarray(compared.matrix(first, second))

    def entailment(self, premises: Sentences, hypotheses: Sentences) -> Scores:
        """Return how far premises entail hypotheses; a threshold for a decision comes from an
        evaluation.
        """
        return self._ask(self._question("entailment"), premises, hypotheses)

    def direction(self, a: Sentences, b: Sentences) -> Scores:
        """Return a positive number where ``a`` entails ``b`` rather than ``b`` entails ``a``, else
        a negative one.
        """
        if not self._has_direction:
            raise self._unanswered("direction")

        own: Callable[..., Tensor] | None = getattr(self.answers, "direction", None)
        if own is not None:
            return self._ask(own, a, b)

        score = self._question("entailment")

        return self._ask(lambda x, y: score(x, y).double() - score(y, x).double(), a, b)

    def implicitness(self, sentences: Sentences) -> Scores:
        """Return how much more sentences imply than they say."""
        return self._ask(self._question("implicitness"), sentences)

    def search(
        self,
        queries: Sentences,
        corpus: Sequence[str] | str | Path,
        k: int = 10,
        *,
        relation: Relation = "similar",
        view: str | None = None,
        against: str | None = None,
    ) -> list[list[Hit]]:
        """Return, for each query, the ``k`` sentences of a corpus with the highest scores, best
        first.

        ``corpus`` is a list, or the folder that `encode_to` wrote, of which one shard is in memory
        at a time. The search is exact: every sentence is compared in float32, and the best ones
        again in float64; of equal scores, the first row comes first.

        ``relation`` is the question: ``similar`` (the model's own similarity), ``entails`` (the
        query is the premise) or ``entailed_by``. Instead, a ``view`` of the query can be compared
        by cosine with the view ``against`` of the sentences (by default the primary one).

        Raises TaskError if the model or the folder has no such question or view, and ConfigError
        if the folder is not complete or of another model.
        """
        compared = self._comparison(relation, view, against)
        embedded = self.embed(queries, use="query")
        blocks: Iterable[Embedding]
        if isinstance(corpus, str | Path):
            compared, embedded, blocks = self._stored(Path(corpus), compared, embedded)
        else:
            blocks = [self.embed(corpus, use="document")]

        best: list[list[Hit]] = [[] for _ in range(len(embedded))]
        start = 0
        with torch.no_grad():
            for documents in blocks:
                for number, ranked in enumerate(compared.search(embedded, documents, k)):
                    hits = best[number] + [Hit(start + row, score) for row, score in ranked]
                    # Stable: of equal scores, the first row stays first.
                    best[number] = sorted(hits, key=lambda hit: -hit.score)[:k]

                start += len(documents)

        return best

    def _stored(
        self, path: Path, compared: Comparison, queries: Embedding
    ) -> tuple[Comparison, Embedding, Iterator[Embedding]]:
        """Return how to compare queries with the vectors of a folder, and these, shard by shard."""
        from lightning_cse.engine.vectors import VectorFolder

        folder = VectorFolder.open(path.expanduser())
        view, is_unit = folder.manifest["view"], folder.manifest["normalize"]
        own = self._manifest(None, normalize=False, use="document")
        for key in (*self.digests, "pooling", "max_length", "templates", "instruction"):
            if folder.manifest.get(key) != own[key]:
                raise ConfigError(
                    [
                        f"corpus: the vectors in {path} have {key} {folder.manifest.get(key)!r}, "
                        f"not {own[key]!r} as {self.name}: search with the model that wrote them"
                    ]
                )

        if view is None and not is_unit:
            return compared, queries, folder.blocks(type(queries))

        # One vector a sentence is enough for a cosine with it, and its length does not matter.
        first, second = compared.views or (None, None)
        if first is None or second != (view or self.views[0]):
            what = "normalized vectors" if view is None else f"the view {view} alone"
            raise TaskError(
                f"{path} has {what}: write it without view and normalize_embeddings for this"
            )

        points = PointEmbedding(queries.views()[first])

        compared = Comparison.of(lambda a, b: cosine(a.vector, b.vector), points)

        return compared, points, folder.blocks(PointEmbedding)

    def to_mteb(self) -> MTEBModel:
        """Return this model as a model of the mteb library, for ``mteb.evaluate(model.to_mteb(),
        tasks)``.
        """
        from lightning_cse.engine.mteb import MTEBModel

        return MTEBModel(self, revision=self.digests["weights"][:12])

    @cached_property
    def _example(self) -> Embedding:
        """The embedding of one sentence, which has the kind and width of all others."""
        with self._autocast():
            return finite(self.answers.embed(["a"]))

    @cached_property
    def _has_direction(self) -> bool:
        if hasattr(self.answers, "direction"):
            return True

        score = getattr(self.answers, "entailment_score", None)
        return score is not None and not is_same(score, lambda a, b: score(b, a), self._example)

    def _checked_view(self, view: str | None, known: Iterable[str]) -> str:
        known = list(known)
        if view is not None and view not in known:
            raise TaskError(f"{self} has no view {view!r}")

        return view or known[0]

    def _question(self, name: str) -> Callable[..., Tensor]:
        ask: Callable[..., Tensor] | None = getattr(self.answers, QUESTIONS[name], None)
        if ask is None:
            raise self._unanswered(name)

        return ask

    def _unanswered(self, name: str) -> TaskError:
        known = ", ".join(self.questions)
        return TaskError(f"{self.name} ({self.method_name}) has no {name} (it has: {known})")

    def _comparison(self, relation: Relation, view: str | None, against: str | None) -> Comparison:
        if view or against:
            known = self._example.views()
            one = self._checked_view(view, known)
            other = self._checked_view(against, known)

            return Comparison(lambda a, b: cosine(a.views()[one], b.views()[other]), (one, other))

        if relation == "similar":
            return Comparison.of(self._question("similarity"), self._example)
        if not self._has_direction:
            raise self._unanswered("direction")

        score = self._question("entailment")
        if relation == "entails":
            return Comparison.of(score, self._example)

        return Comparison.of(lambda a, b: score(b, a), self._example)

    def _ask(self, ask: Callable[..., Tensor], *arguments: Sentences) -> Scores:
        given = [(argument, self.embed(argument)) for argument in arguments]
        lengths = {len(each) for argument, each in given if not isinstance(argument, str)}
        if len(lengths) > 1:
            raise ValueError(f"cannot compare row by row: {sorted(lengths)} sentences")

        repeated = torch.zeros(*lengths or (1,), dtype=torch.long)
        rows = [each[repeated] if isinstance(argument, str) else each for argument, each in given]
        with torch.no_grad():
            scores = ask(*rows)

        return np.asarray(scores) if lengths else float(scores)

    def _autocast(self) -> torch.autocast:
        is_reduced = self.dtype != torch.float32
        return torch.autocast(self.device.type, torch.bfloat16, is_reduced)


def _check_count(key: str, value: int) -> None:
    if not isinstance(value, int) or value < 1:
        raise ConfigError([f"{key}: must be an integer of at least 1, got {value}"])


def _vectors(embedding: Embedding) -> dict[str, Tensor]:
    """Return the views of an embedding, and its variances, by name."""
    vectors = dict(embedding.views())
    for name, value in embedding.fields().items():
        if "log_variance" in name:
            vectors[name.replace("log_", "")] = value.exp()

    return vectors
